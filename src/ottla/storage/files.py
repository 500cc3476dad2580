"""Segment files: opened on demand, with a limit on how many are open.

Storage runs on the event loop; disk threads only sync files and read ahead, on handles pinned for them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Final

from ottla.env.disk import Disk, DiskFile

LOG_SUFFIX: Final = ".log"
OFFSET_INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
SNAPSHOT_SUFFIX: Final = ".snapshot"
TXN_INDEX_SUFFIX: Final = ".txnindex"
DELETED_SUFFIX: Final = ".deleted"
CLEANED_SUFFIX: Final = ".cleaned"
SWAP_SUFFIX: Final = ".swap"
#: Suffix of files that keep bytes taken out of a damaged file.
DAMAGED_SUFFIX: Final = ".damaged"

#: The files of one segment.
SEGMENT_SUFFIXES: Final = (LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)

#: Digits of a base offset in the names of files.
OFFSET_DIGITS: Final = 20
#: Default limit of open segment files.
DEFAULT_OPEN_FILES: Final = 8192


def offset_file_name(offset: int, suffix: str) -> str:
    """The file name for the segment that begins at `offset`: 20 digits and the suffix, as Kafka writes them."""
    return f"{offset:020d}{suffix}"


def offsets_of(names: Iterable[str], suffix: str) -> Iterator[int]:
    """The base offsets in those names that are segment files with this suffix."""
    for name in names:
        if name.endswith(suffix) and len(name) == OFFSET_DIGITS + len(suffix) and name[:OFFSET_DIGITS].isdigit():
            yield int(name[:OFFSET_DIGITS])


class OpenFiles:
    """The open handles of one disk. Beyond the limit, one that was not used recently and is not pinned is closed."""

    __slots__ = ("_ring", "disk", "limit")

    def __init__(self, disk: Disk, limit: int = DEFAULT_OPEN_FILES) -> None:
        self.disk = disk
        self.limit = limit
        self._ring: OrderedDict[SegmentFile, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._ring)

    def open(self, file: SegmentFile, create: bool) -> DiskFile:
        """Open a handle for `file`, making room first. Raises DiskError."""
        self._make_room()
        handle = self.disk.open(file.path, create)
        self._ring[file] = None
        return handle

    def forget(self, file: SegmentFile) -> None:
        """Remove `file`, which has closed its handle itself."""
        del self._ring[file]

    def close_all(self) -> None:
        """Close every handle; a pinned one is closed once it is released."""
        for file in list(self._ring):
            file.drop()

    def _make_room(self) -> None:
        ring = self._ring
        for _ in range(2 * len(ring)):
            if len(ring) < self.limit:
                return
            file = next(iter(ring))
            if file.used or file.pins:
                file.used = False
                ring.move_to_end(file)
            else:
                del ring[file]
                file.evict()


class SegmentFile:
    """One file of a segment, opened on first use."""

    __slots__ = ("_dropped", "_files", "_handle", "base_offset", "directory", "pins", "suffix", "used")

    def __init__(self, files: OpenFiles, directory: str, base_offset: int, suffix: str) -> None:
        self._files = files
        self._handle: DiskFile | None = None
        self._dropped = False
        self.directory = directory
        self.base_offset = base_offset
        self.suffix = suffix
        self.pins = 0
        self.used = False

    @property
    def path(self) -> str:
        """The current path of the file."""
        return f"{self.directory}/{self.base_offset:020d}{self.suffix}"

    @property
    def is_open(self) -> bool:
        """Whether a handle is open."""
        return self._handle is not None

    def modified_ms(self) -> int:
        """Modification time, milliseconds since the Unix epoch. Raises DiskError."""
        return self._files.disk.modified_ms(self.path)

    def get(self, create: bool = False) -> DiskFile:
        """The open handle; it stays open at least until the next call to any file. Raises DiskError."""
        self.used = True
        handle = self._handle
        if handle is None:
            handle = self._handle = self._files.open(self, create)
            self._dropped = False
        return handle

    def pin(self) -> DiskFile:
        """The open handle, which stays open until `unpin` has been called as often as `pin`. Raises DiskError."""
        handle = self._handle
        if handle is None:
            handle = self.get()
        self.pins += 1
        return handle

    def unpin(self) -> None:
        """Release one pin of the handle."""
        self.pins -= 1
        if self._dropped and not self.pins:
            self._close()

    def move_to(self, files: OpenFiles) -> None:
        """Open the file through `files` from now on; it must not be open or pinned."""
        self._files = files

    def relocate(self, directory: str) -> None:
        """The directory was renamed: open the file there from now on."""
        self.drop()
        self.directory = directory

    def evict(self) -> None:
        """Close the handle; `OpenFiles` has already removed it from its list."""
        handle, self._handle = self._handle, None
        if handle is not None:
            handle.close()

    def drop(self) -> None:
        """Close the unneeded handle as soon as it is not pinned."""
        if self._handle is None:
            return
        if self.pins:
            self._dropped = True
        else:
            self._close()

    def _close(self) -> None:
        self._files.forget(self)
        self._dropped = False
        self.evict()

    def swap_in(self) -> None:
        """Rename the file from `….swap` to its final name; a missing file is skipped. Raises DiskError."""
        source = self.path
        suffix = self.suffix.removesuffix(SWAP_SUFFIX)
        disk = self._files.disk
        if disk.exists(source):
            disk.rename(source, f"{self.directory}/{offset_file_name(self.base_offset, suffix)}")
        self.suffix = suffix

    def mark_deleted(self) -> str | None:
        """Rename the file to `….deleted`, as Kafka does before it removes one later.

        Returns the new path, None if the file is missing. Raises DiskError.
        """
        source = self.path
        target = source + DELETED_SUFFIX
        there = self._files.disk.exists(source)
        if there:
            self._files.disk.rename(source, target)
        self.suffix += DELETED_SUFFIX
        return target if there else None
