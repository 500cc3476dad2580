"""Removal of segments past retention (`retention.ms`, `retention.bytes`, the log's start), as in Kafka 3.9."""

from __future__ import annotations

from typing import Final

from ottla.env.warmth import ColdRange, Range
from ottla.storage.files import DELETED_SUFFIX
from ottla.storage.log import PartitionLog
from ottla.storage.producer_snapshots import drop_snapshot
from ottla.storage.segment import Segment

#: Limit of positions in cold segments that are read ahead at one time.
MOST_COLD: Final = 1_000


def delete_old_segments(log: PartitionLog, now_ms: int) -> list[str]:
    """Remove segments that are too old, too large in total, or below the log's start; returns their renamed files.

    Segments not below the high watermark stay. If the active segment is too old it is rolled first, so that it is never
    deleted itself. Raises DiskError.
    """
    renamed: list[str] = []
    if "delete" in log.config.cleanup_policy:
        renamed += _drop(log, _count_expired(log, now_ms), now_ms)
        renamed += _drop(log, _count_beyond_size(log), now_ms)
    renamed += _drop(log, _count_below_start(log), now_ms)
    return renamed


def _drop(log: PartitionLog, count: int, now_ms: int) -> list[str]:
    if count and count == len(log.segments):
        log.roll(now_ms)
    return drop_segments(log, count)


def drop_segments(log: PartitionLog, count: int) -> list[str]:
    """Remove the first `count` segments from the log; returns their renamed files, to be deleted later.

    Ranges of them that are being sent stay readable. The last segment is never removed. Raises DiskError; files
    renamed by then are returned by the next call.
    """
    for _ in range(min(count, len(log.segment_list) - 1)):
        _drop_first(log)
    renamed, log.renamed = log.renamed, []
    return renamed


def _drop_first(log: PartitionLog) -> None:
    segment = log.segment_list.first
    try:
        log.renamed.extend(segment.mark_deleted())
    finally:
        # A segment is removed once its log file, the first to be renamed, is; the next start deletes its other
        # files.
        if segment.log.suffix.endswith(DELETED_SUFFIX):
            log.segment_list.pop_first()
            base_offset = log.segment_list.first.base_offset
            log.raise_log_start(base_offset)
            log.unflushed.note_directory()
            # Not to the log's start: after a crash the records below it in this segment are needed to find the
            # log's end.
            log.unflushed.recovery_point = max(log.unflushed.recovery_point, base_offset)
    log.renamed.extend(drop_snapshot(log.resources.disk, log.directory, segment.base_offset))


def _deletable(log: PartitionLog) -> list[Segment]:
    """The segments that lie wholly below the high watermark, oldest first, without an empty last one."""
    segments = log.segments
    ends = [segment.base_offset for segment in segments[1:]] + [log.log_end_offset]
    return [
        segment
        for segment, end in zip(segments, ends, strict=True)
        if end <= log.high_watermark and (segment.size or segment is not segments[-1])
    ]


def confirm_expired(log: PartitionLog, now_ms: int) -> None:
    """Read the timestamps that determine the segments' age, without deleting: for callers that must not block.

    Raises DiskError, and ColdRange for all segments that are old by what is known so far.
    """
    limit_ms = log.config.retention_ms
    if "delete" not in log.config.cleanup_policy or limit_ms < 0:
        return
    cold: list[Range] = []
    for segment in _deletable(log):
        try:
            if now_ms - segment.retention_timestamp() <= limit_ms:
                break
            segment.confirm_largest_timestamp()
        except ColdRange as found:
            cold += found.ranges
        if len(cold) >= MOST_COLD:
            break
    if cold:
        raise ColdRange(cold)


def _count_expired(log: PartitionLog, now_ms: int) -> int:
    limit_ms = log.config.retention_ms
    if limit_ms < 0:
        return 0
    count = 0
    for segment in _deletable(log):
        if now_ms - segment.retention_timestamp() <= limit_ms:
            break
        segment.confirm_largest_timestamp()
        if now_ms - segment.retention_timestamp() <= limit_ms:
            break
        count += 1
    return count


def oldest_by_age(log: PartitionLog) -> Segment | None:
    """The oldest segment that `retention.ms` may delete; None if there is none, or no such limit."""
    if "delete" not in log.config.cleanup_policy or log.config.retention_ms < 0:
        return None
    return next(iter(_deletable(log)), None)


def _count_beyond_size(log: PartitionLog) -> int:
    limit = log.config.retention_bytes
    if limit < 0:
        return 0
    surplus = log.size_bytes - limit
    count = 0
    for segment in _deletable(log):
        if surplus - segment.size < 0:
            break
        surplus -= segment.size
        count += 1
    return count


def _count_below_start(log: PartitionLog) -> int:
    segments = log.segments
    count = 0
    for following in segments[1:]:
        if following.base_offset > log.log_start_offset:
            break
        count += 1
    return count
