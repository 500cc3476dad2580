"""Columns from Spark's DDL and JSON."""

from __future__ import annotations

import pyarrow
import pytest

from ottla.spark.decoding.schemas import parse_schema
from ottla.spark.errors import OptionError


def test_every_type_of_the_ddl() -> None:
    schema = parse_schema(
        "a BOOLEAN, b TINYINT, c smallint, d INT NOT NULL COMMENT 'it''s', e BIGINT, f FLOAT, g DOUBLE, h STRING, "
        "i BINARY, j DATE, k TIMESTAMP, l TIMESTAMP_NTZ, m DECIMAL, n DECIMAL(5), o decimal(38, 10), p: int"
    )
    assert schema.types == [
        pyarrow.bool_(),
        pyarrow.int8(),
        pyarrow.int16(),
        pyarrow.int32(),
        pyarrow.int64(),
        pyarrow.float32(),
        pyarrow.float64(),
        pyarrow.string(),
        pyarrow.binary(),
        pyarrow.date32(),
        pyarrow.timestamp("us", "UTC"),
        pyarrow.timestamp("us"),
        pyarrow.decimal128(10, 0),
        pyarrow.decimal128(5, 0),
        pyarrow.decimal128(38, 10),
        pyarrow.int32(),
    ]


def test_nested_types_and_quoted_names() -> None:
    schema = parse_schema(
        "`a b` STRUCT<x: INT, `y``z` ARRAY<MAP<STRING, ARRAY<DATE>>>>, `array` ARRAY<INT>, e STRUCT<>"
    )
    struct = schema.field("a b").type
    assert struct.field("x").type == pyarrow.int32()
    assert struct.field("y`z").type.value_type.item_type.value_type == pyarrow.date32()
    assert schema.field("array").type.value_type == pyarrow.int32()
    assert schema.field("e").type == pyarrow.struct([])


def test_the_json_of_a_struct_type_is_the_same_schema() -> None:
    pytest.importorskip("pyspark")
    from pyspark.sql.types import (
        ArrayType,
        DateType,
        DecimalType,
        LongType,
        MapType,
        StringType,
        StructType,
        TimestampNTZType,
        TimestampType,
    )

    made = (
        StructType()
        .add("id", LongType(), nullable=False)
        .add("s", StructType().add("d", DateType()).add("m", MapType(StringType(), DecimalType(12, 3))))
        .add("t", ArrayType(TimestampType()))
        .add("n", TimestampNTZType())
    )
    ddl = "id BIGINT, s STRUCT<d: DATE, m: MAP<STRING, DECIMAL(12,3)>>, t ARRAY<TIMESTAMP>, n TIMESTAMP_NTZ"
    assert parse_schema(made.json()) == parse_schema(ddl)


NESTED = '{"type": "struct", "fields": [{"name": "a", "type": %s}]}'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "names no column"),
        ("id", "ends in the middle"),
        ("id INT name STRING", "unexpected 'name'"),
        ("id INTT", "type 'intt' is not served"),
        ("id ARRAY<INT", "ends in the middle"),
        ("id ARRAY<INT, STRING>", "expected '>'"),
        ("id VARIANT", "type 'variant' is not served"),
        ("id DECIMAL(39,1)", "precision is 1 to 38"),
        ("id DECIMAL(x)", "expected a number"),
        ("id INT, id INT", "'id' twice"),
        ("m MAP<INT, INT>", "keys of a map are strings"),
        ("id INT NOT NUL", "expected NULL"),
        ("a-b INT", "cannot be read at '-b INT'"),
        ("a " + "ARRAY<" * 61, "nested more than 60 deep"),
        ("a " + "MAP<STRING," * 31, "nested more than 60 deep"),
        (NESTED % ('{"type": "array", "elementType": ' * 61 + "1" + "}" * 61), "nested more than 60 deep"),
        (NESTED % ('{"type": "array", "elementType": ' * 9_999), "nested more than 60 deep"),
        ("{", "not JSON"),
        ('{"type": "array"}', 'expected {"type": "struct"'),
        ('{"type": "struct", "fields": [{"name": "a"}]}', "a field needs"),
        ('{"type": "struct", "fields": [{"name": "a", "type": "variant"}]}', "not served"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_place(text: str, said: str) -> None:
    with pytest.raises(OptionError, match="option valueSchema") as caught:
        parse_schema(text)
    assert said in str(caught.value)
