"""Avro values as text, and what cannot be one."""

from __future__ import annotations

import io
import json
import math
from typing import Any

import fastavro
import pytest

from ottla.decoding.avro_schemas import AvroSchemaError
from ottla.decoding.avro_values import avro_decoder
from ottla.decoding.registry import SchemaText
from ottla.decoding.values import UndecodableError
from ottla.inspection.texts import TextFormat, field_of

pytestmark = pytest.mark.spec("U2")

NOTES = ["null", "string", {"type": "map", "values": "int"}, {"type": "array", "items": "int"}]
ORDER = {
    "type": "record",
    "name": "shop.Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": NOTES},
        {"name": "raw", "type": "bytes"},
        {"name": "price", "type": "double"},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["NEW", "OLD"]}},
        {"name": "tags", "type": {"type": "map", "values": "string"}},
        {"name": "parent", "type": ["null", "shop.Order"]},
    ],
}  # fmt: skip


def order(number: int, **fields: Any) -> dict[str, Any]:
    plain = {"id": number, "note": None, "raw": b"\xff\x00", "price": 0.5, "kind": "OLD", "tags": {}, "parent": None}
    return plain | fields


def written(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(json.dumps(schema))), value)
    return out.getvalue()


def decoded(schema: Any, value: Any) -> bytes:
    return avro_decoder(SchemaText(json.dumps(schema)))(written(schema, value))


@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        ({}, {}),
        ({"note": "Grüße", "tags": {"a": "b"}}, {}),
        ({"note": {}}, {}),
        ({"note": []}, {}),
        ({"note": {"a": 1}, "parent": order(2, parent=order(1))}, {}),
        ({"price": math.inf}, {"price": "Infinity"}),
        ({"price": -math.inf}, {"price": "-Infinity"}),
        ({"price": math.nan, "tags": {"a": "NaN"}}, {"price": "NaN"}),
    ],
)
def test_records_are_json(fields: dict[str, Any], shown: dict[str, Any]) -> None:
    value = order(2**62, **fields)
    text = decoded(ORDER, value)
    expected = json.dumps(value | shown, ensure_ascii=False, separators=(",", ":"), default=lambda each: "\xff\x00")
    assert text.decode() == expected


@pytest.mark.parametrize(
    ("schema", "value", "text"),
    [
        ("string", "4711", b"4711"),
        ("bytes", b"\xff", b"\xff"),
        ("long", -1, b"-1"),
        (["null", "string"], "a", b"a"),
        (["null", "string"], None, b"null"),
        ({"type": "array", "items": "float"}, [0.5], b"[0.5]"),
    ],
)
def test_a_value_need_not_be_a_record(schema: Any, value: Any, text: bytes) -> None:
    assert decoded(schema, value) == text


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "it ends too early"),
        (written(ORDER, order(1))[:-1], "it ends too early"),
        (written(ORDER, order(1)) + b"xy", "2 bytes are left behind its end"),
        (b"\x02\x0a", "a union has no type 5"),
        (b"\x02\x06" + b"\xfe" * 8 + b"\x01", "more than there can be"),
        (b"\x02\x00\x00" + b"\x00" * 8 + b"\x02\x00\x02\x02", "ends too early"),
    ],
)
def test_bytes_that_are_no_value(data: bytes, reason: str) -> None:
    with pytest.raises(UndecodableError, match=f"^not Avro of its schema: .*{reason}"):
        avro_decoder(SchemaText(json.dumps(ORDER)))(data)


def test_a_value_that_is_nested_without_end() -> None:
    chain = {"type": "record", "name": "Link", "fields": [{"name": "next", "type": ["null", "Link"]}]}
    with pytest.raises(UndecodableError, match="nested too deep"):
        avro_decoder(SchemaText(json.dumps(chain)))(b"\x02" * 100_000)


@pytest.mark.parametrize("text", ["{", '"nothing"', "[" * 100_000, '{"type": "record"}'])
def test_texts_that_are_no_schema(text: str) -> None:
    with pytest.raises(AvroSchemaError):
        avro_decoder(SchemaText(text))


@pytest.mark.parametrize("text", ["1e5", "NaN", "null", '{"a":  1}', '"quoted"', "x\x00"])
def test_a_text_that_looks_like_json_stays_a_text_in_json(text: str) -> None:
    assert field_of("value", decoded("string", text), TextFormat.JSON) == ("value", text)
    assert field_of("value", decoded("double", 1e5), TextFormat.JSON) == ("value", 1e5)


@pytest.mark.parametrize("text", ["NaN", "[Infinity]"])
def test_what_is_no_number_of_json_is_a_text_in_json(text: str) -> None:
    assert field_of("value", text.encode(), TextFormat.JSON) == ("value", text)
