"""`ottla produce`: lines of standard input or of files as records of a topic."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, cast

import typer

from ottla.cli.command import Command, CommandError
from ottla.cli.options import ClusterOptions
from ottla.cli.produced_schemas import RegisterSchema, WrittenKeySchema, WrittenValueSchema, record_encoder
from ottla.cli.record_options import ClientConfig, ClientProperties, Encoding, client_settings
from ottla.cli.record_schemas import WITH_SCHEMA, KeyMessage, Message, SchemaOptions, SchemaRegistry
from ottla.cli.sending import Rate, Sending, places_of
from ottla.cli.terminal import Terminal, count, write_json

if TYPE_CHECKING:
    from ottla.inspection.texts import TextFormat
    from ottla.ops.record_encoding import RecordEncoder
    from ottla.ops.record_lines import RecordFormat

COMMAND = Command("ottla produce")
STDIN: Final = "-"
#: While input has yet to come, records under way are looked at that often, s.
LOOK_S: Final = 0.1


class InputFormat(StrEnum):
    """Unit that becomes a record: a line, a line of JSON with the record's fields, a row, or a whole file."""

    text = "text"
    json = "json"
    csv = "csv"
    parquet = "parquet"
    file = "file"


Format = Annotated[
    InputFormat,
    typer.Option(
        "--format",
        help="text: each line is a value. json: each line is an object with key, value, headers and timestamp, as "
        "`ottla consume --json` writes it. csv, parquet: columns have these names, or are fields of a value that is "
        "JSON. file: each file is a value.",
    ),
]
KeySeparator = Annotated[
    str | None, typer.Option("--key-separator", "-K", help=r"Lines are a key, this text (\t), and a value.")
]
Key = Annotated[str | None, typer.Option("--key", "-k", help="The key of records whose line has none.")]
KeyColumn = Annotated[
    str | None, typer.Option(metavar="NAME", help="With --format csv and parquet: the column that is the key [key].")
]
Typed = Annotated[
    bool,
    typer.Option("--typed", help="With --format csv: fields of values that are numbers, true or false stay such."),
]
Null = Annotated[str | None, typer.Option("--null", "-Z", help="A key or value that is this text is null [none is].")]
HeaderOption = Annotated[
    list[str] | None,
    typer.Option("--header", "-H", metavar="NAME=VALUE", help="A header of each record; repeatable."),
]
Partition = Annotated[int | None, typer.Option("--partition", "-p", help="The partition [chosen by the key].", min=0)]
KeepPartition = Annotated[
    bool, typer.Option("--keep-partition", help="With --format json, csv, parquet: the partition that each row says.")
]

KeyFormat = Annotated[
    Encoding,
    typer.Option(help="How keys are written in lines; avro, protobuf: as JSON, of which a schema makes the key."),
]
ValueFormat = Annotated[
    Encoding,
    typer.Option(help="How values are written in lines; avro, protobuf: as JSON, of which a schema makes the value."),
]


def produce(
    shared: ClusterOptions,
    topic: Annotated[str, typer.Argument(help="The topic.")],
    files: Annotated[
        list[str] | None, typer.Argument(metavar="[FILE]...", help="Files [standard input, or -].")
    ] = None,
    input_format: Format = InputFormat.text,
    key_separator: KeySeparator = None,
    key: Key = None,
    key_column: KeyColumn = None,
    is_typed: Typed = False,
    null: Null = None,
    header: HeaderOption = None,
    partition: Partition = None,
    keep_partition: KeepPartition = False,
    key_format: KeyFormat = Encoding.text,
    value_format: ValueFormat = Encoding.text,
    schema_registry: SchemaRegistry = None,
    key_schema: WrittenKeySchema = None,
    value_schema: WrittenValueSchema = None,
    key_message: KeyMessage = None,
    message: Message = None,
    register_schema: RegisterSchema = False,
    acks: Annotated[str | None, typer.Option(help="Who acknowledges: all, 1 or 0 [all].")] = None,
    rate: Rate = None,
    config: ClientConfig = None,
    properties: ClientProperties = None,
) -> None:
    r"""Write records to a topic, one for each line, as the lines arrive.

    A last line without an end is a record, too. When all are acknowledged it says where they are. A line that is
    refused, or whose record is not acknowledged, ends the command with 2 and its number; how many were written is said.

    Examples: `echo hello | ottla produce greetings`, `ottla produce orders -K '\t' orders.tsv`.
    """
    fields = _LineFields(input_format, key, key_separator, key_column, is_typed, null, key_format, value_format)

    def work() -> int:
        from ottla.client.sync import Producer

        lines = _record_format(topic, fields, partition, header or (), keep_partition=keep_partition)
        # A topic that is not there is looked for that long.
        settings = {"max.block.ms": str(round(shared.timeout_s * 1000))}
        settings |= client_settings(shared, config or (), properties)
        del settings["default.api.timeout.ms"]
        if acks is not None:
            settings["acks"] = acks
        schemas = SchemaOptions(schema_registry, key_schema, value_schema, key_message, message)
        encoder = record_encoder(shared, topic, (key_format, value_format), schemas, is_registered=register_schema)
        if encoder is not None:
            lines = replace(lines, as_json=encoder.takes_texts)
        with Producer(settings) as producer:
            sending = Sending(COMMAND, producer, rate)
            source = _Input(sending, lines, fields, encoder)
            with sending.whole():
                for name in files or [STDIN]:
                    source.send(name)
        return _report(topic, sending, as_json=shared.as_json)

    from ottla.client.errors import ClientError
    from ottla.decoding.registry import SchemaRegistryError

    COMMAND.run(work, (ClientError, SchemaRegistryError))


@dataclass(frozen=True, slots=True)
class _LineFields:
    """Keys and values of lines, by the options."""

    input_format: InputFormat
    key: str | None
    separator: str | None
    key_column: str | None
    is_typed: bool
    null: str | None
    key_format: Encoding
    value_format: Encoding

    @property
    def text_formats(self) -> tuple[TextFormat, TextFormat]:
        """The formats of keys and values in lines; of those with a schema it is text."""
        from ottla.inspection.texts import TextFormat

        key_format, value_format = (
            TextFormat.TEXT if each in WITH_SCHEMA else TextFormat(each)
            for each in (self.key_format, self.value_format)
        )
        return key_format, value_format

    @property
    def has_columns(self) -> bool:
        """Whether rows have columns with names."""
        return self.input_format in (InputFormat.csv, InputFormat.parquet)


def _record_format(
    topic: str,
    fields: _LineFields,
    partition: int | None,
    headers: Sequence[str],
    *,
    keep_partition: bool,
) -> RecordFormat:
    from ottla.ops.record_lines import RecordFormat
    from ottla.ops.record_rows import decoded
    from ottla.ops.record_templates import separator

    input_format = fields.input_format
    rows = input_format is InputFormat.json
    if keep_partition and not rows and not fields.has_columns:
        raise CommandError("--keep-partition goes with --format json, csv and parquet, whose rows say a partition")
    if fields.key_column is not None and not fields.has_columns:
        raise CommandError("--key-column goes with --format csv and parquet, whose columns have names")
    if fields.is_typed and input_format is not InputFormat.csv:
        raise CommandError("--typed goes with --format csv, whose fields are texts")
    if fields.separator is not None and input_format is not InputFormat.text:
        raise CommandError(
            "--key-separator goes with --format text; a line of JSON says its key, a column may be it, and --key is "
            "that of a file"
        )
    if input_format is InputFormat.file:
        _refuse_with("--format file, whose values are the files' bytes", fields)
    if rows:
        _refuse_with("--format json, whose lines say null and bytes themselves", fields)
    if fields.separator is not None and fields.key is not None:
        raise CommandError("--key and --key-separator are both there; with a separator each line has its key")
    if fields.separator == "":
        raise CommandError("--key-separator is empty; it is the text between key and value, as in -K ':'")
    key_format, value_format = fields.text_formats
    return RecordFormat(
        topic,
        rows,
        None if fields.separator is None else separator(fields.separator),
        _bytes(fields.null),
        key_format,
        value_format,
        None if fields.key is None else decoded(_bytes(fields.key) or b"", key_format),
        partition,
        tuple(map(_header, headers)),
        keep_partition,
    )


def _refuse_with(what: str, fields: _LineFields) -> None:
    if fields.null is not None or fields.value_format not in (Encoding.text, *WITH_SCHEMA):
        raise CommandError(f"--null and --value-format have no effect with {what}")


def _bytes(text: str | None) -> bytes | None:
    """Bytes of an argument, those that are not UTF-8 included."""
    return None if text is None else text.encode(errors="surrogateescape")


def _header(text: str) -> tuple[str, bytes | None]:
    name, equals, value = text.partition("=")
    if not equals or not name or not name.isprintable():
        raise CommandError(f"--header {text}: expected name=value, as in --header source=web")
    return name, _bytes(value)


class _Input:
    """Sends what files have: lines, rows, or whole files."""

    def __init__(
        self, sending: Sending, lines: RecordFormat, fields: _LineFields, encoder: RecordEncoder | None
    ) -> None:
        self._sending = sending
        self._encoder = encoder
        self._lines = lines
        self._fields = fields

    def send(self, name: str) -> None:
        """Send a file. Raises CommandError with the place of what is refused, ClientError."""
        if name == STDIN and sys.stdin is not None and sys.stdin.isatty():
            self._sending.progress.switch_off()
        if self._fields.input_format is InputFormat.parquet:
            self._send_parquet(name)
            return
        from ottla.ops.record_lines import lines_of

        with _opened(name) as stream:
            if self._fields.input_format is InputFormat.file:
                self._send_file(name, stream.read())
                return
            chunks = lines_of(_Attentive(stream, self._sending))
            shown = "line" if name == STDIN else f"{name}, line"
            if self._fields.input_format is InputFormat.csv:
                self._send_csv(name, shown, chunks)
            else:
                self._send_lines(shown, chunks)

    def _send_file(self, name: str, content: bytes) -> None:
        from ottla.client.errors import InvalidArgumentError

        record = self._lines.of_value(content)
        try:
            self._sending.send([record if self._encoder is None else self._encoder.encoded(record)], [name])
        except InvalidArgumentError as problem:
            raise CommandError(f"{name}: {problem}") from problem

    def _send_lines(self, shown: str, chunks: Iterator[list[bytes]]) -> None:
        number = 0
        for lines in chunks:
            numbered = [(number + at, line) for at, line in enumerate(lines, 1)]
            number += len(lines)
            if self._lines.rows:
                numbered = [each for each in numbered if each[1]]
            self._send_rows(shown, numbered, self._lines.record)

    def _send_csv(self, name: str, shown: str, chunks: Iterator[list[bytes]]) -> None:
        from ottla.client.errors import InvalidArgumentError
        from ottla.ops.record_fields import csv_rows

        make: Callable[[Any], Any] | None = None
        try:
            for rows in csv_rows(chunks):
                if make is None:
                    make = self._maker(shown, rows.pop(0)[1])
                self._send_rows(shown, rows, make)
        except InvalidArgumentError as problem:
            raise CommandError(f"{'' if name == STDIN else f'{name}, '}{problem}") from problem

    def _send_parquet(self, name: str) -> None:
        from ottla.client.errors import InvalidArgumentError

        COMMAND.require("--format parquet", ["pyarrow"], "arrow")
        from ottla.ops.record_parquet import ParquetRecords

        if name == STDIN:
            raise CommandError("--format parquet reads files, not standard input; name one")
        try:
            source = ParquetRecords(name)
            make, number = self._maker(name, source.columns), 0
            for rows in source:
                self._send_rows(f"{name}, row", list(enumerate(rows, number + 1)), make)
                number += len(rows)
        except InvalidArgumentError as problem:
            raise CommandError(f"{name}: {problem}") from problem
        except OSError as error:
            raise CommandError(f"{name}: {error.strerror or error}") from error

    def _maker(self, shown: str, columns: Sequence[str]) -> Callable[[Any], Any]:
        from ottla.client.errors import InvalidArgumentError
        from ottla.ops.record_fields import FieldFormat

        try:
            return FieldFormat(self._lines, columns, self._fields.key_column, is_typed=self._fields.is_typed).record
        except InvalidArgumentError as problem:
            raise CommandError(f"{shown}{' 1' if shown.endswith('line') else ''}: {problem}") from problem

    def _send_rows(self, shown: str, rows: Sequence[tuple[int, Any]], make: Callable[[Any], Any]) -> None:
        """Send a record for each row; those before one that cannot be a record are sent."""
        from ottla.client.errors import InvalidArgumentError

        records: list[Any] = []
        encoder = self._encoder
        try:
            for _, row in rows:
                records.append(make(row) if encoder is None else encoder.encoded(make(row)))
        except InvalidArgumentError as problem:
            self._sending.send(records, [f"{shown} {number}" for number, _ in rows])
            raise CommandError(f"{shown} {rows[len(records)][0]}: {problem}") from problem
        self._sending.send(records, [f"{shown} {number}" for number, _ in rows])


class _Attentive:
    """A stream that, while it waits for more, sees what becomes of the records that are under way."""

    def __init__(self, stream: BufferedReader, sending: Sending) -> None:
        self._stream = stream
        self._sending = sending

    def read1(self, size: int, /) -> bytes:
        """Read what there is. Raises CommandError as soon as a record is refused."""
        while not self._sending.settle_done() and not self._is_ready():
            pass
        return self._stream.read1(size)

    def _is_ready(self) -> bool:
        try:
            return bool(select.select([self._stream], [], [], LOOK_S)[0])
        except (OSError, ValueError):  # no file of the system, or one that cannot be waited for
            return True


@contextmanager
def _opened(name: str) -> Iterator[BufferedReader]:
    if name == STDIN:
        if sys.stdin is None:
            raise CommandError("standard input is closed; name a file")
        if sys.stdin.isatty():
            COMMAND.report("each line is a record; Ctrl-D ends")
        with suppress(OSError, ValueError):
            os.set_blocking(sys.stdin.fileno(), True)  # otherwise what has yet to come looks like the end
        yield cast("BufferedReader", sys.stdin.buffer)
        return
    try:
        with Path(name).open("rb") as stream:
            yield stream
    except OSError as error:
        raise CommandError(f"{name}: {error.strerror}") from error


def _report(topic: str, sending: Sending, *, as_json: bool) -> int:
    rows = sending.report_rows()
    if as_json:
        write_json({"topic": topic, "records": sending.record_count, "partitions": rows})
    else:
        written = f"{count(sending.record_count, 'record')} written to {topic}{places_of(rows)}"
        Terminal.standard_output().line(written)
    return 0
