"""The segments of one log, oldest first: finding offsets, reading across segments, adding and removing."""

from __future__ import annotations

import operator
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from ottla.env.disk import FileSlice
from ottla.env.warmth import pread
from ottla.records.batch import BATCH_OVERHEAD, MAGIC, MAGIC_AT, NO_TIMESTAMP
from ottla.storage.damage import Damage, segment_batches
from ottla.storage.resources import LogResources
from ottla.storage.results import LogRead, UnreadableRange
from ottla.storage.segment import Segment
from ottla.storage.transaction_index import AbortedTransaction

EMPTY_READ: Final = LogRead(None, 0)


def create_segment(resources: LogResources, directory: str, base_offset: int, now_ms: int) -> Segment:
    """A new, empty segment with its file. Raises DiskError."""
    segment = Segment(resources.files, resources.index_memory, directory, base_offset, 0, now_ms)
    segment.max_timestamp = NO_TIMESTAMP
    segment.create_files()
    return segment


class SegmentList:
    """At least one segment; the last one, `active`, is written to."""

    __slots__ = ("_directory", "_resources", "_segments", "active")

    def __init__(self, resources: LogResources, directory: str, segments: list[Segment]) -> None:
        self._resources = resources
        self._directory = directory
        self._segments = segments
        self.active = segments[-1]

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def all(self) -> tuple[Segment, ...]:
        """The present segments."""
        return tuple(self._segments)

    @property
    def first(self) -> Segment:
        """The oldest segment."""
        return self._segments[0]

    @property
    def size_bytes(self) -> int:
        """Size of all batches, in bytes."""
        return sum(segment.size for segment in self._segments)

    # -- finding and reading

    def number_of(self, offset: int) -> int:
        """The index of the segment that contains `offset`."""
        if offset >= self.active.base_offset:
            return len(self._segments) - 1
        return max(0, bisect_right(self._segments, offset, key=_base_offset) - 1)

    def starting_with(self, offset: int) -> list[Segment]:
        """The segment that contains `offset`, and all behind it."""
        return self._segments[self.number_of(offset) :]

    def read(self, offset: int, max_bytes: int, limit: int, log_end_offset: int, min_one_batch: bool) -> LogRead:
        """A range of one segment from the batch holding `offset` on, with nothing from `limit` on.

        See `PartitionLog.read`. Raises DiskError and BatchError.
        """
        number = self.number_of(offset)
        segments = self._segments
        segment = segments[number]
        start = segment.locate(offset)
        while start is None or self._only_head_left(number, start, limit):
            # Compaction may have removed the rest of a segment: continue in the next one.
            number += 1
            if number >= len(segments):
                return EMPTY_READ
            segment = segments[number]
            start = segment.locate(offset)
        segment_end = segments[number + 1].base_offset if segment is not self.active else log_end_offset
        if limit >= segment_end:
            stop = segment.size
            next_offset = segment_end
        else:
            found = segment.locate(limit)
            stop = segment.size if found is None else found
            next_offset = limit
        bound = next_offset
        length = stop - start
        if length > max_bytes:
            length, next_offset = _shorten(segment, start, max_bytes, min_one_batch)
        if length <= 0:
            return EMPTY_READ
        file = segment.pin()
        slice_ = FileSlice(file, start, length, segment.log.unpin, segment is self.active)
        return LogRead(slice_, length, next_offset, bound)

    def _only_head_left(self, number: int, start: int, limit: int) -> bool:
        """Whether a segment holds nothing from `start` on but an empty batch, and the next one has more.

        Compaction leaves empty batches. A client that gets many of them, one by one, may conclude that a record is too
        large for it, as librdkafka does.
        """
        segment = self._segments[number]
        if segment.size - start != BATCH_OVERHEAD or segment is self.active:
            return False
        following = self._segments[number + 1]
        if following.base_offset >= limit or (following is self.active and not following.size):
            return False
        return pread(segment.log.get(), BATCH_OVERHEAD, start)[MAGIC_AT] == MAGIC

    def read_batches(
        self, from_offset: int, log_end_offset: int, unreadable: Callable[[UnreadableRange], None]
    ) -> Iterator[memoryview]:
        """Each intact batch from the one that holds `from_offset` on; `unreadable` is called for each damaged range.

        Raises DiskError.
        """
        segments = self.starting_with(from_offset)
        for number, segment in enumerate(segments):
            following = segments[number + 1].base_offset if number + 1 < len(segments) else None
            damage: Damage | None = None
            for found in segment_batches(segment, from_offset, following):
                if damage is not None:
                    next_offset = found.first_offset
                    unreadable(UnreadableRange(segment.log.path, *damage, next_offset))
                    damage = None
                if isinstance(found, Damage):
                    damage = found
                else:
                    yield found.data
            if damage is not None:
                next_offset = log_end_offset if following is None else following
                unreadable(UnreadableRange(segment.log.path, *damage, next_offset))

    def aborted(self, from_offset: int, to_offset: int) -> list[AbortedTransaction]:
        """The aborted transactions that overlap [`from_offset`, `to_offset`). Raises DiskError.

        The search ends at the last stable offset of that range (as in `TransactionIndex.java`).
        """
        found: list[AbortedTransaction] = []
        for segment in self.starting_with(from_offset):
            for entry in segment.txn_index.entries_from(from_offset):
                if entry.first_offset < to_offset:
                    found.append(entry)
                if entry.last_stable_offset >= to_offset:
                    return found
        return found

    # -- changing

    def begin(self, base_offset: int, now_ms: int) -> Segment:
        """Start a new active segment. Raises DiskError; the old one then stays active."""
        segment = create_segment(self._resources, self._directory, base_offset, now_ms)
        self._segments.append(segment)
        self.active = segment
        return segment

    def pop_first(self) -> Segment:
        """Remove the oldest segment from the list; there must be another one."""
        return self._segments.pop(0)

    def holds(self, segments: Sequence[Segment]) -> bool:
        """Whether these segments are in the list, consecutively."""
        number = self.number_of(segments[0].base_offset)
        found = self._segments[number : number + len(segments)]
        return len(found) == len(segments) and all(map(operator.is_, found, segments))

    def replace(self, old: Sequence[Segment], new: Segment) -> None:
        """Replace `old` by `new`; `holds(old)` must be true, and the active segment is not among them."""
        number = self.number_of(old[0].base_offset)
        self._segments[number : number + len(old)] = [new]

    def truncate(self, offset: int, now_ms: int) -> tuple[list[str], int]:
        """Remove the records from `offset` on, with the whole batch that holds it.

        Returns renamed files, to be deleted later, and the end of what stays: `offset`, or the base offset of that
        batch. Raises DiskError and BatchError.
        """
        segments = self._segments
        renamed: list[str] = []
        while len(segments) > 1 and segments[-1].base_offset >= offset:
            renamed += segments.pop().mark_deleted()
            self.active = segments[-1]
        last = segments[-1]
        end = offset
        if offset > last.base_offset:
            place = last.find(offset)
            if place is not None:
                end = max(last.base_offset, min(offset, place.base_offset))
        if end > last.base_offset:
            last.truncate(end)
        else:
            renamed += self._put_empty_last(end, now_ms)
        return renamed, end

    def _put_empty_last(self, base_offset: int, now_ms: int) -> list[str]:
        """Replace the last segment by an empty one, with files of its own; returns renamed files. Raises DiskError."""
        renamed = list(self._segments[-1].mark_deleted())
        self.active = self._segments[-1] = create_segment(self._resources, self._directory, base_offset, now_ms)
        return renamed

    def truncate_fully(self, offset: int, now_ms: int) -> list[str]:
        """Replace all segments by an empty one that begins at `offset`; returns renamed files. Raises DiskError.

        The newest goes first: what remains if the broker stops meanwhile has no hole.
        """
        segments = self._segments
        renamed: list[str] = []
        while len(segments) > 1:
            renamed += segments.pop().mark_deleted()
            self.active = segments[-1]
        return renamed + self._put_empty_last(offset, now_ms)

    def relocate(self, directory: str) -> None:
        """The directory of the log was renamed."""
        self._directory = directory
        for segment in self._segments:
            segment.relocate(directory)

    def close(self) -> None:
        """Release all files; pinned ones are closed when released."""
        for segment in self._segments:
            segment.close()


def _shorten(segment: Segment, start: int, max_bytes: int, min_one_batch: bool) -> tuple[int, int]:
    """(length, next offset or -1) of a read of at most `max_bytes`. Raises BatchError at a damaged length.

    A read that ends at an indexed batch sends no partial batch, and the next read's position is already known.
    """
    cut = segment.cut(start, max_bytes)
    if cut is not None:
        segment.remember(cut.base_offset, cut.position)
        return cut.position - start, cut.base_offset
    first = segment.batch_at(start)
    if first is None or first.length <= max_bytes:
        return max_bytes, -1
    segment.check_ends_within(first)
    return (first.length, first.last_offset + 1) if min_one_batch else (0, -1)


def _base_offset(segment: Segment) -> int:
    return segment.base_offset
