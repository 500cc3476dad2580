"""Fields that a schema lacks, and their types."""

from __future__ import annotations

import json

import pyarrow
import pytest

from ottla.spark.decoding.schemas import parse_schema
from ottla.spark.pipelines.errors import PipelineError
from ottla.spark.pipelines.queries import new_fields
from ottla.spark.pipelines.queries.new_fields import UnknownFields, add_document, inferred, merged, names_in, typed

SCHEMA = parse_schema("id BIGINT, at TIMESTAMP, device STRUCT<os: STRING>, items ARRAY<STRUCT<price: DOUBLE>>")


def _of(*documents: object, schema: pyarrow.Schema = SCHEMA) -> list[object]:
    values = [each if isinstance(each, bytes | None) else json.dumps(each).encode() for each in documents]
    found = UnknownFields(schema).of(pyarrow.array(values, pyarrow.binary()))
    return [None if each is None else json.loads(each) for each in found]


def test_known_fields_bad_records_and_nulls_are_nothing_new() -> None:
    assert (
        _of({"id": 1}, None, b"not json", b"", [1], {"id": "x"}, {"new": None}, {"device": {"b": None}}) == [None] * 8
    )


def test_new_fields_are_found_within_objects_and_arrays() -> None:
    nested = {"device": {"os": "x", "version": 2}, "items": [{"price": 1.0}, {"price": 2.0, "n": 1}]}
    assert _of({"id": 1, "new": 2}, nested) == [{"new": 0}, {"device": {"version": 0}, "items": [{"n": 0}]}]


def test_one_record_of_many_is_found_beside_bad_ones() -> None:
    documents: list[object] = [{"id": n} for n in range(1_000)]
    documents[3] = b"{broken"
    documents[700] = {"id": 700, "new": True}
    found = _of(*documents)
    assert [(at, each) for at, each in enumerate(found) if each is not None] == [(700, {"new": False})]


def test_an_exponent_of_any_size_is_no_end_of_the_process() -> None:
    """pyarrow's reader converts it without a look at its size."""
    schema = parse_schema("price DECIMAL(6,2)")
    assert _of(b'{"price":1e-2000000000}', b'{"price":1,"new":1}', schema=schema) == [None, {"new": 0}]


def test_what_is_found_is_the_same_for_all_values_of_a_type() -> None:
    one, other = {"a": 1, "b": [1, 2, "x"], "c": 1.5}, {"c": 2.5, "b": ["y", 3], "a": -7}
    assert _of(one, other, {"a": 1 << 70}) == [{"a": 0, "b": ["", 0], "c": 0.5}] * 2 + [{"a": 0.5}]


def test_the_framing_of_a_registry_is_passed_over() -> None:
    framed = pyarrow.array([b"\x00\x00\x00\x00\x01" + b'{"id": 1, "new": 2}', None], pyarrow.binary())
    assert UnknownFields(SCHEMA, 5).of(framed) == ['{"new": 0}', None]


def test_maps_take_any_name() -> None:
    schema = parse_schema("id BIGINT, tags MAP<STRING, STRING>")
    assert _of({"id": 1, "tags": {"x": "y"}}, {"id": 1, "other": "y"}, schema=schema) == [None, {"other": ""}]


@pytest.mark.parametrize(
    ("documents", "wanted"),
    [
        ([{"a": 1}, {"a": 2}], "a BIGINT"),
        ([{"a": 1}, {"a": 2.5}], "a DOUBLE"),
        ([{"a": 1 << 70}], "a DOUBLE"),
        ([{"a": 1}, {"a": "x"}], "a STRING"),
        ([{"a": True}, {"a": 1}], "a STRING"),
        ([{"a": None}, {"a": True}], "a BOOLEAN"),
        ([{"a": [1, None, 2.5]}], "a ARRAY<DOUBLE>"),
        ([{"a": {"b": 1}}, {"a": {"c": "x"}, "d": 1}], "a STRUCT<b: BIGINT, c: STRING>, d BIGINT"),
        ([{"a": {"b": 1}}, {"a": [1]}], "a STRING"),
    ],
)
def test_types_hold_all_values(documents: list[dict[str, object]], wanted: str) -> None:
    fields = pyarrow.struct([])
    for each in documents:
        fields = add_document(fields, each)
    assert typed(fields) == pyarrow.struct(list(parse_schema(wanted)))


@pytest.mark.parametrize("value", [None, {}, [], [None], {"a": []}, {"a": {}}])
def test_what_has_no_type_yet_is_left_out(value: object) -> None:
    assert typed(inferred({"new": value})) is None


def test_more_fields_than_a_schema_has_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(new_fields, "MAX_NEW_FIELDS", 3)
    with pytest.raises(PipelineError, match="more than 3 new fields: their names are data"):
        add_document(inferred({"a": 1, "b": 2}), {"c": 1, "d": 2})


def test_names_say_where_fields_stand() -> None:
    assert list(names_in(inferred({"a": 1, "b": {"c": 1, "d": [{"e": 1}]}}))) == ["a", "b.c", "b.d[].e"]
    assert merged(pyarrow.null(), pyarrow.string()) == pyarrow.string()
