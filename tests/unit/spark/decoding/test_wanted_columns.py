"""Only the columns that the option `columns` names are decoded, in each format."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from typing import Any

import fastavro
import pyarrow
import pytest

from ottla.spark.decoding import decoder, decoder_of, parse_decoding_options
from ottla.spark.decoding.json_batches import JsonBatches
from support.json_documents import FLAT_DDL, MAPS_DDL, Documents
from support.plain_columns import plain

JSON = {"valueFormat": "json", "valueSchema": "id BIGINT, name STRING, at TIMESTAMP"}
DOCUMENTS = [b'{"id":1,"name":"a","at":"2024-02-29T12:34:56Z"}', b'{"id":"x","name":"b"}', b'{"id":3,"name":"c"', None]


def decode(options: dict[str, str], values: Sequence[bytes | None], names: str) -> dict[str, list[Any]]:
    made = decoder_of(parse_decoding_options(options), names.split(","))
    assert made is not None
    columns = made.decode(pyarrow.array(values, pyarrow.binary()))
    return {name: column.to_pylist() for name, column in zip(made.fields.names, columns, strict=True)}


@pytest.mark.spec("D1")
def test_json_is_judged_by_the_columns_that_are_wanted() -> None:
    whole = decode(JSON, DOCUMENTS, "id,name,at,_bad_value,_bad_reason")
    assert whole["_bad_value"] == [None, DOCUMENTS[1], DOCUMENTS[2], None]
    some = decode(JSON, DOCUMENTS, "offset,name,_bad_value,_bad_reason,key")
    assert list(some) == ["name", "_bad_value", "_bad_reason"]
    assert some["name"] == whole["name"] == ["a", "b", None, None]
    # Its id is no number, and nobody asked for it; broken text is bad whatever is wanted.
    assert some["_bad_value"] == [None, None, DOCUMENTS[2], None]
    assert some["_bad_reason"][:2] == [None, None]


@pytest.mark.spec("D1")
def test_columns_for_what_is_bad_may_be_left_out_or_alone() -> None:
    assert list(decode(JSON, DOCUMENTS, "at,id")) == ["id", "at"]
    assert list(decode(JSON, DOCUMENTS, "id,_bad_reason")) == ["id", "_bad_reason"]
    # Alone, they speak of all columns.
    assert [reason is not None for reason in decode(JSON, DOCUMENTS, "_bad_reason,offset")["_bad_reason"]] == [
        False,
        True,
        True,
        False,
    ]
    assert decoder_of(parse_decoding_options(JSON), ["key", "offset"]) is None
    assert decoder_of(parse_decoding_options({}), ["key", "offset"]) is None
    assert decoder_of(parse_decoding_options({}), ["value"]) is not None


@pytest.mark.spec("D1")
def test_one_struct_is_wanted_as_a_whole() -> None:
    found = decode(JSON | {"valueColumn": "value"}, DOCUMENTS[:2], "value,_bad_reason")
    assert [row["name"] for row in found["value"]] == ["a", "b"]
    assert found["_bad_reason"][1] == 'column id: int64 is expected, not "x"'
    chosen = decode(JSON | {"valueColumn": "value", "valueColumns": "at"}, DOCUMENTS[:2], "value")
    assert [list(row) for row in chosen["value"]] == [["at"], ["at"]]


@pytest.mark.spec("D1")
def test_columns_of_the_chosen_ones() -> None:
    found = decode(JSON | {"valueColumns": "name,id"}, DOCUMENTS[:2], "id,_bad_reason")
    assert found["id"] == [1, None]
    assert list(found) == ["id", "_bad_reason"]


@pytest.mark.spec("D1")
@pytest.mark.parametrize("ddl", [FLAT_DDL, MAPS_DDL])
def test_some_columns_of_seeded_documents_are_those_of_all(ddl: str) -> None:
    values = pyarrow.array(Documents(31).take(3_000), pyarrow.binary())
    options = parse_decoding_options({"valueFormat": "json", "valueSchema": ddl})
    made = decoder(options)
    whole = dict(zip(made.fields.names, map(plain, made.decode(values)), strict=True))
    for names in (["l", "s", "ts"], ["st", "dec"], ["aa", "bin", "b"], *([["m"]] if "m" in made.fields.names else [])):
        narrow = decoder_of(options, [*names, "_bad_reason"])
        assert narrow is not None
        found = dict(zip(narrow.fields.names, map(plain, narrow.decode(values)), strict=True))
        for name in names:
            assert found[name] == whole[name]
        for some, all_of_it in zip(found["_bad_reason"], whole["_bad_reason"], strict=True):
            if all_of_it is None or all_of_it.startswith("not "):
                assert (some or "")[:8] == (all_of_it or "")[:8]
            else:
                # With a bad column that nobody wants, the record is good.
                assert some is None or some.startswith("column ")


@pytest.mark.spec("D1")
def test_columns_that_nobody_wants_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[list[str]] = []
    batch = JsonBatches._batch

    def noted(self: JsonBatches, values: pyarrow.BinaryArray) -> list[pyarrow.Array]:
        read.append(self.schema.names)
        return batch(self, values)

    monkeypatch.setattr(JsonBatches, "_batch", noted)
    decode(JSON, DOCUMENTS[:1], "at,partition")
    assert read == [["at"]]


@pytest.mark.spec("D1")
def test_avro_converts_only_what_is_wanted() -> None:
    price = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
    fields = [{"name": "id", "type": "long"}, {"name": "price", "type": price}, {"name": "name", "type": "string"}]
    schema = {"type": "record", "name": "R", "fields": fields}
    plain_schema = schema | {"fields": [fields[0], {"name": "price", "type": "bytes"}, fields[2]]}
    values = []
    for unscaled in (1234, 123456):
        body = io.BytesIO()
        row = {"id": 1, "price": unscaled.to_bytes(3, "big"), "name": "a"}
        fastavro.schemaless_writer(body, plain_schema, row)
        values.append(body.getvalue())
    options = {"valueFormat": "avro", "valueSchema": json.dumps(schema)}
    assert [reason is None for reason in decode(options, values, "price,_bad_reason")["_bad_reason"]] == [True, False]
    some = decode(options, [*values, b"\x02"], "name,id,_bad_reason")
    assert some["name"] == ["a", "a", None]
    assert [reason is None for reason in some["_bad_reason"]] == [True, True, False]
