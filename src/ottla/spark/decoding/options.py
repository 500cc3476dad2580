"""Options that say how values become typed columns, and what they need: read on the driver, sent to every task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from zoneinfo import ZoneInfo

import pyarrow

from ottla.decoding.registry import DEFAULT_TIMEOUT_MS, Schemas, SchemaText
from ottla.spark.decoding.registry import find_schemas
from ottla.spark.decoding.schemas import parse_schema
from ottla.spark.errors import OptionError
from ottla.spark.options import SparkOptions

DEFAULT_BAD_VALUE_COLUMN = "_bad_value"
DEFAULT_BAD_REASON_COLUMN = "_bad_reason"
#: Columns of the source beside the value; a typed column cannot have the name of one.
SOURCE_COLUMNS = ("key", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
#: Bytes of a file with a schema or descriptors, which every task gets.
MAX_FILE_BYTES = 16 * 1024 * 1024


class ValueFormat(Enum):
    """The format of a value's bytes."""

    RAW = "raw"
    JSON = "json"
    AVRO = "avro"
    PROTOBUF = "protobuf"


_ANY = (ValueFormat.JSON, ValueFormat.AVRO, ValueFormat.PROTOBUF)
#: Each option, and the formats that have it.
_OF_FORMATS: dict[str, tuple[ValueFormat, ...]] = {
    "valueFormat": tuple(ValueFormat),
    "valueSchema": (ValueFormat.JSON, ValueFormat.AVRO),
    "valueSchemaId": (ValueFormat.AVRO,),
    "valueReaderSchema": (ValueFormat.AVRO,),
    "valueDescriptor": (ValueFormat.PROTOBUF,),
    "valueMessage": (ValueFormat.PROTOBUF,),
    "valueTimeZone": (ValueFormat.JSON,),
    "valueColumns": _ANY,
    "valueColumn": _ANY,
    "valueFraming": _ANY,
    "schemaRegistry": (ValueFormat.AVRO,),
    "schemaRegistryTimeoutMs": (ValueFormat.AVRO,),
    "badValueColumn": _ANY,
    "badReasonColumn": _ANY,
}
DECODING_OPTIONS = tuple(_OF_FORMATS)


@dataclass(frozen=True, slots=True)
class DecodingOptions:
    """Checked options of the decoder. Files are read already, so that tasks on other machines need none of them.

    `schema` is JSON's; `avro` the schema that values were written with, or where they are framed that of the columns,
    `avro_reader` that of the columns where it is another one. `wanted` are the columns to keep, all where it is empty.
    `column`, where given, holds all typed columns as one struct. `time_zone` is that of timestamps that name none. A
    column for bad values or their reasons whose name is None is left out.
    """

    format: ValueFormat = ValueFormat.RAW
    schema: pyarrow.Schema | None = None
    avro: SchemaText = field(default_factory=SchemaText)
    avro_reader: SchemaText | None = None
    descriptor_set: bytes = b""
    message: str = ""
    wanted: tuple[str, ...] = ()
    column: str | None = None
    time_zone: str = "UTC"
    framed: bool = False
    schemas: Schemas | None = None
    bad_value_column: str | None = DEFAULT_BAD_VALUE_COLUMN
    bad_reason_column: str | None = DEFAULT_BAD_REASON_COLUMN


def parse_decoding_options(options: Mapping[str, str]) -> DecodingOptions:
    """Check the options of DECODING_OPTIONS; others are passed over. Raises OptionError."""
    known = {name.lower() for name in DECODING_OPTIONS}
    checked = SparkOptions(
        {name: value for name, value in options.items() if name.lower() in known}, DECODING_OPTIONS, "reading"
    )
    kind = ValueFormat(checked.choice("valueFormat", tuple(each.value for each in ValueFormat), ValueFormat.RAW.value))
    _refuse_of_other_formats(checked, kind)
    if kind is ValueFormat.RAW:
        return DecodingOptions()
    place = checked.get("schemaRegistry")
    timeout_ms = checked.positive("schemaRegistryTimeoutMs") or DEFAULT_TIMEOUT_MS
    schemas = find_schemas(place.strip(), timeout_ms) if place is not None else None
    framing = checked.choice("valueFraming", ("none", "registry"), "none" if schemas is None else "registry")
    avro, avro_reader = _avro(checked, schemas) if kind is ValueFormat.AVRO else (SchemaText(), None)
    return DecodingOptions(
        format=kind,
        schema=parse_schema(_needed(checked, "valueSchema", "columns such as id BIGINT, name STRING"))
        if kind is ValueFormat.JSON
        else None,
        avro=avro,
        avro_reader=avro_reader,
        descriptor_set=_descriptor_set(checked) if kind is ValueFormat.PROTOBUF else b"",
        message=_needed(checked, "valueMessage", "the message's name with its package, such as shop.Order")
        if kind is ValueFormat.PROTOBUF
        else "",
        wanted=_wanted(checked),
        column=_name(checked, "valueColumn", None),
        time_zone=_time_zone(checked),
        framed=_framed(kind, framing, schemas),
        schemas=schemas,
        bad_value_column=_name(checked, "badValueColumn", DEFAULT_BAD_VALUE_COLUMN),
        bad_reason_column=_name(checked, "badReasonColumn", DEFAULT_BAD_REASON_COLUMN),
    )


def refuse_equal_names(names: list[str], options: DecodingOptions) -> None:
    """Refuse typed columns with the name of another column, in any case, as Spark compares. Raises OptionError."""
    taken = {name.lower(): "a column of the source" for name in SOURCE_COLUMNS}
    for option, bad in (("badValueColumn", options.bad_value_column), ("badReasonColumn", options.bad_reason_column)):
        if bad is not None:
            if bad.lower() in taken:
                raise OptionError(f"option {option}: {bad!r} is the name of {taken[bad.lower()]}; give another one")
            taken[bad.lower()] = f"the column of {option}"
    for name in names if options.column is None else [options.column]:
        if name.lower() in taken:
            raise OptionError(
                f"column {name!r} has the name of {taken[name.lower()]}; "
                "give valueColumn=value, which puts all typed columns into one struct of that name"
            )
        if options.column is None:
            taken[name.lower()] = "another typed column"


def _refuse_of_other_formats(options: SparkOptions, kind: ValueFormat) -> None:
    for name, formats in _OF_FORMATS.items():
        if name in options and kind not in formats:
            needed = " or ".join(each.value for each in formats)
            raise OptionError(
                f"option {name} needs valueFormat={needed}, it is {kind.value}; give that, or leave {name} out"
            )


def _needed(options: SparkOptions, option: str, what: str) -> str:
    value = (options.get(option) or "").strip()
    if not value:
        raise OptionError(f"option {option} is missing; this valueFormat needs {what}")
    return value


def _wanted(options: SparkOptions) -> tuple[str, ...]:
    text = options.get("valueColumns")
    wanted = tuple(dict.fromkeys(name.strip() for name in (text or "").split(",") if name.strip()))
    if text is not None and not wanted:
        raise OptionError("option valueColumns names no column; give name[,name], or leave it out for all")
    return wanted


def _name(options: SparkOptions, option: str, default: str | None) -> str | None:
    value = options.get(option)
    return default if value is None else value.strip() or None


def _time_zone(options: SparkOptions) -> str:
    name = options.get("valueTimeZone") or "UTC"
    try:
        ZoneInfo(name)
    except (OSError, ValueError, LookupError):
        raise OptionError(f"option valueTimeZone: {name!r} is not a time zone; give one, as Europe/Berlin") from None
    return name


def _framed(kind: ValueFormat, framing: str, schemas: Schemas | None) -> bool:
    if kind is ValueFormat.AVRO and framing == "registry" and schemas is None:
        raise OptionError(
            "option schemaRegistry is missing; valueFraming=registry needs the registry's address, or a folder of "
            "schemas named by id (7.avsc)"
        )
    if schemas is not None and framing == "none":
        raise OptionError("options schemaRegistry and valueFraming=none contradict each other; leave one of them out")
    return framing == "registry"


def _avro(options: SparkOptions, schemas: Schemas | None) -> tuple[SchemaText, SchemaText | None]:
    """The schema, and that of the columns if another one is given."""
    number = options.get("valueSchemaId")
    reader = options.get("valueReaderSchema")
    if schemas is not None and reader is not None:
        raise OptionError("option valueReaderSchema: with schemaRegistry, valueSchema is the schema of the columns")
    if number is None:
        text = _text_or_file("valueSchema", _needed(options, "valueSchema", "an Avro schema, or the path of its file"))
        if reader is None:
            return SchemaText(text), None
        return SchemaText(text), SchemaText(_text_or_file("valueReaderSchema", reader.strip()))
    if "valueSchema" in options:
        raise OptionError("options valueSchema and valueSchemaId contradict each other; give one of them")
    if schemas is None:
        raise OptionError("option valueSchemaId needs schemaRegistry: the registry's address, or a folder of schemas")
    if not number.strip().isdigit():
        raise OptionError(f"option valueSchemaId: {number!r} is not a schema's id, a whole number")
    found = schemas.get(int(number))
    if found is None:
        raise OptionError(f"option valueSchemaId: the schema registry has no schema {number}")
    return found, None


def _text_or_file(option: str, value: str) -> str:
    if value[:1] in '{["':
        return value
    return _read_file(option, value).decode(errors="replace")


def _descriptor_set(options: SparkOptions) -> bytes:
    what = "the path of a descriptor set (protoc --include_imports --descriptor_set_out)"
    return _read_file("valueDescriptor", _needed(options, "valueDescriptor", what))


def _read_file(option: str, value: str) -> bytes:
    path = Path(value.removeprefix("file://"))
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as problem:
        raise OptionError(f"option {option}: {value!r} cannot be read ({problem.strerror})") from None
    if len(content) > MAX_FILE_BYTES:
        raise OptionError(f"option {option}: {value!r} has more than {MAX_FILE_BYTES >> 20} MiB")
    return content
