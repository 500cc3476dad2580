"""JSON objects straight to Arrow columns, where that is compiled: several times as fast as pyarrow's reader.

It takes plain JSON only, and refuses the batch otherwise. The same columns as those of pyarrow's reader come out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy
import pyarrow

from ottla.records.json_kinds import BOOLEAN, DECIMAL, DOUBLE, LIST, LONG, NUMBER, OBJECT, TEXT

if TYPE_CHECKING:
    from ottla.records._json import JsonColumn

try:
    from ottla.records import _json_native as json_records
except ImportError:
    from ottla.records import _json as json_records  # type: ignore[no-redef]

    COMPILED = False
else:
    COMPILED = True


class JsonColumns:
    """Reader of objects to columns of a schema, as far as `are_read` says that its types can be."""

    def __init__(self, schema: pyarrow.Schema) -> None:
        self._type = pyarrow.struct(list(schema))

    def read(self, values: pyarrow.BinaryArray) -> list[pyarrow.Array] | None:
        """Columns of the schema, None where a value is refused. `values` have no nulls, and are valid UTF-8."""
        _, positions, data = values.buffers()
        if data is None:
            return None
        offsets = numpy.frombuffer(positions, numpy.int32)
        content = numpy.frombuffer(data, numpy.uint8)
        root = _column_of(self._type)
        if json_records.JsonReader(root).read(content, offsets, values.offset, len(values)) < len(values):
            return None
        try:
            return [_array(column, field.type) for column, field in zip(root.children, self._type, strict=True)]
        except pyarrow.ArrowInvalid:  # A number that does not fit its column.
            return None


def are_read(kind: pyarrow.DataType) -> bool:
    """Whether columns of this type are read here."""
    types = pyarrow.types
    if types.is_struct(kind):
        return all(are_read(each.type) for each in kind) and len({each.name for each in kind}) == kind.num_fields
    if types.is_list(kind):
        return are_read(kind.value_type)
    tests = (types.is_string, types.is_boolean, types.is_signed_integer, types.is_float32, types.is_float64)
    return any(test(kind) for test in tests) or types.is_decimal(kind)


def _kind_of(kind: pyarrow.DataType) -> int:
    types = pyarrow.types
    if types.is_string(kind):
        return TEXT
    if types.is_signed_integer(kind):
        return LONG
    if types.is_float64(kind):
        return DOUBLE
    if types.is_decimal(kind):
        return DECIMAL
    return BOOLEAN if types.is_boolean(kind) else NUMBER


def _column_of(kind: pyarrow.DataType) -> JsonColumn:
    if pyarrow.types.is_struct(kind):
        names = [field.name.encode() for field in kind]
        return json_records.JsonColumn(OBJECT, [_column_of(field.type) for field in kind], names)
    if pyarrow.types.is_list(kind):
        return json_records.JsonColumn(LIST, [_column_of(kind.value_type)], [])
    return json_records.JsonColumn(_kind_of(kind), [], [])


def _array(column: JsonColumn, kind: pyarrow.DataType) -> pyarrow.Array:
    """The array of a column. Raises ArrowInvalid for a number that does not fit `kind`."""
    types, count, nulls = pyarrow.types, column.count, column.nulls
    valid = pyarrow.py_buffer(column.valid) if nulls else None
    if types.is_struct(kind):
        arrays = [_array(child, field.type) for child, field in zip(column.children, kind, strict=True)]
        return pyarrow.Array.from_buffers(kind, count, [valid], nulls, children=arrays)
    if types.is_list(kind):
        values = _array(column.children[0], kind.value_type)
        return pyarrow.Array.from_buffers(
            kind, count, [valid, pyarrow.py_buffer(column.ends)], nulls, children=[values]
        )
    data = pyarrow.py_buffer(column.data)
    if column.kind in (TEXT, NUMBER, DECIMAL):
        buffers = [valid, pyarrow.py_buffer(column.ends), data]
        return pyarrow.Array.from_buffers(pyarrow.string(), count, buffers, nulls).cast(kind)
    read = {LONG: pyarrow.int64(), DOUBLE: pyarrow.float64()}.get(column.kind, kind)
    return pyarrow.Array.from_buffers(read, count, [valid, data], nulls).cast(kind)
