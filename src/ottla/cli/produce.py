"""`ottla produce`: lines of standard input or of files as records of a topic."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, cast

import typer

from ottla.cli.command import Command, CommandError
from ottla.cli.options import ClusterOptions
from ottla.cli.record_options import ClientConfig, ClientProperties, Encoding, client_settings
from ottla.cli.sending import Rate, Sending, places_of
from ottla.cli.terminal import Terminal, count, write_json

if TYPE_CHECKING:
    from ottla.ops.record_lines import LineSource, RecordFormat

COMMAND = Command("ottla produce")
STDIN: Final = "-"
#: While input has yet to come, records under way are looked at that often, s.
LOOK_S: Final = 0.1


class InputFormat(StrEnum):
    """Unit that becomes a record: a line, a line of JSON with the record's fields, or a whole file."""

    text = "text"
    json = "json"
    file = "file"


def produce(
    shared: ClusterOptions,
    topic: Annotated[str, typer.Argument(help="The topic.")],
    files: Annotated[
        list[str] | None, typer.Argument(metavar="[FILE]...", help="Files [standard input, or -].")
    ] = None,
    input_format: Annotated[
        InputFormat,
        typer.Option(
            "--format",
            help="text: each line is a value. json: each line is an object with key, value, headers and timestamp, as "
            "`ottla consume --json` writes it. file: each file is a value.",
        ),
    ] = InputFormat.text,
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", "-K", help=r"Lines are a key, this text (\t), and a value.")
    ] = None,
    key: Annotated[str | None, typer.Option("--key", "-k", help="The key of records whose line has none.")] = None,
    null: Annotated[
        str | None, typer.Option("--null", "-Z", help="A key or value that is this text is null [none is].")
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="NAME=VALUE", help="A header of each record; repeatable."),
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", help="The partition [chosen by the key].", min=0)
    ] = None,
    keep_partition: Annotated[
        bool, typer.Option("--keep-partition", help="With --format json: the partition that each line says.")
    ] = False,
    key_format: Annotated[Encoding, typer.Option(help="How keys are written in lines.")] = Encoding.text,
    value_format: Annotated[Encoding, typer.Option(help="How values are written in lines.")] = Encoding.text,
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
    fields = _LineFields(key, key_separator, null, key_format, value_format)

    def work() -> int:
        from ottla.client.sync import Producer

        lines = _record_format(topic, input_format, fields, partition, header or (), keep_partition=keep_partition)
        # A topic that is not there is looked for that long.
        settings = {"max.block.ms": str(round(shared.timeout_s * 1000))}
        settings |= client_settings(shared.servers, shared.timeout_s, config or (), properties)
        del settings["default.api.timeout.ms"]
        if acks is not None:
            settings["acks"] = acks
        with Producer(settings) as producer:
            sending = Sending(COMMAND, producer, rate)
            source = _Input(sending, lines)
            with sending.whole():
                for name in files or [STDIN]:
                    source.send(name, whole=input_format is InputFormat.file)
        return _report(topic, sending, as_json=shared.as_json)

    from ottla.client.errors import ClientError

    COMMAND.run(work, (ClientError,))


@dataclass(frozen=True, slots=True)
class _LineFields:
    """Keys and values of lines, by the options."""

    key: str | None
    separator: str | None
    null: str | None
    key_format: Encoding
    value_format: Encoding


def _record_format(
    topic: str,
    input_format: InputFormat,
    fields: _LineFields,
    partition: int | None,
    headers: Sequence[str],
    *,
    keep_partition: bool,
) -> RecordFormat:
    from ottla.inspection.texts import TextFormat
    from ottla.ops.record_lines import RecordFormat
    from ottla.ops.record_rows import decoded
    from ottla.ops.record_templates import separator

    rows = input_format is InputFormat.json
    if keep_partition and not rows:
        raise CommandError("--keep-partition goes with --format json, whose lines say a partition")
    if fields.separator is not None and input_format is not InputFormat.text:
        raise CommandError(
            "--key-separator goes with --format text; a line of JSON says its key, and --key that of a file"
        )
    if input_format is InputFormat.file:
        _refuse_with("--format file, whose values are the files' bytes", fields)
    if rows:
        _refuse_with("--format json, whose lines say null and bytes themselves", fields)
    if fields.separator is not None and fields.key is not None:
        raise CommandError("--key and --key-separator are both there; with a separator each line has its key")
    if fields.separator == "":
        raise CommandError("--key-separator is empty; it is the text between key and value, as in -K ':'")
    return RecordFormat(
        topic,
        rows,
        None if fields.separator is None else separator(fields.separator),
        _bytes(fields.null),
        TextFormat(fields.key_format),
        TextFormat(fields.value_format),
        None if fields.key is None else decoded(_bytes(fields.key) or b"", TextFormat(fields.key_format)),
        partition,
        tuple(map(_header, headers)),
        keep_partition,
    )


def _refuse_with(what: str, fields: _LineFields) -> None:
    if fields.null is not None or fields.value_format is not Encoding.text:
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

    def __init__(self, sending: Sending, lines: RecordFormat) -> None:
        self._sending = sending
        self._lines = lines

    def send(self, name: str, *, whole: bool) -> None:
        """Send a file. Raises CommandError with the place of what is refused, ClientError."""
        with _opened(name) as stream:
            if whole:
                self._sending.send([self._lines.of_value(stream.read())], [name])
            else:
                self._send_lines("line" if name == STDIN else f"{name}, line", _Attentive(stream, self._sending))

    def _send_lines(self, shown: str, stream: LineSource) -> None:
        from ottla.client.errors import InvalidArgumentError
        from ottla.ops.record_lines import lines_of

        number = 0
        for lines in lines_of(stream):
            records: list[Any] = []
            places: list[str] = []
            try:
                for line in lines:
                    number += 1
                    if line or not self._lines.rows:
                        records.append(self._lines.record(line))
                        places.append(f"{shown} {number}")
            except InvalidArgumentError as problem:
                self._sending.send(records, places)
                raise CommandError(f"{shown} {number}: {problem}") from problem
            self._sending.send(records, places)


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
