"""Spark's types in files."""

from __future__ import annotations

import pyarrow
import pytest
from pyspark.sql import types as t

from ottla.spark.pipelines.errors import PipelineError
from ottla.spark.pipelines.writing.schemas import arrow_schema_of

pytestmark = pytest.mark.spec("D3")


def test_every_field_may_be_null_and_times_are_microseconds_in_utc() -> None:
    nested = t.StructType(
        [
            t.StructField("x", t.ArrayType(t.TimestampType(), containsNull=False)),
            t.StructField("y", t.MapType(t.StringType(), t.IntegerType(), valueContainsNull=False)),
        ]
    )
    schema = arrow_schema_of(
        t.StructType(
            [
                t.StructField("a", t.TimestampType(), nullable=False),
                t.StructField("b", t.TimestampNTZType()),
                t.StructField("c", t.DecimalType(20, 3)),
                t.StructField("d", t.BinaryType()),
                t.StructField("e", t.DateType()),
                t.StructField("f", nested, nullable=False),
            ]
        )
    )
    assert schema.field("a").nullable
    assert schema.field("f").nullable
    assert [each.type for each in schema][:5] == [
        pyarrow.timestamp("us", "UTC"),
        pyarrow.timestamp("us"),
        pyarrow.decimal128(20, 3),
        pyarrow.binary(),
        pyarrow.date32(),
    ]
    written = schema.field("f").type
    assert written.field("x").type.value_type == pyarrow.timestamp("us", "UTC")
    assert written.field("x").type.value_field.nullable
    assert written.field("y").type.item_field.nullable


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (t.NullType(), "column a is of type void, which files cannot hold; cast it"),
        (
            t.StructType([t.StructField("b", t.ArrayType(t.DayTimeIntervalType()))]),
            "column a.b.element is of type interval day to second",
        ),
        (t.MapType(t.StringType(), t.VariantType()), "column a.value is of type variant"),
    ],
)
def test_what_files_cannot_hold(kind: t.DataType, message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        arrow_schema_of(t.StructType([t.StructField("a", kind)]))


def test_names_are_compared_as_spark_does() -> None:
    two = t.StructType([t.StructField("a", t.LongType()), t.StructField("A", t.LongType())])
    with pytest.raises(PipelineError, match="two columns have the name A; give one"):
        arrow_schema_of(two)
