"""Reads that must not wait for the disk: what is not in the page cache is refused, to be fetched by a disk thread.

Looking for a place in a log reads a few bytes of indexes and batch headers. On the event loop a wait for the disk stops
every client, so that is done by `without_waiting`: its caller has `bring` run in a disk thread for what was cold, and
starts again. Threads, which may wait, read as usual.

A range is taken for warm when both its ends are, and what lies 64 KiB apart between them (`DiskFile.is_warm`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.env.disk import DiskError

if TYPE_CHECKING:
    from ottla.env.disk import Disk, DiskFile

#: A disk thread reads at least this much: what is looked for is often a little further on.
READ_AHEAD_BYTES: Final = 64 * 1024
#: And this much at a time.
PIECE_BYTES: Final = 1024 * 1024


class _Mode(threading.local):
    """Whether reads of this thread must not wait at the moment. Not a context variable: callbacks would inherit it."""

    only_warm = False


_MODE: Final = _Mode()


class Range(NamedTuple):
    """Bytes of a file."""

    path: str
    position: int
    length: int


class ColdRange(Exception):
    """The range is not in the page cache."""

    def __init__(self, ranges: Sequence[Range]) -> None:
        super().__init__(f"{len(ranges)} ranges are not in the page cache")
        self.ranges = ranges


def pread(file: DiskFile, length: int, position: int) -> bytes:
    """`DiskFile.pread`; raises `ColdRange` where that would wait and must not."""
    if _MODE.only_warm and file.is_warm(position, length) is False:
        raise ColdRange([Range(file.path, position, length)])
    return file.pread(length, position)


def without_waiting(work: Callable[[], None]) -> Sequence[Range]:
    """Do the work if all that it reads is in the page cache; else leave it and return the ranges that are not."""
    before = _MODE.only_warm
    _MODE.only_warm = True
    try:
        work()
    except ColdRange as cold:
        return cold.ranges
    finally:
        _MODE.only_warm = before
    return ()


def bring(disk: Disk, ranges: Sequence[Range]) -> None:
    """Read ranges into the page cache, in a disk thread. Errors show when they are read again."""
    for path, position, length in ranges:
        try:
            file = disk.open(path)
        except DiskError:
            continue
        try:
            end = position + max(length, READ_AHEAD_BYTES)
            for start in range(position, end, PIECE_BYTES):
                if not file.pread(min(PIECE_BYTES, end - start), start):
                    break
        except DiskError:
            continue
        finally:
            file.close()
