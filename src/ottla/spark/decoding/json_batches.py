"""JSON values to typed columns: whole batches by a compiled reader or by pyarrow's, and what they refuse one by one.

The compiled reader (`json_columns`) takes plain JSON; a batch that it refuses is read by pyarrow's. That is strict: a
value of another type, a name twice, broken text fail the batch it is in. Such a batch is
halved until the bad documents are among few, which `JsonDocuments` reads as Spark does. Columns with maps, which
pyarrow does not know, are read so as well, the others of the document in the batch.
"""

from __future__ import annotations

import re
import struct
from typing import Any
from zoneinfo import ZoneInfo

import numpy
import pyarrow
import pyarrow.compute
import pyarrow.json

from ottla.spark.decoding.halving import ColumnFormat, Decoded, UnreadableError, decode_in_halves
from ottla.spark.decoding.json_columns import COMPILED, JsonColumns, are_read
from ottla.spark.decoding.json_documents import JsonDocuments
from ottla.spark.decoding.temporal import first_wild_number, has_decimal, needs_conversion, read_as, read_columns

#: How pyarrow's reader says which document is bad.
_ROW = re.compile(r" in row ([0-9]+)$")
#: A name that no document has.
_NO_COLUMN = "\x00"


class JsonBatches(ColumnFormat):
    """Decoder of JSON documents to columns of a schema. Timestamps without a zone are those of `time_zone`."""

    def __init__(self, schema: pyarrow.Schema, time_zone: str) -> None:
        self.schema = schema
        self._documents = JsonDocuments(schema, ZoneInfo(time_zone))
        self._time_zone = time_zone
        # pyarrow's reader knows no maps.
        self._with_map = pyarrow.schema([field for field in schema if _has_map(field.type)])
        self._in_batches = pyarrow.schema([field for field in schema if not _has_map(field.type)])
        self._maps = JsonDocuments(self._with_map, ZoneInfo(time_zone)) if len(self._with_map) else None
        self._converted = [index for index, field in enumerate(self._in_batches) if needs_conversion(field.type)]
        read = [pyarrow.field(field.name, read_as(field.type)) for field in self._in_batches]
        self._has_decimal = any(has_decimal(field.type) for field in self._in_batches)
        can = COMPILED and len(read) > 0 and all(are_read(field.type) for field in read)
        self._compiled = JsonColumns(pyarrow.schema(read)) if can else None
        self._parsing = pyarrow.json.ParseOptions(
            # Without any column the number of rows would be lost.
            explicit_schema=pyarrow.schema(read or [pyarrow.field(_NO_COLUMN, pyarrow.null())]),
            unexpected_field_behavior="ignore",
        )

    def _present(self, values: pyarrow.BinaryArray) -> Decoded:
        return decode_in_halves(values, self._batch, self._one_by_one)

    def _batch(self, values: pyarrow.BinaryArray) -> list[pyarrow.Array]:
        """All documents at once. Raises UnreadableError if pyarrow refuses any."""
        arrays = self._of_compiled(values) or self._of_pyarrow(values)
        for index in self._converted:
            arrays[index] = read_columns(arrays[index], self._in_batches.field(index).type, self._time_zone)
        return arrays if self._maps is None else self._with_maps(arrays, values, self._maps)

    def _of_compiled(self, values: pyarrow.BinaryArray) -> list[pyarrow.Array] | None:
        """All columns but maps, None where this is for the other reader. Raises UnreadableError for no UTF-8."""
        if self._compiled is None:
            return None
        try:
            values.cast(pyarrow.string())
        except pyarrow.ArrowInvalid as problem:
            raise UnreadableError from problem
        return self._compiled.read(values)

    def _of_pyarrow(self, values: pyarrow.BinaryArray) -> list[pyarrow.Array]:
        """All columns but maps. Raises UnreadableError."""
        wild = first_wild_number(values) if self._has_decimal else None
        if wild is not None:
            raise UnreadableError(place=wild)
        data = _bytes_of_objects(values)
        reading = pyarrow.json.ReadOptions(use_threads=False, block_size=len(data) + 1)
        try:
            values.cast(pyarrow.string())
            table = pyarrow.json.read_json(pyarrow.BufferReader(data), reading, self._parsing)
        except pyarrow.ArrowInvalid as problem:
            row = _ROW.search(str(problem))
            raise UnreadableError(place=int(row[1]) if row else None) from problem
        # Each value begins with { and ends with }, and no document spans a }, a line's end and a {: equal numbers of
        # rows and values mean one row of each.
        if table.num_rows != len(values):
            raise UnreadableError
        return [_one_chunk(table.column(field.name)) for field in self._in_batches]

    def _with_maps(
        self, arrays: list[pyarrow.Array], values: pyarrow.BinaryArray, documents: JsonDocuments
    ) -> list[pyarrow.Array]:
        """The columns in their order, with those that have maps, which are read one by one."""
        maps, reasons = self._rows(documents, self._with_map, values)
        if any(reason is not None for reason in reasons):
            raise UnreadableError
        by_name = dict(zip((*self._in_batches.names, *self._with_map.names), (*arrays, *maps), strict=True))
        return [by_name[field.name] for field in self.schema]

    def _one_by_one(self, values: pyarrow.BinaryArray) -> tuple[list[pyarrow.Array], list[str | None]]:
        return self._rows(self._documents, self.schema, values)

    def _rows(
        self, documents: JsonDocuments, schema: pyarrow.Schema, values: pyarrow.BinaryArray
    ) -> tuple[list[pyarrow.Array], list[str | None]]:
        rows: list[list[Any]] = []
        reasons: list[str | None] = []
        nothing: list[Any] = [None] * len(schema)
        for value in values.to_pylist():
            row, reason = documents.read(value)
            rows.append(nothing if row is None else row)
            reasons.append(reason)
        columns = zip(*rows, strict=True) if rows else [[]] * len(schema)
        return [pyarrow.array(column, field.type) for column, field in zip(columns, schema, strict=True)], reasons


def _one_chunk(column: pyarrow.ChunkedArray) -> pyarrow.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _has_map(kind: pyarrow.DataType) -> bool:
    if pyarrow.types.is_map(kind):
        return True
    return any(_has_map(kind.field(index).type) for index in range(kind.num_fields))


def _bytes_of_objects(values: pyarrow.BinaryArray) -> pyarrow.Buffer:
    """The documents, each on a line of its own. Raises UnreadableError unless each begins with { and ends with }.

    A text with a line's end in it is no JSON, so none begins in one value and ends in the next.
    """
    _, positions, data = values.buffers()
    if data is None:
        raise UnreadableError
    offsets = numpy.frombuffer(positions, numpy.int32)[values.offset : values.offset + len(values) + 1]
    content = numpy.frombuffer(data, numpy.uint8)
    starts, ends = offsets[:-1], offsets[1:]
    if (starts == ends).any():
        raise UnreadableError(place=int((starts == ends).argmax()))
    others = (content[starts] != ord("{")) | (content[ends - 1] != ord("}"))
    if others.any():
        raise UnreadableError(place=int(others.argmax()))
    lines = pyarrow.compute.binary_join_element_wise(values, _constant(b""), _constant(b"\n"))
    return lines.buffers()[2].slice(0, len(values) + int(offsets[-1] - offsets[0]))


def _constant(text: bytes) -> pyarrow.BinaryScalar:
    """A scalar made of buffers: pyarrow.scalar imports pandas, which costs each of Spark's workers 30 MB and 0.2 s."""
    buffers = [None, pyarrow.py_buffer(struct.pack("=ii", 0, len(text))), pyarrow.py_buffer(text)]
    return pyarrow.Array.from_buffers(pyarrow.binary(), 1, buffers)[0]
