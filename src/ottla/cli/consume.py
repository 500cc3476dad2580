"""`ottla consume`: the records of topics as text, by a template, or as JSON, to an end or as they arrive."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ottla.cli.command import EXIT_REFUSED, Command, CommandError
from ottla.cli.options import ClusterOptions
from ottla.cli.progress import Progress
from ottla.cli.record_options import ClientConfig, ClientProperties, Partitions, client_settings, parse_partitions
from ottla.cli.record_output import (
    Columns,
    KeyFormat,
    KeySeparator,
    Null,
    RecordLayout,
    Shape,
    ShownFormat,
    Template,
    ValueFormat,
)
from ottla.cli.record_reading import (
    BEGINNING,
    END,
    NEW_PARTITIONS_MS,
    Filter,
    ReadCommitted,
    Start,
    Troubles,
    Until,
    reading_settings,
    record_filter,
    start_reading,
)
from ottla.cli.record_schemas import (
    WITH_SCHEMA,
    KeyMessage,
    KeySchema,
    Message,
    SchemaOptions,
    SchemaRegistry,
    ValueSchema,
    record_decoder,
)
from ottla.cli.terminal import count

if TYPE_CHECKING:
    from ottla.client.sync import Consumer
    from ottla.ops.record_decoding import RecordDecoder
    from ottla.ops.topic_reading import Records
    from ottla.records.consumed import ConsumerRecord

COMMAND = Command("ottla consume")
_RESETS = {BEGINNING: "earliest", "earliest": "earliest", END: "latest", "latest": "latest"}


Exit = Annotated[
    bool, typer.Option("--exit", "-e", help="End where the topics end when the command begins: --until end.")
]
Count = Annotated[
    int | None, typer.Option("--count", "-n", "--max-messages", help="End after that many records.", min=1)
]
Group = Annotated[
    str | None, typer.Option("--group", "-g", help="Read as a member of this group, and commit what was written out.")
]
Format = Annotated[RecordLayout, typer.Option("--format", help="How records are shown, beside --json and --template.")]
To = Annotated[
    str | None,
    typer.Option(metavar="FILE.parquet", help="Write the records to a new Parquet file; needs pyarrow."),
]


Strict = Annotated[
    bool, typer.Option("--strict", help="End with 1 before the first record that its schema does not decode.")
]


@dataclass(frozen=True, slots=True)
class _Chosen:
    """The records that are shown: decoded, and those that match."""

    decoder: RecordDecoder | None
    matches: Callable[[ConsumerRecord[Any, Any]], bool] | None

    def of(self, records: Records, left: int | None) -> tuple[Records, Records]:
        """Records of the list that are shown, at most `left`; and those that were looked at for them."""
        found: Iterable[ConsumerRecord[Any, Any]] = records
        if self.decoder is not None:
            found = self.decoder.decoded(records)
        if self.matches is not None:
            found = filter(self.matches, found)
        shown = list(islice(found, left))
        if len(shown) == left:
            return shown, records[: 1 + [each[:3] for each in records].index(shown[-1][:3])]
        return shown, records[: self.decoder.passed] if self.is_ended and self.decoder is not None else records

    @property
    def is_ended(self) -> bool:
        """Whether the next record cannot be decoded, and has to be."""
        return self.decoder is not None and self.decoder.is_ended


@dataclass(frozen=True, slots=True)
class _Reading:
    """Topics, where to begin and end, and as which group."""

    topics: list[str]
    partitions: list[int] | None
    start: str | None
    until: str | None
    most_records: int | None
    group: str | None


def consume(
    shared: ClusterOptions,
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC...", help="Names of topics.")],
    start: Start = None,
    from_beginning: Annotated[bool, typer.Option("--from-beginning", help="Kafka's name of --from beginning.")] = False,
    until: Until = None,
    exit_at_end: Exit = False,
    most_records: Count = None,
    partitions: Partitions = None,
    group: Group = None,
    template: Template = None,
    output_format: Format = RecordLayout.text,
    columns: Columns = None,
    to: To = None,
    key_separator: KeySeparator = None,
    null: Null = "null",
    key_format: KeyFormat = ShownFormat.auto,
    value_format: ValueFormat = ShownFormat.auto,
    schema_registry: SchemaRegistry = None,
    key_schema: KeySchema = None,
    value_schema: ValueSchema = None,
    key_message: KeyMessage = None,
    message: Message = None,
    is_strict: Strict = False,
    expression: Filter = None,
    read_committed: ReadCommitted = False,
    config: ClientConfig = None,
    properties: ClientProperties = None,
) -> None:
    r"""Show the records of topics: values, one a line, as they arrive.

    Key and value are written as the bytes that they are; a terminal gets characters that it cannot show as escapes.
    With --json each record is an object that `ottla produce --format json` makes the same record of.

    Examples: `ottla consume orders --from beginning --exit`, `ottla consume orders -f '%p %o %k %s\n'`.
    """
    shape = Shape(template, key_separator, null, key_format, value_format, shared.as_json, output_format, columns)
    at = _one_of("--from", start, "--from-beginning", BEGINNING if from_beginning else None)
    end = _one_of("--until", until, "--exit", END if exit_at_end else None)

    def work() -> int:
        from ottla.client.sync import Consumer

        sink, matches = _sink(shape, to, group), record_filter(COMMAND, expression)
        schemas = SchemaOptions(schema_registry, key_schema, value_schema, key_message, message)
        decoder = record_decoder(COMMAND, shared, (key_format, value_format), schemas, is_strict=is_strict)
        reading = _Reading(topics, parse_partitions(partitions), at, end, most_records, group)
        settings: dict[str, Any] = client_settings(shared, config or (), properties)
        settings |= _own_settings(reading, settings, read_committed=read_committed)
        settings.setdefault("metadata.max.age.ms", NEW_PARTITIONS_MS)
        with Consumer(settings) as consumer, sink as write:
            if at is None and end is None and group is None and sys.stderr.isatty():
                COMMAND.report("waiting for new records; --from beginning shows those that are there, Ctrl-C ends")
            source = _records_of(consumer, reading, shared.timeout_s)
            return _consume(consumer, reading, source, write, _Chosen(decoder, matches))

    from ottla.client.errors import ClientError
    from ottla.decoding.registry import SchemaRegistryError

    COMMAND.run(work, (ClientError, SchemaRegistryError), until_closed=True)


def _one_of(name: str, value: str | None, other_name: str, other: str | None) -> str | None:
    if value is not None and other is not None:
        COMMAND.fail(f"{name} and {other_name} say the same thing; leave one of them out")
    return other if value is None else value


def _own_settings(reading: _Reading, wanted: Mapping[str, str], *, read_committed: bool) -> dict[str, str]:
    for name in ("group.id", "enable.auto.commit"):
        if name in wanted:
            raise CommandError(
                f"{name} is not set by -c or --properties here; --group NAME reads as a group and commits"
            )
    settings = reading_settings(read_committed=read_committed)
    if reading.group is None:
        return settings
    if reading.partitions is not None or reading.until is not None:
        raise CommandError(
            "--group reads the partitions that the group assigns; leave --partition, --until and --exit out"
        )
    if reading.start is None:
        reset = wanted.get("auto.offset.reset", "latest")
    elif reading.start in _RESETS:
        reset = _RESETS[reading.start]
    else:
        raise CommandError(
            f"--from {reading.start}: a group begins where it committed, and else at the beginning or the end; move it "
            f"by `ottla group reset-offsets {reading.group}`"
        )
    return settings | {"group.id": reading.group, "auto.offset.reset": reset}


def _sink(shape: Shape, to: str | None, group: str | None) -> AbstractContextManager[Callable[[Records], None]]:
    if to is None:
        return _shown(shape.head(), shape.show())
    if group is not None:
        raise CommandError("--to writes records later than a group would commit them; leave --group or --to out")
    if not to.endswith(".parquet"):
        raise CommandError(f"--to {to}: the name of a Parquet file ends with .parquet; `> {to}` takes all else")
    if Path(to).exists():
        raise CommandError(f"--to {to}: it is there already; remove it, or name another file")
    if not Path(to).parent.is_dir():
        raise CommandError(f"--to {to}: the directory {Path(to).parent} does not exist")
    if shape.template is not None or shape.key_separator is not None or shape.output_format is not RecordLayout.text:
        raise CommandError("--to writes columns; leave --template, --key-separator and --format out")
    if shape.columns is not None:
        raise CommandError("--to writes all columns; leave --columns out")
    for name, wanted in (("key", shape.key_format), ("value", shape.value_format)):
        if wanted in WITH_SCHEMA:
            raise CommandError(
                f"--to writes {name}s as bytes, not by --{name}-format {wanted}; leave that out, or write --json or "
                "--format csv to a file"
            )
    if not {shape.key_format, shape.value_format} <= {ShownFormat.auto, ShownFormat.text}:
        raise CommandError("--to writes keys and values as bytes, or by --key-format text and --value-format text")
    COMMAND.require("--to", ["pyarrow"], "arrow")
    return _parquet(to, shape)


@contextmanager
def _shown(head: bytes, show: Callable[[ConsumerRecord[Any, Any]], bytes]) -> Iterator[Callable[[Records], None]]:
    before = [head]

    def write(records: Records) -> None:
        shown = before.copy()
        before.clear()
        try:
            for each in records:
                shown.append(show(each))
        finally:  # those before one that cannot be shown, too
            sys.stdout.flush()
            sys.stdout.buffer.write(b"".join(shown))
            sys.stdout.buffer.flush()

    yield write
    write([])


@contextmanager
def _parquet(path: str, shape: Shape) -> Iterator[Callable[[Records], None]]:
    """A Parquet file that is whole after Ctrl-C and errors, too."""
    from ottla.ops.record_parquet import ParquetWriter

    total = 0
    writer: ParquetWriter | None = None
    progress = Progress(lambda: f"{count(total, 'record')} read")

    def write(records: Records) -> None:
        nonlocal total, writer
        if writer is None:
            is_text = shape.key_format is ShownFormat.text, shape.value_format is ShownFormat.text
            writer = ParquetWriter(path, text_keys=is_text[0], text_values=is_text[1])
        writer.add(records)
        total += len(records)
        progress.show()

    try:
        try:
            yield write
            write([])
        finally:
            if writer is not None:
                writer.close()
    except OSError as error:
        raise CommandError(f"--to {path}: {error.strerror or error}") from error
    finally:
        progress.clear()
        if writer is not None:
            written = count(writer.record_count, "record")
            COMMAND.report(f"{written} written to {path}" if Path(path).exists() else f"{path} was not written")


def _consume(
    consumer: Consumer[bytes | None, bytes | None],
    reading: _Reading,
    source: Iterable[Records],
    write: Callable[[Records], None],
    chosen: _Chosen,
) -> int:
    from ottla.client.model import TopicPartition

    left = reading.most_records
    for records in source:
        shown, read = chosen.of(records, left)
        write(shown)
        if left is not None:
            left -= len(shown)
        if reading.group is not None:
            consumer.commit({TopicPartition(each.topic, each.partition): each.offset + 1 for each in read})
        if chosen.is_ended:
            return EXIT_REFUSED
        if left == 0:
            break
    return 0


def _records_of(
    consumer: Consumer[bytes | None, bytes | None], reading: _Reading, timeout_s: float
) -> Iterable[Records]:
    from ottla.ops.topic_reading import POLL_MS

    if reading.group is None:
        places = reading.start or END, reading.until
        yield from start_reading(COMMAND, consumer, reading.topics, reading.partitions, places, timeout_s)
        return
    troubles = Troubles(COMMAND, consumer)
    for topic in reading.topics:
        consumer.partitions_for(topic)
    consumer.subscribe(reading.topics)
    while True:
        if records := list(consumer.poll(POLL_MS)):
            yield records
        else:
            troubles.look()
