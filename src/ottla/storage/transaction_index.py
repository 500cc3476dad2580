"""The `.txnindex` of a segment: the transactions whose abort markers lie in it, in the order of the markers.

Few segments have one. Kafka's format (`TransactionIndex.java`): entries of 34 bytes, a version and four numbers.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from ottla.env.disk import DiskError
from ottla.env.warmth import pread
from ottla.storage.files import TXN_INDEX_SUFFIX, OpenFiles, SegmentFile

TXN_INDEX_VERSION: Final = 0
TXN_ENTRY: Final = struct.Struct(">hqqqq")
#: Entries of a segment that are kept in memory; a larger index is read from disk on each lookup.
MOST_CACHED_ENTRIES: Final = 4096
#: Entries read at a time.
ENTRIES_AT_ONCE: Final = 512


class AbortedTransaction(NamedTuple):
    """An aborted transaction.

    `last_offset` is that of its marker, `last_stable_offset` the last stable offset at that time.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int

    def encode(self) -> bytes:
        """Encode its entry."""
        return TXN_ENTRY.pack(TXN_INDEX_VERSION, *self)


def decode_aborted(data: bytes) -> list[AbortedTransaction]:
    """The entries of a file, without a truncated last one and those of another version."""
    whole = len(data) // TXN_ENTRY.size * TXN_ENTRY.size
    return [
        AbortedTransaction(*fields[1:])
        for fields in TXN_ENTRY.iter_unpack(data[:whole])
        if fields[0] == TXN_INDEX_VERSION
    ]


class TransactionIndex:
    """The index of one segment. The file is created with its first entry."""

    __slots__ = ("_entries", "_files", "file")

    def __init__(self, files: OpenFiles, directory: str, base_offset: int, suffix_end: str = "") -> None:
        self._files = files
        self.file = SegmentFile(files, directory, base_offset, TXN_INDEX_SUFFIX + suffix_end)
        self._entries: list[AbortedTransaction] | None = None

    def move_to(self, files: OpenFiles) -> None:
        """Open the file through `files` from now on."""
        self._files = files
        self.file.move_to(files)

    def entries(self) -> Sequence[AbortedTransaction]:
        """All entries. Raises DiskError."""
        if self._entries is not None:
            return self._entries
        found = decode_aborted(pread(self.file.get(), self._size(), 0)) if self._size() else []
        if len(found) <= MOST_CACHED_ENTRIES:
            self._entries = found
        return found

    def entries_from(self, offset: int) -> Iterator[AbortedTransaction]:
        """The entries of markers at `offset` and above; of a large index only those are read, and only as far as the
        iterator is consumed. Raises DiskError.
        """
        count = self._size() // TXN_ENTRY.size if self._entries is None else 0
        if count <= MOST_CACHED_ENTRIES:
            yield from (entry for entry in self.entries() if entry.last_offset >= offset)
            return
        first = bisect_left(range(count), offset, key=self._marker_at)
        for start in range(first, count, ENTRIES_AT_ONCE):
            length = min(ENTRIES_AT_ONCE, count - start) * TXN_ENTRY.size
            yield from decode_aborted(pread(self.file.get(), length, start * TXN_ENTRY.size))

    def _marker_at(self, number: int) -> int:
        data = pread(self.file.get(), TXN_ENTRY.size, number * TXN_ENTRY.size)
        last_offset: int = TXN_ENTRY.unpack(data)[3]
        return last_offset

    def append(self, transaction: AbortedTransaction) -> None:
        """Add an entry. Raises DiskError if it could not be written; it is kept in memory until a restart
        nevertheless.
        """
        try:
            self.file.get(create=True).append([transaction.encode()])
        except DiskError:
            self._entries = [*self.entries(), transaction]
            raise
        if self._entries is not None:
            self._entries.append(transaction)
            if len(self._entries) > MOST_CACHED_ENTRIES:
                self._entries = None

    def is_intact(self) -> bool:
        """Whether the file holds complete entries of markers in this segment, in order. Raises DiskError."""
        if self._size() != len(self.entries()) * TXN_ENTRY.size:
            return False
        previous = self.file.base_offset - 1
        for entry in self.entries():
            if not 0 <= entry.first_offset <= entry.last_offset or entry.last_offset <= previous:
                return False
            # A value that is too large would hide the entries behind it.
            if entry.producer_id < 0 or not 0 <= entry.last_stable_offset <= entry.last_offset + 1:
                return False
            previous = entry.last_offset
        return True

    def keep_below(self, offset: int) -> None:
        """Drop the entries of markers at `offset` and above, and a truncated last one. Raises DiskError."""
        disk, path = self._files.disk, self.file.path
        if not disk.exists(path):
            self._entries = []
            return
        remaining = [entry for entry in decode_aborted(disk.read_bytes(path)) if entry.last_offset < offset]
        handle = self.file.get()
        if handle.size != len(remaining) * TXN_ENTRY.size:
            handle.truncate(len(remaining) * TXN_ENTRY.size)
        self._entries = remaining if len(remaining) <= MOST_CACHED_ENTRIES else None

    def replace(self, transactions: Sequence[AbortedTransaction]) -> None:
        """Replace all entries; with no entries and no file, none is created. Raises DiskError."""
        if list(transactions) == list(self.entries()) and self._size() == len(transactions) * TXN_ENTRY.size:
            return
        handle = self.file.get(create=True)
        handle.truncate(0)
        if transactions:
            handle.append([b"".join(transaction.encode() for transaction in transactions)])
        self._entries = list(transactions) if len(transactions) <= MOST_CACHED_ENTRIES else None

    def _size(self) -> int:
        disk, path = self._files.disk, self.file.path
        return disk.file_size(path) if disk.exists(path) else 0
