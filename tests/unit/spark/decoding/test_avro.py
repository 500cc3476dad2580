"""Avro to typed columns, with and without the framing of a schema registry."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Context, Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow
import pytest

from ottla.decoding.avro_schemas import parse_node
from ottla.spark.decoding import decoder, parse_decoding_options
from ottla.spark.decoding.avro_batches import AvroBatches
from ottla.spark.decoding.avro_columns import parse_columns
from ottla.spark.errors import OptionError
from support.played_registry import PlayedRegistry

MOMENT = datetime(2024, 2, 29, 12, 34, 56, 789000, tzinfo=UTC)
PLACE = {
    "type": "record",
    "name": "Place",
    "fields": [
        {"name": "city", "type": "string"},
        {"name": "since", "type": {"type": "int", "logicalType": "date"}},
    ],
}
EVENT = {
    "type": "record",
    "name": "Event",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "amount", "type": "double"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "place", "type": PLACE},
        {"name": "other", "type": ["null", "Place"], "default": None},
        {"name": "times", "type": {"type": "array", "items": {"type": "long", "logicalType": "timestamp-micros"}}},
        {"name": "days", "type": {"type": "map", "values": {"type": "int", "logicalType": "date"}}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["NEW", "OLD"]}},
    ],
}


def event(number: int, **more: Any) -> dict[str, Any]:
    place = {"city": "Berlin", "since": date(2024, 2, 1)}
    return {
        "id": number,
        "amount": number / 2,
        "at": MOMENT,
        "note": None if number % 2 else f"note {number}",
        "place": place,
        "other": place if number % 3 else None,
        "times": [MOMENT] * (number % 3),
        "days": {"first": date(1969, 12, 31)},
        "kind": "OLD",
    } | more


def written(schema: dict[str, Any], row: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(json.dumps(schema))), row)
    return out.getvalue()


def framed(schema_id: int, body: bytes) -> bytes:
    return b"\x00" + schema_id.to_bytes(4, "big") + body


def _record(kind: str) -> str:
    """The JSON of a record with one field of a type."""
    return f'{{"type": "record", "name": "R", "fields": [{{"name": "a", "type": {kind}}}]}}'


def decode(values: Sequence[bytes | None], **options: str) -> list[dict[str, Any]]:
    made = decoder(parse_decoding_options({"valueFormat": "avro", **options}))
    table = pyarrow.table(made.decode(pyarrow.array(values, pyarrow.binary())), schema=made.fields)
    table.validate(full=True)
    assert table.num_rows == len(values)
    return list(table.to_pylist(maps_as_pydicts="strict"))


def test_records_are_what_was_written() -> None:
    events = [event(number) for number in range(100)]
    rows = decode([written(EVENT, each) for each in events], valueSchema=json.dumps(EVENT))
    assert [{name: row[name] for name in event(0)} for row in rows] == events
    assert {row["_bad_reason"] for row in rows} == {None}


def test_both_readers_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    values = [written(EVENT, event(number)) for number in range(50)]
    values[7] = b"\xff"
    quick = decode(values, valueSchema=json.dumps(EVENT))
    monkeypatch.setattr("ottla.spark.decoding.avro_batches._columns_of", lambda *_: None)
    assert [row | {"_bad_reason": None} for row in decode(values, valueSchema=json.dumps(EVENT))] == [
        row | {"_bad_reason": None} for row in quick
    ]
    assert quick[7]["_bad_reason"].startswith("not Avro of its schema: ")


PRICE = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 4}
CHANGE = {
    "type": "record",
    "name": "Change",
    "fields": [
        {"name": "bytes", "type": "bytes"},
        {"name": "price", "type": PRICE},
        {"name": "rebate", "type": ["null", PRICE]},
        {"name": "image", "type": ["null", "bytes"]},
        {"name": "parts", "type": {"type": "array", "items": ["null", PRICE]}},
        {"name": "blobs", "type": {"type": "map", "values": {"type": "bytes"}}},
        {
            "name": "after",
            "type": [
                "null",
                {
                    "type": "record",
                    "name": "Row",
                    "fields": [{"name": "total", "type": PRICE}, {"name": "hash", "type": "bytes"}],
                },
            ],
        },
        {"name": "last", "type": "string"},
    ],
}


def change(dice: random.Random) -> dict[str, Any]:
    def number() -> bytes:
        size = dice.choice((0, 1, 2, 5, 15, 16))
        # Below 38 digits, whatever the first byte is; some with bytes that only repeat the sign.
        value = dice.randrange(-(1 << 8 * size - 1), 1 << 8 * size - 1) // (1 + (size == 16)) if size else 0
        return value.to_bytes(size + dice.choice((0, 0, 0, 3)), "big", signed=True)

    def maybe(value: Any) -> Any:
        return None if dice.random() < 0.2 else value

    return {
        "bytes": dice.randbytes(dice.randrange(5)),
        "price": number(),
        "rebate": maybe(number()),
        "image": maybe(dice.randbytes(dice.randrange(300))),
        "parts": [maybe(number()) for _ in range(dice.randrange(4))],
        "blobs": {f"{each}": dice.randbytes(3) for each in range(dice.randrange(3))},
        "after": maybe({"total": number(), "hash": dice.randbytes(16)}),
        "last": "Grüße",
    }


def without_types(node: Any) -> Any:
    if isinstance(node, dict):
        return {name: without_types(each) for name, each in node.items() if name != "logicalType"}
    return [without_types(each) for each in node] if isinstance(node, list) else node


@pytest.mark.spec("D1")
def test_bytes_and_decimals_are_read_in_whole_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    dice = random.Random(5)
    rows = [change(dice) for _ in range(1_000)]
    values = [written(without_types(CHANGE), row) for row in rows]
    columns = ("bytes", "image", "last")

    def refused(*_: Any) -> list[pyarrow.Array]:
        raise AssertionError("read record by record")

    with monkeypatch.context() as patch:
        patch.setattr(AvroBatches, "_record_by_record", refused)
        quick = decode(values, valueSchema=json.dumps(CHANGE))
    assert [{name: row[name] for name in columns} for row in quick] == [
        {name: row[name] for name in columns} for row in rows
    ]
    assert [row["price"] for row in quick] == [unscaled(row["price"]) for row in rows]
    assert [row["rebate"] for row in quick] == [unscaled(row["rebate"]) for row in rows]
    assert [row["parts"] for row in quick] == [[unscaled(each) for each in row["parts"]] for row in rows]
    assert [row["after"] and row["after"]["total"] for row in quick] == [
        row["after"] and unscaled(row["after"]["total"]) for row in rows
    ]
    monkeypatch.setattr("ottla.spark.decoding.avro_batches._columns_of", lambda *_: None)
    assert decode(values, valueSchema=json.dumps(CHANGE)) == quick


def unscaled(value: bytes | None) -> Decimal | None:
    return None if value is None else Decimal(int.from_bytes(value, "big", signed=True)).scaleb(-4, Context(prec=60))


@pytest.mark.parametrize("size", [2, 16, 20])
def test_a_decimal_with_too_many_digits_is_bad(size: int) -> None:
    price = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
    schema = {"type": "record", "name": "R", "fields": [{"name": "price", "type": price}]}
    numbers = [9999, -9999, 0, 10_000, -10_000, 1]
    values = [written(without_types(schema), {"price": each.to_bytes(size, "big", signed=True)}) for each in numbers]
    values[5] = written(without_types(schema), {"price": b"\x01" * (size + 1)})
    rows = decode(values * 5, valueSchema=json.dumps(schema))
    expected = [Decimal("99.99"), Decimal("-99.99"), Decimal(0), None, None, None]
    assert [row["price"] for row in rows] == expected * 5
    assert [row["_bad_value"] is None for row in rows[:6]] == [True, True, True, False, False, False]


@pytest.mark.parametrize("precision", [4, 38])
def test_the_lowest_number_of_all_has_too_many_digits(precision: int) -> None:
    """Arrow's own check lets it pass."""
    price = {"type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": 2}]}
    schema = {"type": "record", "name": "R", "fields": [{"name": "price", **price}]}
    lowest = -(2**127)
    numbers = [each.to_bytes(size, "big", signed=True) for each, size in ((-5, 16), (lowest, 16), (lowest, 20))]
    values = [written(without_types(schema), {"price": each}) for each in (*numbers, None)]
    rows = decode(values * 10, valueSchema=json.dumps(schema))
    assert [row["price"] for row in rows] == [Decimal("-0.05"), None, None, None] * 10
    assert [row["_bad_value"] is None for row in rows] == [True, False, False, True] * 10


def test_types_that_only_the_slower_reader_has() -> None:
    fee = {"type": "fixed", "name": "Fee", "size": 4, "logicalType": "decimal", "precision": 6, "scale": 3}
    schema = {
        "type": "record",
        "name": "Odd",
        "fields": [
            {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
            {"name": "fee", "type": ["null", fee]},
            {"name": "raw", "type": "bytes"},
            {"name": "code", "type": {"type": "fixed", "name": "Code", "size": 2}},
            {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
            {"name": "clock", "type": {"type": "int", "logicalType": "time-millis"}},
            {"name": "uuid", "type": {"type": "string", "logicalType": "uuid"}},
        ],
    }  # fmt: skip
    row = {
        "price": Decimal("-12.34"),
        "fee": Decimal("1.250"),
        "raw": b"\x00\xff",
        "code": b"DE",
        "clock": 5,
        "uuid": "u",
    }
    row["local"] = MOMENT.replace(tzinfo=None)
    plain = json.loads(json.dumps(schema))
    plain["fields"][5]["type"] = "int"
    plain["fields"][6]["type"] = "string"
    (got,) = decode([written(plain, row)], valueSchema=json.dumps(schema))
    assert {name: got[name] for name in row} == row


def test_a_bad_record_never_touches_its_neighbours() -> None:
    values: list[bytes | None] = [written(EVENT, event(number)) for number in range(300)]
    bad = {0: b"", 5: b"\xff" * 20, 150: values[150][:10], 299: b"\x02"}  # type: ignore[index]
    for place, value in bad.items():
        values[place] = value
    values[6] = None
    rows = decode(values, valueSchema=json.dumps(EVENT))
    assert {place: row["_bad_value"] for place, row in enumerate(rows) if row["_bad_reason"] is not None} == bad
    assert [row["id"] for row in rows] == [None if place in bad or place == 6 else place for place in range(300)]


def test_bytes_that_chance_made() -> None:
    """Neither reader may end the process, or hold on to a batch, whatever the bytes are."""
    chance = random.Random(5)
    good = [written(EVENT, event(number)) for number in range(20)]
    values = []
    for number in range(2_000):
        value = bytearray(good[number % 20])
        for _ in range(chance.randint(1, 3)):
            value[chance.randrange(len(value))] = chance.randrange(256)
        values.append(bytes(value[: chance.randint(1, len(value))]))
    made = decoder(parse_decoding_options({"valueFormat": "avro", "valueSchema": json.dumps(EVENT)}))
    columns = made.decode(pyarrow.array(values, pyarrow.binary()))
    assert columns[-1].null_count < len(values)
    for column in columns:
        column.validate(full=True)


def test_schemas_of_files_and_columns_that_are_wanted(tmp_path: Path) -> None:
    (tmp_path / "event.avsc").write_text(json.dumps(EVENT))
    values = [written(EVENT, event(1))]
    rows = decode(values, valueSchema=str(tmp_path / "event.avsc"), valueColumns="kind, id", badValueColumn="")
    assert rows == [{"kind": "OLD", "id": 1, "_bad_reason": None}]


def newer(**field: Any) -> dict[str, Any]:
    """The schema with one more field."""
    return EVENT | {"fields": [*EVENT["fields"], {"name": "added", **field}]}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ({"type": ["null", "string"], "default": None}, None),
        ({"type": "long", "default": 7}, 7),
        ({"type": "bytes", "default": "\u00ff\u0000a"}, b"\xff\x00a"),
        ({"type": {"type": "fixed", "name": "F", "size": 2}, "default": "\u00e9\u0080"}, b"\xe9\x80"),
        (
            {
                "type": {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2},
                "default": "\u00fe\u0001",
            },
            Decimal("-5.11"),
        ),
        ({"type": {"type": "array", "items": "int"}, "default": []}, []),
        ({"type": {"type": "array", "items": "bytes"}, "default": ["\u00ff"]}, [b"\xff"]),
    ],
)
def test_a_schema_of_the_columns_with_a_field_more(field: dict[str, Any], value: Any) -> None:
    reader = json.dumps(newer(**field))
    rows = decode([written(EVENT, event(1))] * 2, valueSchema=json.dumps(EVENT), valueReaderSchema=reader)
    assert [row["added"] for row in rows] == [value, value]
    assert AvroBatches(parse_node(json.dumps(EVENT)), parse_columns(reader))._columns is not None


def test_a_field_of_another_name() -> None:
    old = {"type": "record", "name": "R", "fields": [{"name": "was", "type": "int"}]}
    new = {"type": "record", "name": "R", "fields": [{"name": "is", "type": "int", "default": 0, "aliases": ["was"]}]}
    rows = decode([written(old, {"was": 5})], valueSchema=json.dumps(old), valueReaderSchema=json.dumps(new))
    assert rows[0]["is"] == 5


def test_a_type_that_has_become_wider() -> None:
    old = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}, {"name": "gone", "type": "string"}]}
    new = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "double"}]}
    rows = decode([written(old, {"n": 5, "gone": "x"})], valueSchema=json.dumps(old), valueReaderSchema=json.dumps(new))
    assert rows[0]["n"] == 5.0


def test_framed_records_of_several_schemas_in_one_batch(tmp_path: Path) -> None:
    new = newer(type="string", default="unknown")
    (tmp_path / "7.avsc").write_text(json.dumps(EVENT))
    (tmp_path / "8.json").write_text(json.dumps(new))
    (tmp_path / "9").write_text('{"type": "string"}')
    (tmp_path / "notes.txt").write_text("not a schema")
    values: list[bytes | None] = []
    for number in range(60):
        schema_id, body = (
            (8, written(new, event(number, added="set"))) if number % 2 else (7, written(EVENT, event(number)))
        )
        values.append(framed(schema_id, body))
    values += [None, framed(9, b"\x02x"), framed(10, b""), written(EVENT, event(1)), b"\x00\x00", framed(7, b"\xff")]
    rows = decode(values, schemaRegistry=str(tmp_path), valueSchemaId="8")
    assert [row["id"] for row in rows[:61]] == [*range(60), None]
    assert [row["added"] for row in rows[:4]] == ["unknown", "set", "unknown", "set"]
    assert [row["_bad_reason"] for row in rows[:61]] == [None] * 61
    reasons = [row["_bad_reason"] for row in rows[61:]]
    assert reasons[0].startswith('schema 9 cannot be read: expected {"type": "record"')
    assert reasons[1] == "schema 10 is not in the schema registry"
    assert reasons[2] == reasons[3]
    assert reasons[2].startswith("no framing of a schema registry")
    assert reasons[4].startswith("not Avro of its schema")


def test_a_schema_that_does_not_resolve_leaves_those_of_its_folder_alone(tmp_path: Path) -> None:
    kind = {"type": "enum", "name": "Kind", "symbols": ["NEW", "OLD"]}
    field: dict[str, Any] = {"name": "kind", "type": kind}
    schemas = {
        7: {"type": "record", "name": "R", "fields": [field]},
        8: {"type": "record", "name": "R", "fields": [field | {"type": kind | {"symbols": ["NEW", "LOST"]}}]},
        9: {"type": "record", "name": "R", "fields": [{"name": "other", "type": "int"}]},
        10: {"type": "record", "name": "R", "fields": [{"name": "kind", "type": "Kind"}]},
    }
    for schema_id, schema in schemas.items():
        (tmp_path / f"{schema_id}.avsc").write_text(json.dumps(schema))
    values = [framed(schema_id, body) for schema_id in (7, 8, 9, 10, 7) for body in (b"\x00", b"\x02")]
    rows = decode(values, schemaRegistry=str(tmp_path), valueSchemaId="7")
    assert [row["kind"] for row in rows] == ["NEW", "OLD", "NEW", *[None] * 5, "NEW", "OLD"]
    assert [row["_bad_reason"] for row in rows[3:8]] == [
        "not Avro of its schema: enum Kind has no symbol 'LOST', and no default",
        *["not Avro of its schema: field kind was not written, and has no default"] * 2,
        *["schema 10 cannot be read: kind: unknown type 'Kind'"] * 2,
    ]


def chained(length: int) -> dict[str, Any]:
    """A record with a number and named types, each of them a field of the next."""
    first = {"type": "record", "name": "T0", "fields": [{"name": "x", "type": "int"}]}
    types = [first] + [
        {"type": "record", "name": f"T{n}", "fields": [{"name": "x", "type": f"T{n - 1}"}]} for n in range(1, length)
    ]
    fields = [{"name": f"t{n}", "type": each} for n, each in enumerate(types)]
    return {"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}, *fields]}


@pytest.mark.spec("D1")
def test_types_that_are_nested_too_deep_leave_other_records_alone(tmp_path: Path) -> None:
    (tmp_path / "7.avsc").write_text(_record('"int"').replace('"a"', '"n"'))
    (tmp_path / "8.avsc").write_text(json.dumps(chained(2_000)))
    values = [framed(7, b"\x02"), framed(8, b"\x04" * 2_001), framed(7, b"\x06")]
    rows = decode(values, schemaRegistry=str(tmp_path), valueSchemaId="7")
    assert [row["n"] for row in rows] == [1, None, 3]
    reason = "not Avro of its schema: values are nested too deep"
    assert [row["_bad_reason"] for row in rows] == [None, reason, None]


def doubled(types: int) -> dict[str, Any]:
    """A record with a field `n`, and one that names 2 ** types fields when it is written out."""
    node: Any = "int"
    for number in range(types):
        fields = [{"name": "a", "type": node}, {"name": "b", "type": f"T{number - 1}" if number else "int"}]
        node = {"type": "record", "name": f"T{number}", "fields": fields}
    return {"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}, {"name": "t", "type": node}]}


@pytest.mark.spec("D1")
def test_a_short_schema_that_names_a_billion_fields_is_read_where_they_are_not_wanted() -> None:
    schema = json.dumps(doubled(30))
    assert decode([], valueSchema=schema, valueReaderSchema=_record('"int"').replace('"a"', '"n"')) == []
    with pytest.raises(OptionError, match=r"option valueSchema: t: written out it has 2,147,483,647 types: .* 10,000"):
        decode([], valueSchema=schema)


@pytest.mark.spec("D1")
@pytest.mark.parametrize("types", [55, 70, 2_000])
def test_a_chain_of_types_is_a_column_or_is_refused(types: int) -> None:
    schema = json.dumps(chained(types))
    value = b"\x04" * (types + 1)
    if types < 100:
        (row,) = decode([value], valueSchema=schema, valueReaderSchema=_record('"int"').replace('"a"', '"n"'))
        assert (row["n"], row["_bad_reason"]) == (2, None)
    if types < 60:
        (row,) = decode([value], valueSchema=schema)
        assert (row["n"], row["_bad_reason"]) == (2, None)
        return
    for options in ({"valueSchema": schema}, {"valueSchema": _record('"int"'), "valueReaderSchema": schema}):
        with pytest.raises(OptionError, match="types are nested too deep: a column has at most 60 levels"):
            decode([], **options)


@pytest.mark.spec("D1")
def test_a_map_has_two_levels() -> None:
    for maps, fits in ((29, True), (31, False)):
        schema = _record('{"type": "map", "values": ' * maps + '"int"' + "}" * maps)
        if fits:
            assert decode([], valueSchema=schema) == []
            continue
        with pytest.raises(OptionError, match="a: types are nested too deep: a column has at most 60 levels"):
            decode([], valueSchema=schema)


@pytest.mark.spec("D1")
def test_unions_of_records_that_were_written_for_one_are_resolved_pair_by_pair() -> None:
    """At each of 40 levels the writer has a union of two records, both with a union of the two below."""
    read: Any = "int"
    written: Any = "int"
    for level in range(40):
        read = {"type": "record", "name": f"R{level}", "fields": [{"name": "a", "type": read}]}
        pair = [{"type": "record", "name": f"{side}{level}", "fields": [{"name": "a"}]} for side in "PQ"]
        pair[0]["fields"][0]["type"] = written
        pair[1]["fields"][0]["type"] = [f"P{level - 1}", f"Q{level - 1}"] if level else "int"
        written = pair
    record = {"type": "record", "name": "T"}
    reader = json.dumps({**record, "fields": [{"name": "t", "type": read}]})
    writer = json.dumps({**record, "fields": [{"name": "t", "type": written}]})
    (row,) = decode([b"\x02" * 40 + b"\x0e"], valueSchema=writer, valueReaderSchema=reader)
    for _ in range(40):
        row = row["a"] if "a" in row else row["t"]["a"]
    assert row == 7


@pytest.mark.spec("D1")
def test_a_chain_of_types_that_is_met_at_its_deep_end_is_refused() -> None:
    schema = chained(1_200)
    with pytest.raises(OptionError, match="option valueSchema: t1199: types are nested too deep"):
        decode([], valueSchema=json.dumps(schema), valueColumns="t1199")
    fields = [{"name": "n", "type": "int"}, {"name": "last", "type": "T1199"}]
    record = json.dumps({"type": "record", "name": "Last", "fields": fields})
    with PlayedRegistry({7: _record('"int"').replace('"a"', '"n"'), 8: record}) as registry:
        registry.references[8] = [{"name": "R", "subject": "chain", "version": 1}]
        registry.subjects = {"/subjects/chain/versions/1": {"schema": json.dumps(schema)}}
        values = [framed(7, b"\x02"), framed(8, b"\x04" * 2), framed(7, b"\x06")]
        rows = decode(values, schemaRegistry=registry.address, valueSchemaId="7")
    assert [row["n"] for row in rows] == [1, None, 3]
    assert "nested too deep" in rows[1]["_bad_reason"]


@pytest.mark.spec("D1")
@pytest.mark.parametrize("name", [{"name": "R", "namespace": "com.my-company"}, {"name": "com.my-company.R"}])
def test_a_namespace_may_have_any_characters(name: dict[str, str]) -> None:
    inner = {"type": "record", "name": "2nd.Inner", "fields": [{"name": "n", "type": "int"}]}
    fields = [{"name": "of", "type": inner}, {"name": "by", "type": ["null", "2nd.Inner"]}]
    (row,) = decode([b"\x02\x02\x04"], valueSchema=json.dumps({"type": "record", "fields": fields, **name}))
    assert (row["of"], row["by"], row["_bad_reason"]) == ({"n": 1}, {"n": 2}, None)


@pytest.mark.parametrize("by_id", [True, False])
def test_schemas_that_refer_to_others_of_the_registry(by_id: bool) -> None:
    town = {"type": "record", "name": "Town", "fields": [{"name": "n", "type": "string"}]}
    place = {
        "type": "record",
        "name": "Place",
        "namespace": "geo",
        "fields": [{"name": "town", "type": "Town"}, {"name": "twin", "type": ["null", "Town"]}],
    }
    order = {"type": "record", "name": "Order", "namespace": "shop", "fields": [
        {"name": "id", "type": "int"}, {"name": "to", "type": "geo.Place"},
        {"name": "by", "type": ["null", "geo.Place"]},
    ]}  # fmt: skip
    with PlayedRegistry({7: json.dumps(order)}) as registry:
        registry.references[7] = [{"name": "geo.Place", "subject": "place", "version": 1}]
        registry.subjects = {
            "/subjects/place/versions/1": {
                "schema": json.dumps(place), "references": [{"name": "Town", "subject": "town", "version": 3}],
            },
            "/subjects/town/versions/3": {"schema": json.dumps(town)},
        }  # fmt: skip
        reader = {"valueSchemaId": "7"} if by_id else {
            "valueSchema": json.dumps(order | {"fields": [{"name": "id", "type": "long"}]})
        }  # fmt: skip
        value = framed(7, b"\x0e" + b"\x02a" + b"\x02\x02b" + b"\x02" + b"\x02c\x00")
        (row,) = decode([value], schemaRegistry=registry.address, badValueColumn="", **reader)
    here = {"to": {"town": {"n": "a"}, "twin": {"n": "b"}}, "by": {"town": {"n": "c"}, "twin": None}} if by_id else {}
    assert row == {"id": 7, "_bad_reason": None} | here


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("{", "option valueSchema: not JSON"),
        ('{"type": "string"}', 'expected {"type": "record"'),
        ('{"type": "record", "name": "R", "fields": []}', "no fields"),
        ('{"type": "record", "name": "R", "fields": [{"name": "a"}]}', "a field of the record needs"),
        ('{"type": "record", "name": "R", "fields": [{"name": "a", "type": "Foo"}]}', "a: unknown type 'Foo'"),
        ('{"type": "record", "name": "R", "fields": [{"name": "a", "type": ["int", "string"]}]}', "several types"),
        (
            json.dumps({"type": "record", "name": "T", "fields": [{"name": "c", "type": {"type": "record", "name": "N",
            "fields": [{"name": "next", "type": ["null", "N"]}]}}]}), "c.next: 'N' is within itself",
        ),
        (
            json.dumps({"type": "record", "name": "N", "namespace": "a",
            "fields": [{"name": "next", "type": ["null", "N"]}]}), "next: 'a.N' is within itself",
        ),
        ("[" * 100_000, "nested more than 100 deep"),
        (_record('"a"') + " ", "option valueSchema: a: unknown type 'a'"),
        ('{"type": "record", "fields": []}', "the schema: a record needs a name"),
        ('{"type": "record", "name": 5, "fields": []}', "the schema: a record needs a name"),
        ('{"type": "record", "name": "a b", "fields": []}', "the schema: 'a b' is not a name"),
        ('{"type": "record", "name": "a.b-c", "fields": []}', "the schema: 'a.b-c' is not a name"),
        ('{"type": "record", "name": "R", "namespace": "a..b", "fields": []}', "the schema: 'a..b.R' is not a name"),
        ('{"type": "record", "name": "R", "namespace": {}, "fields": []}', "a namespace is a text"),
        ('{"type": "record", "name": "R", "aliases": 5, "fields": []}', "aliases is not a list of texts"),
        ('{"type": "record", "name": "R", "fields": {}}', "the record has no list of fields"),
        ('{"type": "record", "name": "R", "fields": [5]}', "a field of the record needs"),
        ('{"type": "record", "name": "R", "fields": [{"name": [], "type": "int"}]}', "a field of the record needs"),
        (
            '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}, {"name": "a", "type": "int"}]}',
            "a: the record has this field twice",
        ),
        (_record("5"), "a: 5 is not a type"), (_record("null"), "a: null is not a type"),
        (_record("{}"), "a: a type needs"),
        (_record('{"type": ["int", "string"]}'), "several types"),
        (_record('{"type": {"type": 5}}'), "a: 5 is not a type"),
        (_record('"null"'), "a: null is not a column"), (_record("[]"), "a union without types"),
        (_record('["null", ["int"]]'), "a union directly within a union"),
        (_record('["int", "int"]'), "'int' is in a union twice"),
        (_record('{"type": "array"}'), "a: array needs 'items'"),
        (_record('{"type": "map", "values": []}'), "a union without"),
        (_record('{"type": "enum", "name": "E"}'), "a: an enum needs a list of symbols"),
        (_record('{"type": "enum", "name": "E", "symbols": [1]}'), "a: symbols is not a list of texts"),
        (_record('{"type": "enum", "name": "E", "symbols": ["A", "A"]}'), "each of them once"),
        (_record('{"type": "enum", "name": "E", "symbols": ["A"], "default": ["A"]}'), "is none of its symbols"),
        (_record('{"type": "fixed", "name": "F"}'), "a: a fixed needs a size"),
        (_record('{"type": "fixed", "name": "F", "size": "5"}'), "a: a fixed needs a size"),
        (_record('{"type": "fixed", "name": "R", "size": 5}'), "a: 'R' is defined twice"),
    ],
)  # fmt: skip
def test_schemas_that_no_columns_can_have(schema: str, said: str) -> None:
    with pytest.raises(OptionError) as caught:
        decode([], valueSchema=schema)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "option valueSchema is missing"),
        ({"valueSchema": "/no/such/file.avsc"}, "'/no/such/file.avsc' cannot be read (No such file"),
        ({"valueSchema": "{}", "valueFraming": "registry"}, "option schemaRegistry is missing"),
        ({"valueSchemaId": "7"}, "option valueSchemaId needs schemaRegistry"),
        ({"valueSchema": "{}", "schemaRegistry": "localhost:8081"}, "neither a folder here nor an address"),
        ({"valueSchema": "{}", "schemaRegistry": "http://"}, "the address has no host"),
        ({"valueSchema": json.dumps(EVENT), "valueColumns": "id,nothing"}, "there is no column 'nothing'"),
        ({"valueSchema": json.dumps(EVENT), "valueTimeZone": "UTC"}, "option valueTimeZone needs valueFormat=json"),
    ],
)
def test_options_that_cannot_be(options: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError) as caught:
        decode([], **options)
    assert said in str(caught.value)
