"""Options of reading with `format("ottla")`: the names of Spark's own Kafka source, checked before anything is read.

Each problem is an `OptionError` that names the option and the cure. Source: Spark's Structured Streaming + Kafka
integration guide.
"""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from ottla.client.model import TopicPartition
from ottla.spark.connection import NOT_SERVED, ConnectionOptions, parse_connection
from ottla.spark.errors import OptionError
from ottla.spark.options import KAFKA_PREFIX, SparkOptions
from ottla.spark.source.offsets import EARLIEST, LATEST, OffsetJsonError, Offsets, parse_assignment, parse_offsets
from ottla.spark.source.option_table import READ_OPTIONS

DEFAULT_ROWS_PER_BATCH = 8_192
DEFAULT_FETCH_MAX_BYTES = 2 * 1024 * 1024
DEFAULT_POLL_TIMEOUT_MS = 120_000
DEFAULT_MAX_TRIGGER_DELAY_MS = 15 * 60_000
DEFAULT_FETCH_OFFSET_ATTEMPTS = 3
DEFAULT_FETCH_OFFSET_INTERVAL_MS = 1_000

if TYPE_CHECKING:
    from ottla.spark.decoding.options import DecodingOptions

COMMITTED = "committed"
"""A value of `startingOffsets`: where the group committed."""
COLUMN_OPTIONS = ("includeHeaders", "columns")
"""Options that choose columns, beside those of decoding."""
RESET = "kafka.auto.offset.reset"

log = logging.getLogger(__name__)


class TimestampMiss(Enum):
    """The treatment of a partition that has no record at or after a starting timestamp."""

    ERROR = "error"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class Selection:
    """Which partitions to read: exactly one of the three is set."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: tuple[TopicPartition, ...] = ()

    def selects_topic(self, topic: str) -> bool:
        """Whether partitions of a topic are read. A pattern may be found anywhere in the name, as in Spark's source."""
        if self.pattern is not None:
            return re.search(self.pattern, topic) is not None
        return topic in self.topics or any(each.topic == topic for each in self.assigned)

    def selects(self, partition: TopicPartition) -> bool:
        """Whether a partition is read."""
        return partition in self.assigned if self.assigned else self.selects_topic(partition.topic)

    def __str__(self) -> str:
        if self.pattern is not None:
            return f"subscribePattern {self.pattern}"
        if self.assigned:
            return f"assign {', '.join(map(str, self.assigned))}"
        return f"subscribe {', '.join(self.topics)}"


@dataclass(frozen=True, slots=True)
class Bound:
    """The start or end of reading: one rule for all partitions, and exceptions by partition.

    `offset` is EARLIEST, LATEST or, where None, a place found through `timestamp_ms`. `offsets` and `timestamps_ms`
    hold what was given per partition. `committed` is for starting where the group committed; `offset` is then where
    partitions without a committed offset start, None for an error.
    """

    offset: int | None = None
    timestamp_ms: int | None = None
    offsets: Offsets = field(default_factory=dict)
    timestamps_ms: Offsets = field(default_factory=dict)
    committed: bool = False

    @property
    def names_partitions(self) -> bool:
        """Whether the bound was given partition by partition, so that every partition must be named."""
        return bool(self.offsets or self.timestamps_ms)


@dataclass(frozen=True, slots=True)
class AdmissionLimits:
    """How many records a micro-batch has at most and at least, and how long the latter may delay it."""

    max_offsets: int | None = None
    min_offsets: int | None = None
    max_delay_ms: int = DEFAULT_MAX_TRIGGER_DELAY_MS


@dataclass(frozen=True, slots=True)
class SplitOptions:
    """How ranges are split into tasks: into `min_tasks` in all, and so that none has more records or bytes."""

    min_tasks: int | None = None
    max_records: int | None = None
    max_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class FetchOptions:
    """How a task fetches. `poll_timeout_ms` bounds the wait for records, with all retries."""

    max_bytes: int = DEFAULT_FETCH_MAX_BYTES
    poll_timeout_ms: int = DEFAULT_POLL_TIMEOUT_MS
    read_committed: bool = False
    check_crcs: bool = True
    rack: str = ""


@dataclass(frozen=True, slots=True)
class RetryOptions:
    """How often the driver tries to look up offsets, and the pause between attempts in milliseconds."""

    attempts: int = DEFAULT_FETCH_OFFSET_ATTEMPTS
    interval_ms: int = DEFAULT_FETCH_OFFSET_INTERVAL_MS


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Checked options of a reader. `rows_per_batch` and `fetch.max_bytes` bound what a task holds in memory.

    `columns` are those wanted, in their order, None for all; without `decoding` values are bytes.
    """

    connection: ConnectionOptions
    selection: Selection
    starting: Bound
    ending: Bound
    timestamp_miss: TimestampMiss = TimestampMiss.ERROR
    limits: AdmissionLimits = field(default_factory=AdmissionLimits)
    split: SplitOptions = field(default_factory=SplitOptions)
    fetch: FetchOptions = field(default_factory=FetchOptions)
    retry: RetryOptions = field(default_factory=RetryOptions)
    fail_on_data_loss: bool = True
    fail_on_bad_timestamp: bool = True
    include_headers: bool = False
    columns: tuple[str, ...] | None = None
    decoding: DecodingOptions | None = None
    group_id: str | None = None
    rows_per_batch: int = DEFAULT_ROWS_PER_BATCH


def parse_read_options(options: Mapping[str, str], *, streaming: bool) -> ReadOptions:
    """Check the options of a read. Raises OptionError."""
    checked = SparkOptions(
        options, (*READ_OPTIONS, *decoding_names(options)), "reading", _not_served(options, streaming)
    )
    group_id = _group_id(checked)
    starting = _starting(checked, group_id, default=LATEST if streaming else EARLIEST)
    if streaming:
        for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"):
            if name in checked:
                raise OptionError(f"option {name} is for batch reads only; a stream has no end")
    else:
        if starting.offset == LATEST or LATEST in starting.offsets.values():
            raise OptionError("option startingOffsets: a batch read cannot start at latest; use earliest or an offset")
        for name in ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"):
            if name in checked:
                log.warning("option %s is for streams; a batch read takes everything", name)
    ending = parse_bound(checked, "ending", default=LATEST)
    if ending.offset == EARLIEST or EARLIEST in ending.offsets.values():
        raise OptionError("option endingOffsets: a read cannot end at earliest; use latest or an offset")
    connection = parse_connection(
        checked, client_id=_client_id(checked, group_id), defaults={"fetch.max.bytes": str(DEFAULT_FETCH_MAX_BYTES)}
    )
    return ReadOptions(
        connection=connection,
        selection=parse_selection(checked),
        starting=starting,
        ending=ending,
        timestamp_miss=TimestampMiss(
            checked.choice("startingOffsetsByTimestampStrategy", ("error", "latest"), "error")
        ),
        limits=_limits(checked),
        split=SplitOptions(
            checked.positive("minPartitions"),
            checked.positive("maxRecordsPerPartition"),
            checked.positive("maxBytesPerPartition"),
        ),
        fetch=_fetch(checked, connection),
        retry=RetryOptions(
            checked.positive("fetchOffset.numRetries") or DEFAULT_FETCH_OFFSET_ATTEMPTS,
            _or_default(checked.number("fetchOffset.retryIntervalMs", least=0), DEFAULT_FETCH_OFFSET_INTERVAL_MS),
        ),
        fail_on_data_loss=checked.boolean("failOnDataLoss", default=True),
        fail_on_bad_timestamp=checked.boolean("failOnBadTimestamp", default=True),
        include_headers=checked.boolean("includeHeaders", default=False),
        columns=parse_columns(checked),
        decoding=parse_decoding(options),
        group_id=group_id,
        rows_per_batch=checked.positive("rowsPerBatch") or DEFAULT_ROWS_PER_BATCH,
    )


def decoding_names(options: Mapping[str, str]) -> tuple[str, ...]:
    """The options of decoding; none where all options given are others, which saves the import of pyarrow."""
    others = {name.lower() for name in READ_OPTIONS}
    if all(name.lower() in others or name.lower().startswith(KAFKA_PREFIX) for name in options):
        return ()
    from ottla.spark.decoding.options import DECODING_OPTIONS

    return DECODING_OPTIONS


def parse_decoding(options: Mapping[str, str]) -> DecodingOptions | None:
    """How values are decoded; None where no option says so. Raises OptionError."""
    names = {name.lower() for name in decoding_names(options)}
    if not any(name.lower() in names for name in options):
        return None
    from ottla.spark.decoding.options import parse_decoding_options

    return parse_decoding_options(options)


def _not_served(options: Mapping[str, str], streaming: bool) -> dict[str, str]:
    """Name the options that reading refuses, and alternatives."""
    refused = NOT_SERVED | {"path": "name topics with subscribe", "topic": "name topics with subscribe"}
    if streaming:
        refused["segments"] = "segment files are read by batch queries; a stream can start where one ended"
    starting = {name.lower(): value for name, value in options.items()}.get("startingoffsets", "")
    if starting.strip().lower() != COMMITTED:
        refused[RESET] = "use startingOffsets; it is for startingOffsets=committed only"
    return refused


def _client_id(options: SparkOptions, group_id: str | None) -> str | None:
    """The name for brokers that `groupIdPrefix` begins; Spark's source names a group of its own by it."""
    prefix = (options.get("groupIdPrefix") or "").strip()
    return f"{prefix}-{uuid.uuid4()}" if prefix and group_id is None else None


def _or_default(value: int | None, default: int) -> int:
    return default if value is None else value


def _limits(options: SparkOptions) -> AdmissionLimits:
    most, least = options.positive("maxOffsetsPerTrigger"), options.positive("minOffsetsPerTrigger")
    if most is not None and least is not None and least > most:
        raise OptionError(
            f"option minOffsetsPerTrigger ({least}) is more than maxOffsetsPerTrigger ({most}); lower the one or raise "
            "the other"
        )
    return AdmissionLimits(
        most, least, _or_default(options.milliseconds("maxTriggerDelay"), DEFAULT_MAX_TRIGGER_DELAY_MS)
    )


def _fetch(options: SparkOptions, connection: ConnectionOptions) -> FetchOptions:
    config = connection.consumer
    max_bytes = config.fetch_max_bytes if "kafka.fetch.max.bytes" in options else DEFAULT_FETCH_MAX_BYTES
    if "kafka.max.partition.fetch.bytes" in options:  # A fetch is of one partition, so both limit it.
        max_bytes = min(max_bytes, config.max_partition_fetch_bytes)
    return FetchOptions(
        max(1, max_bytes),
        options.positive("kafkaConsumer.pollTimeoutMs") or DEFAULT_POLL_TIMEOUT_MS,
        config.isolation_level == "read_committed",
        config.check_crcs,
        config.client_rack,
    )


def parse_columns(options: SparkOptions) -> tuple[str, ...] | None:
    """The columns wanted, None for all. Raises OptionError."""
    text = options.get("columns")
    if text is None:
        return None
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise OptionError("option columns names no column; give column[,column], or leave it out for all")
    return names


def parse_selection(options: SparkOptions) -> Selection:
    """Read `subscribe`, `subscribePattern` or `assign`, of which one must be given. Raises OptionError."""
    names = [name for name in ("subscribe", "subscribePattern", "assign") if name in options]
    if len(names) != 1:
        found = f"got {' and '.join(names)}" if names else "got none"
        raise OptionError(f"give exactly one of the options subscribe, subscribePattern, assign; {found}")
    text = options.get(names[0]) or ""
    if names[0] == "subscribe":
        topics = tuple(dict.fromkeys(topic.strip() for topic in text.split(",") if topic.strip()))
        if not topics:
            raise OptionError("option subscribe names no topic; give topic[,topic]")
        return Selection(topics=topics)
    if names[0] == "subscribePattern":
        text = text.strip()
        if not text:
            raise OptionError("option subscribePattern is empty; give a regular expression")
        try:
            re.compile(text)
        except re.error as problem:
            raise OptionError(f"option subscribePattern: {text!r} is not a regular expression ({problem})") from None
        return Selection(pattern=text)
    try:
        return Selection(assigned=tuple(parse_assignment(text)))
    except OffsetJsonError as problem:
        raise OptionError(f"option assign: {problem}") from None


def _starting(options: SparkOptions, group_id: str | None, *, default: int) -> Bound:
    by_time = "startingTimestamp" in options or "startingOffsetsByTimestamp" in options
    if by_time or (options.get("startingOffsets") or "").strip().lower() != COMMITTED:
        return parse_bound(options, "starting", default=default)
    if group_id is None:
        raise OptionError(
            "option startingOffsets: committed needs the group whose offsets are meant; give kafka.group.id"
        )
    word = options.choice(RESET, ("earliest", "latest", "none"), "earliest" if default == EARLIEST else "latest")
    return Bound(offset={"earliest": EARLIEST, "latest": LATEST, "none": None}[word], committed=True)


def parse_bound(options: SparkOptions, side: str, *, default: int) -> Bound:
    """Read `<side>Timestamp`, `<side>OffsetsByTimestamp` or `<side>Offsets`, whichever comes first in this order.

    Raises OptionError.
    """
    by_time, by_times, by_offset = f"{side}Timestamp", f"{side}OffsetsByTimestamp", f"{side}Offsets"
    if by_time in options:
        return Bound(timestamp_ms=options.number(by_time, least=0))
    if by_times in options:
        return Bound(timestamps_ms=_offsets(options, by_times, lowest=0))
    text = options.get(by_offset)
    if text is None:
        return Bound(offset=default)
    word = text.strip().lower()
    if word in ("earliest", "latest"):
        return Bound(offset=EARLIEST if word == "earliest" else LATEST)
    if not word.startswith("{"):
        raise OptionError(f'option {by_offset}: {text!r} is neither earliest, latest nor JSON {{"topic": {{"0": 23}}}}')
    return Bound(offsets=_offsets(options, by_offset, lowest=EARLIEST))


def _group_id(options: SparkOptions) -> str | None:
    short, full = options.get("groupId"), options.get("kafka.group.id")
    if short is not None and full is not None and short != full:
        raise OptionError(f"options groupId ({short!r}) and kafka.group.id ({full!r}) contradict each other; give one")
    group = full if full is not None else short
    if group is not None and not group.strip():
        raise OptionError("option kafka.group.id is empty; leave it out to commit no offsets")
    return group


def _offsets(options: SparkOptions, name: str, *, lowest: int) -> Offsets:
    try:
        return parse_offsets(options.get(name) or "", lowest=lowest)
    except OffsetJsonError as problem:
        raise OptionError(f"option {name}: {problem}") from None
