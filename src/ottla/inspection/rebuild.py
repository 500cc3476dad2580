"""Rebuilding files of a partition: a log file without its damaged ranges, indexes and leader epochs from the logs.

New files replace the old ones atomically, so that a crash leaves either. Indexes of the old log file are removed before
the new one is in place: brokers rebuild missing indexes, but trust existing ones.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from ottla.env.disk import Disk, DiskFile
from ottla.env.file_reader import ReadableFile
from ottla.inspection.batch_rows import records_of
from ottla.inspection.directories import PartitionDirectory
from ottla.inspection.small_files import AbortedEntry, entries
from ottla.inspection.walk import LogBatch, LogWalker, Patch
from ottla.records.batch import BatchHeader
from ottla.records.control import ControlRecordType, control_record_type
from ottla.records.errors import BatchError
from ottla.storage.files import DAMAGED_SUFFIX, LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX
from ottla.storage.index import OFFSET_ENTRY, TIME_ENTRY
from ottla.storage.leader_epochs import LEADER_EPOCH_FILE, LeaderEpochs
from ottla.storage.segment import MAX_RELATIVE_OFFSET
from ottla.storage.transaction_index import TXN_ENTRY, TXN_INDEX_VERSION

#: Kafka's default of `index.interval.bytes`.
INDEX_INTERVAL_BYTES: Final = 4096
_NEW_SUFFIX: Final = ".repair.tmp"
_COPY_BYTES: Final = 1024 * 1024
_SPILL_BYTES: Final = 64 * 1024

Range = tuple[int, int]


def backup_name(disk: Disk, path: str) -> str:
    """An unused name beside `path`, for saving what is taken out of it."""
    name, number = path + DAMAGED_SUFFIX, 1
    while disk.exists(name):
        number += 1
        name = f"{path}.{number}{DAMAGED_SUFFIX}"
    return name


def rewrite_log(
    disk: Disk,
    partition_dir: PartitionDirectory,
    base_offset: int,
    cuts: Sequence[Range],
    patches: Sequence[Patch],
    keep: bool,
) -> None:
    """Write a log file without the `cuts` (position, length) and with the `patches`; the old bytes are saved beside it.

    If nothing is left of a segment that is not the last, its file is removed. Raises DiskError.
    """
    path = partition_dir.segment_file(base_offset, LOG_SUFFIX)
    removed = [*cuts, *((each.position, len(each.data)) for each in patches)] if keep else []
    with ReadableFile(path) as old:
        for position, length in sorted(removed):
            _copy(disk, old, [(position, length)], backup_name(disk, f"{path}.{position}"))
        left = _complement(sorted(cuts), old.size)
        _copy(disk, old, left, path + _NEW_SUFFIX, patches)
    for suffix in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX):
        disk.remove(partition_dir.segment_file(base_offset, suffix))
    if not left and base_offset != partition_dir.segments[-1]:
        disk.remove(path + _NEW_SUFFIX)
        disk.remove(path)
        partition_dir.segments.remove(base_offset)
    else:
        disk.rename(path + _NEW_SUFFIX, path)
    disk.fsync_dir(partition_dir.path)


def _complement(cuts: Sequence[Range], size: int) -> list[Range]:
    left, position = [], 0
    for start, length in cuts:
        if start > position:
            left.append((position, start - position))
        position = max(position, start + length)
    if position < size:
        left.append((position, size - position))
    return left


def _copy(
    disk: Disk, source: ReadableFile, ranges: Sequence[Range], target: str, patches: Sequence[Patch] = ()
) -> None:
    """Copy the ranges of a file, in order, into a new one, and sync it."""
    file = disk.open(target, create=True)
    try:
        file.truncate(0)
        for start, length in ranges:
            for position in range(start, start + length, _COPY_BYTES):
                piece = bytearray(source.pread(min(_COPY_BYTES, start + length - position), position))
                for patch in patches:
                    _patch(piece, position, patch)
                file.append([piece])
        file.flush()
    finally:
        file.close()


def _patch(piece: bytearray, position: int, patch: Patch) -> None:
    for at, byte in enumerate(patch.data, patch.position - position):
        if 0 <= at < len(piece):
            piece[at] = byte


class _NewIndex:
    """An index that is written incrementally."""

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._pending = bytearray()
        self._file: DiskFile | None = None
        self.entries = 0

    def add(self, entry: bytes) -> None:
        """Add an entry."""
        self.entries += 1
        self._pending += entry
        if len(self._pending) >= _SPILL_BYTES:
            self._spill()

    def _spill(self) -> None:
        if self._file is None:
            self._file = self._disk.open(self._path + _NEW_SUFFIX, create=True)
            self._file.truncate(0)
        self._file.append([self._pending])
        self._pending = bytearray()

    def finish(self, needed: bool = True) -> None:
        """Replace the old index; an index without entries that is not `needed` is not created."""
        if not self.entries and not needed:
            self._disk.remove(self._path)
            return
        self._spill()
        if self._file is not None:
            self._file.flush()
            self._file.close()
        self._disk.rename(self._path + _NEW_SUFFIX, self._path)


class _SegmentIndexes:
    """The new offset and time index of a segment, with entries by the rules of a broker's append."""

    def __init__(self, disk: Disk, partition_dir: PartitionDirectory, base_offset: int, interval: int) -> None:
        self._base = base_offset
        self._interval = interval
        self._offsets = _NewIndex(disk, partition_dir.segment_file(base_offset, OFFSET_INDEX_SUFFIX))
        self._times = _NewIndex(disk, partition_dir.segment_file(base_offset, TIME_INDEX_SUFFIX))
        self._since = 0
        self._largest = (-1, base_offset)
        self._last_time = -1

    def batch(self, batch: LogBatch) -> None:
        """Process the next batch; one whose offset cannot be in the segment has no entry."""
        if not 0 <= batch.last_offset - self._base <= MAX_RELATIVE_OFFSET:
            return
        if batch.max_timestamp > self._largest[0]:
            self._largest = (batch.max_timestamp, batch.last_offset)
        if self._since > self._interval:
            self._offsets.add(OFFSET_ENTRY.pack(batch.last_offset - self._base, batch.position))
            self._add_time()
            self._since = 0
        self._since += batch.length

    def _add_time(self) -> None:
        timestamp, offset = self._largest
        if timestamp > self._last_time:
            self._times.add(TIME_ENTRY.pack(timestamp, offset - self._base))
            self._last_time = timestamp

    def finish(self) -> None:
        """Finish at the end of the segment."""
        self._add_time()
        self._offsets.finish()
        self._times.finish()


def rebuild_from_logs(
    disk: Disk,
    partition_dir: PartitionDirectory,
    segments: set[int],
    epochs: bool,
    interval: int = INDEX_INTERVAL_BYTES,
) -> None:
    """Rebuild the indexes of `segments` from their logs, and, if requested, the leader epochs. Raises DiskError."""
    transactions = _Transactions()
    known = LeaderEpochs()
    for base_offset in partition_dir.segments:
        indexes = _SegmentIndexes(disk, partition_dir, base_offset, interval) if base_offset in segments else None
        path = partition_dir.segment_file(base_offset, TXN_INDEX_SUFFIX)
        aborted = _NewIndex(disk, path) if indexes is not None else None
        transactions.old = _old_entries(disk, path) if aborted is not None else {}
        with ReadableFile(partition_dir.segment_file(base_offset, LOG_SUFFIX)) as log:
            walker = LogWalker(log)
            for item in walker:
                if not isinstance(item, LogBatch):
                    continue
                _note_epoch(known, item)
                entry = transactions.batch(walker, item, partition_dir.segments[0])
                if indexes is not None:
                    indexes.batch(item)
                if entry is not None and aborted is not None:
                    aborted.add(TXN_ENTRY.pack(*entry))
        if indexes is not None and aborted is not None:
            indexes.finish()
            aborted.finish(needed=False)
    if epochs:
        disk.write_atomic(partition_dir.file(LEADER_EPOCH_FILE), known.encode())


def _note_epoch(known: LeaderEpochs, batch: LogBatch) -> None:
    """Register the leader epoch of a batch: epochs never decrease, so higher ones before it were wrong."""
    if batch.leader_epoch < 0:
        return
    while known.latest > batch.leader_epoch:
        known.entries.pop()
    if known.latest < batch.leader_epoch:
        known.assign(batch.leader_epoch, batch.base_offset)


def _old_entries(disk: Disk, path: str) -> dict[tuple[int, int], AbortedEntry]:
    """The entries of the replaced index, by producer and last offset: it may know where old transactions began."""
    if not disk.exists(path):
        return {}
    try:
        with ReadableFile(path) as file:
            found = [AbortedEntry(*fields) for _, fields in entries(file, TXN_ENTRY)]
    except struct.error:
        return {}
    return {(each.producer_id, each.last_offset): each for each in found if each.version == TXN_INDEX_VERSION}


class _Transactions:
    """The open transactions at the current position in the log."""

    def __init__(self) -> None:
        self.old: dict[tuple[int, int], AbortedEntry] = {}
        self._open: dict[int, int] = {}

    def batch(self, walker: LogWalker, batch: LogBatch, log_start: int) -> AbortedEntry | None:
        """The entry for a batch, if it aborts a transaction."""
        header = batch.header
        if not isinstance(header, BatchHeader) or not header.is_transactional:
            return None
        producer = header.producer_id
        if not header.is_control:
            self._open.setdefault(producer, header.base_offset)
            return None
        try:
            kind = control_record_type(records_of(walker, batch)[0].key)
        except (BatchError, IndexError):
            return None
        first = self._open.pop(producer, -1)
        if kind is not ControlRecordType.ABORT:
            return None
        last = header.last_offset
        old = self.old.get((producer, last))
        if first < 0:
            # It began before the log's start, or had no records at all.
            if old is None:
                return None
            first = old.first_offset if 0 <= old.first_offset <= last else log_start
        stable = min(self._open.values(), default=last + 1)
        return AbortedEntry(TXN_INDEX_VERSION, producer, first, last, stable)
