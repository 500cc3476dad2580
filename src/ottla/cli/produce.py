"""`ottla produce`: lines of standard input or of files as records of a topic."""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
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
from ottla.cli.terminal import Terminal, count, write_json

if TYPE_CHECKING:
    from ottla.client.producer.bulk_future import BulkFuture
    from ottla.client.sync import Producer
    from ottla.ops.record_lines import RecordFormat

COMMAND = Command("ottla produce")
STDIN: Final = "-"
#: Lists of lines whose records are not acknowledged yet.
MOST_PENDING: Final = 64
#: Partitions that the report names.
MOST_PLACES: Final = 4
#: Records that a rate above it sends at a time are a tenth of a second's.
RATE_SLICES: Final = 10


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
    rate: Annotated[float | None, typer.Option(help="At most that many records a second.", min=0.01)] = None,
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
        settings |= client_settings(shared, config or (), properties)
        del settings["default.api.timeout.ms"]
        if acks is not None:
            settings["acks"] = acks
        with Producer(settings) as producer:
            sending = _Sending(producer, lines, rate)
            sending.send_all(files or [STDIN], whole=input_format is InputFormat.file)
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


class _Sending:
    """Sends lines, a list at a time; `written` has a row of counts and offsets for each partition."""

    def __init__(self, producer: Producer[Any, Any], lines: RecordFormat, rate: float | None) -> None:
        self.written: dict[int, dict[str, int]] = {}
        self._producer = producer
        self._lines = lines
        self._rate = rate
        # Records that may be sent by now, by the rate.
        self._due_s = time.monotonic()
        # What was handed over and is not known to be written, with where each record stands.
        self._pending: deque[tuple[BulkFuture, list[str]]] = deque()
        self._failure = ""

    @property
    def record_count(self) -> int:
        """Records that were acknowledged."""
        return sum(row["records"] for row in self.written.values())

    def send_all(self, files: Sequence[str], *, whole: bool) -> None:
        """Send files and wait for all records. Raises CommandError with the place of the first that is refused."""
        from ottla.client.errors import ClientError

        problem: Exception | None = None
        try:
            try:
                for name in files:
                    with _opened(name) as stream:
                        if whole:
                            self._send([(name, self._lines.of_value(stream.read()))])
                        else:
                            self._send_lines(name, stream)
            except (CommandError, ClientError) as error:
                problem = error
            self._settle()
        except KeyboardInterrupt:
            self._interrupted()
            raise
        if problem is not None or self._failure:
            written = count(self.record_count, "record")
            raise CommandError(f"{self._failure or problem}; written: {written}") from problem

    def _interrupted(self) -> None:
        """Wait for what was handed over; another interrupt ends that. Input that follows a file for ever ends so."""
        waiting = sum(len(places) for _, places in self._pending)
        if waiting:
            COMMAND.report(f"waiting for {count(waiting, 'record')} that are under way; Ctrl-C again leaves them")
        try:
            self._settle()
        finally:
            left = sum(len(places) for _, places in self._pending)
            unknown = f", not known: {count(left, 'record')}" if left else ""
            failure = f"{self._failure}; " if self._failure else ""
            COMMAND.report(f"{failure}interrupted; written: {count(self.record_count, 'record')}{unknown}")

    def _send_lines(self, name: str, stream: BufferedReader) -> None:
        from ottla.client.errors import InvalidArgumentError
        from ottla.ops.record_lines import lines_of

        number = 0
        shown = "line" if name == STDIN else f"{name}, line"
        for lines in lines_of(stream):
            records: list[tuple[str, Any]] = []
            try:
                for line in lines:
                    number += 1
                    if line or not self._lines.rows:
                        records.append((f"{shown} {number}", self._lines.record(line)))
            except InvalidArgumentError as problem:
                self._send(records)
                raise CommandError(f"{shown} {number}: {problem}") from problem
            self._send(records)

    def _send(self, records: list[tuple[str, Any]]) -> None:
        from ottla.client.errors import InvalidArgumentError, RecordTooLargeError
        from ottla.client.producer.bulk_future import BulkFuture

        size = max(1, len(records) if self._rate is None else int(self._rate / RATE_SLICES))
        for at in range(0, len(records), size):
            piece = records[at : at + size]
            self._keep_rate(len(piece))
            future = BulkFuture()
            self._pending.append((future, [place for place, _ in piece]))
            try:
                self._producer.send_many([record for _, record in piece], into=future)
            except (InvalidArgumentError, RecordTooLargeError) as problem:
                raise CommandError(f"{piece[future.count][0]}: {problem}") from problem
            while self._pending and (len(self._pending) > MOST_PENDING or self._pending[0][0].done()):
                self._settle_first()
            if self._failure:
                raise CommandError(self._failure)

    def _keep_rate(self, records: int) -> None:
        """Wait until that many records may be sent; time without input gives no more of them."""
        if self._rate is None:
            return
        now_s = time.monotonic()
        time.sleep(max(0.0, self._due_s - now_s))
        self._due_s = max(self._due_s, now_s) + records / self._rate

    def _settle(self) -> None:
        while self._pending:
            self._settle_first()

    def _settle_first(self) -> None:
        """Wait for the oldest records under way; the first that is not acknowledged is kept as `_failure`."""
        from ottla.client.errors import DeliveryError

        future, places = self._pending[0]
        try:
            ranges = future.result()
        except DeliveryError as problem:
            ranges = future.delivered()
            first = future.first_failure()
            where = "" if first is None else f"{places[first.place]}: "
            self._failure = self._failure or f"{where}{problem}"
        self._pending.popleft()
        for each in ranges:
            row = self.written.setdefault(
                each.partition,
                {"partition": each.partition, "records": 0, "first_offset": each.start, "last_offset": -1},
            )
            row["records"] += each.record_count
            row["last_offset"] = max(row["last_offset"], each.end - 1)
            row["first_offset"] = min(row["first_offset"], each.start)


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


def _report(topic: str, sending: _Sending, *, as_json: bool) -> int:
    rows = [sending.written[partition] for partition in sorted(sending.written)]
    if as_json:
        write_json({"topic": topic, "records": sending.record_count, "partitions": rows})
        return 0
    where = f": {', '.join(map(_place, rows))}" if 0 < len(rows) <= MOST_PLACES else ""
    Terminal.standard_output().line(f"{count(sending.record_count, 'record')} written to {topic}{where}")
    return 0


def _place(row: Mapping[str, int]) -> str:
    first, last = row["first_offset"], row["last_offset"]
    if first < 0:
        return f"partition {row['partition']}"
    return f"partition {row['partition']} offset{f's {first} to {last}' if last > first else f' {first}'}"
