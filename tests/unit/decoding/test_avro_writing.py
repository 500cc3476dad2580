"""JSON written as Avro, and what does not fit a schema."""

from __future__ import annotations

import io
import json
from decimal import Decimal
from typing import Any

import fastavro
import pytest

from ottla.client.errors import InvalidArgumentError
from ottla.decoding.avro_values import avro_decoder
from ottla.decoding.avro_writing import AvroEncoder
from ottla.decoding.registry import SchemaText
from ottla.decoding.values import UndecodableError, UnfitError
from ottla.ops.record_encoding import FieldEncoder
from support.avro_records import AvroRecords

pytestmark = pytest.mark.spec("U2")

LINK = {"type": "record", "name": "Link", "fields": [{"name": "next", "type": ["null", "Link"], "default": None}]}
UNION = [
    "null",
    "double",
    "long",
    "string",
    {"type": "enum", "name": "shop.Kind", "symbols": ["NEW"]},
    {"type": "record", "name": "shop.A", "fields": [{"name": "n", "type": "int"}]},
    {"type": "record", "name": "shop.B", "fields": [{"name": "n", "type": "int"}, {"name": "m", "type": "int"}]},
    {"type": "map", "values": "boolean"},
]
ALL = {
    "type": "record",
    "name": "All",
    "fields": [
        {"name": name, "type": kind}
        for name, kind in {
            "flag": "boolean", "i": "int", "l": "long", "f": "float", "d": "double", "t": "string", "b": "bytes",
            "e": {"type": "enum", "name": "E", "symbols": ["X", "Y"]}, "x": {"type": "fixed", "name": "F", "size": 2},
            "a": {"type": "array", "items": ["null", "long"]}, "m": {"type": "map", "values": "string"},
        }.items()
    ],
}  # fmt: skip


def encoded(schema: Any, value: Any) -> bytes:
    return AvroEncoder(SchemaText(json.dumps(schema))).encode(value)


def read(schema: Any, data: bytes) -> Any:
    return fastavro.schemaless_reader(io.BytesIO(data), fastavro.parse_schema(json.loads(json.dumps(schema))), None)


DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}
FIXED_DECIMAL = {"type": "fixed", "name": "Price", "size": 3, "logicalType": "decimal", "precision": 6, "scale": 2}


@pytest.mark.parametrize("schema", [DECIMAL, FIXED_DECIMAL, ["null", DECIMAL]])
@pytest.mark.parametrize(
    ("value", "shown"),
    [("12.34", "12.34"), ("0.49", "0.49"), (-0.5, "-0.50"), (7, "7.00"), ("-9999.99", "-9999.99"), ("1.2e1", "12.00")],
)
def test_decimals_are_numbers_and_not_their_bytes(schema: Any, value: Any, shown: str) -> None:
    data = encoded(schema, value)
    assert read(schema, data) == Decimal(shown)
    assert avro_decoder(SchemaText(json.dumps(schema)))(data) == shown.encode()


@pytest.mark.parametrize(
    "value", ["1.234", "10000", 1e9, "1e999999999", "1e-999999999", "\u0004\u00d2", "NaN", "", True, []]
)
def test_what_a_decimal_does_not_hold_is_refused(value: Any) -> None:
    with pytest.raises(UnfitError, match="a decimal of at most 6 digits, 2 of them behind the point"):
        encoded(DECIMAL, value)


def test_the_default_of_a_decimal_is_its_bytes() -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "price", "type": DECIMAL, "default": "\u0004\u00d2"}]}
    assert read(schema, encoded(schema, {})) == {"price": Decimal("12.34")}


def test_a_decimal_without_valid_digits_is_its_bytes() -> None:
    for broken in ({"precision": 0}, {"scale": 7}, {"precision": "6"}):
        assert encoded(DECIMAL | broken, "12") == b"\x0412"


def test_an_object_that_does_not_fit_does_not_become_a_text() -> None:
    thing = {"type": "record", "name": "A", "fields": [{"name": "n", "type": "int"}]}
    encoder = FieldEncoder(AvroEncoder(SchemaText(json.dumps(["null", "string", thing]))))
    assert encoder.encoded("value", b'"t"') == b"\x02\x02t"
    assert encoder.encoded("value", b'{"n":1}') == b"\x04\x02"
    for line in (b'{"m":1}', b'{"n":"1"}', b'{"n":1'):
        with pytest.raises(InvalidArgumentError):
            encoder.encoded("value", line)


def test_what_was_decoded_is_written_again() -> None:
    decode, encoder = avro_decoder(SchemaText(json.dumps(ALL))), AvroEncoder(SchemaText(json.dumps(ALL)))
    for data, is_broken in AvroRecords(ALL, 7).take(400, 0.5):
        try:
            value = json.loads(decode(data))
        except UndecodableError:
            assert is_broken
            continue
        assert is_broken or encoder.encode(value) == data


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (None, None),
        (1, 1),
        (1.5, 1.5),
        ("NEW", "NEW"),
        ({"n": 1}, {"n": 1}),
        ({"n": 1, "m": 2}, {"n": 1, "m": 2}),
        ({"x": True}, {"x": True}),
        ({"double": 1}, 1.0),
        ({"shop.B": {"n": 1, "m": 2}}, {"n": 1, "m": 2}),
        ({"string": "x"}, "x"),
    ],
)
def test_a_union_takes_what_fits_or_what_is_named(value: Any, found: Any) -> None:
    back = read(UNION, encoded(UNION, value))
    assert (back, type(back)) == (found, type(found))


def test_fields_that_are_left_out_get_their_defaults() -> None:
    defaults = {"b": "\xff", "a": [1], "m": {"k": 2}, "u": None, "link": {}}
    types = {
        "b": "bytes", "a": {"type": "array", "items": "int"}, "m": {"type": "map", "values": "int"},
        "u": ["null", "int"], "link": LINK,
    }  # fmt: skip
    fields = [{"name": name, "type": types[name], "default": default} for name, default in defaults.items()]
    schema = {"type": "record", "name": "D", "fields": fields}
    expected = {"b": b"\xff", "a": [1], "m": {"k": 2}, "u": None, "link": {"next": None}}
    assert read(schema, encoded(schema, {})) == expected


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        ("int", 2**31, "f is 2147483648; the schema has a whole number of 32 bits there"),
        ("long", 1.5, "f is 1.5; the schema has a whole number of 64 bits there"),
        ("long", True, "f is true; the schema has a whole number of 64 bits there"),
        ("float", 1e300, "f is 1e+300; the schema has a number of 32 bits there"),
        ("double", 10**400, "the schema has a number of 64 bits there"),
        ("double", 2**53 + 1, "the schema has a number of 64 bits there"),
        ("string", 5, "f is 5; the schema has a text there"),
        ("string", "\ud800", "half of a character"),
        ("bytes", "€", "the schema has bytes: a text with a character up to U+00FF for each there"),
        (["null", "long"], "two", 'f is "two"; the schema has null or a whole number of 64 bits there'),
        ({"type": "enum", "name": "E", "symbols": ["X", "Y"]}, "Z", 'f is "Z"; the schema has X or Y there'),
        ({"type": "fixed", "name": "F", "size": 2}, "x", 'f is "x"; the schema has 2 bytes'),
        ({"type": "array", "items": "int"}, [1, "x"], 'f[1] is "x"; the schema has a whole number of 32 bits'),
        ({"type": "map", "values": "int"}, {"k": "x"}, 'f.k is "x"; the schema has a whole number'),
        (["null", LINK], {"nxt": None}, "f.nxt is not a field of Link, which has next"),
        (LINK, {"next": {"next": 5}}, "f.next.next is 5; the schema has null or an object there"),
        ({"type": "record", "name": "R", "fields": [{"name": "g", "type": "int"}]}, {}, "f.g is missing, and has no"),
    ],
)
def test_a_value_that_does_not_fit_is_named(kind: Any, value: Any, message: str) -> None:
    schema = {"type": "record", "name": "Top", "fields": [{"name": "f", "type": kind}]}
    with pytest.raises(UnfitError) as caught:
        encoded(schema, {"f": value})
    assert message in str(caught.value)


def test_depth_and_tries_have_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    deep: Any = None
    for _ in range(5_000):
        deep = {"next": deep}
    with pytest.raises(UnfitError, match="nested too deep"):
        encoded(LINK, deep)
    monkeypatch.setattr("ottla.decoding.avro_writing.MAX_TRIES", 1_000)
    other = {"type": "record", "name": "B", "fields": [{"name": "next", "type": ["A", "B"]}]}
    schema = {"type": "record", "name": "A", "fields": [{"name": "next", "type": ["A", other]}]}
    value: Any = 5
    for _ in range(40):
        value = {"next": value}
    with pytest.raises(UnfitError, match="in too many ways"):
        encoded(schema, value)
