"""Filters of a batch query that say which partitions and offsets need not be read at all.

Spark hands filters over where `spark.sql.python.filterPushdown.enabled` is true, for batch reads only.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from ottla.client.model import TopicPartition
from ottla.spark.source.offsets import Offsets

_NEVER_NULL = ("topic", "partition", "offset", "timestamp", "timestampType")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class Pushdown:
    """The part that the filters leave to read.

    `end_offset` is exclusive. Records before the first one at or after `timestamp_ms` are not wanted; later ones may be
    older than that, so Spark filters them again.
    """

    first_offset: int = 0
    end_offset: int | None = None
    timestamp_ms: int | None = None
    _partitions: list[tuple[frozenset[Any], bool]] = field(default_factory=list)
    _topics: list[tuple[frozenset[Any], bool]] = field(default_factory=list)

    def add(self, filter: Filter) -> bool:
        """Take a filter in; whether what is left to read fulfils it, so that Spark need not look again."""
        wanted = not isinstance(filter, Not)
        inner = filter.child if isinstance(filter, Not) else filter
        if isinstance(inner, IsNotNull):
            return wanted and _column(inner) in _NEVER_NULL
        column = _column(inner)
        if column in ("partition", "topic") and isinstance(inner, EqualTo | EqualNullSafe | In):
            return self._add_names(column, _values(inner), wanted)
        if column == "offset" and wanted:
            return self._add_offsets(inner)
        if column == "timestamp" and wanted:
            self._add_time(inner)
        return False

    def _add_names(self, column: str, values: Sequence[Any], wanted: bool) -> bool:
        if not all(isinstance(each, int if column == "partition" else str) for each in values):
            return False
        conditions = self._partitions if column == "partition" else self._topics
        conditions.append((frozenset(values), wanted))
        return True

    def _add_offsets(self, filter: Filter) -> bool:
        values = _values(filter)
        if not values or not all(isinstance(each, int) for each in values):
            return False
        low, high = int(min(values)), int(max(values))
        match filter:
            case EqualTo() | EqualNullSafe() | In():
                self._bound(low, high + 1)
                return high - low + 1 == len(set(values))
            case GreaterThan():
                self._bound(low + 1, None)
            case GreaterThanOrEqual():
                self._bound(low, None)
            case LessThan():
                self._bound(0, high)
            case LessThanOrEqual():
                self._bound(0, high + 1)
            case _:
                return False
        return True

    def _bound(self, first: int, end: int | None) -> None:
        self.first_offset = max(self.first_offset, first)
        if end is not None:
            self.end_offset = end if self.end_offset is None else min(self.end_offset, end)

    def _add_time(self, filter: Filter) -> None:
        if not isinstance(filter, EqualTo | EqualNullSafe | GreaterThan | GreaterThanOrEqual):
            return
        moment = filter.value
        if not isinstance(moment, datetime) or moment.tzinfo is None:
            return
        since = moment - _EPOCH
        micros = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
        least_ms = micros // 1_000 + 1 if isinstance(filter, GreaterThan) else -(-micros // 1_000)
        self.timestamp_ms = max(least_ms, 0 if self.timestamp_ms is None else self.timestamp_ms)

    def wants(self, partition: TopicPartition) -> bool:
        """Whether the partition can have records that fulfil the filters."""
        return all((partition.partition in values) is wanted for values, wanted in self._partitions) and all(
            (partition.topic in values) is wanted for values, wanted in self._topics
        )

    def narrow(self, start: Offsets, end: Offsets, first_since: Offsets) -> tuple[Offsets, Offsets]:
        """Return the starts and ends of reading under the filters.

        `first_since` has the offset of the first record at or after `timestamp_ms`, -1 where there is none.
        """
        narrowed = {each: max(offset, self.first_offset) for each, offset in start.items()}
        ends = {
            each: offset if self.end_offset is None else min(offset, self.end_offset) for each, offset in end.items()
        }
        for each, first in first_since.items():
            narrowed[each] = max(narrowed[each], first) if first >= 0 else ends[each]
        return narrowed, ends


def push_filters(filters: Iterable[Filter], pushdown: Pushdown) -> list[Filter]:
    """Take the filters in; those are returned that Spark has to apply itself."""
    return [each for each in filters if not pushdown.add(each)]


def _column(filter: Filter) -> str:
    path: Sequence[str] = getattr(filter, "attribute", [])
    return path[0] if len(path) == 1 else ""


def _values(filter: Filter) -> Sequence[Any]:
    value: Any = getattr(filter, "value", None)
    return list(value) if isinstance(filter, In) else [value]
