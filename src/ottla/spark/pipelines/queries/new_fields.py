"""Fields of JSON records that a schema lacks: found without a second full parse where there are none, and their types.

Types are Spark's own choice for JSON, on fewer of them: BOOLEAN, BIGINT, DOUBLE, STRING, ARRAY, STRUCT. Numbers that
disagree are DOUBLE, anything else that disagrees is STRING. A field that is null wherever it stands has no type yet,
and is not new.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow

from ottla.spark.decoding.temporal import first_wild_number, has_decimal, read_as
from ottla.spark.pipelines.errors import PipelineError

#: New fields of one batch, nested ones counted; more are not a schema change, but names that are data.
MAX_NEW_FIELDS = 1_000
#: Records that are looked at one by one where one of them has an unknown field, or does not parse.
_TOGETHER = 256
_INT64 = range(-(1 << 63), 1 << 63)


class UnknownFields:
    """Finds the fields of documents that `schema` has no place for. `prefix` is the length of what is before each."""

    def __init__(self, schema: pyarrow.Schema, prefix: int = 0) -> None:
        import pyarrow.json

        self._schema = pyarrow.struct(list(schema))
        self._prefix = prefix
        # pyarrow's reader knows no maps; documents with some are looked at one by one.
        self._strict = None
        self._has_decimal = has_decimal(self._schema)
        if not _has_map(self._schema):
            wanted = pyarrow.schema([pyarrow.field(each.name, read_as(each.type)) for each in schema])
            self._strict = pyarrow.json.ParseOptions(explicit_schema=wanted, unexpected_field_behavior="error")

    def of(self, values: pyarrow.BinaryArray) -> list[str | None]:
        """For each value the fields that are new as a JSON object, each with some value of its type; else None."""
        texts: list[bytes | None] = values.to_pylist()
        if self._prefix:
            texts = [each and each[self._prefix :] for each in texts]
        if self._all_known(texts):
            return [None] * len(texts)
        found: list[str | None] = []
        for start in range(0, len(texts), _TOGETHER):
            part = texts[start : start + _TOGETHER]
            found += [None] * len(part) if self._all_known(part) else [self._of_one(each) for each in part]
        return found

    def _all_known(self, texts: list[bytes | None]) -> bool:
        import pyarrow.json

        data = b"\n".join(each for each in texts if each)
        if not data:
            return True
        if self._strict is None:
            return False
        if self._has_decimal and first_wild_number(pyarrow.array([data], pyarrow.binary())) is not None:
            return False
        reading = pyarrow.json.ReadOptions(use_threads=False, block_size=len(data) + 1)
        try:
            pyarrow.json.read_json(pyarrow.BufferReader(data), reading, self._strict)
        except pyarrow.ArrowException:
            return False
        return True

    def _of_one(self, text: bytes | None) -> str | None:
        try:
            document = json.loads(text or b"null")
        except (ValueError, RecursionError):  # Not JSON: a bad record, with no fields.
            return None
        unknown = _unknown(document, self._schema) if isinstance(document, dict) else None
        return None if unknown is None else json.dumps(_sample(unknown))


def _sample(value: Any) -> Any:
    """A value of the same type that is the same for all values of it: few differ, however many records there are."""
    if isinstance(value, dict):
        return {name: _sample(value[name]) for name in sorted(value)}
    if isinstance(value, list):
        different = {json.dumps(each): each for each in map(_sample, value)}
        return [different[text] for text in sorted(different)]
    if isinstance(value, int) and not isinstance(value, bool):
        return 0 if value in _INT64 else 0.5
    return {bool: False, float: 0.5, str: ""}.get(type(value))


def _has_map(kind: pyarrow.DataType) -> bool:
    if pyarrow.types.is_map(kind):
        return True
    return any(_has_map(kind.field(index).type) for index in range(kind.num_fields))


def _unknown(value: Any, kind: pyarrow.DataType) -> Any:
    """The part of a value that its type has no place for; None where there is none."""
    if isinstance(value, dict) and pyarrow.types.is_struct(kind):
        known = {kind.field(index).name: kind.field(index).type for index in range(kind.num_fields)}
        found = {name: _unknown(each, known[name]) if name in known else each for name, each in value.items()}
        return {name: each for name, each in found.items() if each is not None} or None
    if isinstance(value, list) and pyarrow.types.is_list(kind):
        return [each for each in (_unknown(item, kind.value_type) for item in value) if each is not None] or None
    return None


def inferred(document: Any) -> pyarrow.DataType:
    """The type of a JSON value; null where it has none yet."""
    if document is None:
        return pyarrow.null()
    if isinstance(document, bool):
        return pyarrow.bool_()
    if isinstance(document, int):
        return pyarrow.int64() if document in _INT64 else pyarrow.float64()
    if isinstance(document, float):
        return pyarrow.float64()
    if isinstance(document, dict):
        return pyarrow.struct([pyarrow.field(name, inferred(each)) for name, each in document.items()])
    if isinstance(document, list):
        element = pyarrow.null()
        for each in document:
            element = merged(element, inferred(each))
        return pyarrow.list_(pyarrow.field("element", element))
    return pyarrow.string()


def merged(one: pyarrow.DataType, other: pyarrow.DataType) -> pyarrow.DataType:
    """The type that holds values of both."""
    if one == other or pyarrow.types.is_null(other):
        return one
    if pyarrow.types.is_null(one):
        return other
    numbers = (pyarrow.int64(), pyarrow.float64())
    if one in numbers and other in numbers:
        return pyarrow.float64()
    if pyarrow.types.is_struct(one) and pyarrow.types.is_struct(other):
        return _extended_struct(one, other, merged)
    if pyarrow.types.is_list(one) and pyarrow.types.is_list(other):
        return pyarrow.list_(pyarrow.field("element", merged(one.value_type, other.value_type)))
    return pyarrow.string()


def extended(known: pyarrow.DataType, found: pyarrow.DataType) -> pyarrow.DataType:
    """The known type with the fields of `found` that it lacks behind its own, also within structs and arrays."""
    if pyarrow.types.is_struct(known) and pyarrow.types.is_struct(found):
        return _extended_struct(known, found, extended)
    if pyarrow.types.is_list(known) and pyarrow.types.is_list(found):
        return pyarrow.list_(pyarrow.field("element", extended(known.value_type, found.value_type)))
    return known


def _extended_struct(one: pyarrow.DataType, other: pyarrow.DataType, join: Any) -> pyarrow.DataType:
    fields = {one.field(index).name: one.field(index).type for index in range(one.num_fields)}
    for index in range(other.num_fields):
        field = other.field(index)
        fields[field.name] = join(fields[field.name], field.type) if field.name in fields else field.type
    return pyarrow.struct([pyarrow.field(name, kind) for name, kind in fields.items()])


def typed(kind: pyarrow.DataType) -> pyarrow.DataType | None:
    """The type without what has none yet: such fields are left out; None where nothing is left."""
    if pyarrow.types.is_null(kind):
        return None
    if pyarrow.types.is_struct(kind):
        fields = [(kind.field(index).name, typed(kind.field(index).type)) for index in range(kind.num_fields)]
        there = [pyarrow.field(name, each) for name, each in fields if each is not None]
        return pyarrow.struct(there) if there else None
    if pyarrow.types.is_list(kind):
        element = typed(kind.value_type)
        return None if element is None else pyarrow.list_(pyarrow.field("element", element))
    return kind


def names_in(kind: pyarrow.DataType, before: str = "") -> Iterator[str]:
    """The names of fields of a type with those of the structs that they stand in: `device.os`, `items[].price`."""
    if pyarrow.types.is_struct(kind):
        for index in range(kind.num_fields):
            field = kind.field(index)
            name = f"{before}.{field.name}" if before else field.name
            nested = list(names_in(field.type, name))
            yield from nested or [name]
    elif pyarrow.types.is_list(kind):
        yield from names_in(kind.value_type, f"{before}[]")


def add_document(kind: pyarrow.DataType, document: Mapping[str, Any]) -> pyarrow.DataType:
    """A struct with the fields of one more document. Raises PipelineError for too many of them."""
    made = merged(kind, inferred(document))
    if sum(1 for _ in names_in(made)) > MAX_NEW_FIELDS:
        raise PipelineError(
            f"records of one batch have more than {MAX_NEW_FIELDS} new fields: their names are data; read that part of "
            "the record as STRING or MAP<STRING, …>, or set new_fields = ignore"
        )
    return made
