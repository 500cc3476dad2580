"""Values of records to typed columns, a batch at a time."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Protocol

import pyarrow

from ottla.spark.decoding.halving import ColumnFormat
from ottla.spark.decoding.options import DecodingOptions, ValueFormat, refuse_equal_names
from ottla.spark.errors import OptionError

_FRAMED_HINT = "; it begins with a byte 0: if a schema registry's serializer wrote it, give valueFraming=registry"


class ValueDecoder(Protocol):
    """Decodes values. `fields` are the columns that stand in the place of `value`."""

    fields: pyarrow.Schema

    def decode(self, values: pyarrow.BinaryArray) -> list[pyarrow.Array]:
        """The columns of `fields`, as long as `values`. A record that is bad says so in its columns.

        Raises SchemaRegistryError if the schemas of framed values cannot be had; nothing else.
        """


def decoder(options: DecodingOptions) -> ValueDecoder:
    """The decoder that the options ask for. Raises OptionError, MissingExtraError."""
    if options.format is ValueFormat.RAW:
        return _Raw()
    made = _format(options)
    refuse_equal_names(made.schema.names, options)
    return _Typed(made, options)


def decoder_of(options: DecodingOptions, names: Collection[str]) -> ValueDecoder | None:
    """A decoder of those columns among `names` only; None where there is none of its columns among them.

    A record is bad by the columns that are decoded. Where only the columns for what is bad are wanted, those are all.
    Raises OptionError, MissingExtraError.
    """
    made = decoder(options)
    if options.format is ValueFormat.RAW or set(made.fields.names) <= set(names):
        return made if not set(made.fields.names).isdisjoint(names) else None
    bad = {each: each for each in (options.bad_value_column, options.bad_reason_column) if each in names}
    typed = tuple(name for name in made.fields.names if name in names and name not in bad)
    if not typed and not bad:
        return None
    return decoder(
        replace(
            options,
            wanted=typed if typed and options.column is None else options.wanted,
            bad_value_column=bad.get(options.bad_value_column),
            bad_reason_column=bad.get(options.bad_reason_column),
        )
    )


def _format(options: DecodingOptions) -> ColumnFormat:
    # Each with its packages, which the others do without.
    if options.format is ValueFormat.JSON:
        return _json(options)
    if options.format is ValueFormat.AVRO:
        return _avro(options)
    return _protobuf(options)


def _json(options: DecodingOptions) -> ColumnFormat:
    from ottla.spark.decoding.framing import Unframed
    from ottla.spark.decoding.json_batches import JsonBatches

    schema = options.schema
    assert schema is not None
    if options.wanted:
        schema = pyarrow.schema([schema.field(_known(name, schema.names)) for name in options.wanted])
    batches = JsonBatches(schema, options.time_zone)
    return Unframed(batches) if options.framed else batches


def _avro(options: DecodingOptions) -> ColumnFormat:
    from ottla.spark.decoding.avro_batches import FramedAvro, read_columns, read_writer

    option = "valueSchema" if options.avro_reader is None else "valueReaderSchema"
    reader = read_columns(options.avro_reader or options.avro, option, options.wanted)
    if options.framed and options.schemas is not None:
        return FramedAvro(reader, options.schemas)
    return read_writer(options.avro, "valueSchema", reader)


def _protobuf(options: DecodingOptions) -> ColumnFormat:
    from ottla.decoding.values import ProtobufSchemaError
    from ottla.spark.decoding.protobuf_batches import FramedProtobuf, ProtobufBatches

    try:
        batches = ProtobufBatches(options.descriptor_set, options.message, options.wanted)
    except ProtobufSchemaError as problem:
        raise OptionError(f"options valueDescriptor and valueMessage: {problem}") from None
    return FramedProtobuf(batches) if options.framed else batches


def _known(name: str, names: list[str]) -> str:
    if name not in names:
        raise OptionError(f"option valueColumns: there is no column {name!r}; there are {', '.join(names)}")
    return name


class _Raw:
    """Values as they are."""

    def __init__(self) -> None:
        self.fields = pyarrow.schema([("value", pyarrow.binary())])

    def decode(self, values: pyarrow.BinaryArray) -> list[pyarrow.Array]:
        return [values]


class _Typed:
    """Columns of a format, and those for what is bad."""

    def __init__(self, format: ColumnFormat, options: DecodingOptions) -> None:
        self._format = format
        self._column = options.column
        self._framed = options.framed
        fields = list(format.schema)
        if options.column is not None:
            fields = [pyarrow.field(options.column, pyarrow.struct(fields))]
        self._bad = (options.bad_value_column is not None, options.bad_reason_column is not None)
        if options.bad_value_column is not None:
            fields.append(pyarrow.field(options.bad_value_column, pyarrow.binary()))
        if options.bad_reason_column is not None:
            fields.append(pyarrow.field(options.bad_reason_column, pyarrow.string()))
        self.fields = pyarrow.schema(fields)

    def decode(self, values: pyarrow.BinaryArray) -> list[pyarrow.Array]:
        columns, reasons = self._format.decode(values)
        if self._column is not None:
            fields = list(self._format.schema)
            columns = [pyarrow.StructArray.from_arrays(columns, fields=fields, mask=values.is_null())]
        return columns + self._bad_columns(values, reasons)

    def _bad_columns(self, values: pyarrow.BinaryArray, reasons: list[str | None] | None) -> list[pyarrow.Array]:
        value_wanted, reason_wanted = self._bad
        if reasons is None:
            nothing = [pyarrow.nulls(len(values), kind) for kind in (pyarrow.binary(), pyarrow.string())]
            return [column for column, wanted in zip(nothing, self._bad, strict=True) if wanted]
        bad: list[bytes | None] = [None] * len(values)
        said = list(reasons)
        for place, reason in enumerate(reasons):
            if reason is not None:
                value = values[place].as_py()
                bad[place] = value
                if not self._framed and value[:1] == b"\x00":
                    said[place] = reason + _FRAMED_HINT
        columns = []
        if value_wanted:
            columns.append(pyarrow.array(bad, pyarrow.binary()))
        if reason_wanted:
            columns.append(pyarrow.array(said, pyarrow.string()))
        return columns
