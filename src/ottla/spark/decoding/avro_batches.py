"""Avro values to typed columns: whole batches with pyruhvro, and record by record what it does not read.

Values that were written with another schema than that of the columns are resolved as Avro's Java library does it.
Fields added, left out or renamed and wider numbers, the usual cases, are done with whole columns.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy
import pyarrow

from ottla.decoding.avro_resolution import AvroValueError, Read, default_of, reader_of, written_fields
from ottla.decoding.avro_schemas import PRIMITIVES, AvroNode, AvroSchemaError, NodeField, parse_node
from ottla.decoding.framing import NO_FRAMING
from ottla.decoding.registry import Schemas, SchemaText
from ottla.records.extras import require_extra
from ottla.spark.decoding.avro_columns import AvroColumn, AvroColumns, parse_columns, why_too_large
from ottla.spark.decoding.framing import LIKELY_IDS, NOT_FRAMED, all_bad, frame_ids, put_together, split_frames
from ottla.spark.decoding.halving import (
    ColumnFormat,
    Decoded,
    UnreadableError,
    decode_in_halves,
    read_singly,
    read_together,
)

require_extra("valueFormat=avro", "spark-decode", "pyruhvro")

import pyruhvro

from ottla.spark.errors import OptionError

#: Readers for as many schemas that values were written with are kept.
MAX_WRITERS = 200
WRONG = "not Avro of its schema"
TOO_DEEP = "types are nested too deep"

#: pyruhvro does not say how many bytes it has read: with this behind a record, and a field for it, it does.
_END = struct.Struct("<d")
_END_NUMBER = float.fromhex("0x1.d2f1b4c6e8a97p-371")
_END_BYTES = _END.pack(_END_NUMBER)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WIDER = {
    ("int", "long"),
    ("int", "float"),
    ("int", "double"),
    ("long", "float"),
    ("long", "double"),
    ("float", "double"),
}
_ALIKE = {("string", "bytes"), ("bytes", "string")}

Make = Callable[[pyarrow.RecordBatch], pyarrow.Array]


class AvroBatches(ColumnFormat):
    """Decoder of Avro values that were all written with one schema.

    `framed` says that a registry's framing was taken off them. If not, values that look as if they had one are bad.
    """

    def __init__(self, writer: AvroNode, reader: AvroColumns, *, framed: bool = False) -> None:
        self.schema = reader.schema
        self._reader = reader
        self._framed = framed
        self._columns: list[Make] | None = None
        if not why_too_large(writer) and _is_plain(writer, ()):
            self._columns = _columns_of(writer, reader)
        # pyruhvro reads no bytes. Texts are written alike, and it does not look at what is in them.
        self._as_texts = plain_json(writer, bytes_as="string") if self._columns else ""
        self._end_name = "end_" + "_".join(each.name for each in writer.fields)
        end = NodeField(self._end_name, AvroNode("double"))
        with_end = replace(writer, fields=(*writer.fields, end))
        self._with_end = plain_json(with_end, bytes_as="string") if self._columns else ""
        self._read: Read = reader_of(writer, replace(reader.node, fields=tuple(each.field for each in reader.columns)))

    def _present(self, values: pyarrow.BinaryArray) -> Decoded:
        if self._columns is None:
            return self._record_by_record(values)
        return decode_in_halves(values, self._batch, self._singly)

    def _batch(self, values: pyarrow.BinaryArray) -> list[pyarrow.Array]:
        suspect = numpy.zeros(0, bool) if self._framed else _looks_framed(values)
        with read_together():
            if suspect.any():
                read = pyruhvro.deserialize_array([each + _END_BYTES for each in values.to_pylist()], self._with_end)
                ends = read.column(read.schema.get_field_index(self._end_name)).to_numpy(zero_copy_only=False)
                longer = numpy.flatnonzero(suspect & (ends != _END_NUMBER))
                if len(longer):
                    raise UnreadableError(_suspicion(values[int(longer[0])].as_py()), int(longer[0]))
            else:
                read = pyruhvro.deserialize_array(values.to_pylist(), self._as_texts)
            columns = [make(read) for make in self._columns or ()]
            for column in columns:
                column.validate(full=True)
            return columns

    def _singly(self, values: pyarrow.BinaryArray) -> tuple[list[pyarrow.Array], list[str | None]]:
        return read_singly(values, self.schema, self._batch, WRONG)

    def _record_by_record(self, values: pyarrow.BinaryArray) -> Decoded:
        rows: list[dict[str, Any] | None] = []
        reasons: list[str | None] = []
        for value in values.to_pylist():
            row, reason = self._row(value)
            rows.append(row)
            reasons.append(reason)
        columns = self._columns_of_rows(rows, reasons, 0)
        return columns, reasons if any(reasons) else None

    def _row(self, value: bytes) -> tuple[dict[str, Any] | None, str | None]:
        try:
            row, end = self._read(value, 0)
        except IndexError:
            return None, f"{WRONG}: it ends too early"
        except RecursionError:
            return None, f"{WRONG}: values are nested too deep"
        except ValueError as problem:
            return None, f"{WRONG}: {problem}"
        if not self._framed and end < len(value) and _looks_framed(pyarrow.array([value])).any():
            return None, f"{WRONG}: {_suspicion(value)}"
        return row, None

    def _columns_of_rows(
        self, rows: list[dict[str, Any] | None], reasons: list[str | None], first: int
    ) -> list[pyarrow.Array]:
        """Columns of rows, None where bad; of one that no column can hold the reason is set, from `first` on."""
        try:
            with read_together():
                return [_column(column, rows) for column in self._reader.columns]
        except UnreadableError as problem:
            if len(rows) == 1:
                reasons[first] = f"{WRONG}: {problem}"
                return [pyarrow.nulls(1, field.type) for field in self.schema]
        middle = len(rows) // 2
        halves = (
            self._columns_of_rows(rows[:middle], reasons, first),
            self._columns_of_rows(rows[middle:], reasons, first + middle),
        )
        return [pyarrow.concat_arrays(column) for column in zip(*halves, strict=True)]


class FramedAvro(ColumnFormat):
    """Decoder of Avro values with the framing of a registry: each batch may have several schemas."""

    def __init__(self, reader: AvroColumns, schemas: Schemas) -> None:
        self.schema = reader.schema
        self._reader = reader
        self._schemas = schemas
        self._by_id: dict[int, AvroBatches | str] = {}

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

    def _decoder(self, schema_id: int, found: SchemaText | None) -> AvroBatches | str:
        if found is None:
            return f"schema {schema_id} is not in the schema registry"
        try:
            return AvroBatches(parse_node(found.text, found.references), self._reader, framed=True)
        except AvroSchemaError as problem:
            return f"schema {schema_id} cannot be read: {problem}"
        except RecursionError:
            return f"schema {schema_id} cannot be read: {TOO_DEEP}"


def read_columns(found: SchemaText, option: str, wanted: Sequence[str]) -> AvroColumns:
    """The columns of an option's schema, those that are wanted if any are. Raises OptionError."""
    with _refused(option):
        return parse_columns(found.text, found.references, wanted)


def read_writer(found: SchemaText, option: str, reader: AvroColumns) -> AvroBatches:
    """The decoder of values that were written with an option's schema. Raises OptionError."""
    with _refused(option):
        return AvroBatches(parse_node(found.text, found.references), reader)


@contextmanager
def _refused(option: str) -> Iterator[None]:
    try:
        yield
    except AvroSchemaError as problem:
        raise OptionError(f"option {option}: {problem}") from None
    except RecursionError:
        raise OptionError(f"option {option}: {TOO_DEEP}") from None


def _looks_framed(values: pyarrow.BinaryArray) -> numpy.ndarray:
    ids = frame_ids(values)
    return numpy.asarray((ids >= LIKELY_IDS.start) & (ids < LIKELY_IDS.stop))


def _suspicion(value: bytes) -> str:
    schema_id = int(frame_ids(pyarrow.array([value]))[0])
    return f"it begins as the framing of a registry's schema {schema_id} does, and continues behind its record"


def plain_json(node: AvroNode, *, bytes_as: str = "bytes") -> str:
    """The JSON of a schema for readers of plain values: without logical types, defaults and aliases.

    Its names are others: readers do not agree on those of namespaces.
    """
    return json.dumps(_plain(node, {}, bytes_as))


def _plain(node: AvroNode, names: dict[int, str], bytes_as: str) -> Any:
    if node.type == "union":
        return [_plain(each, names, bytes_as) for each in node.branches]
    if node.type in PRIMITIVES:
        return bytes_as if node.type == "bytes" else node.type
    if node.type == "array":
        return {"type": "array", "items": _plain(node.item, names, bytes_as)}
    if node.type == "map":
        return {"type": "map", "values": _plain(node.item, names, bytes_as)}
    if id(node) in names:
        return names[id(node)]
    names[id(node)] = f"Type{len(names)}"
    named = {"type": node.type, "name": names[id(node)]}
    if node.type == "enum":
        return named | {"symbols": list(node.symbols)}
    if node.type == "fixed":
        return named | {"size": node.size}
    fields = [{"name": each.name, "type": _plain(each.node, names, bytes_as)} for each in node.fields]
    return named | {"fields": fields}


def _is_plain(node: AvroNode, within: tuple[str, ...]) -> bool:
    """Whether pyruhvro reads a type: no fixed, of unions only those of null and a type, nothing within itself."""
    if node.type == "union":
        types = [each.type for each in node.branches]
        return (
            len(types) == 2
            and types.count("null") == 1
            and all(_is_plain(each, within) for each in node.branches if each.type != "null")
        )
    if node.type in ("array", "map"):
        return _is_plain(node.item, within)
    if node.type in PRIMITIVES:
        return node.type != "null"
    if node.type == "fixed" or node.name in within:
        return False
    if node.type == "enum":
        return all(map(_NAME.fullmatch, node.symbols))
    inner = (*within, node.name)
    return bool(node.fields) and all(_NAME.fullmatch(each.name) and _is_plain(each.node, inner) for each in node.fields)


def _columns_of(writer: AvroNode, reader: AvroColumns) -> list[Make] | None:
    """How each column comes from what pyruhvro reads; None where that takes more than whole columns."""
    name = reader.node.name if writer.name in reader.node.aliases else writer.name
    written = written_fields(writer, reader.node, name)
    columns: list[Make] = []
    for column in reader.columns:
        source = written.get(column.field.name)
        if source is None:
            try:
                columns.append(_constant(column, default_of(column.field)))
            except AvroValueError:
                return None
        elif _is_same(source.node, column.field.node):
            columns.append(_taken(source.name, column))
        else:
            return None
    return columns


def _is_same(written: AvroNode, read: AvroNode, *, inner: bool = False) -> bool:
    """Whether whole columns of one type become columns of the other."""
    if _is_nullable(written) and not _is_nullable(read):
        return False
    of_written, of_read = _not_null(written), _not_null(read)
    pair = (of_written.type, of_read.type)
    if of_written.type != of_read.type:
        return not inner and (pair in _WIDER or pair in _ALIKE)
    if of_written.type in ("array", "map"):
        return _is_same(of_written.item, of_read.item, inner=True)
    if of_written.type == "enum":
        return of_written.name == of_read.name and set(of_written.symbols) <= set(of_read.symbols)
    if of_written.type == "record":
        return [each.name for each in of_written.fields] == [each.name for each in of_read.fields] and all(
            _is_same(each.node, other.node, inner=True)
            for each, other in zip(of_written.fields, of_read.fields, strict=True)
        )
    return of_written.type in PRIMITIVES


def _is_nullable(node: AvroNode) -> bool:
    return any(each.type == "null" for each in node.branches)


def _not_null(node: AvroNode) -> AvroNode:
    """The only type of a union beside null; any other type as it is."""
    branches = [each for each in node.branches if each.type != "null"]
    return branches[0] if len(branches) == 1 else node


def _taken(source: str, column: AvroColumn) -> Make:
    def take(batch: pyarrow.RecordBatch) -> pyarrow.Array:
        read = batch.column(batch.schema.get_field_index(source))
        # Of the same layout; names of items and what may be null are not those of Spark's columns. Wider numbers are
        # rounded as in Java.
        return column.made_of(read.cast(column.type.raw, safe=False))

    return take


def _constant(column: AvroColumn, value: Any) -> Make:
    def fill(batch: pyarrow.RecordBatch) -> pyarrow.Array:
        return column.made_of(pyarrow.array([value] * batch.num_rows, column.type.raw))

    return fill


def _column(column: AvroColumn, rows: list[dict[str, Any] | None]) -> pyarrow.Array:
    name = column.field.name
    values = [None if row is None else row[name] for row in rows]
    return column.made_of(pyarrow.array(values, column.type.raw))
