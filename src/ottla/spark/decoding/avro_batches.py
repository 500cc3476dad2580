"""Avro values to typed columns: whole batches with pyruhvro, the schemas that it does not read with fastavro.

Values that were written with another schema than that of the columns are resolved as the Avro specification has it. A
field added or left out, the usual case, is done with whole columns; fastavro does the rest, record by record.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable
from typing import Any

import numpy
import pyarrow

from ottla.records.extras import require_extra
from ottla.spark.decoding.avro_schemas import AvroField, AvroRecord, AvroSchemaError, AvroType, parse_avro
from ottla.spark.decoding.framing import NO_FRAMING, NOT_FRAMED, all_bad, put_together, split_frames
from ottla.spark.decoding.halving import (
    Decoded,
    UnreadableError,
    decode_in_halves,
    decode_present,
    read_singly,
    read_together,
)
from ottla.spark.decoding.registry import Schemas

require_extra("valueFormat=avro", "spark-decode", "fastavro", "pyruhvro")

import fastavro
import pyruhvro

from ottla.spark.errors import OptionError

#: Readers for as many schemas that values were written with are kept.
MAX_WRITERS = 200
_FIXED = (bool, int, float, str)
#: Defaults of bytes and fixed are texts of as many characters.
_BYTES_AS_TEXT = "iso-8859-1"

#: What fastavro raises for bytes that are no record of its schema.
_NO_RECORD = (ValueError, EOFError, LookupError, TypeError, OverflowError, struct.error, MemoryError, AssertionError)


class AvroBatches:
    """Decoder of Avro values that were all written with one schema. `reader` is that of the columns."""

    def __init__(self, writer: AvroRecord, reader: AvroRecord) -> None:
        self.schema = reader.schema
        self._reader = reader
        self._columns = _columns_of(writer, reader) if writer.plain else None
        self._as_texts = writer.as_texts
        self._written: Any = fastavro.parse_schema(json.loads(writer.stripped))
        same = writer.stripped == reader.stripped
        self._read: Any = None if same else fastavro.parse_schema(json.loads(reader.stripped))

    def decode(self, values: pyarrow.BinaryArray) -> Decoded:
        """Columns of the schema, and a reason for each record that is bad; None where all are good."""
        return decode_present(values, self._present)

    def _present(self, values: pyarrow.BinaryArray) -> Decoded:
        if len(values) == 0:
            return [pyarrow.nulls(0, field.type) for field in self.schema], None
        together = self._record_by_record if self._columns is None else self._batch
        return decode_in_halves(values, together, self._singly)

    def _batch(self, values: pyarrow.BinaryArray) -> list[pyarrow.Array]:
        with read_together():
            # pyruhvro reads no bytes. Texts are written alike, and it does not look at what is in them.
            read = pyruhvro.deserialize_array(values.to_pylist(), self._as_texts)
            columns = [make(read) for make in self._columns or ()]
            for column in columns:
                column.validate(full=True)
            return columns

    def _record_by_record(self, values: pyarrow.BinaryArray) -> list[pyarrow.Array]:
        """All records with fastavro. Raises UnreadableError."""
        rows = []
        for value in values.to_pylist():
            try:
                rows.append(fastavro.schemaless_reader(io.BytesIO(value), self._written, self._read))
            except _NO_RECORD as problem:
                raise UnreadableError(f"{type(problem).__name__} {problem}".strip()) from problem
        with read_together():
            return [self._column(field, rows) for field in self._reader.fields]

    def _column(self, field: AvroField, rows: list[Any]) -> pyarrow.Array:
        values = [_plain(row[field.name], field.type.raw) for row in rows]
        column = pyarrow.array(values, field.type.raw)
        return column if field.type.convert is None else field.type.convert(column)

    def _singly(self, values: pyarrow.BinaryArray) -> tuple[list[pyarrow.Array], list[str | None]]:
        together = self._record_by_record if self._columns is None else self._batch
        return read_singly(values, self.schema, together, "not Avro of its schema")


class FramedAvro:
    """Decoder of Avro values with the framing of a registry: each batch may have several schemas."""

    def __init__(self, reader: AvroRecord, schemas: Schemas) -> None:
        self.schema = reader.schema
        self._reader = reader
        self._schemas = schemas
        self._by_id: dict[int, AvroBatches | str] = {}

    def decode(self, values: pyarrow.BinaryArray) -> Decoded:
        """Columns of the schema, and a reason for each record that is bad. Raises SchemaRegistryError."""
        return decode_present(values, self._present)

    def _present(self, values: pyarrow.BinaryArray) -> Decoded:
        frames = split_frames(values)
        groups = []
        for schema_id in numpy.unique(frames.ids):
            places = numpy.flatnonzero(frames.ids == schema_id)
            batches = self._batches(int(schema_id))
            if isinstance(batches, str):
                groups.append((places, all_bad(self.schema, len(places), batches)))
                continue
            bodies = frames.bodies if len(places) == len(values) else frames.bodies.take(pyarrow.array(places))
            groups.append((places, batches.decode(bodies)))
        return put_together(self.schema, len(values), groups)

    def _batches(self, schema_id: int) -> AvroBatches | str:
        """The decoder for a schema's id, or why its values cannot be read."""
        if schema_id == NOT_FRAMED:
            return NO_FRAMING
        if schema_id not in self._by_id:
            if len(self._by_id) >= MAX_WRITERS:
                self._by_id.clear()
            text = self._schemas.get(schema_id)
            self._by_id[schema_id] = self._decoder(schema_id, text)
        return self._by_id[schema_id]

    def _decoder(self, schema_id: int, text: str | None) -> AvroBatches | str:
        if text is None:
            return f"schema {schema_id} is not in the schema registry"
        try:
            return AvroBatches(parse_avro(text), self._reader)
        except (AvroSchemaError, fastavro.schema.SchemaParseException) as problem:
            return f"schema {schema_id} cannot be read: {problem}"


def read_schema(text: str, option: str) -> AvroRecord:
    """The schema of an option. Raises OptionError."""
    try:
        record = parse_avro(text)
        fastavro.parse_schema(json.loads(record.stripped))
    except (AvroSchemaError, fastavro.schema.SchemaParseException, fastavro.schema.UnknownType) as problem:
        raise OptionError(f"option {option}: {problem}") from None
    return record


def _columns_of(writer: AvroRecord, reader: AvroRecord) -> list[Callable[[pyarrow.RecordBatch], pyarrow.Array]] | None:
    """How each column comes from what pyruhvro read; None where that takes more than whole columns."""
    written = {field.name: field for field in writer.fields}
    columns: list[Callable[[pyarrow.RecordBatch], pyarrow.Array]] = []
    for field in reader.fields:
        source = written.get(field.name)
        if source is None:
            simple = field.default is None or type(field.default) in _FIXED
            if not field.has_default or not simple or set(field.aliases) & set(written):
                return None
            columns.append(_constant(field))
        elif _same(source.type, field.type):
            columns.append(_taken(field))
        else:
            return None
    return columns


def _same(written: AvroType, read: AvroType) -> bool:
    """Whether values of one type are values of the other as they are."""
    return (
        written.raw == read.raw
        and (read.nullable or not written.nullable)
        and set(written.symbols) <= set(read.symbols)
        and len(written.children) == len(read.children)
        and all(map(_same, written.children, read.children))
    )


def _taken(field: AvroField) -> Callable[[pyarrow.RecordBatch], pyarrow.Array]:
    def take(batch: pyarrow.RecordBatch) -> pyarrow.Array:
        column = batch.column(batch.schema.get_field_index(field.name))
        # Of the same layout; names of items and what may be null are not those of Spark's columns.
        column = column.cast(field.type.raw)
        return column if field.type.convert is None else field.type.convert(column)

    return take


def _constant(field: AvroField) -> Callable[[pyarrow.RecordBatch], pyarrow.Array]:
    def fill(batch: pyarrow.RecordBatch) -> pyarrow.Array:
        column = pyarrow.array([_plain(field.default, field.type.raw)] * batch.num_rows, field.type.raw)
        return column if field.type.convert is None else field.type.convert(column)

    return fill


def _plain(value: Any, kind: pyarrow.DataType) -> Any:
    """A value of fastavro's as pyarrow takes it: maps as pairs, and bytes where it gives a default as it stands."""
    if value is None:
        return None
    if isinstance(value, str) and pyarrow.types.is_binary(kind):
        return value.encode(_BYTES_AS_TEXT)
    if pyarrow.types.is_map(kind):
        return [(name, _plain(each, kind.item_type)) for name, each in value.items()]
    if pyarrow.types.is_list(kind):
        return [_plain(each, kind.value_type) for each in value]
    if pyarrow.types.is_struct(kind):
        return {field.name: _plain(value[field.name], field.type) for field in kind}
    return value
