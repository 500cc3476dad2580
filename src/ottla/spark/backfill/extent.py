"""From which to which offset a replica may be read, so that its rows are those of a read_committed consumer.

With a broker the leader names the log start offset and the last stable offset. A follower may lag, and the replica of
a broker that was away may have records that the leader never had: the leader epochs say up to where it agrees.
Without a broker the replica's own checkpoints say it, and the log, where the first open transaction begins.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

from ottla.env.disk import DiskError, RealDisk
from ottla.env.file_reader import ReadableFile
from ottla.records.control import ControlRecordType
from ottla.spark.backfill.directories import Replica
from ottla.spark.backfill.errors import DamagedBatchError, SegmentError
from ottla.spark.backfill.heads import marker_type, walk_heads
from ottla.spark.backfill.missing import first_missing
from ottla.spark.backfill.segments import SegmentName, list_segments, read_index
from ottla.storage.files import LOG_SUFFIX, SNAPSHOT_SUFFIX, offset_file_name, offsets_of
from ottla.storage.snapshot_format import SnapshotProblem, decode_snapshot

#: Attempts to look through a log whose segments are replaced meanwhile.
MOST_ATTEMPTS: Final = 100
UNKNOWN: Final = -1

_T = TypeVar("_T")

EndOfEpoch = Callable[[int], tuple[int, int]]
"""The leader's largest epoch that is at most the one given, and where it ends there; -1 where unknown."""


class LeaderOffsets(NamedTuple):
    """The leader's offsets of a partition. The high watermark is at least as new as the last stable offset."""

    log_start: int
    last_stable: int
    high_watermark: int


@dataclass(frozen=True, slots=True)
class Extent:
    """The offsets of a replica that may be read, `end` excluded; `note` says why it ends early, if it does.

    `missing_from` is where the log began, if segments before `start` are missing.
    """

    replica: Replica
    start: int
    end: int
    note: str = ""
    missing_from: int | None = None


def extent_by_leader(replica: Replica, leader: LeaderOffsets, end_of_epoch: EndOfEpoch) -> Extent:
    """Compute the extent by the leader's answers. Raises SegmentError, and what `end_of_epoch` raises."""
    first, log_end = _bounds(replica)
    agreed = _agreed_end(replica, log_end, end_of_epoch)
    start = max(leader.log_start, first)
    if agreed >= leader.high_watermark:
        return Extent(replica, start, max(start, leader.last_stable))
    # Markers that the follower does not have yet would say how transactions ended.
    end = max(start, min(leader.last_stable, agreed, _first_open(replica, agreed)))
    lags = end < leader.last_stable
    note = f"the replica in {replica.directory} ends at {end}, the leader's last stable offset is {leader.last_stable}"
    return Extent(replica, start, end, note if lags else "")


def extent_by_checkpoints(replica: Replica) -> Extent:
    """Compute the extent by checkpoints, without a broker. Raises SegmentError."""
    if not replica.has_checkpoint:
        raise SegmentError(
            f"{replica.log_dir} has no replication-offset-checkpoint, which says what is committed; copy it, too, or "
            "name kafka.bootstrap.servers, so that the broker says it"
        )
    first, log_end = _bounds(replica)
    start = max(first, replica.log_start or 0)
    if replica.high_watermark is None:
        note = f"the checkpoint in {replica.log_dir} has no high watermark of it yet"
        if log_end > start:
            note += (
                f", so nothing is read, though its log has offsets {start} to {log_end - 1}: wait until the broker has "
                "written the checkpoint, which a running one does every 5 s, or name kafka.bootstrap.servers"
            )
        return Extent(replica, start, start, note)
    committed = min(replica.high_watermark, log_end)
    end = max(start, min(committed, _first_open(replica, committed)))
    note = ""
    if end < committed:
        note = f"a transaction is open from offset {end} on"
    elif committed < replica.high_watermark:
        note = f"its log ends at {log_end}, before the high watermark {replica.high_watermark}"
    try:
        missing_from = None if start > first else first_missing(replica.directory, first)
    except DiskError as error:
        raise SegmentError(f"{replica.partition} cannot be read: {error}") from error
    return Extent(replica, start, end, note, missing_from)


def _agreed_end(replica: Replica, log_end: int, end_of_epoch: EndOfEpoch) -> int:
    """Up to where the replica has what the leader has (KIP-101)."""
    epochs = dict(replica.epochs)
    wanted = max(epochs, default=UNKNOWN)
    while wanted != UNKNOWN:
        epoch, end = end_of_epoch(wanted)
        ends_here = min((start for each, start in epochs.items() if each > epoch), default=log_end)
        if epoch in epochs and end != UNKNOWN:
            return min(end, ends_here, log_end)
        # The leader does not know this epoch; what it has, the replica does not.
        below = wanted if epoch == UNKNOWN else min(wanted, epoch + 1)
        wanted = max((each for each in epochs if each < below), default=UNKNOWN)
        if wanted == UNKNOWN:
            return min(epochs.values())
    return log_end


def _bounds(replica: Replica) -> tuple[int, int]:
    """The first base offset and the log end offset of the replica. Raises SegmentError."""

    def look(names: tuple[SegmentName, ...]) -> tuple[int, int]:
        last = names[-1]
        index = read_index(replica.directory, last)
        end = last.base_offset
        with ReadableFile(f"{replica.directory}/{last.file(LOG_SUFFIX)}") as file:
            for position in (*index.positions[-1:], 0):
                try:
                    heads = list(walk_heads(file, position))
                except DamagedBatchError:
                    if not position:
                        raise
                    continue  # the index does not fit the segment
                if heads and heads[0].last_offset >= last.base_offset:
                    end = heads[-1].last_offset + 1
                    break
        return names[0].base_offset, end

    return _look(replica, look)


def _first_open(replica: Replica, limit: int) -> int:
    """The first offset of the transactions that have not ended below `limit`; `limit` if all have. SegmentError."""

    def look(names: tuple[SegmentName, ...]) -> int:
        from_offset, open_transactions = _newest_snapshot(replica.directory, limit)
        for number, name in enumerate(names):
            following = names[number + 1].base_offset if number + 1 < len(names) else limit
            if following <= from_offset or name.base_offset >= limit:
                continue
            with ReadableFile(f"{replica.directory}/{name.file(LOG_SUFFIX)}") as file:
                _follow(open_transactions, file, from_offset, limit)
        return min([limit, *open_transactions.values()])

    return _look(replica, look)


def _follow(open_transactions: dict[int, int], file: ReadableFile, start: int, limit: int) -> None:
    """Apply the batches from `start` to `limit` of a segment to the open transactions (producer id, first offset)."""
    for head in walk_heads(file, 0):
        if head.base_offset >= limit:
            return
        if head.base_offset < start:
            continue
        if head.is_control:
            if marker_type(file, head) in (ControlRecordType.ABORT, ControlRecordType.COMMIT):
                open_transactions.pop(head.producer_id, None)
        elif head.is_transactional:
            open_transactions.setdefault(head.producer_id, head.base_offset)


def _newest_snapshot(directory: str, limit: int) -> tuple[int, dict[int, int]]:
    """Offset of the newest intact producer snapshot up to `limit`, and the transactions open there; else 0, none."""
    disk = RealDisk()
    for offset in sorted(offsets_of(disk.listdir(directory), SNAPSHOT_SUFFIX), reverse=True):
        if offset > limit:
            continue
        try:
            producers = decode_snapshot(disk.read_bytes(f"{directory}/{offset_file_name(offset, SNAPSHOT_SUFFIX)}"))
        except (DiskError, SnapshotProblem):
            continue
        return offset, {each.producer_id: each.transaction_start for each in producers if each.transaction_start >= 0}
    return 0, {}


def _look(replica: Replica, look: Callable[[tuple[SegmentName, ...]], _T]) -> _T:
    """Look through the segments; again, if names changed meanwhile. Raises SegmentError."""
    for _ in range(MOST_ATTEMPTS):
        try:
            names = list_segments(replica.directory)
            if not names:
                raise SegmentError(f"{replica.directory} holds no segment; name another replica's log directory")
            found = look(names)
            if list_segments(replica.directory) == names:
                return found
        except DiskError as error:
            if not error.missing or not RealDisk().is_dir(replica.directory):
                raise SegmentError(f"{replica.partition} cannot be read: {error}") from error
    raise SegmentError(f"the segments in {replica.directory} change faster than they can be read; try again later")
