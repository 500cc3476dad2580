"""A segment: a log file and its indexes. Index entries are added by Kafka's rules (`LogSegment.java`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final, Protocol
from zlib import crc32

from ottla.config.topic import LogConfig
from ottla.env.disk import DiskError, DiskFile, Part
from ottla.env.warmth import ColdRange, Range
from ottla.records.batch import NO_TIMESTAMP, BatchHeader
from ottla.records.errors import BatchError
from ottla.storage.files import LOG_SUFFIX, OpenFiles, SegmentFile, offset_file_name
from ottla.storage.index import OFFSET_ENTRY, TIME_ENTRY, IndexMemory, OffsetIndex, TimeIndex
from ottla.storage.scan import Place, batch_at, find_batch, max_timestamp_at
from ottla.storage.transaction_index import TransactionIndex

#: Positions cached per segment: where the batch lies that begins (or at which a reader continues) at an offset.
REMEMBERED_POSITIONS: Final = 64
#: Offsets of a segment are kept relative to its base, in 31 bits.
MAX_RELATIVE_OFFSET: Final = 0x7FFFFFFF


class PlacedBatch(Protocol):
    """A batch with its final offsets, as a segment needs it; a `BatchHeader` is one."""

    @property
    def base_offset(self) -> int:
        """Offset of the first record."""
        ...

    @property
    def last_offset_delta(self) -> int:
        """Distance from the first to the last offset."""

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp, milliseconds since the Unix epoch, -1 if none."""

    @property
    def length(self) -> int:
        """Size of the whole batch, in bytes."""
        ...


class Segment:
    """One segment of a log. Only the last one is appended to."""

    __slots__ = (
        "_positions",
        "base_offset",
        "bytes_since_index",
        "created_ms",
        "log",
        "max_timestamp",
        "max_timestamp_offset",
        "offset_index",
        "rolling_timestamp",
        "size",
        "time_index",
        "txn_index",
    )

    def __init__(
        self,
        files: OpenFiles,
        memory: IndexMemory,
        directory: str,
        base_offset: int,
        size: int,
        created_ms: int,
        suffix_end: str = "",
    ) -> None:
        """`suffix_end` follows the suffix of each file: `.cleaned` for a segment that is not in place yet."""
        self.base_offset = base_offset
        #: Bytes of the log file that hold batches.
        self.size = size
        self.log = SegmentFile(files, directory, base_offset, LOG_SUFFIX + suffix_end)
        self.offset_index = OffsetIndex(files, memory, directory, base_offset)
        self.time_index = TimeIndex(files, directory, base_offset)
        #: Aborted transactions; few segments have any.
        self.txn_index = TransactionIndex(files, directory, base_offset, suffix_end)
        self.offset_index.file.suffix += suffix_end
        self.time_index.file.suffix += suffix_end
        #: Largest timestamp so far, and the last offset of its batch; None if not read yet.
        self.max_timestamp: int | None = None
        self.max_timestamp_offset = base_offset
        self.bytes_since_index = 0
        #: The first batch's timestamp, from which the segment's age is computed; None if not read yet.
        self.rolling_timestamp: int | None = None
        self.created_ms = created_ms
        self._positions: dict[int, int] | None = None

    def create_files(self) -> None:
        """Create an empty log file; the indexes follow with their first entries. Raises DiskError."""
        handle = self.log.get(create=True)
        if handle.size:
            handle.truncate(0)

    # -- writing

    def append(
        self, parts: Sequence[Part], headers: Sequence[PlacedBatch], length: int, index_interval_bytes: int
    ) -> None:
        """Write batches that have their offsets, `length` bytes in all. Raises DiskError, with nothing written."""
        position = self.size
        largest = self.max_timestamp
        if largest is None:
            largest = self.largest_timestamp_so_far()
        self.log.get().append(parts)
        self.size = position + length
        if position == 0:
            self.rolling_timestamp = headers[0].max_timestamp
        for header in headers:
            if header.max_timestamp > largest:
                self.max_timestamp = largest = header.max_timestamp
                self.max_timestamp_offset = header.base_offset + header.last_offset_delta
            if self.bytes_since_index > index_interval_bytes:
                self.index_batch(header.base_offset + header.last_offset_delta, position)
            self.bytes_since_index += header.length
            self.remember(header.base_offset, position)
            position += header.length

    def index_batch(self, last_offset: int, position: int) -> None:
        """Add an entry to both indexes for the batch at `position`."""
        self.offset_index.append(last_offset, position)
        self.time_index.append_if_newer(self.largest_timestamp_so_far(), self.max_timestamp_offset)
        self.bytes_since_index = 0
        if self.offset_index.spill_due:
            self.spill_indexes()

    def spill_indexes(self) -> None:
        """Write the buffered index entries; on a disk error they stay buffered, as they can be rebuilt from the log."""
        try:
            self.offset_index.spill()
            self.time_index.spill()
        except DiskError:
            return

    def remember(self, offset: int, position: int) -> None:
        """Cache the position from which `offset` is read."""
        positions = self._positions
        if positions is None:
            self._positions = {offset: position}
            return
        positions[offset] = position
        if len(positions) > REMEMBERED_POSITIONS:
            # Many at a time: the first key of a dict is found more slowly after each deletion.
            for oldest in tuple(islice(positions, REMEMBERED_POSITIONS // 2)):
                del positions[oldest]

    # -- timestamps

    def largest_timestamp_so_far(self) -> int:
        """The largest timestamp, -1 if there is none. Raises DiskError."""
        largest = self.max_timestamp
        if largest is None:
            largest, self.max_timestamp_offset = self.time_index.last()
            self.max_timestamp = largest
        return largest

    def first_timestamp(self) -> int:
        """The largest timestamp of the first batch, -1 if there is none. Raises DiskError."""
        if self.rolling_timestamp is None:
            if not self.size:
                return NO_TIMESTAMP
            self.rolling_timestamp = max_timestamp_at(self.log.get(), 0)
        return self.rolling_timestamp

    def retention_timestamp(self) -> int:
        """The timestamp for retention: the segment's largest, else its modification time. Raises DiskError."""
        largest = self.largest_timestamp_so_far()
        if largest >= 0:
            return largest
        return self.log.modified_ms() if self.size else self.created_ms

    # -- lookups

    def locate(self, offset: int) -> int | None:
        """The position of the batch that holds `offset`, or of the first one after it; None beyond the last.

        Raises DiskError, and BatchError if the file holds no batches, or ends within this one: a client reading there
        would get half a batch, again and again.
        """
        if self._positions is not None:
            position = self._positions.get(offset)
            if position is not None:
                return position
        place = self.find(offset) if offset > self.base_offset else self.batch_at(0)
        if place is None:
            return None
        self.check_ends_within(place)
        self.remember(offset, place.position)
        return place.position

    def find(self, offset: int) -> Place | None:
        """The batch that holds `offset`, or the first one after it. Raises as `locate`."""
        position = self.indexed_position(offset)
        return find_batch(self.log.get(), position, self.size, offset)

    def indexed_position(self, offset: int) -> int:
        """The position of the last indexed batch that begins at or before `offset`; 0 if none. Raises DiskError.

        An index has no checksum: an entry that does not match the log is skipped in favour of the one before it.
        """
        index = self.offset_index
        for number in range(index.floor(offset), -1, -1):
            place = self._indexed(number)
            if place is not None and place.base_offset <= offset:
                return place.position
        return 0

    def cut(self, start: int, max_bytes: int) -> Place | None:
        """The last indexed batch that begins in (`start`, `start + max_bytes`]: a batch boundary to end a read at."""
        number = self.offset_index.floor_of_position(start + max_bytes)
        if number < 0 or self.offset_index.loaded_entry(number)[1] <= start:
            return None
        return self._indexed(number)

    def _indexed(self, number: int) -> Place | None:
        """The batch that an index entry points to; None if the entry does not match it.

        The entry's offset may lie behind the batch: Apache Kafka adds one entry for batches that are appended together,
        with the last offset of all of them.
        """
        offset, position = self.offset_index.loaded_entry(number)
        try:
            place = self.batch_at(position)
        except BatchError:
            return None
        if place is None or position + place.length > self.size:
            return None
        in_order = self.base_offset <= place.base_offset <= offset and place.base_offset <= place.last_offset
        return place if in_order else None

    def batch_at(self, position: int) -> Place | None:
        """The batch that begins at `position`; None at the segment's end. Raises as `find`."""
        return batch_at(self.log.get(), position) if position < self.size else None

    def check_ends_within(self, place: Place) -> None:
        """Raise BatchError if a batch, by its length field, extends beyond the segment: then the length is damaged."""
        if place.position + place.length > self.size:
            raise BatchError(
                f"{self.log.path}: damaged batch at position {place.position}: it says {place.length} bytes, there "
                f"are {self.size - place.position}"
            )

    def pin(self) -> DiskFile:
        """The log file, open until `log.unpin` is called. Raises DiskError."""
        return self.log.pin()

    # -- closing

    def finish_time_index(self) -> None:
        """Add the segment's largest timestamp as the last entry of the time index. Raises DiskError."""
        if self.size:
            largest = self.largest_timestamp_so_far()
            self.time_index.append_if_newer(largest, self.max_timestamp_offset)

    def finish(self) -> None:
        """The segment will not grow any more: complete its indexes. Raises DiskError."""
        self.finish_time_index()
        self.offset_index.finish()
        self.time_index.finish()
        self._positions = None

    def truncate(self, offset: int) -> int:
        """Drop the batches that hold `offset` or more; returns the bytes dropped. Raises DiskError, BatchError."""
        place = self.find(offset) if offset > self.base_offset else None
        position = 0 if offset <= self.base_offset else (self.size if place is None else place.position)
        dropped = self.size - position
        self.offset_index.truncate(offset)
        self.time_index.truncate(offset)
        self.txn_index.keep_below(offset)
        self.log.get().truncate(position)
        self.size = position
        self.bytes_since_index = 0
        self._positions = None
        if not position:
            self.rolling_timestamp = None
        self._find_largest_timestamp()
        return dropped

    def _find_largest_timestamp(self) -> None:
        """Find the largest timestamp from the time index and the batches behind the last entry. Raises DiskError."""
        timestamp, offset = self.time_index.last()
        self._find_larger_timestamps(timestamp, offset, self.indexed_position(offset))

    def confirm_largest_timestamp(self) -> None:
        """Verify the largest timestamp of the time index, which has no checksum, against the log.

        For operations that cannot be undone. Raises DiskError.
        """
        largest = self.largest_timestamp_so_far()
        try:
            place = self.find(self.max_timestamp_offset)
        except BatchError:
            place = None
        if place is None or max_timestamp_at(self.log.get(), place.position) != largest:
            self._find_larger_timestamps(NO_TIMESTAMP, self.base_offset, 0)

    def _find_larger_timestamps(self, largest: int, largest_offset: int, position: int) -> None:
        """Set the largest timestamp: the given one, or a larger one of a batch from `position` on. Raises DiskError.

        If batches are cold nothing is set: part of the batches does not determine the segment's age.
        """
        file = self.log.get()
        try:
            while position < self.size:
                try:
                    place = batch_at(file, position)
                except BatchError:
                    break
                if place is None:
                    break
                timestamp = max_timestamp_at(file, position)
                if timestamp > largest:
                    largest, largest_offset = timestamp, place.last_offset
                position += place.length
        except ColdRange:
            raise ColdRange([Range(file.path, position, self.size - position)]) from None
        self.max_timestamp, self.max_timestamp_offset = largest, largest_offset

    def close(self) -> None:
        """Release all handles; pinned ones are closed when released."""
        self.log.drop()
        self.offset_index.drop()
        self.time_index.drop()
        self.txn_index.file.drop()

    def move_to(self, files: OpenFiles, memory: IndexMemory) -> None:
        """From now on open its files through `files`, and account for its index in `memory`. Nothing may be pinned."""
        self.close()
        for file in (self.log, self.offset_index.file, self.time_index.file):
            file.move_to(files)
        self.txn_index.move_to(files)
        self.offset_index.count_in(memory)

    def relocate(self, directory: str) -> None:
        """The directory of its files was renamed; what is pinned stays readable."""
        for file in self._files():
            file.relocate(directory)

    def mark_deleted(self) -> Iterator[str]:
        """Rename the segment's files to `….deleted`, the log file first, and release them; yields each new path.

        Raises DiskError.
        """
        self.close()
        for file in self._files():
            path = file.mark_deleted()
            if path is not None:
                yield path

    def swap_in(self) -> None:
        """Remove `.swap` from the file names: the segment is in place. Raises DiskError.

        The log file is first: as long as it is not in place, no other file is, and files with their names are old.
        """
        for file in self._files():
            file.swap_in()

    def _files(self) -> tuple[SegmentFile, ...]:
        return self.log, self.offset_index.file, self.time_index.file, self.txn_index.file

    def __repr__(self) -> str:
        return f"Segment({offset_file_name(self.base_offset, LOG_SUFFIX)}, {self.size} bytes)"


_OFFSET_ENTRY_BYTES: Final = OFFSET_ENTRY.size
_TIME_ENTRY_BYTES: Final = TIME_ENTRY.size


def roll_due(
    segment: Segment,
    config: LogConfig,
    name: str,
    headers: Sequence[BatchHeader],
    length: int,
    last_offset: int,
    now_ms: int,
) -> bool:
    """Whether these batches need a new segment after the active `segment`: by size, age, full index, or offset range.

    They are `length` bytes and end with `last_offset`; `name` is the partition's.
    """
    if segment.size > config.segment_bytes - length:
        return True
    index_bytes = config.segment_index_bytes
    if (segment.offset_index.entries + len(headers)) * _OFFSET_ENTRY_BYTES > index_bytes:
        return True
    if (segment.time_index.entries + 1 + len(headers)) * _TIME_ENTRY_BYTES > index_bytes:
        return True
    if last_offset - segment.base_offset > MAX_RELATIVE_OFFSET:
        return True
    first = segment.first_timestamp()
    newest = headers[0].max_timestamp if len(headers) == 1 else max(header.max_timestamp for header in headers)
    waited = newest - first if first >= 0 else now_ms - segment.created_ms
    longest_ms = config.segment_ms
    if config.compact:
        longest_ms = min(longest_ms, config.max_compaction_lag_ms)
    return waited > longest_ms - (config.segment_jitter_ms and _jitter_ms(segment, config, name))


def _jitter_ms(segment: Segment, config: LogConfig, name: str) -> int:
    """How much earlier this segment rolls: uniformly distributed, and constant for a segment."""
    spread = min(config.segment_jitter_ms, config.segment_ms)
    return crc32(f"{name}/{segment.base_offset}".encode()) % spread if spread > 0 else 0
