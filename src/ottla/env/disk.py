"""The disk as storage uses it, and the machine's own.

Everything above `env` reaches files through `Disk` and `DiskFile`, so that the same code runs on a real disk, in
memory (`ottla.testing.disk_memory`), and on one that is full or fails (`ottla.testing.disk_faulty`).
"""

from __future__ import annotations

import errno
import itertools
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from mmap import PAGESIZE
from typing import Final, Protocol

from ottla.env.platforms import NOT_WAITING, lock_file, open_files_limit

#: The most parts given to one `pwritev` (IOV_MAX of Linux).
PARTS_PER_WRITE: Final = 1024
#: Distance of the probes of a range: what the system reads ahead arrives in larger pieces, not always in their order.
PROBE_BYTES: Final = 64 * 1024
_NOT_SUPPORTED: Final = frozenset({errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL, errno.ENOSYS})

#: Suffix of files that `write_atomic` has not finished; those left by a crash may be removed.
TEMPORARY_SUFFIX: Final = ".tmp"
_NO_RIGHT: Final = "Give the user of this process the right to read and write there"
_IN_THE_WAY: Final = "Move away what is there and is not a directory"
_MORE_FILES: Final = "Raise the limit of open files (ulimit -n)"
_CURES: Final = {
    errno.EACCES: _NO_RIGHT,
    errno.EPERM: _NO_RIGHT,
    errno.EROFS: "Mount the volume for writing",
    errno.EEXIST: _IN_THE_WAY,
    errno.ENOTDIR: _IN_THE_WAY,
    errno.EMFILE: _MORE_FILES,
    errno.ENFILE: _MORE_FILES,
}
"""What helps, by the system's error number, where it is not the disk that has failed."""
_TEMPORARY: Final = itertools.count()

Part = bytes | bytearray | memoryview


class DiskError(Exception):
    """A disk operation failed. The text names the operation, the path and the system's reason."""

    def __init__(self, operation: str, path: str, number: int, detail: str = "") -> None:
        reason = os.strerror(number)
        super().__init__(f"cannot {operation} {path}: {reason}{f' ({detail})' if detail else ''}")
        self.operation = operation
        self.path = path
        #: The system's error number (`errno.ENOSPC`, `errno.EIO`, ...).
        self.errno = number

    @property
    def disk_full(self) -> bool:
        """Whether there was no space left, on the device or in the user's quota."""
        return self.errno in (errno.ENOSPC, errno.EDQUOT)

    @property
    def is_exhausted(self) -> bool:
        """Whether space or file handles were lacking; the disk itself works."""
        return self.disk_full or self.errno in (errno.EMFILE, errno.ENFILE)

    @property
    def cure(self) -> str:
        """The cure that lets the operation succeed, as the beginning of a sentence."""
        return "Make room on the disk" if self.disk_full else _CURES.get(self.errno, "Repair the disk")

    @property
    def missing(self) -> bool:
        """Whether the path does not exist."""
        return self.errno == errno.ENOENT


class disk_errors:  # noqa: N801 (used as a statement)
    """Within it an OSError becomes a DiskError of this operation."""

    __slots__ = ("_operation", "_path")

    def __init__(self, operation: str, path: str) -> None:
        self._operation = operation
        self._path = path

    def __enter__(self) -> None:
        """Nothing to prepare."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            raise _disk_error(self._operation, self._path, error) from None


class DiskFile(Protocol):
    """An open file that grows at its end."""

    @property
    def path(self) -> str:
        """The path it was opened by."""
        ...

    @property
    def size(self) -> int:
        """Its length in bytes, as far as this handle knows: one writer per file."""
        ...

    def append(self, parts: Sequence[Part]) -> None:
        """Write `parts` at the end, all of them or none.

        Raises DiskError; the file then has its old length. Where even cutting it back fails, `damaged` is set.
        """
        ...

    @property
    def damaged(self) -> bool:
        """A write failed and its remains could not be cut off: the bytes beyond `size` are not to be trusted."""
        ...

    def pread(self, length: int, position: int) -> bytes:
        """Up to `length` bytes from `position`; fewer at the end of the file only. Raises DiskError."""
        ...

    def is_warm(self, position: int, length: int) -> bool | None:
        """Whether the range is in the page cache, as far as probes tell; None where the system cannot tell."""
        ...

    def read_warm(self, into: memoryview, position: int) -> bool:
        """Fill `into` from `position` on if all of that is in the page cache; False if not, or if that is not known.

        Raises DiskError.
        """
        ...

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes. Raises DiskError."""
        ...

    def flush(self) -> None:
        """Force the file to the disk (fsync). Callable from a disk thread. Raises DiskError."""
        ...

    def fileno(self) -> int | None:
        """The file descriptor for `sendfile`; None where there is none."""
        ...

    def close(self) -> None:
        """Close the handle; closing twice does nothing."""
        ...


class FileSlice:
    """A range of a file, pinned until it is released: `release` is called exactly once, when sent or dropped."""

    __slots__ = ("active", "file", "length", "position", "release")

    def __init__(
        self,
        file: DiskFile,
        position: int,
        length: int,
        release: Callable[[], None] | None = None,
        active: bool = False,
    ) -> None:
        self.file = file
        self.position = position
        self.length = length
        self.release = release
        #: Whether the file is still written to, so that its bytes are most likely in the page cache.
        self.active = active

    def is_warm(self) -> bool:
        """Whether the range can be sent without waiting for the disk; a guess where the system cannot tell."""
        warm = self.file.is_warm(self.position, self.length)
        return self.active if warm is None else warm

    def read(self) -> bytes:
        """The bytes of the range (for TLS, memory disks and tests). Raises DiskError."""
        return self.file.pread(self.length, self.position)

    def __repr__(self) -> str:
        return f"FileSlice({self.file.path!r}, {self.position}, {self.length})"


class Lock(Protocol):
    """A directory's lock, held until released."""

    def release(self) -> None:
        """Release the lock; releasing twice does nothing."""
        ...


class Disk(Protocol):
    """A file system. Every operation raises DiskError where it cannot be done."""

    def open(self, path: str, create: bool = False) -> DiskFile:
        """Open a file for reading and appending; `create` makes it where it is missing."""
        ...

    def read_bytes(self, path: str) -> bytes:
        """A whole file; meant for small ones."""
        ...

    def write_atomic(self, path: str, data: bytes, sync: bool = True) -> None:
        """Replace a file at once: either the old or the new content is there, whatever happens.

        Without `sync` it is not forced to disk, so that a loss of power may leave it empty.
        """
        ...

    def rename(self, source: str, target: str) -> None:
        """Rename a file or directory; a file of the target's name is replaced."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file; a missing one is not an error."""
        ...

    def remove_tree(self, path: str) -> None:
        """Remove a directory with its contents; a missing one is not an error."""
        ...

    def listdir(self, path: str) -> list[str]:
        """The names in a directory, sorted."""
        ...

    def exists(self, path: str) -> bool:
        """Whether a file or directory of that name exists."""
        ...

    def is_dir(self, path: str) -> bool:
        """Whether it is a directory."""
        ...

    def file_size(self, path: str) -> int:
        """The length of a file in bytes."""
        ...

    def modified_ms(self, path: str) -> int:
        """When a file was last written to, milliseconds since the Unix epoch."""
        ...

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Set when a file was last written to, milliseconds since the Unix epoch."""
        ...

    def mkdirs(self, path: str) -> None:
        """Make a directory and its parents; an existing one is not an error."""
        ...

    def fsync_dir(self, path: str) -> None:
        """Force a directory's entries to the disk (fsync)."""
        ...

    def space(self, path: str) -> tuple[int, int]:
        """Size of the volume that holds a directory and the space left for this process, in bytes."""
        ...

    def absolute(self, path: str) -> str:
        """The absolute path."""
        ...

    def open_files(self) -> int:
        """How many files this process may have open at one time."""
        ...

    def lock(self, path: str) -> Lock | None:
        """Lock by the file `path`, as Java's `FileChannel.tryLock` does; None where it is held already."""
        ...


class RealFile:
    """A file of the machine. One handle writes; reads may come from any thread."""

    __slots__ = ("_descriptor", "damaged", "path", "size")

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        self.damaged = False
        self._descriptor = descriptor
        self.size = os.fstat(descriptor).st_size

    def append(self, parts: Sequence[Part]) -> None:
        """See `DiskFile.append`."""
        start = self.size
        try:
            if len(parts) == 1:
                length = len(parts[0])
                written = os.pwrite(self._descriptor, parts[0], start)
            else:
                length = sum(map(len, parts))
                written = os.pwritev(self._descriptor, parts, start) if len(parts) <= PARTS_PER_WRITE else 0
            if written != length:
                self._append_rest(parts, start, written)
        except OSError as error:
            self._cut_back(start)
            raise _disk_error("write to", self.path, error) from None
        self.size = start + length

    def _append_rest(self, parts: Sequence[Part], start: int, written: int) -> None:
        left: list[Part] = []
        skip = written
        for part in parts:
            if skip >= len(part):
                skip -= len(part)
            else:
                left.append(memoryview(part)[skip:] if skip else part)
                skip = 0
        position = start + written
        while left:
            count = os.pwritev(self._descriptor, left[:PARTS_PER_WRITE], position)
            if count == 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            position += count
            while left and count >= len(left[0]):
                count -= len(left.pop(0))
            if count:
                left[0] = memoryview(left[0])[count:]

    def _cut_back(self, size: int) -> None:
        try:
            os.ftruncate(self._descriptor, size)
        except OSError:
            self.damaged = True

    def pread(self, length: int, position: int) -> bytes:
        """See `DiskFile.pread`."""
        try:
            data = os.pread(self._descriptor, length, position)
            if len(data) == length or not data:
                return data
            pieces = [data]
            got = len(data)
            while got < length:
                data = os.pread(self._descriptor, length - got, position + got)
                if not data:
                    break
                pieces.append(data)
                got += len(data)
            return b"".join(pieces)
        except OSError as error:
            raise _disk_error("read", self.path, error) from None

    def is_warm(self, position: int, length: int) -> bool | None:
        """See `DiskFile.is_warm`. One byte proves one page: both ends are probed, and what lies `PROBE_BYTES` apart."""
        if not NOT_WAITING or length <= 0:
            return None if length > 0 else True
        probe = [bytearray(1)]
        last = position + length - 1
        try:
            for at in range(position, last + 1, PROBE_BYTES):
                os.preadv(self._descriptor, probe, at, NOT_WAITING)
            if position // PAGESIZE != last // PAGESIZE:
                os.preadv(self._descriptor, probe, last, NOT_WAITING)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno in _NOT_SUPPORTED:
                return None
            raise _disk_error("read", self.path, error) from None
        return True

    def read_warm(self, into: memoryview, position: int) -> bool:
        """See `DiskFile.read_warm`. A read that does not wait ends before the first page that is missing."""
        if not NOT_WAITING:
            return False
        try:
            return os.preadv(self._descriptor, (into,), position, NOT_WAITING) == len(into)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno in _NOT_SUPPORTED:
                return False
            raise _disk_error("read", self.path, error) from None

    def truncate(self, size: int) -> None:
        """See `DiskFile.truncate`."""
        with disk_errors("truncate", self.path):
            os.ftruncate(self._descriptor, size)
        self.size = size
        self.damaged = False

    def flush(self) -> None:
        """See `DiskFile.flush`."""
        with disk_errors("flush", self.path):
            os.fsync(self._descriptor)

    def fileno(self) -> int | None:
        """The file descriptor."""
        return self._descriptor

    def close(self) -> None:
        """See `DiskFile.close`."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self, _close: Callable[[int], None] = os.close) -> None:
        # A log that is dropped and not closed would keep its files open until the process ends.
        if self._descriptor >= 0:
            _close(self._descriptor)


def _disk_error(operation: str, path: str, error: OSError) -> DiskError:
    return DiskError(operation, path, error.errno or errno.EIO)


#: Paths locked by this process: POSIX locks do not exclude their own process, and closing any second descriptor of
#: the file would free the lock, so a path that is listed here is never opened again.
_LOCKED: set[str] = set()
_LOCKED_GUARD = threading.Lock()


class _RealLock:
    __slots__ = ("_descriptor", "_path")

    def __init__(self, path: str, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor

    def release(self) -> None:
        """See `Lock.release`. The file stays, as Apache Kafka leaves it."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            with _LOCKED_GUARD:
                os.close(descriptor)
                _LOCKED.discard(self._path)


class RealDisk:
    """The machine's file system."""

    __slots__ = ()

    def open(self, path: str, create: bool = False) -> RealFile:
        """See `Disk.open`."""
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        with disk_errors("open", path):
            return RealFile(path, os.open(path, flags, 0o644))

    def read_bytes(self, path: str) -> bytes:
        """See `Disk.read_bytes`."""
        with disk_errors("read", path), open(path, "rb", buffering=0) as file:
            return file.read()

    def write_atomic(self, path: str, data: bytes, sync: bool = True) -> None:
        """See `Disk.write_atomic`."""
        temporary = f"{path}.{next(_TEMPORARY)}{TEMPORARY_SUFFIX}"
        try:
            self._write_and_replace(temporary, path, data, sync)
        except OSError as error:
            # The temporary file must not fill a full disk further.
            with suppress(OSError):
                os.unlink(temporary)
            raise _disk_error("write", path, error) from None
        if sync:
            self.fsync_dir(os.path.dirname(path) or ".")

    @staticmethod
    def _write_and_replace(temporary: str, path: str, data: bytes, sync: bool) -> None:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
            if sync:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(temporary, path)

    def rename(self, source: str, target: str) -> None:
        """See `Disk.rename`."""
        with disk_errors("rename", source):
            os.replace(source, target)

    def remove(self, path: str) -> None:
        """See `Disk.remove`."""
        with disk_errors("remove", path), suppress(FileNotFoundError):
            os.unlink(path)

    def remove_tree(self, path: str) -> None:
        """See `Disk.remove_tree`."""
        import shutil  # imported late: shutil imports the archivers, which would slow the start

        with disk_errors("remove", path), suppress(FileNotFoundError):
            shutil.rmtree(path)

    def listdir(self, path: str) -> list[str]:
        """See `Disk.listdir`."""
        with disk_errors("list", path):
            return sorted(os.listdir(path))

    def exists(self, path: str) -> bool:
        """See `Disk.exists`."""
        return os.path.exists(path)

    def is_dir(self, path: str) -> bool:
        """See `Disk.is_dir`."""
        return os.path.isdir(path)

    def file_size(self, path: str) -> int:
        """See `Disk.file_size`."""
        with disk_errors("read", path):
            return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        """See `Disk.modified_ms`."""
        with disk_errors("read", path):
            return os.stat(path).st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """See `Disk.set_modified_ms`."""
        with disk_errors("set the time of", path):
            os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))

    def mkdirs(self, path: str) -> None:
        """See `Disk.mkdirs`."""
        with disk_errors("make directory", path):
            try:
                os.mkdir(path)
            except FileNotFoundError:
                os.makedirs(path, exist_ok=True)
            except FileExistsError:
                if not os.path.isdir(path):
                    raise

    def fsync_dir(self, path: str) -> None:
        """See `Disk.fsync_dir`."""
        with disk_errors("flush", path):
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def space(self, path: str) -> tuple[int, int]:
        """See `Disk.space`."""
        with disk_errors("read", path):
            volume = os.statvfs(path)
        return volume.f_blocks * volume.f_frsize, volume.f_bavail * volume.f_frsize

    def absolute(self, path: str) -> str:
        """See `Disk.absolute`."""
        return os.path.abspath(path)

    def open_files(self) -> int:
        """See `Disk.open_files`."""
        return open_files_limit()

    def lock(self, path: str) -> Lock | None:
        """See `Disk.lock`."""
        real = os.path.realpath(path)
        with _LOCKED_GUARD:
            if real in _LOCKED:
                return None
            with disk_errors("lock", path):
                descriptor = os.open(real, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                lock_file(descriptor)
            except (BlockingIOError, PermissionError):
                os.close(descriptor)
                return None
            except OSError as error:
                os.close(descriptor)
                raise _disk_error("lock", path, error) from None
            _LOCKED.add(real)
            return _RealLock(real, descriptor)
