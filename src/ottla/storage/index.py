"""The two sparse indexes of a segment, in Kafka's formats.

`.index` holds 8-byte entries: offset relative to the segment's base, position in the log file; an entry names the last
offset of the batch that starts at the position. `.timeindex` holds 12-byte entries: timestamp, relative offset; an
entry says that no record up to that offset is newer than that timestamp. Entries are strictly increasing.

New entries are buffered in memory and written in pieces, and when the segment is flushed, rolled or closed; after a
crash the tail is rebuilt from the log. (Kafka maps a preallocated file instead and trims it on close; such a file, left
by a crash, ends in zeros, which are truncated here.)
"""

from __future__ import annotations

import operator
import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from itertools import islice
from typing import Final

from ottla.env.warmth import pread
from ottla.storage.files import OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, OpenFiles, SegmentFile

OFFSET_ENTRY: Final = struct.Struct(">II")
TIME_ENTRY: Final = struct.Struct(">qI")
NO_TIMESTAMP: Final = -1

#: Buffered bytes of an index that are written in one piece.
SPILL_BYTES: Final = 4096
#: Memory for recently read offset indexes (a full index of a 1 GiB segment takes 2 MiB).
DEFAULT_INDEX_MEMORY: Final = 64 * 1024 * 1024


class IndexMemory:
    """Limits the memory of loaded offset indexes; the least recently used are dropped and read again when needed."""

    __slots__ = ("_loaded", "limit_bytes", "used_bytes")

    def __init__(self, limit_bytes: int = DEFAULT_INDEX_MEMORY) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._loaded: OrderedDict[OffsetIndex, None] = OrderedDict()

    def add(self, index: OffsetIndex) -> None:
        """Register a loaded index, dropping others to make room for it."""
        self.used_bytes += index.entries * OFFSET_ENTRY.size
        loaded = self._loaded
        for _ in range(2 * len(loaded)):
            if self.used_bytes <= self.limit_bytes:
                break
            other = next(iter(loaded))
            if other.used:
                other.used = False
                loaded.move_to_end(other)
            else:
                self.remove(other)
        loaded[index] = None

    def remove(self, index: OffsetIndex) -> None:
        """Remove an index."""
        del self._loaded[index]
        index.unload()


class _SparseIndex:
    """Entries of a fixed size: those in the file, then those buffered."""

    __slots__ = ("_pending", "entries", "file")

    def __init__(self, file: SegmentFile, entries: int) -> None:
        self.file = file
        #: Number of entries, buffered ones included.
        self.entries = entries
        self._pending: bytearray | None = None

    def _add(self, entry: bytes) -> None:
        if self._pending is None:
            self._pending = bytearray()
        self._pending += entry
        self.entries += 1

    @property
    def spill_due(self) -> bool:
        """Whether enough entries are buffered to be worth a write."""
        return self._pending is not None and len(self._pending) >= SPILL_BYTES

    def spill(self) -> None:
        """Write the buffered entries to the file. Raises DiskError; they then stay buffered."""
        if self._pending:
            self.file.get(create=True).append([self._pending])
            self._pending = None

    def _read(self, entry_size: int, first: int, count: int) -> bytes:
        """The bytes of `count` entries from number `first` on."""
        pending = self._pending
        in_file = self.entries - (len(pending) // entry_size if pending is not None else 0)
        from_file = max(0, min(count, in_file - first))
        data = pread(self.file.get(), from_file * entry_size, first * entry_size) if from_file else b""
        if pending is not None and from_file < count:
            start = (first + from_file - in_file) * entry_size
            data += pending[start : start + (count - from_file) * entry_size]
        return data

    def _cut(self, entry_size: int, count: int) -> None:
        """Keep the first `count` entries, in the file and in memory; it needs no room on the disk. Raises DiskError."""
        if count == self.entries:
            return
        in_file = self.entries - (len(self._pending) // entry_size if self._pending is not None else 0)
        if count < in_file:
            self.file.get(create=True).truncate(count * entry_size)
            self._pending = None
        elif self._pending is not None:
            del self._pending[(count - in_file) * entry_size :]
        self.entries = count

    def finish(self) -> None:
        """Write the buffered entries, create the file if it is missing, and close it. Raises DiskError."""
        self.spill()
        self.file.get(create=True)
        self.file.drop()


class OffsetIndex(_SparseIndex):
    """Finds the position of an offset, to within `index.interval.bytes` and one batch."""

    __slots__ = ("_memory", "_offsets", "_positions", "base_offset", "used")

    def __init__(
        self, files: OpenFiles, memory: IndexMemory, directory: str, base_offset: int, entries: int = 0
    ) -> None:
        super().__init__(SegmentFile(files, directory, base_offset, OFFSET_INDEX_SUFFIX), entries)
        self.base_offset = base_offset
        self._memory = memory
        self._offsets: array[int] | None = None
        self._positions: array[int] | None = None
        self.used = False

    def append(self, last_offset: int, position: int) -> None:
        """Add an entry: the batch at `position` ends with `last_offset`."""
        relative = last_offset - self.base_offset
        self._add(OFFSET_ENTRY.pack(relative, position))
        if self._offsets is not None and self._positions is not None:
            self._offsets.append(relative)
            self._positions.append(position)
            self._memory.used_bytes += OFFSET_ENTRY.size

    def _load(self) -> tuple[array[int], array[int]]:
        self.used = True
        if self._offsets is not None and self._positions is not None:
            return self._offsets, self._positions
        numbers = array("I", self._read(OFFSET_ENTRY.size, 0, self.entries))
        if sys.byteorder == "little":
            numbers.byteswap()
        self._offsets, self._positions = numbers[0::2], numbers[1::2]
        self._memory.add(self)
        return self._offsets, self._positions

    def unload(self) -> None:
        """Release the memory."""
        if self._offsets is not None:
            self._memory.used_bytes -= self.entries * OFFSET_ENTRY.size
        self._offsets = self._positions = None

    def floor(self, offset: int) -> int:
        """The number of the last entry for `offset` or less, -1 if there is none."""
        if not self.entries or offset < self.base_offset:
            return -1
        return bisect_right(self._load()[0], offset - self.base_offset) - 1

    def floor_of_position(self, position: int) -> int:
        """The number of the last entry of a batch that starts at or before `position`, -1 if there is none."""
        return bisect_right(self._load()[1], position) - 1 if self.entries else -1

    def loaded_entry(self, number: int) -> tuple[int, int]:
        """(offset, position) of an entry, from memory."""
        offsets, positions = self._load()
        return self.base_offset + offsets[number], positions[number]

    def entry(self, number: int) -> tuple[int, int]:
        """(offset, position) of an entry."""
        relative, position = OFFSET_ENTRY.unpack(self._read(OFFSET_ENTRY.size, number, 1))
        return self.base_offset + relative, position

    def truncate(self, offset: int) -> None:
        """Drop the entries for `offset` and above. Raises DiskError."""
        count = bisect_left(self._load()[0], max(0, offset - self.base_offset)) if self.entries else 0
        self.keep(count)

    def keep(self, count: int) -> None:
        """Keep the first `count` entries only. Raises DiskError."""
        if self._offsets is not None and count != self.entries:
            self._memory.remove(self)
        self._cut(OFFSET_ENTRY.size, count)

    def valid_entries(self) -> int:
        """How many entries from the start on are in order: a preallocated file ends in zeros.

        0 if the remaining entries are not all in order.
        """
        offsets, positions = self._load()
        high = bisect_left(positions, True, 1, key=lambda position: position == 0) if positions else 0
        if high and offsets[0] == 0 and positions[0] == 0 and high == 1:
            return 0
        for numbers in (offsets, positions):
            if not all(map(operator.lt, islice(numbers, high), islice(numbers, 1, high))):
                return 0
        return high

    def count_in(self, memory: IndexMemory) -> None:
        """Account for its memory in `memory` from now on; it must have been dropped before."""
        self._memory = memory

    def drop(self) -> None:
        """Release the memory and the handle."""
        if self._offsets is not None:
            self._memory.remove(self)
        self.file.drop()


class TimeIndex(_SparseIndex):
    """Finds where to begin a search by timestamp, and remembers the largest timestamp of the segment."""

    __slots__ = ("_last", "base_offset")

    def __init__(self, files: OpenFiles, directory: str, base_offset: int, entries: int = 0) -> None:
        super().__init__(SegmentFile(files, directory, base_offset, TIME_INDEX_SUFFIX), entries)
        self.base_offset = base_offset
        self._last: tuple[int, int] | None = None

    def last(self) -> tuple[int, int]:
        """(timestamp, offset) of the last entry; (-1, base offset) where there is none. Raises DiskError."""
        if self._last is None:
            self._last = self.entry(self.entries - 1) if self.entries else (NO_TIMESTAMP, self.base_offset)
        return self._last

    def append_if_newer(self, timestamp: int, offset: int) -> None:
        """Add an entry if its timestamp is larger than that of the last one."""
        if timestamp > self.last()[0]:
            self._add(TIME_ENTRY.pack(timestamp, offset - self.base_offset))
            self._last = (timestamp, offset)

    def entry(self, number: int) -> tuple[int, int]:
        """(timestamp, offset) of an entry. Raises DiskError."""
        timestamp, relative = TIME_ENTRY.unpack(self._read(TIME_ENTRY.size, number, 1))
        return timestamp, self.base_offset + relative

    def lookup(self, timestamp: int) -> int:
        """The offset of the last entry whose timestamp is at most `timestamp`; the base offset where none is."""
        number = bisect_right(range(self.entries), timestamp, key=lambda number: self.entry(number)[0])
        return self.entry(number - 1)[1] if number else self.base_offset

    def truncate(self, offset: int) -> None:
        """Drop the entries for `offset` and above. Raises DiskError."""
        self.keep(bisect_left(range(self.entries), offset, key=lambda number: self.entry(number)[1]))

    def keep(self, count: int) -> None:
        """Keep the first `count` entries only. Raises DiskError."""
        if count != self.entries:
            self._last = None
        self._cut(TIME_ENTRY.size, count)

    def valid_entries(self) -> int:
        """How many entries from the start on are in order: a preallocated file ends in zeros. Raises DiskError."""
        unused = (0, self.base_offset)
        return bisect_left(range(self.entries), True, key=lambda number: self.entry(number) == unused)

    def drop(self) -> None:
        """Release the handle."""
        self.file.drop()
