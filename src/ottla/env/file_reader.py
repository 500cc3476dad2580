"""Files opened for reading only, to inspect a directory that another process may own.

`ottla.env.disk` opens files to write to them. Nothing is written, created or locked here, and only regular files are
opened: a pipe or a device could block the reader for ever.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
import sys
from typing import Final, NamedTuple

from ottla.env.disk import DiskError, disk_errors

#: `struct flock` of 64-bit Linux: type, whence, start, length, process id.
_FLOCK: Final = struct.Struct("hhqqi4x")


class FileIdentity(NamedTuple):
    """Device and inode of a file. They are not given to another one while the file is open."""

    device: int
    inode: int


class ReadableFile:
    """A regular file opened for reading."""

    __slots__ = ("_descriptor", "path", "size")

    def __init__(self, path: str) -> None:
        """Open `path`. Raises DiskError, also where it is not a regular file."""
        self.path = path
        with disk_errors("open", path):
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            status = os.fstat(self._descriptor)
        except OSError as error:
            os.close(self._descriptor)
            raise DiskError("open", path, error.errno or errno.EIO) from None
        if not stat.S_ISREG(status.st_mode):
            os.close(self._descriptor)
            number = errno.EISDIR if stat.S_ISDIR(status.st_mode) else errno.EINVAL
            raise DiskError("open", path, number, "not a plain file")
        #: Its length in bytes when it was opened, or when `measure` was called last.
        self.size = status.st_size

    def measure(self) -> int:
        """The current length, which another process may have changed. Raises DiskError."""
        with disk_errors("read", self.path):
            self.size = os.fstat(self._descriptor).st_size
        return self.size

    def identity(self) -> FileIdentity:
        """The identity that tells the open file from another one that has taken its name. Raises DiskError."""
        with disk_errors("read", self.path):
            status = os.fstat(self._descriptor)
        return FileIdentity(status.st_dev, status.st_ino)

    def pread(self, length: int, position: int) -> bytes:
        """Up to `length` bytes from `position`; fewer at the end of the file only. Raises DiskError."""
        pieces: list[bytes] = []
        with disk_errors("read", self.path):
            while length > 0:
                data = os.pread(self._descriptor, length, position)
                if not data:
                    break
                pieces.append(data)
                position += len(data)
                length -= len(data)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def close(self) -> None:
        """Close it; closing twice does nothing."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __enter__(self) -> ReadableFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def identity_of(path: str) -> FileIdentity | None:
    """The identity of the file of this name now; None if there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return FileIdentity(status.st_dev, status.st_ino)


def is_locked_elsewhere(path: str) -> bool:
    """Whether another process holds the lock of the file `path`; False where the system cannot tell or it is missing.

    Not for a process that may hold the lock itself: the check would release it.
    """
    if not sys.platform.startswith("linux"):
        return False
    import fcntl  # no other system has to have it

    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        found = fcntl.fcntl(descriptor, fcntl.F_GETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
        return bool(_FLOCK.unpack(found)[0] != fcntl.F_UNLCK)
    except OSError:
        return False
    finally:
        os.close(descriptor)
