"""`ottla consume`: the records of topics as text, by a template, or as JSON, to an end or as they arrive."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ottla.cli.command import Command, CommandError
from ottla.cli.options import ClusterOptions
from ottla.cli.record_options import (
    ClientConfig,
    ClientProperties,
    Partitions,
    client_settings,
    parse_partitions,
    parse_position,
)
from ottla.cli.terminal import json_line, printable
from ottla.inspection.texts import TextFormat

if TYPE_CHECKING:
    from ottla.client.sync import Consumer
    from ottla.ops.topic_reading import Records

COMMAND = Command("ottla consume")
#: Time after which a new partition is read, ms.
NEW_PARTITIONS_MS = "5000"
#: What keeps records away for that long is reported.
TROUBLE_S = 3.0
BEGINNING, END = "beginning", "end"
_RESETS = {BEGINNING: "earliest", "earliest": "earliest", END: "latest", "latest": "latest"}


Start = Annotated[
    str | None,
    typer.Option(
        "--from",
        "-o",
        metavar="PLACE",
        help="Where to begin: beginning, end, an offset, -10 (the last ten of each partition), 1h (ago), a "
        "date and time [end].",
    ),
]
Template = Annotated[
    str | None,
    typer.Option(
        "--template",
        "-f",
        help=r"How a record is shown, as by kcat: %t topic, %p partition, %o offset, %T timestamp, %k key, %s "
        r"value, %h headers, %K and %S sizes, \n, \t, \x1f [%s\n].",
    ),
]


@dataclass(frozen=True, slots=True)
class _Reading:
    """Topics, where to begin and end, and as which group."""

    topics: list[str]
    partitions: list[int] | None
    start: str | None
    until: str | None
    most_records: int | None
    group: str | None


@dataclass(frozen=True, slots=True)
class _Shape:
    """How records are shown."""

    template: str | None
    key_separator: str | None
    null: str
    key_format: TextFormat
    value_format: TextFormat
    as_json: bool


def consume(
    shared: ClusterOptions,
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC...", help="Names of topics.")],
    start: Start = None,
    from_beginning: Annotated[bool, typer.Option("--from-beginning", help="Kafka's name of --from beginning.")] = False,
    until: Annotated[
        str | None, typer.Option(metavar="PLACE", help="Where to end, a place as for --from; without, never.")
    ] = None,
    exit_at_end: Annotated[
        bool, typer.Option("--exit", "-e", help="End where the topics end when the command begins: --until end.")
    ] = False,
    most_records: Annotated[
        int | None, typer.Option("--count", "-n", "--max-messages", help="End after that many records.", min=1)
    ] = None,
    partitions: Partitions = None,
    group: Annotated[
        str | None,
        typer.Option("--group", "-g", help="Read as a member of this group, and commit what was written out."),
    ] = None,
    template: Template = None,
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", "-K", help=r"Show the key, this text (\t), and the value.")
    ] = None,
    null: Annotated[str, typer.Option("--null", "-Z", help="What is shown for null.")] = "null",
    key_format: Annotated[TextFormat, typer.Option(help="How keys are shown.")] = TextFormat.AUTO,
    value_format: Annotated[TextFormat, typer.Option(help="How values are shown.")] = TextFormat.AUTO,
    read_committed: Annotated[
        bool, typer.Option("--read-committed", help="Without records of transactions that were aborted or are open.")
    ] = False,
    config: ClientConfig = None,
    properties: ClientProperties = None,
) -> None:
    r"""Show the records of topics: values, one a line, as they arrive.

    Key and value are written as the bytes that they are; a terminal gets characters that it cannot show as escapes.
    With --json each record is an object that `ottla produce --format json` makes the same record of.

    Examples: `ottla consume orders --from beginning --exit`, `ottla consume orders -f '%p %o %k %s\n'`.
    """
    shape = _Shape(template, key_separator, null, key_format, value_format, shared.as_json)
    at = _one_of("--from", start, "--from-beginning", BEGINNING if from_beginning else None)
    end = _one_of("--until", until, "--exit", END if exit_at_end else None)
    isolation = "read_committed" if read_committed else None

    def work() -> int:
        if null.startswith("-") and len(null) == len("-e"):
            raise CommandError(f"--null {null} takes a text; write -Z NULL, or --null={null} if {null} is meant")
        reading = _Reading(topics, parse_partitions(partitions), at, end, most_records, group)
        settings: dict[str, Any] = client_settings(shared, config or (), properties)
        settings |= _own_settings(reading, isolation, settings)
        settings.setdefault("metadata.max.age.ms", NEW_PARTITIONS_MS)
        return _consume(reading, shape, settings, shared.timeout_s, says_so=at is None and end is None)

    from ottla.client.errors import ClientError

    COMMAND.run(work, (ClientError,), until_closed=True)


def _one_of(name: str, value: str | None, other_name: str, other: str | None) -> str | None:
    if value is not None and other is not None:
        COMMAND.fail(f"{name} and {other_name} say the same thing; leave one of them out")
    return other if value is None else value


def _own_settings(reading: _Reading, isolation: str | None, wanted: Mapping[str, str]) -> dict[str, str]:
    for name in ("group.id", "enable.auto.commit"):
        if name in wanted:
            raise CommandError(
                f"{name} is not set by -c or --properties here; --group NAME reads as a group and commits"
            )
    settings = {"enable.auto.commit": "false", "allow.auto.create.topics": "false"}
    if isolation is not None:
        settings["isolation.level"] = isolation
    if reading.group is None:
        return settings | {"auto.offset.reset": "none"}
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


class _Troubles:
    """Reports what keeps records away for a while, once, and when it is over."""

    def __init__(self, consumer: Consumer[bytes | None, bytes | None]) -> None:
        self._consumer = consumer
        self._since_s: float | None = None
        self._is_reported = False

    def look(self) -> None:
        """Called where no records came."""
        from ottla.client.consumer.health import HealthCause

        causes = (HealthCause.BROKER, HealthCause.NO_LEADER, HealthCause.TOPIC_MISSING, HealthCause.NO_COORDINATOR)
        found = [each.message for each in self._consumer.health().findings if each.cause in causes]
        if not found:
            if self._is_reported:
                COMMAND.report("records can be read again")
            self._since_s, self._is_reported = None, False
            return
        now_s = time.monotonic()
        self._since_s = now_s if self._since_s is None else self._since_s
        if not self._is_reported and now_s - self._since_s >= TROUBLE_S:
            self._is_reported = True
            COMMAND.report(f"{found[0]}; waiting")


def _consume(reading: _Reading, shape: _Shape, settings: dict[str, Any], timeout_s: float, *, says_so: bool) -> int:
    from ottla.client.model import TopicPartition
    from ottla.client.sync import Consumer

    show = _show_of(shape)
    with Consumer(settings) as consumer:
        if says_so and reading.group is None and sys.stderr.isatty():
            COMMAND.report("waiting for new records; --from beginning shows those that are there, Ctrl-C ends")
        left = reading.most_records
        for records in _records_of(consumer, reading, timeout_s):
            shown = records[:left]
            sys.stdout.flush()
            sys.stdout.buffer.write(b"".join(map(show, shown)))
            sys.stdout.buffer.flush()
            if reading.group is not None:
                consumer.commit({TopicPartition(each.topic, each.partition): each.offset + 1 for each in shown})
            if left is not None:
                left -= len(shown)
                if left == 0:
                    break
    return 0


def _records_of(
    consumer: Consumer[bytes | None, bytes | None], reading: _Reading, timeout_s: float
) -> Iterable[Records]:
    from ottla.ops.topic_reading import POLL_MS, TopicReader

    now_ms = int(time.time() * 1000)
    troubles = _Troubles(consumer)
    if reading.group is None:
        reader = TopicReader(consumer, reading.topics, reading.partitions, timeout_s, troubles.look)
        until = None if reading.until is None else parse_position("--until", reading.until, now_ms)
        reader.start(parse_position("--from", reading.start or END, now_ms), until)
        yield from reader
        return
    for topic in reading.topics:
        consumer.partitions_for(topic)
    consumer.subscribe(reading.topics)
    while True:
        if records := list(consumer.poll(POLL_MS)):
            yield records
        else:
            troubles.look()


def _show_of(shape: _Shape) -> Any:
    from ottla.ops.record_rows import record_row
    from ottla.ops.record_templates import template

    key_format, value_format = shape.key_format, shape.value_format
    if shape.as_json:
        if shape.template is not None or shape.key_separator is not None:
            raise CommandError("--json shows all fields; leave --template and --key-separator out")
        return lambda record: json_line(record_row(record, key_format, value_format)).encode()
    if shape.template is not None and shape.key_separator is not None:
        raise CommandError(
            r"--template and --key-separator are both there; write the separator into the template: %k\t%s\n"
        )
    text = shape.template
    if text is None:
        text = "%s\\n" if shape.key_separator is None else f"%k{shape.key_separator.replace('%', '%%')}%s\\n"
    show = template(text, shape.null.encode(errors="surrogateescape"), key_format, value_format)
    return (lambda record: _harmless(show(record))) if sys.stdout.isatty() else show


def _harmless(shown: bytes) -> bytes:
    """Text for a terminal: characters that it would obey, or cannot show, as escapes; ends of lines and tabs stay."""
    text = shown.decode(errors="backslashreplace")
    return "".join([each if each in "\n\t" else printable(each) for each in text]).encode()
