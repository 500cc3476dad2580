"""Compaction of one log in a disk thread: find the newest offset of each key, then rewrite segment by segment.

Nothing here runs on the event loop. It reads segments that are pinned for the thread and writes `….cleaned` files
beside them, which are complete and synced when a function returns. The caller (`ottla.storage.cleaning`) puts them in
place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ottla.env.clock import Clock
from ottla.env.disk import Disk
from ottla.records.batch import MAGIC, parse_batch_header
from ottla.records.errors import BatchError
from ottla.storage.batch_filter import (
    CleanedTransactions,
    FilterRules,
    LastRecord,
    RetainedBatch,
    filter_batch,
    message_records,
    records_of,
)
from ottla.storage.files import CLEANED_SUFFIX, SEGMENT_SUFFIXES, TXN_INDEX_SUFFIX, OpenFiles, offset_file_name
from ottla.storage.index import IndexMemory
from ottla.storage.offset_map import OffsetMap
from ottla.storage.scan import ScannedBatch, scan_batches
from ottla.storage.segment import Segment
from ottla.storage.transaction_index import AbortedTransaction

#: Kept batches are written once they reach this size, or this number.
WRITE_BYTES: Final = 1024 * 1024
WRITE_BATCHES: Final = 1024
#: Open files of a cleaning thread: those of one segment.
_OPEN_FILES: Final = 4


@dataclass(slots=True, frozen=True)
class SourceSegment:
    """A segment to read; `size` bytes of its log file hold batches."""

    base_offset: int
    #: Base offset of the next segment.
    end_offset: int
    size: int
    #: Position of the first batch whose keys go into the offset map.
    position: int
    path: str


@dataclass(slots=True, frozen=True)
class CleaningTask:
    """Parameters of a whole round of one log; times in milliseconds."""

    disk: Disk
    directory: str
    control: CleaningControl
    #: The first offset that has not been cleaned yet.
    first_dirty_offset: int
    now_ms: int
    delete_retention_ms: int
    #: Segments of old formats that were modified later than this keep their tombstones.
    legacy_horizon_ms: int
    index_interval_bytes: int
    #: Bytes read at a time.
    read_bytes: int
    aborted: Sequence[AbortedTransaction]
    last_records: Mapping[int, LastRecord]


@dataclass(slots=True, frozen=True)
class CleanedSegment:
    """A rewritten segment; its files end in `.cleaned` and are synced."""

    base_offset: int
    size: int
    #: Number of entries of the offset index and of the time index.
    index_entries: tuple[int, int]
    max_timestamp: int
    max_timestamp_offset: int
    #: The suffixes of its files, without `.cleaned`.
    suffixes: tuple[str, ...]


# -- the offset map


def build_offset_map(task: CleaningTask, sources: Sequence[SourceSegment], offsets: OffsetMap) -> None:
    """Add the keys of the dirty segments to `offsets`, as far as there is room.

    Raises DiskError, BatchError at a damaged batch, CleaningAborted.
    """
    transactions = CleanedTransactions(task.aborted)
    for source in sources:
        for batch in _batches(task, source, source.position):
            if not _take_keys(batch, task.first_dirty_offset, transactions, offsets):
                return
        # Offsets after the last batch will never be assigned.
        offsets.latest_offset = source.end_offset - 1


def _take_keys(batch: ScannedBatch, start: int, transactions: CleanedTransactions, offsets: OffsetMap) -> bool:
    """Add a batch's keys; False if they do not fit."""
    if batch.magic == MAGIC:
        header = parse_batch_header(batch.data)
        if header.is_control:
            transactions.marker_is_spent(header, batch.data)
        elif not transactions.batch_is_aborted(header) and header.last_offset >= start:
            if not offsets.has_room(header.records_count):
                return False
            offsets.put(records_of(batch.data, header), header.records_count, header.base_offset, start)
    elif batch.last_offset >= start:
        records, encoded = message_records(batch.data)
        if not offsets.has_room(len(records)):
            return False
        offsets.put(encoded, len(records), records[0].offset, start)
    offsets.latest_offset = max(offsets.latest_offset, batch.last_offset)
    return True


def _batches(task: CleaningTask, source: SourceSegment, position: int) -> Iterator[ScannedBatch]:
    """The batches of a segment; raises BatchError at a damaged one."""
    take = task.control.take
    file = task.disk.open(source.path)
    try:
        for batch in scan_batches(file, position, source.size, task.read_bytes):
            take(batch.length)
            yield batch
            position = batch.position + batch.length
    finally:
        file.close()
    if position != source.size:
        raise BatchError(f"{source.path}: damaged batch at position {position}")


# -- rewriting segments


def filter_rules(task: CleaningTask, offsets: OffsetMap) -> FilterRules:
    """The rules of a round whose map is complete; shared by all groups of the round, in order."""
    return FilterRules(
        offsets,
        CleanedTransactions(task.aborted),
        task.last_records,
        task.now_ms,
        task.delete_retention_ms,
    )


def clean_group(task: CleaningTask, sources: Sequence[SourceSegment], rules: FilterRules) -> CleanedSegment:
    """Write what is kept of `sources` into one segment. At least the header of the last batch is kept, so that the new
    segment defines which old ones it replaces, whenever the broker is killed.

    Raises DiskError, BatchError, CleaningAborted; `….cleaned` files are left behind then.
    """
    modified_ms = 0
    writer = _Writer(task, sources[0].base_offset)
    try:
        for number, source in enumerate(sources):
            modified_ms = task.disk.modified_ms(source.path)
            rules.keep_legacy_tombstones = modified_ms > task.legacy_horizon_ms
            final = source.size if number + 1 == len(sources) else -1
            for batch in _batches(task, source, 0):
                retained = filter_batch(batch, rules, batch.position + batch.length == final)
                if retained is not None:
                    writer.add(retained)
        return writer.finish(rules.transactions.take_retained(), modified_ms)
    finally:
        writer.close()


class _Writer:
    """Writes the files of one cleaned segment."""

    def __init__(self, task: CleaningTask, base_offset: int) -> None:
        self._task = task
        self._waiting: list[RetainedBatch] = []
        self._waiting_bytes = 0
        for suffix in SEGMENT_SUFFIXES:
            task.disk.remove(f"{task.directory}/{offset_file_name(base_offset, suffix + CLEANED_SUFFIX)}")
        files = OpenFiles(task.disk, _OPEN_FILES)
        self._segment = Segment(files, IndexMemory(), task.directory, base_offset, 0, 0, CLEANED_SUFFIX)
        self._segment.max_timestamp = -1
        self._segment.create_files()

    def add(self, batch: RetainedBatch) -> None:
        self._waiting.append(batch)
        self._waiting_bytes += batch.length
        if self._waiting_bytes >= WRITE_BYTES or len(self._waiting) >= WRITE_BATCHES:
            self._write()

    def _write(self) -> None:
        waiting, length = self._waiting, self._waiting_bytes
        if not waiting:
            return
        self._segment.append([batch.data for batch in waiting], waiting, length, self._task.index_interval_bytes)
        self._waiting, self._waiting_bytes = [], 0
        self._task.control.take(length)

    def finish(self, aborted: Sequence[AbortedTransaction], modified_ms: int) -> CleanedSegment:
        """Complete and sync the files."""
        self._write()
        disk, segment = self._task.disk, self._segment
        log = segment.log
        log.get().flush()
        segment.finish()
        suffixes = [log.suffix, segment.offset_index.file.suffix, segment.time_index.file.suffix]
        if aborted:
            suffixes.append(TXN_INDEX_SUFFIX + CLEANED_SUFFIX)
            self._write_transactions(aborted)
        for suffix in suffixes[1:]:
            self._flush_path(f"{log.directory}/{offset_file_name(segment.base_offset, suffix)}")
        segment.close()
        disk.set_modified_ms(log.path, modified_ms)
        return CleanedSegment(
            segment.base_offset,
            segment.size,
            (segment.offset_index.entries, segment.time_index.entries),
            segment.largest_timestamp_so_far(),
            segment.max_timestamp_offset,
            tuple(suffix.removesuffix(CLEANED_SUFFIX) for suffix in suffixes),
        )

    def _write_transactions(self, aborted: Sequence[AbortedTransaction]) -> None:
        base_offset, directory = self._segment.base_offset, self._task.directory
        path = f"{directory}/{offset_file_name(base_offset, TXN_INDEX_SUFFIX + CLEANED_SUFFIX)}"
        file = self._task.disk.open(path, create=True)
        try:
            file.truncate(0)
            file.append([transaction.encode() for transaction in aborted])
        finally:
            file.close()

    def _flush_path(self, path: str) -> None:
        file = self._task.disk.open(path)
        try:
            file.flush()
        finally:
            file.close()

    def close(self) -> None:
        self._segment.close()


#: A cleaning thread works for this long, then yields the interpreter to the event loop for as long.
WORK_MS: Final = 1.0
BREATH_MS: Final = 0.05
#: A throttled thread checks for an abort at this interval.
LONGEST_PAUSE_MS: Final = 100.0
#: Unused throttle time is carried over up to this much.
SAVED_MS: Final = 1000.0


class CleaningAborted(Exception):
    """The round was aborted."""


class CleaningControl:
    """Shared between the loop, which sets `aborted` and `bytes_per_second`, and the one thread that calls `take`."""

    __slots__ = ("_clock", "_due_ms", "_pause_ms", "_rested_ms", "aborted", "bytes_done", "bytes_per_second")

    def __init__(self, clock: Clock, pause_ms: Callable[[float], None], bytes_per_second: float) -> None:
        self._clock = clock
        self._pause_ms = pause_ms
        self.aborted = False
        #: Limit of bytes read and written per second.
        self.bytes_per_second = bytes_per_second
        #: Bytes read and written so far.
        self.bytes_done = 0
        self._due_ms = self._rested_ms = clock.monotonic_ms()

    def take(self, count: int) -> None:
        """Account for `count` bytes read or written, and sleep as the throttle asks. Raises CleaningAborted."""
        self.bytes_done += count
        now_ms = self._clock.monotonic_ms()
        self._due_ms = max(self._due_ms, now_ms - SAVED_MS) + 1000.0 * count / self.bytes_per_second
        if now_ms - self._rested_ms >= WORK_MS:
            self._pause_ms(BREATH_MS)
            self._rested_ms = now_ms = self._clock.monotonic_ms()
        while self._due_ms > now_ms and not self.aborted:
            self._pause_ms(min(LONGEST_PAUSE_MS, self._due_ms - now_ms))
            self._rested_ms = now_ms = self._clock.monotonic_ms()
        if self.aborted:
            raise CleaningAborted
