"""The progress of a streaming query, as Spark reports after each batch. Pure.

Spark gives a progress as JSON (`StreamingQueryProgress`, `SourceProgress`). For a source in Python it has offsets, rows
and rates, but the name of a class as description and no metrics. Offsets of Spark's own Kafka source look the same, so
its queries are read alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from ottla.client.model import TopicPartition
from ottla.spark.source.offsets import OffsetJsonError, Offsets, from_json


class QueryState(StrEnum):
    """The state of a query."""

    RUNNING = "running"
    IDLE = "idle"
    """It waits for new records."""
    STOPPED = "stopped"
    FAILED = "failed"

    @property
    def has_ended(self) -> bool:
        """Whether no further batch comes, unless the query is started again."""
        return self in (QueryState.STOPPED, QueryState.FAILED)


class Basis(StrEnum):
    """The basis of a lag."""

    PROGRESS = "progress"
    """The offsets in Spark's progress: the ends of the logs as they were when the batch was planned, and when such ends
    were first seen."""
    CLUSTER = "cluster"
    """The cluster, asked after the batch: the ends of the logs, and the timestamps of the first unread records."""


@dataclass(frozen=True, slots=True)
class Lag:
    """How far a source is behind the ends of its partitions.

    `rows` are offsets, so records that compaction removed and transaction markers count. `seconds` is the age of each
    partition's oldest record that was not read, 0 where there is none; one whose age is not known is left out.
    """

    rows: Mapping[TopicPartition, int] = field(default_factory=dict)
    seconds: Mapping[TopicPartition, float] = field(default_factory=dict)
    basis: Basis = Basis.PROGRESS

    @property
    def total_rows(self) -> int:
        """Of all partitions."""
        return sum(self.rows.values())

    @property
    def most_seconds(self) -> float | None:
        """Of the partition that is furthest behind; None where nothing is known."""
        return max(self.seconds.values(), default=None)

    def rows_of(self, topic: str) -> int:
        """Of all partitions of a topic."""
        return sum(rows for each, rows in self.rows.items() if each.topic == topic)

    def seconds_of(self, topic: str) -> float | None:
        """Of the partition of a topic that is furthest behind; None where nothing is known."""
        return max((seconds for each, seconds in self.seconds.items() if each.topic == topic), default=None)


@dataclass(frozen=True, slots=True)
class SourceProgress:
    """One source of a query after a batch. `rows` are the batch's; rates are per second. A source that has no offsets
    of topics, such as files, has neither topics nor lag.
    """

    number: int
    description: str
    rows: int
    input_rows_per_second: float
    processed_rows_per_second: float
    end: Offsets = field(default_factory=dict)
    latest: Offsets = field(default_factory=dict)
    lag: Lag | None = None

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that it reads, in order."""
        return tuple(sorted({each.topic for each in self.end}))


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """One batch of a query. `seconds` is its duration, `started` its beginning as Spark writes it (ISO 8601, UTC).

    `watermark_s` is the event-time watermark in seconds since 1970, None where the query has none. `state_rows` and
    `state_bytes` are what its stateful operators keep, in rows and in memory.
    """

    query_id: str
    run_id: str
    name: str | None
    number: int
    started: str
    seconds: float
    rows: int
    input_rows_per_second: float
    processed_rows_per_second: float
    sources: tuple[SourceProgress, ...]
    watermark_s: float | None = None
    state_rows: int = 0
    state_bytes: int = 0


def read_progress(progress: Mapping[str, Any]) -> BatchProgress:
    """A batch's progress (`StreamingQueryProgress.json`, parsed)."""
    return BatchProgress(
        query_id=progress["id"],
        run_id=progress["runId"],
        name=progress.get("name"),
        number=progress["batchId"],
        started=progress["timestamp"],
        seconds=progress.get("batchDuration", 0) / 1_000,
        rows=progress.get("numInputRows", 0),
        input_rows_per_second=_rate(progress, "inputRowsPerSecond"),
        processed_rows_per_second=_rate(progress, "processedRowsPerSecond"),
        sources=tuple(_read_source(number, each) for number, each in enumerate(progress.get("sources", ()))),
        watermark_s=_watermark(progress.get("eventTime")),
        state_rows=sum(each.get("numRowsTotal", 0) for each in progress.get("stateOperators", ())),
        state_bytes=sum(each.get("memoryUsedBytes", 0) for each in progress.get("stateOperators", ())),
    )


def _watermark(event_time: object) -> float | None:
    """The watermark in seconds since 1970; None for one after the year 9999, which Python's times do not have.

    Spark has 1970 itself until the first rows have come.
    """
    text = event_time.get("watermark") if isinstance(event_time, Mapping) else None
    if text is None or text.startswith("+"):
        return None
    return datetime.fromisoformat(text).timestamp() or None


def _read_source(number: int, source: Mapping[str, Any]) -> SourceProgress:
    end, latest = _offsets(source.get("endOffset")), _offsets(source.get("latestOffset"))
    return SourceProgress(
        number=number,
        description=source.get("description", ""),
        rows=source.get("numInputRows", 0),
        input_rows_per_second=_rate(source, "inputRowsPerSecond"),
        processed_rows_per_second=_rate(source, "processedRowsPerSecond"),
        end=end,
        latest=latest,
    )


def _rate(progress: Mapping[str, Any], name: str) -> float:
    """A rate; Spark leaves out one that is not a number, such as that of the first batch."""
    return float(progress.get(name) or 0.0)


def _offsets(document: object) -> Offsets:
    """Offsets of topics; none where the source has others, such as a number."""
    try:
        return from_json(document)
    except OffsetJsonError:
        return {}


def rows_behind(end: Offsets, latest: Offsets) -> dict[TopicPartition, int]:
    """Offsets between what was read and the end of each log; a partition that was not planned yet is left out."""
    return {each: max(0, latest[each] - offset) for each, offset in end.items() if each in latest}
