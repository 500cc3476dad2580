"""The part of a log that can be compacted, and how urgent it is. Rules as in Kafka 3.9 (`LogCleanerManager.scala`)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from ottla.storage.index import OFFSET_ENTRY, TIME_ENTRY
from ottla.storage.log import PartitionLog
from ottla.storage.segment import MAX_RELATIVE_OFFSET, Segment


class CleanableLog(NamedTuple):
    """A log as a round of cleaning would process it; sizes in bytes of whole segments."""

    log: PartitionLog
    #: Everything below has been cleaned.
    first_dirty_offset: int
    #: Base offset of the first segment that must not be cleaned yet.
    end_offset: int
    clean_bytes: int
    dirty_bytes: int
    #: Whether a record has waited longer than `max.compaction.lag.ms` allows.
    overdue: bool

    @property
    def dirty_ratio(self) -> float:
        """The share of the cleanable bytes that has not been cleaned yet; 0 if nothing is cleanable."""
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    @property
    def is_due(self) -> bool:
        """Whether a round should be started."""
        if not self.dirty_bytes:
            return False
        return self.overdue or self.dirty_ratio > self.log.config.min_cleanable_dirty_ratio


def first_dirty_offset(log: PartitionLog, checkpoint: int | None) -> int:
    """The offset where cleaning continues: the `checkpoint`, or the start of the log if that cannot be right."""
    if checkpoint is None or not log.log_start_offset <= checkpoint <= log.log_end_offset:
        return log.log_start_offset
    return checkpoint


def examine(log: PartitionLog, checkpoint: int | None, now_ms: int) -> CleanableLog:
    """The part of `log` that a round started now would process. Raises DiskError."""
    *closed, active = log.segments
    first_dirty = first_dirty_offset(log, checkpoint)
    dirty = _number_of(closed, first_dirty) if first_dirty < active.base_offset else len(closed)
    # Data that is not synced yet may be lost in a power failure; the older value of a key must still exist then.
    limit = min(log.last_stable_offset, active.base_offset, log.recovery_point)
    lag_ms = log.config.min_compaction_lag_ms
    if lag_ms > 0:
        for segment in closed[dirty:]:
            if segment.largest_timestamp_so_far() > now_ms - lag_ms:
                limit = min(limit, segment.base_offset)
                break
    limit = max(first_dirty, limit)
    end = _number_of(closed, limit) if limit < active.base_offset else len(closed)
    return CleanableLog(
        log,
        first_dirty,
        closed[end].base_offset if end < len(closed) else active.base_offset,
        sum(segment.size for segment in closed[: min(dirty, end)]),
        sum(segment.size for segment in closed[dirty:end]),
        _is_overdue(log, closed[dirty:], now_ms),
    )


def _number_of(segments: Sequence[Segment], offset: int) -> int:
    return max(0, bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1)


def _is_overdue(log: PartitionLog, dirty: Sequence[Segment], now_ms: int) -> bool:
    until_ms = now_ms - log.config.max_compaction_lag_ms
    if until_ms <= 0:
        return False
    return any(0 < segment.first_timestamp() < until_ms for segment in dirty)


def group_segments(log: PartitionLog, below_offset: int) -> list[list[Segment]]:
    """The closed segments that begin below `below_offset`, in groups that each fit into one segment."""
    config = log.config
    segments = log.segments
    groups: list[list[Segment]] = []
    size = offset_index = time_index = 0
    for segment, following in pairwise(segments):
        if segment.base_offset >= below_offset:
            break
        size += segment.size
        offset_index += segment.offset_index.entries * OFFSET_ENTRY.size
        time_index += segment.time_index.entries * TIME_ENTRY.size
        if (
            groups
            and size <= config.segment_bytes
            and max(offset_index, time_index) <= config.segment_index_bytes
            and following.base_offset - 1 - groups[-1][0].base_offset <= MAX_RELATIVE_OFFSET
        ):
            groups[-1].append(segment)
        else:
            groups.append([segment])
            size = segment.size
            offset_index = segment.offset_index.entries * OFFSET_ENTRY.size
            time_index = segment.time_index.entries * TIME_ENTRY.size
    return groups
