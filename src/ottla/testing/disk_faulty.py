"""A disk that fails on order, around another one, for tests: full, or with writes that end in an I/O error."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from fnmatch import fnmatchcase

from ottla.env.disk import Disk, DiskError, DiskFile, Lock, Part


class Fault:
    """One planned failure: operations on paths that match `pattern` fail from the `after`-th on, `times` times."""

    __slots__ = ("after", "error", "operation", "pattern", "times")

    def __init__(self, operation: str, pattern: str, error: int, after: int, times: int | None) -> None:
        self.operation = operation
        self.pattern = pattern
        self.error = error
        self.after = after
        self.times = times

    def strikes(self, operation: str, path: str) -> bool:
        """Whether this operation fails now; counts it."""
        if self.operation not in (operation, "*") or not fnmatchcase(path, self.pattern) or self.times == 0:
            return False
        if self.after > 0:
            self.after -= 1
            return False
        if self.times is not None:
            self.times -= 1
        return True


class FaultyDisk:
    """Passes everything to the disk within, but for what was planned to fail.

    Operations are `write`, `truncate`, `flush`, `read`, `open`, `rename`, `remove` and `replace` (`write_atomic`);
    `*` stands for all of them. `capacity` bytes may be appended in all before the disk is full (ENOSPC); a write
    that hits the end leaves its first bytes behind and is cut back, as on a real disk.
    """

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self.capacity: int | None = None
        self._faults: list[Fault] = []

    def fail(
        self, operation: str, pattern: str = "*", error: int = errno.EIO, after: int = 0, times: int | None = None
    ) -> None:
        """Plan a failure: after `after` good ones, `times` operations on matching paths fail (None: all that come)."""
        self._faults.append(Fault(operation, pattern, error, after, times))

    def heal(self) -> None:
        """Forget all planned failures and the capacity."""
        self._faults.clear()
        self.capacity = None

    def check(self, operation: str, path: str) -> None:
        """Raise DiskError where a failure is planned."""
        for fault in self._faults:
            if fault.strikes(operation, path):
                raise DiskError(operation, path, fault.error)

    def open(self, path: str, create: bool = False) -> DiskFile:
        self.check("open", path)
        return FaultyFile(self, self.disk.open(path, create))

    def read_bytes(self, path: str) -> bytes:
        self.check("read", path)
        return self.disk.read_bytes(path)

    def write_atomic(self, path: str, data: bytes, sync: bool = True) -> None:
        self.check("replace", path)
        self.take(len(data), path)
        self.disk.write_atomic(path, data, sync)

    def take(self, length: int, path: str) -> None:
        """Use up capacity, or raise ENOSPC."""
        if self.capacity is not None:
            if length > self.capacity:
                raise DiskError("write to", path, errno.ENOSPC)
            self.capacity -= length

    def rename(self, source: str, target: str) -> None:
        self.check("rename", source)
        self.disk.rename(source, target)

    def remove(self, path: str) -> None:
        self.check("remove", path)
        self.disk.remove(path)

    def remove_tree(self, path: str) -> None:
        self.check("remove", path)
        self.disk.remove_tree(path)

    def listdir(self, path: str) -> list[str]:
        self.check("read", path)
        return self.disk.listdir(path)

    def exists(self, path: str) -> bool:
        return self.disk.exists(path)

    def is_dir(self, path: str) -> bool:
        return self.disk.is_dir(path)

    def file_size(self, path: str) -> int:
        return self.disk.file_size(path)

    def modified_ms(self, path: str) -> int:
        return self.disk.modified_ms(path)

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        self.disk.set_modified_ms(path, modified_ms)

    def mkdirs(self, path: str) -> None:
        self.check("open", path)
        self.disk.mkdirs(path)

    def fsync_dir(self, path: str) -> None:
        self.check("flush", path)
        self.disk.fsync_dir(path)

    def space(self, path: str) -> tuple[int, int]:
        self.check("read", path)
        return self.disk.space(path)

    def absolute(self, path: str) -> str:
        return self.disk.absolute(path)

    def open_files(self) -> int:
        return self.disk.open_files()

    def lock(self, path: str) -> Lock | None:
        return self.disk.lock(path)


class FaultyFile:
    """A file of a faulty disk."""

    __slots__ = ("_disk", "_file", "damaged")

    def __init__(self, disk: FaultyDisk, file: DiskFile) -> None:
        self._disk = disk
        self._file = file
        self.damaged = False

    @property
    def path(self) -> str:
        return self._file.path

    @property
    def size(self) -> int:
        return self._file.size

    def append(self, parts: Sequence[Part]) -> None:
        """See `DiskFile.append`: a failing write leaves half its bytes, which are then cut off, if that works."""
        start = self._file.size
        try:
            self._disk.check("write", self.path)
            self._disk.take(sum(map(len, parts)), self.path)
        except DiskError:
            data = b"".join(parts)
            self._file.append([data[: len(data) // 2]])
            try:
                self.truncate(start)
            except DiskError:
                self.damaged = True
            raise
        self._file.append(parts)

    def pread(self, length: int, position: int) -> bytes:
        self._disk.check("read", self.path)
        return self._file.pread(length, position)

    def is_warm(self, position: int, length: int) -> bool | None:
        return self._file.is_warm(position, length)

    def read_warm(self, into: memoryview, position: int) -> bool:
        self._disk.check("read", self.path)
        return self._file.read_warm(into, position)

    def truncate(self, size: int) -> None:
        self._disk.check("truncate", self.path)
        self._file.truncate(size)

    def flush(self) -> None:
        self._disk.check("flush", self.path)
        self._file.flush()

    def fileno(self) -> int | None:
        return self._file.fileno()

    def close(self) -> None:
        self._file.close()
