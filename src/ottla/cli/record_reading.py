"""Reading topics without a group, for several commands: options, settings, the reader, what keeps records away."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ottla.cli.command import Command, CommandError
from ottla.cli.record_options import parse_position

if TYPE_CHECKING:
    from ottla.client.sync import Consumer
    from ottla.ops.topic_reading import Records, TopicReader
    from ottla.records.consumed import ConsumerRecord

#: Time after which a new partition is read, ms.
NEW_PARTITIONS_MS = "5000"
#: What keeps records away for that long is reported.
TROUBLE_S = 3.0
BEGINNING, END = "beginning", "end"


def _start(default: str = "") -> Any:
    return typer.Option(
        "--from",
        "-o",
        metavar="PLACE",
        help="Where to begin: beginning, end, an offset, -10 (the last ten of each partition), 1h (ago), a "
        f"date and time{default}.",
    )


Start = Annotated[str | None, _start(" [end]")]
StartAtBeginning = Annotated[str, _start()]
Until = Annotated[
    str | None, typer.Option(metavar="PLACE", help="Where to end, a place as for --from; without, never.")
]
UntilEnd = Annotated[str, typer.Option(metavar="PLACE", help="Where to end, a place as for --from.")]
ReadCommitted = Annotated[
    bool, typer.Option("--read-committed", help="Without records of transactions that were aborted or are open.")
]
Filter = Annotated[
    str | None,
    typer.Option(
        "--filter",
        metavar="EXPRESSION",
        help="Only records of which a JMESPath expression is true, as in \"value.city == 'Oslo' && offset > `41`\"; "
        "its fields are key, value, headers, topic, partition, offset, timestamp.",
    ),
]


def reading_settings(*, read_committed: bool) -> dict[str, str]:
    """Settings of a consumer that is assigned its partitions."""
    settings = {"enable.auto.commit": "false", "allow.auto.create.topics": "false", "auto.offset.reset": "none"}
    return settings | ({"isolation.level": "read_committed"} if read_committed else {})


def start_reading(
    command: Command,
    consumer: Consumer[bytes | None, bytes | None],
    topics: Sequence[str],
    partitions: Sequence[int] | None,
    places: tuple[str, str | None],
    stall_s: float,
    *,
    poll: Callable[[int], Records] | None = None,
    on_wait: Callable[[], None] = lambda: None,
) -> TopicReader:
    """Begin at the first of the two places and end at the other. Raises CommandError, ClientError."""
    from ottla.env.clock import SystemClock
    from ottla.ops.topic_reading import TopicReader

    now_ms = SystemClock().now_ms()
    start, until = places
    end = None if until is None else parse_position("--until", until, now_ms)
    begin = parse_position("--from", start, now_ms)
    if end is not None and end.is_before(begin):
        raise CommandError(f"--from {start} is later than --until {until}, so that nothing is between them; swap them")
    troubles = Troubles(command, consumer)

    def wait() -> None:
        troubles.look()
        on_wait()

    reader = TopicReader(consumer, topics, partitions, stall_s, wait, poll)
    reader.start(begin, end)
    return reader


def record_filter(
    command: Command, expression: str | None
) -> Callable[[ConsumerRecord[bytes | None, bytes | None]], bool] | None:
    """Whether records match `--filter`; None without one. Raises CommandError."""
    if expression is None:
        return None
    from ottla.client.errors import InvalidArgumentError
    from ottla.ops.record_filter import RecordFilter
    from ottla.ops.record_rows import record_place
    from ottla.records.extras import MissingExtraError

    def report(record: ConsumerRecord[Any, Any], problem: str) -> None:
        command.report(
            f"--filter cannot be computed of {record_place(record)} and perhaps others, which are left out: {problem}"
        )

    try:
        return RecordFilter(expression, report).matches
    except InvalidArgumentError as problem:
        raise CommandError(f"--filter {problem}") from problem
    except MissingExtraError as problem:
        raise CommandError(str(problem)) from problem


class Troubles:
    """Reports what keeps records away for a while, once, and when it is over."""

    def __init__(self, command: Command, consumer: Consumer[bytes | None, bytes | None]) -> None:
        self._command = command
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
                self._command.report("records can be read again")
            self._since_s, self._is_reported = None, False
            return
        now_s = time.monotonic()
        self._since_s = now_s if self._since_s is None else self._since_s
        if not self._is_reported and now_s - self._since_s >= TROUBLE_S:
            self._is_reported = True
            self._command.report(f"{found[0]}; waiting")
