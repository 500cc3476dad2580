"""Truncation of a log: at its end, as a follower does, and at its start, as DeleteRecords does."""

from __future__ import annotations

from ottla.env.disk import DiskError
from ottla.records.errors import BatchError
from ottla.storage.log import PartitionLog
from ottla.storage.producer_snapshots import ProducerSnapshots, drop_snapshot
from ottla.storage.results import DeleteRefusal
from ottla.wire.errors import ErrorCode


def truncate_to(log: PartitionLog, offset: int, now_ms: int) -> list[str]:
    """Remove the records from `offset` on, as a follower does; returns renamed files, to be deleted later.

    A batch that holds `offset` is removed whole, so that the log may end before it. What is about to be sent of the
    removed range is not sent any more, or as it was. Store the recovery point before more is appended. Raises
    DiskError and BatchError; appends are then refused until the log is reopened.
    """
    if offset >= log.log_end_offset:
        # The epoch of a leader that appended nothing has no records, and may be in conflict with another leader's.
        log.epochs.truncate_end(log.log_end_offset)
        log.save_epochs()
        return []
    try:
        renamed, end = log.segment_list.truncate(offset, now_ms)
        _ends_at(log, end)
        log.log_start_offset = min(log.log_start_offset, end)
        log.epochs.truncate_end(end)
        log.save_epochs()
        _rebuild_producers(log, now_ms)
        if log.segment_list.active.log.pins:
            # Nothing may be written where a range is about to be sent: its file stays short, which is noticed.
            log.begin_segment(now_ms)
    except (DiskError, BatchError) as error:
        log.failure = f"{error}; the log could not be truncated to offset {offset}. Restart the broker"
        raise
    return renamed


def truncate_fully_and_start_at(log: PartitionLog, offset: int, now_ms: int) -> list[str]:
    """Remove all records: the log is empty from now on, and begins at `offset`. Otherwise as `truncate_to`.

    For a follower whose records all lie below the leader's log start (`UnifiedLog.truncateFullyAndStartAt`).
    """
    try:
        renamed = []
        for number in _snapshots(log).offsets:
            renamed += drop_snapshot(log.resources.disk, log.directory, number)
        log.snapshot_offset = 0
        renamed += log.segment_list.truncate_fully(offset, now_ms)
        _ends_at(log, offset)
        log.gap_offset = None
        log.log_start_offset = log.high_watermark = log.unflushed.recovery_point = offset
        log.epochs.truncate_end(0)
        log.save_epochs()
        log.producers.clear()
        log.producers.end_offset = offset
    except DiskError as error:
        log.failure = f"{error}; the log could not be emptied, to begin at offset {offset}. Restart the broker"
        raise
    return renamed


def delete_records(log: PartitionLog, offset: int) -> int | DeleteRefusal:
    """Move the log's start to `offset` (-1: to the high watermark), as DeleteRecords does; returns the new start.

    Segments that lie wholly below are removed by the next `delete_old_segments`.
    """
    if "delete" not in log.config.cleanup_policy:
        return DeleteRefusal(
            ErrorCode.POLICY_VIOLATION,
            f"Records of partition {log.name} can not be deleted due to the configured policy",
        )
    target = log.high_watermark if offset == -1 else offset
    if target < 0 or target > log.high_watermark:
        return DeleteRefusal(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"The offset {target} for partition {log.name} is not valid"
            if target < 0
            else f"Cannot increment the log start offset of partition {log.name} to {target} since it is larger "
            f"than the high watermark {log.high_watermark}",
        )
    log.raise_log_start(target)
    return log.log_start_offset


def _ends_at(log: PartitionLog, offset: int) -> None:
    """The segments end at `offset` now."""
    log.log_end_offset = offset
    log.high_watermark = min(log.high_watermark, offset)
    if log.gap_offset is not None and log.gap_offset >= offset:
        log.gap_offset = None
    log.indexed_end_offset = -1
    log.unflushed.note_directory()
    log.unflushed.note_truncated(offset)


def _snapshots(log: PartitionLog) -> ProducerSnapshots:
    disk = log.resources.disk
    return ProducerSnapshots(disk, log.directory, disk.listdir(log.directory))


def _rebuild_producers(log: PartitionLog, now_ms: int) -> None:
    snapshots = _snapshots(log)
    expiration_ms = log.resources.producer_expiration_ms
    snapshots.rewind(log.producers, log.segment_list.all(), log.log_end_offset, now_ms, expiration_ms)
    log.snapshot_offset = snapshots.newest
