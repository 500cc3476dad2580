"""Avro's schema resolution, rule by rule, with the values that Avro's Java library 1.12 gives for the same bytes."""

from __future__ import annotations

import io
import json
from datetime import date
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow
import pytest

from ottla.decoding.avro_schemas import parse_node
from ottla.spark.decoding import decoder, parse_decoding_options
from ottla.spark.decoding.avro_batches import AvroBatches
from ottla.spark.decoding.avro_columns import parse_columns

pytestmark = pytest.mark.spec("D1")

BAD = object()
AB = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
ABC = AB | {"symbols": ["A", "B", "C"]}
FOUR = {"type": "fixed", "name": "F", "size": 4}
TREE = {"type": "record", "name": "Tree", "fields": [{"name": "left", "type": ["null", "Tree"]}]}


def record(*fields: Any, name: str = "R", **more: Any) -> dict[str, Any]:
    """A record of fields that are pairs of name and type, or JSON."""
    made = [{"name": each[0], "type": each[1]} if isinstance(each, tuple) else each for each in fields]
    return {"type": "record", "name": name, "fields": made, **more}


def array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def mapped(values: Any) -> dict[str, Any]:
    return {"type": "map", "values": values}


def default(kind: Any, value: Any, **more: Any) -> dict[str, Any]:
    return {"name": "x", "type": kind, "default": value, **more}


def written(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(json.dumps(schema))), value)
    return out.getvalue()


def decode(values: list[bytes], writer: Any, reader: Any, **more: str) -> list[dict[str, Any]]:
    options = {"valueFormat": "avro", "valueSchema": json.dumps(writer), "valueReaderSchema": json.dumps(reader)}
    made = decoder(parse_decoding_options(options | more))
    table = pyarrow.table(made.decode(pyarrow.array(values, pyarrow.binary())), schema=made.fields)
    table.validate(full=True)
    return list(table.to_pylist(maps_as_pydicts="strict"))


#: Names of rules; the types of a field x that is written and read, its value, and what is read.
PAIRS: dict[str, tuple[Any, Any, Any, Any]] = {
    "int to int": ("int", "int", -5, -5),
    "int to long": ("int", "long", -5, -5),
    "int to float": ("int", "float", 16_777_217, 16_777_216.0),
    "int to double": ("int", "double", 2**31 - 1, 2147483647.0),
    "long to float": ("long", "float", 2**60 + 2**36 + 1, float(2**60 + 2**37)),
    "long to double": ("long", "double", 2**53 + 1, float(2**53)),
    "float to double": ("float", "double", 1.5, 1.5),
    "string to bytes": ("string", "bytes", "ü", "ü".encode()),
    "bytes to string": ("bytes", "string", "ü".encode(), "ü"),
    "long to int": ("long", "int", 5, BAD),
    "double to float": ("double", "float", 1.5, BAD),
    "float to long": ("float", "long", 1.0, BAD),
    "boolean to int": ("boolean", "int", True, BAD),
    "int to boolean": ("int", "boolean", 1, BAD),
    "int to string": ("int", "string", 1, BAD),
    "string to int": ("string", "int", "1", BAD),
    "string to enum": ("string", AB, "A", BAD),
    "enum to string": (AB, "string", "A", BAD),
    "bytes to fixed": ("bytes", FOUR, b"abcd", BAD),
    "fixed to bytes": (FOUR, "bytes", b"abcd", BAD),
    "array to map": (array("int"), mapped("int"), [1], BAD),
    "record to int": (record(("a", "int"), name="S"), "int", {"a": 1}, BAD),
    "array of wider items": (array("int"), array("double"), [1, 2], [1.0, 2.0]),
    "array of items that do not fit": (array("string"), array("int"), ["a"], BAD),
    "array without items, which do not fit": (array("string"), array("int"), [], []),
    "map of wider values": (mapped("int"), mapped("long"), {"a": 1}, {"a": 1}),
    "map of values that do not fit": (mapped("long"), mapped("int"), {"a": 1}, BAD),
    "enum by symbol": (ABC, ABC | {"symbols": ["C", "B", "A"]}, "C", "C"),
    "enum without the symbol": (ABC, AB, "C", BAD),
    "enum with default": (ABC, AB | {"default": "B"}, "C", "B"),
    "enum with symbols more": (AB, ABC, "B", "B"),
    "enum of another name": (AB, AB | {"name": "G"}, "A", BAD),
    "enum by alias": (AB, AB | {"name": "G", "aliases": ["E"]}, "A", "A"),
    "enum of another namespace": (AB | {"namespace": "a"}, AB | {"namespace": "b"}, "A", "A"),
    "enum of another namespace in a union": (AB | {"namespace": "a"}, ["null", AB | {"namespace": "b"}], "A", BAD),
    "enum of another name in a union": (AB, ["null", AB | {"name": "G"}], "A", BAD),
    "enum by alias in a union": (AB, ["null", AB | {"name": "G", "aliases": ["E"]}], "A", "A"),
    "enum by alias of another namespace": (
        AB | {"namespace": "a"}, AB | {"namespace": "b", "aliases": ["a.E"]}, "A", "A",
    ),
    "fixed": (FOUR, FOUR, b"abcd", b"abcd"),
    "fixed of another size": (FOUR, FOUR | {"size": 5}, b"abcd", BAD),
    "fixed of another name": (FOUR, FOUR | {"name": "G"}, b"abcd", BAD),
    "fixed of another namespace": (FOUR | {"namespace": "a"}, FOUR | {"namespace": "b"}, b"abcd", b"abcd"),
    "fixed of another namespace in a union": (
        FOUR | {"namespace": "a"}, ["null", FOUR | {"namespace": "b"}], b"abcd", BAD,
    ),
    "fixed by alias": (FOUR, FOUR | {"name": "G", "aliases": ["F"]}, b"abcd", b"abcd"),
    "to a union with null": ("int", ["null", "int"], 5, 5),
    "to a wider union with null": ("int", ["null", "double"], 5, 5.0),
    "to a union that has no such type": ("string", ["null", "int"], "a", BAD),
    "null in both unions": (["null", "int"], ["long", "null"], None, None),
    "wider in both unions": (["null", "int"], ["long", "null"], 5, 5),
    "union to a type, null": (["null", "int"], "int", None, BAD),
    "union to a type": (["null", "int"], "long", 5, 5),
    "union of several types, one that fits": (["int", "string", "null"], ["null", "string"], "a", "a"),
    "union of several types, one that does not": (["int", "string", "null"], ["null", "string"], 1, BAD),
    "union of several types, one that grows": (["int", "string"], "double", 1, 1.0),
    "union of one type": (["int"], "long", 1, 1),
    "null to a union": ("null", ["null", "int"], None, None),
    "record by field": (
        record(("a", "int"), ("b", "string"), name="S"), record(("b", "string"), ("a", "long"), name="S"),
        {"a": 1, "b": "x"}, {"a": 1, "b": "x"},
    ),
    "record of another name": (record(("a", "int"), name="S"), record(("a", "int"), name="T"), {"a": 1}, {"a": 1}),
    "record of another name in a union": (
        record(("a", "int"), name="S"), ["null", record(("a", "int"), name="T")], {"a": 1}, {"a": 1},
    ),
    "record with a field less": (
        record(("a", "int"), ("b", array(mapped("string"))), name="S"), record(("a", "int"), name="S"),
        {"a": 1, "b": [{"k": "v"}]}, {"a": 1},
    ),
    "record with a field more": (
        record(("a", "int"), name="S"), record(("a", "int"), default("int", 7), name="S"), {"a": 1}, {"a": 1, "x": 7},
    ),
    "record with a field more without default": (
        record(("a", "int"), name="S"), record(("a", "int"), ("x", "int"), name="S"), {"a": 1}, BAD,
    ),
    "record with a field of another name": (
        record(("a", "int"), name="S"), record({"name": "b", "type": "int", "aliases": ["a"]}, name="S"),
        {"a": 1}, {"b": 1},
    ),
    "alias that is a field of its own": (
        record(("a", "int"), name="S"),
        record({"name": "b", "type": "int", "aliases": ["a"]}, {"name": "a", "type": "int", "default": 8}, name="S"),
        {"a": 1}, {"b": 1, "a": 8},
    ),
    "aliases of fields need the record's name": (
        record(("a", "int"), name="S"), record({"name": "b", "type": "int", "aliases": ["a"]}, name="T"), {"a": 1}, BAD,
    ),
    "aliases of a record and its field": (
        record(("a", "int"), name="S"),
        record({"name": "b", "type": "int", "aliases": ["a"]}, name="T", aliases=["S"]), {"a": 1}, {"b": 1},
    ),
    "date": (
        {"type": "int", "logicalType": "date"}, {"type": "int", "logicalType": "date"}, 0,
        date(1970, 1, 1),
    ),
    "logical type of the reader": ("int", {"type": "int", "logicalType": "date"}, 0, date(1970, 1, 1)),
    "logical type of the writer alone": ({"type": "int", "logicalType": "time-millis"}, "long", 5, 5),
    "unknown logical type": ({"type": "int", "logicalType": "new"}, {"type": "int", "logicalType": ["new"]}, 5, 5),
    "decimal that is no decimal": (
        "bytes", {"type": "bytes", "logicalType": "decimal", "precision": 0}, b"\x05", b"\x05",
    ),
    "decimal": (
        "bytes", {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}, b"\xfe\x01", Decimal("-5.11"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("beside", [None, "fixed"], ids=["alone", "beside a fixed"])
@pytest.mark.parametrize("rule", PAIRS)
def test_pairs_of_types(rule: str, beside: str | None) -> None:
    """Beside a fixed, values are read one by one."""
    writer_type, reader_type, value, expected = PAIRS[rule]
    fixed = [("fixed", FOUR | {"name": "Beside"})] if beside else []
    writer, reader = record(("x", writer_type), *fixed), record(("x", reader_type))
    row = {"x": value, "fixed": b"1234"}
    if rule == "date" or "logical" in rule:
        writer = json.loads(json.dumps(writer).replace('"logicalType"', '"was"'))
    (found,) = decode([written(writer, row)], record(("x", writer_type), *fixed), reader)
    if expected is BAD:
        assert (found["x"], found["_bad_value"]) == (None, written(writer, row))
        assert found["_bad_reason"].startswith("not Avro of its schema: ")
    else:
        assert (found["x"], found["_bad_reason"]) == (expected, None)


S = record(default("int", 7), ("y", "string"), name="S")
#: A type and the JSON of its default; what is read where the field was not written.
DEFAULTS: dict[str, tuple[Any, Any, Any]] = {
    "null": (["null", "int"], None, None),
    "boolean": ("boolean", True, True),
    "int": ("int", -5, -5),
    "long": ("long", 2**62, 2**62),
    "float of a whole number": ("float", 2, 2.0),
    "double": ("double", 1.5, 1.5),
    "bytes": ("bytes", "\u00ff", b"\xff"),
    "string": ("string", "\u00ff", "\u00ff"),
    "enum": (AB, "B", "B"),
    "fixed": (FOUR, "abc\u00ff", b"abc\xff"),
    "array": (array("bytes"), ["\u00ff"], [b"\xff"]),
    "array without items": (array("int"), [], []),
    "map": (mapped("double"), {"a": 1}, {"a": 1.0}),
    "union by its first type": (["int", "null"], 5, 5),
    "union by its second type": (["null", "int"], 5, 5),
    "record": (S, {"x": 1, "y": "z"}, {"x": 1, "y": "z"}),
    "record by the default of its field": (S, {"y": "z"}, {"x": 7, "y": "z"}),
    "records in a list by the default of their field": (array(S), [{"y": "z"}], [{"x": 7, "y": "z"}]),
    "record within, which is not named": (
        record(default(S, {"y": "z"}), name="T"), {}, {"x": {"x": 7, "y": "z"}},
    ),
    "logical type": (
        {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}, "\u00fe\u0001", Decimal("-5.11"),
    ),
    "record without a field": (S, {"x": 1}, BAD),
    "int of another type": ("int", "5", BAD),
    "int beyond its range": ("int", 2**31, BAD),
    "boolean as int": ("int", True, BAD),
    "symbol that is none": (AB, "C", BAD),
    "null for a type": ("int", None, BAD),
    "double beyond its range": ("double", 10**400, BAD),
}  # fmt: skip


@pytest.mark.parametrize("rule", DEFAULTS)
def test_defaults(rule: str) -> None:
    kind, value, expected = DEFAULTS[rule]
    writer = record(("n", "int"))
    (row,) = decode([written(writer, {"n": 1})], writer, record(default(kind, value), ("n", "long")))
    if expected is BAD:
        assert (row["x"], row["n"]) == (None, None)
        assert "was not written, and " in row["_bad_reason"]
    else:
        assert (row["x"], row["n"], row["_bad_reason"]) == (expected, 1, None)


@pytest.mark.parametrize("odd", [FOUR, "int"], ids=["one by one", "whole batches"])
def test_one_record_that_does_not_resolve_is_bad_alone(odd: Any) -> None:
    writer, reader = record(("x", ABC), ("n", "int"), ("odd", odd)), record(("x", AB), ("n", "long"))
    rows = [{"x": "C" if n in (0, 70) else "B", "n": n, "odd": b"1234" if odd == FOUR else 1} for n in range(100)]
    found = decode([written(writer, row) for row in rows], writer, reader)
    assert [row["n"] for row in found] == [None if n in (0, 70) else n for n in range(100)]
    bad = {n: row["_bad_reason"] for n, row in enumerate(found) if row["_bad_reason"]}
    assert bad == dict.fromkeys((0, 70), "not Avro of its schema: enum E has no symbol 'C', and no default")


UNWANTED: dict[str, tuple[Any, list[Any]]] = {
    "union of several types": (["int", "string", "null"], [5, "a", None]),
    "record within itself": (TREE, [{"left": {"left": None}}, {"left": None}]),
    "record without fields": (record(name="Empty"), [{}]),
    "null": ("null", [None]),
    "array of nulls": (array("null"), [[None] * 5]),
    "map of unions": (mapped(["int", "string"]), [{"a": 1, "b": "c"}, {}]),
    "array of records within themselves": (array(TREE), [[{"left": None}] * 3, []]),
}


@pytest.mark.parametrize("rule", UNWANTED)
def test_fields_that_are_no_columns_are_passed_over(rule: str) -> None:
    kind, values = UNWANTED[rule]
    writer = record(("odd", kind), ("n", "int"))
    records = [written(writer, {"odd": value, "n": n}) for n, value in enumerate(values)]
    # By a schema without the field, and by the columns that are wanted of one with it.
    for reader, more in ((record(("n", "int")), {}), (writer, {"valueColumns": "n"})):
        found = decode(records, writer, reader, badValueColumn="", **more)
        assert found == [{"n": n, "_bad_reason": None} for n in range(len(values))]


def test_values_of_no_bytes_take_neither_time_nor_memory() -> None:
    """Two bytes are enough for 2^60 items of an array of nulls."""
    many = b"\x80\x80\x80\x80\x80\x80\x80\x80\x20\x00\x0a"
    writer = record(("odd", array("null")), ("n", "int"))
    (row,) = decode([many], writer, record(("n", "int")))
    assert (row["n"], row["_bad_reason"]) == (5, None)
    (row,) = decode([many], writer, record(("odd", array(["null", "int"])), ("n", "int")))
    assert "more than there can be" in row["_bad_reason"]


def test_a_record_that_is_a_field_of_itself_has_no_values() -> None:
    endless = record(("a", "A"), name="A")
    reader = record(("n", "int"))
    empty, bad, after = decode(
        [b"\x02\x00", b"\x04\x02\x00", b"\x06\x00"], record(("n", "int"), ("odd", array(endless))), reader
    )
    assert [(row["n"], row["_bad_reason"]) for row in (empty, after)] == [(1, None), (3, None)]
    assert (bad["n"], bad["_bad_reason"]) == (None, "not Avro of its schema: values are nested too deep")


def test_a_block_with_its_length_is_read_and_passed_over() -> None:
    writer = record(("a", array("int")), ("m", mapped("int")), ("odd", FOUR))
    value = b"\x03\x04\x02\x04\x00" + b"\x01\x06\x02k\x0e\x00" + b"1234"
    (row,) = decode([value], writer, writer)
    assert (row["a"], row["m"], row["odd"], row["_bad_reason"]) == ([1, 2], {"k": 7}, b"1234", None)
    (row,) = decode([value], writer, record(("odd", FOUR)))
    assert (row["odd"], row["_bad_reason"]) == (b"1234", None)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("int", b"\x80\x80\x80\x80\x20"), ("long", b"\xff" * 11), ("boolean", b"\x02"), ("string", b"\x01"),
        ("string", b"\x7e"), ("string", b"\x02\xff"), ("double", b"\x00" * 7), ("float", b"\x00"), (AB, b"\x04"),
        (["null", "int"], b"\x04"), (array("int"), b"\xfe\xff\xff\xff\x0f"), (mapped("int"), b"\x02"), (FOUR, b"abc"),
        (TREE, b"\x02" * 100_000),
    ],
)  # fmt: skip
def test_bytes_that_are_no_avro_are_bad_wanted_or_not(kind: Any, value: bytes) -> None:
    odd = FOUR | {"name": "Odd"}
    writer = record(("odd", odd), ("x", kind))
    if kind is not TREE:
        (row,) = decode([b"1234" + value], writer, record(("x", kind)))
        assert (row["x"], row["_bad_value"]) == (None, b"1234" + value)
    if kind in ("int", "boolean", AB) or value == b"\x02\xff":
        return  # Passed over without a look at them, as by Avro's library.
    (row,) = decode([b"1234" + value], writer, record(("odd", odd)))
    assert (row["odd"], row["_bad_value"]) == (None, b"1234" + value)


def test_an_alias_that_is_a_field_of_its_own_is_not_read_twice() -> None:
    reader = record({"name": "b", "type": "int", "aliases": ["a"]}, {"name": "a", "type": "int", "default": 8})
    writer = record(("a", "int"))
    (row,) = decode([written(writer, {"a": 1})], writer, reader)
    assert (row["b"], row["a"]) == (1, 8)


def test_usual_changes_of_schemas_are_read_in_whole_columns() -> None:
    writer = record(("n", "int"), ("f", "float"), ("s", "string"), ("was", "long"), ("gone", array("int")))
    reader = record(
        ("n", ["null", "double"]), ("f", "double"), ("s", "bytes"), {"name": "is", "type": "float", "aliases": ["was"]},
        default(array(S), [{"y": "z"}]),
    )  # fmt: skip
    batches = AvroBatches(parse_node(json.dumps(writer)), parse_columns(json.dumps(reader)))
    assert batches._columns is not None
    row = {"n": 2**31 - 1, "f": 1.5, "s": "x", "was": 2**60 + 2**36 + 1, "gone": [1]}
    (found,) = decode([written(writer, row)], writer, reader)
    assert found["_bad_reason"] is None
    assert (found["n"], found["f"], found["s"], found["is"]) == (2147483647.0, 1.5, b"x", float(2**60 + 2**37))
    assert found["x"] == [{"x": 7, "y": "z"}]


SUSPECT = "behind its record; it begins with a byte 0: if a schema registry's serializer wrote it, give valueFraming"


@pytest.mark.parametrize("odd", ["int", FOUR], ids=["whole batches", "one by one"])
def test_framed_values_without_the_option_are_suspect(odd: Any) -> None:
    """They begin as a record with a null and a 0 does."""
    writer = record(("note", ["null", "string"]), ("n", "long"), ("at", "double"), ("odd", odd))
    odd_value = b"1234" if odd == FOUR else 7
    rows = [{"note": None, "n": n, "at": 0.0, "odd": odd_value} for n in range(60)]
    values = [written(writer, row) for row in rows]
    framed = [b"\x00" + (40_000_000 if n == 3 else n + 1).to_bytes(4, "big") + each for n, each in enumerate(values)]
    (longer,) = [values[0] + b"more"]  # 0, 0 and 0 as an id: what is behind a record is ignored
    found = decode([*values, *framed, longer, *values], writer, writer, badValueColumn="")
    assert [row["n"] for row in (*found[:60], *found[121:])] == [*range(60)] * 2
    assert [row["_bad_reason"] for row in (*found[:60], *found[120:])] == [None] * 121
    assert all(row["n"] is None and SUSPECT in row["_bad_reason"] for row in (*found[60:63], *found[64:120]))
    assert "schema 17 does" in found[76]["_bad_reason"]
