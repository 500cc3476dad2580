"""Options of `format("ottla")`: the names of Spark's own Kafka source and sink, checked before anything is read.

Spark hands options over without regard to case. Each problem is an `OptionError` that names the option and the cure.
Source: Spark's Structured Streaming + Kafka integration guide.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from ottla.client.model import TopicPartition
from ottla.spark.offsets import EARLIEST, LATEST, OffsetJsonError, Offsets, parse_assignment, parse_offsets

BOOTSTRAP = "kafka.bootstrap.servers"

COMMON_OPTIONS = (BOOTSTRAP, "kafka.client.id", "kafka.request.timeout.ms", "kafka.security.protocol")
READ_OPTIONS = (
    *COMMON_OPTIONS,
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "maxOffsetsPerTrigger",
    "minPartitions",
    "failOnDataLoss",
    "includeHeaders",
    "groupId",
    "kafka.group.id",
    "kafka.fetch.max.bytes",
    "rowsPerBatch",
)
WRITE_OPTIONS = (
    *COMMON_OPTIONS,
    "topic",
    "includeHeaders",
    "kafka.acks",
    "kafka.compression.type",
    "kafka.batch.size",
    # Options of every streaming write, which Spark hands on to the sink.
    "checkpointLocation",
    "queryName",
)
NOT_SERVED = {
    "minOffsetsPerTrigger": "leave it out, or use a longer trigger interval",
    "maxTriggerDelay": "leave it out, or use a longer trigger interval",
    "maxRecordsPerPartition": "use minPartitions",
    "groupIdPrefix": "name the group itself with kafka.group.id",
    "kafka.auto.offset.reset": "use startingOffsets",
    "kafka.enable.auto.commit": "offsets are committed to kafka.group.id after each batch",
    "kafka.key.deserializer": "keys are binary; cast them in the query",
    "kafka.value.deserializer": "values are binary; cast them in the query",
    "kafka.key.serializer": "keys are binary or strings; cast them in the query",
    "kafka.value.serializer": "values are binary or strings; cast them in the query",
    "kafka.interceptor.classes": "interceptors are Java classes",
    "path": "name topics with subscribe (reading) or topic (writing)",
}

DEFAULT_ROWS_PER_BATCH = 8_192
DEFAULT_FETCH_MAX_BYTES = 4 * 1024 * 1024
DEFAULT_REQUEST_TIMEOUT_MS = 30_000


class OptionError(ValueError):
    """An option that is missing, unknown, contradictory or malformed; the message names it and the cure."""


class TimestampMiss(Enum):
    """What to do for a partition that has no record at or after a starting timestamp."""

    ERROR = "error"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """How to reach the cluster, reading and writing alike. `request_timeout_ms` is in milliseconds."""

    bootstrap_servers: str
    client_id: str = "ottla-spark"
    request_timeout_ms: int = DEFAULT_REQUEST_TIMEOUT_MS


@dataclass(frozen=True, slots=True)
class Selection:
    """Which partitions to read: exactly one of the three is set."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class Bound:
    """Where reading starts or ends: one rule for all partitions, and exceptions by partition.

    `offset` is EARLIEST, LATEST or, where None, a place found through `timestamp_ms`. `offsets` and `timestamps_ms`
    hold what was given per partition.
    """

    offset: int | None = None
    timestamp_ms: int | None = None
    offsets: Offsets = field(default_factory=dict)
    timestamps_ms: Offsets = field(default_factory=dict)

    @property
    def names_partitions(self) -> bool:
        """Whether the bound was given partition by partition, so that every partition must be named."""
        return bool(self.offsets or self.timestamps_ms)


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Checked options of a reader. `rows_per_batch` and `fetch_max_bytes` bound what a task holds in memory."""

    connection: ConnectionOptions
    selection: Selection
    starting: Bound
    ending: Bound
    timestamp_miss: TimestampMiss = TimestampMiss.ERROR
    max_offsets_per_trigger: int | None = None
    min_partitions: int | None = None
    fail_on_data_loss: bool = True
    include_headers: bool = False
    group_id: str | None = None
    fetch_max_bytes: int = DEFAULT_FETCH_MAX_BYTES
    rows_per_batch: int = DEFAULT_ROWS_PER_BATCH


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Checked options of a writer. `topic`, where given, wins over the column of that name."""

    connection: ConnectionOptions
    topic: str | None = None
    acks: int = -1
    compression_type: str = "none"
    batch_size: int | None = None


def parse_read_options(options: Mapping[str, str], *, streaming: bool) -> ReadOptions:
    """Check the options of a read. Raises OptionError."""
    given = _Given(options, READ_OPTIONS, "reading")
    starting = _bound(given, "starting", default=LATEST if streaming else EARLIEST)
    if streaming:
        for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"):
            if name in given:
                raise OptionError(f"option {name} is for batch reads only; a stream has no end")
    else:
        if starting.offset == LATEST or LATEST in starting.offsets.values():
            raise OptionError("option startingOffsets: a batch read cannot start at latest; use earliest or an offset")
        if "maxOffsetsPerTrigger" in given:
            raise OptionError("option maxOffsetsPerTrigger is for streams only; a batch read takes everything")
    ending = _bound(given, "ending", default=LATEST)
    if ending.offset == EARLIEST or EARLIEST in ending.offsets.values():
        raise OptionError("option endingOffsets: a read cannot end at earliest; use latest or an offset")
    return ReadOptions(
        connection=_connection(given),
        selection=_selection(given),
        starting=starting,
        ending=ending,
        timestamp_miss=TimestampMiss(given.choice("startingOffsetsByTimestampStrategy", ("error", "latest"), "error")),
        max_offsets_per_trigger=given.positive("maxOffsetsPerTrigger"),
        min_partitions=given.positive("minPartitions"),
        fail_on_data_loss=given.boolean("failOnDataLoss", default=True),
        include_headers=given.boolean("includeHeaders", default=False),
        group_id=_group_id(given),
        fetch_max_bytes=given.positive("kafka.fetch.max.bytes") or DEFAULT_FETCH_MAX_BYTES,
        rows_per_batch=given.positive("rowsPerBatch") or DEFAULT_ROWS_PER_BATCH,
    )


def parse_write_options(options: Mapping[str, str]) -> WriteOptions:
    """Check the options of a write. Raises OptionError."""
    given = _Given(options, WRITE_OPTIONS, "writing")
    acks = given.choice("kafka.acks", ("all", "-1", "0", "1"), "all")
    return WriteOptions(
        connection=_connection(given),
        topic=given.get("topic"),
        acks=-1 if acks == "all" else int(acks),
        compression_type=given.choice("kafka.compression.type", ("none", "gzip", "snappy", "lz4", "zstd"), "none"),
        batch_size=given.positive("kafka.batch.size"),
    )


class _Given:
    """The options as given, looked up without regard to case, refused where nobody knows them."""

    def __init__(self, options: Mapping[str, str], known: Iterable[str], purpose: str) -> None:
        self._values = {name.lower(): value for name, value in options.items()}
        names = {name.lower(): name for name in known}
        for name in self._values:
            if name not in names:
                raise OptionError(_unknown_option(name, names, purpose))

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._values

    def get(self, name: str) -> str | None:
        return self._values.get(name.lower())

    def choice(self, name: str, choices: tuple[str, ...], default: str) -> str:
        value = (self.get(name) or default).strip().lower()
        if value not in choices:
            raise OptionError(f"option {name}: {value!r} is not one of {', '.join(choices)}")
        return value

    def boolean(self, name: str, *, default: bool) -> bool:
        return self.choice(name, ("true", "false"), "true" if default else "false") == "true"

    def positive(self, name: str) -> int | None:
        value = self.get(name)
        if value is None:
            return None
        if not value.strip().isdigit() or int(value) < 1:
            raise OptionError(f"option {name}: {value!r} is not a whole number of 1 or more")
        return int(value)

    def offsets(self, name: str, *, lowest: int) -> Offsets:
        try:
            return parse_offsets(self.get(name) or "", lowest=lowest)
        except OffsetJsonError as problem:
            raise OptionError(f"option {name}: {problem}") from None


def _unknown_option(name: str, names: Mapping[str, str], purpose: str) -> str:
    for refused, cure in NOT_SERVED.items():
        if name == refused.lower():
            return f"option {refused} is not served when {purpose}: {cure}"
    near = difflib.get_close_matches(name, names, n=1)
    advice = f"did you mean {names[near[0]]}?" if near else f"known are {', '.join(sorted(names.values()))}"
    return f"unknown option {name!r} when {purpose}; {advice}"


def _connection(given: _Given) -> ConnectionOptions:
    servers = (given.get(BOOTSTRAP) or "").strip()
    if not servers:
        raise OptionError(f"option {BOOTSTRAP} is missing; give it as host:port[,host:port]")
    protocol = given.get("kafka.security.protocol")
    if protocol is not None and protocol.strip().upper() != "PLAINTEXT":
        raise OptionError(f"option kafka.security.protocol: {protocol!r} is not served yet; only PLAINTEXT is")
    return ConnectionOptions(
        bootstrap_servers=servers,
        client_id=given.get("kafka.client.id") or "ottla-spark",
        request_timeout_ms=given.positive("kafka.request.timeout.ms") or DEFAULT_REQUEST_TIMEOUT_MS,
    )


def _selection(given: _Given) -> Selection:
    names = [name for name in ("subscribe", "subscribePattern", "assign") if name in given]
    if len(names) != 1:
        found = f"got {' and '.join(names)}" if names else "got none"
        raise OptionError(f"give exactly one of the options subscribe, subscribePattern, assign; {found}")
    text = given.get(names[0]) or ""
    if names[0] == "subscribe":
        topics = tuple(dict.fromkeys(topic.strip() for topic in text.split(",") if topic.strip()))
        if not topics:
            raise OptionError("option subscribe names no topic; give topic[,topic]")
        return Selection(topics=topics)
    if names[0] == "subscribePattern":
        try:
            re.compile(text)
        except re.error as problem:
            raise OptionError(f"option subscribePattern: {text!r} is not a regular expression ({problem})") from None
        return Selection(pattern=text)
    try:
        return Selection(assigned=tuple(parse_assignment(text)))
    except OffsetJsonError as problem:
        raise OptionError(f"option assign: {problem}") from None


def _bound(given: _Given, side: str, *, default: int) -> Bound:
    """Read `<side>Timestamp`, `<side>OffsetsByTimestamp` or `<side>Offsets`, refusing more than one of them."""
    by_time, by_times, by_offset = f"{side}Timestamp", f"{side}OffsetsByTimestamp", f"{side}Offsets"
    names = [name for name in (by_time, by_times, by_offset) if name in given]
    if len(names) > 1:
        raise OptionError(f"options {' and '.join(names)} contradict each other; give one of them")
    if by_time in given:
        return Bound(timestamp_ms=given.positive(by_time))
    if by_times in given:
        return Bound(timestamps_ms=given.offsets(by_times, lowest=0))
    text = given.get(by_offset)
    if text is None:
        return Bound(offset=default)
    word = text.strip().lower()
    if word in ("earliest", "latest"):
        return Bound(offset=EARLIEST if word == "earliest" else LATEST)
    if not word.startswith("{"):
        raise OptionError(f'option {by_offset}: {text!r} is neither earliest, latest nor JSON {{"topic": {{"0": 23}}}}')
    return Bound(offsets=given.offsets(by_offset, lowest=EARLIEST))


def _group_id(given: _Given) -> str | None:
    short, full = given.get("groupId"), given.get("kafka.group.id")
    if short is not None and full is not None and short != full:
        raise OptionError(f"options groupId ({short!r}) and kafka.group.id ({full!r}) contradict each other; give one")
    group = full if full is not None else short
    if group is not None and not group.strip():
        raise OptionError("option kafka.group.id is empty; leave it out to commit no offsets")
    return group
