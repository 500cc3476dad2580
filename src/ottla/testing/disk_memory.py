"""A disk in memory, for tests and the simulator, that can keep a journal of everything written to it.

`replay` makes the disk that a killed process leaves: every change up to some byte. What a loss of power leaves is
computed by `ottla.testing.disk_power`.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from typing import Final

from ottla.env.disk import DiskError, Lock, Part

#: One change of the disk: (operation, path, second argument).
Change = tuple[str, str, "bytes | str | int | None"]

APPEND: Final = "append"
TRUNCATE: Final = "truncate"
CREATE: Final = "create"
REPLACE: Final = "replace"
RENAME: Final = "rename"
REMOVE: Final = "remove"
REMOVE_TREE: Final = "remove_tree"
MKDIRS: Final = "mkdirs"
FLUSH: Final = "flush"
FLUSH_DIRECTORY: Final = "flush_directory"


#: What the disk says that it holds.
SPACE_BYTES: Final = 1 << 50


class MemoryNode:
    """The content of a file, shared by the handles that are open on it."""

    __slots__ = ("data", "modified_ms", "path")

    def __init__(self, path: str, modified_ms: int = 0) -> None:
        self.path = path
        self.data = bytearray()
        self.modified_ms = modified_ms


class MemoryFile:
    """A handle of a file in memory. It outlives the removal of the name, as on a real disk."""

    __slots__ = ("_disk", "_node", "damaged", "path")

    def __init__(self, disk: MemoryDisk, node: MemoryNode) -> None:
        self._disk = disk
        self._node = node
        self.path = node.path
        self.damaged = False

    @property
    def size(self) -> int:
        return len(self._node.data)

    def append(self, parts: Sequence[Part]) -> None:
        data = b"".join(parts)
        self._node.data += data
        self._node.modified_ms = self._disk.now_ms()
        self._disk.note(APPEND, self._node.path, data)

    def pread(self, length: int, position: int) -> bytes:
        if position < 0 or length < 0:
            raise DiskError("read", self._node.path, errno.EINVAL)
        return bytes(memoryview(self._node.data)[position : position + length])

    def is_warm(self, position: int, length: int) -> bool | None:
        """Memory is always warm."""
        return True

    def read_warm(self, into: memoryview, position: int) -> bool:
        data = self.pread(len(into), position)
        into[: len(data)] = data
        return len(data) == len(into)

    def truncate(self, size: int) -> None:
        """See `DiskFile.truncate`; like there, a larger size adds zeros."""
        data = self._node.data
        if size > len(data):
            data += bytes(size - len(data))
        else:
            del data[size:]
        self._disk.note(TRUNCATE, self._node.path, size)

    def flush(self) -> None:
        """Nothing to force, but the journal says that it was done."""
        self._disk.note(FLUSH, self._node.path)

    def fileno(self) -> int | None:
        """None: memory has no descriptor."""
        return None

    def close(self) -> None:
        """Nothing to close."""


class _MemoryLock:
    __slots__ = ("_held", "_path")

    def __init__(self, held: set[str], path: str) -> None:
        self._held = held
        self._path = path

    def release(self) -> None:
        self._held.discard(self._path)


class MemoryDisk:
    """Files in memory. With a `journal`, every change is kept, so that `replay` can stop after any byte of it."""

    def __init__(self, now_ms: Callable[[], int] | None = None, journal: list[Change] | None = None) -> None:
        self._nodes: dict[str, MemoryNode] = {}
        self._directories: set[str] = {"", "/"}
        self._locks: set[str] = set()
        #: Where every change is kept, in order; None: nowhere.
        self.journal = journal
        self.now_ms: Callable[[], int] = now_ms or _zero

    def copy(self) -> MemoryDisk:
        """A disk with the same files, unlocked: what is left when the process that has this one is killed now."""
        other = MemoryDisk(self.now_ms)
        other._directories = set(self._directories)
        for path, node in self._nodes.items():
            copied = other._nodes[path] = MemoryNode(path, node.modified_ms)
            copied.data += node.data
        return other

    def note(self, operation: str, path: str, argument: bytes | str | int | None = None) -> None:
        """Keep a change in the journal, where there is one."""
        if self.journal is not None:
            self.journal.append((operation, path, argument))

    def open(self, path: str, create: bool = False) -> MemoryFile:
        node = self._nodes.get(path)
        if node is None:
            if not create:
                raise DiskError("open", path, errno.ENOENT)
            node = self._create(path)
            self.note(CREATE, path)
        return MemoryFile(self, node)

    def _create(self, path: str) -> MemoryNode:
        if path.rpartition("/")[0] not in self._directories:
            raise DiskError("open", path, errno.ENOENT)
        node = self._nodes[path] = MemoryNode(path, self.now_ms())
        return node

    def _node(self, path: str, operation: str = "read") -> MemoryNode:
        node = self._nodes.get(path)
        if node is None:
            raise DiskError(operation, path, errno.ENOENT)
        return node

    def read_bytes(self, path: str) -> bytes:
        return bytes(self._node(path).data)

    def write_atomic(self, path: str, data: bytes, sync: bool = True) -> None:
        self._nodes.pop(path, None)
        self._create(path).data += data
        self.note(REPLACE, path, data)
        if sync:
            self.note(FLUSH, path)
            self.note(FLUSH_DIRECTORY, path.rpartition("/")[0])

    def rename(self, source: str, target: str) -> None:
        if source in self._nodes:
            node = self._nodes.pop(source)
            node.path = target
            self._nodes[target] = node
        elif source in self._directories:
            self._rename_directory(source, target)
        else:
            raise DiskError("rename", source, errno.ENOENT)
        self.note(RENAME, source, target)

    def _rename_directory(self, source: str, target: str) -> None:
        if target in self._directories and self.listdir(target):
            raise DiskError("rename", source, errno.ENOTEMPTY)
        prefix = source + "/"
        for directory in [name for name in self._directories if name == source or name.startswith(prefix)]:
            self._directories.discard(directory)
            self._directories.add(target + directory[len(source) :])
        for path in [name for name in self._nodes if name.startswith(prefix)]:
            node = self._nodes.pop(path)
            node.path = target + path[len(source) :]
            self._nodes[node.path] = node

    def remove(self, path: str) -> None:
        if self._nodes.pop(path, None) is not None:
            self.note(REMOVE, path)

    def remove_tree(self, path: str) -> None:
        prefix = path + "/"
        for name in [name for name in self._nodes if name.startswith(prefix)]:
            del self._nodes[name]
        self._directories = {name for name in self._directories if name != path and not name.startswith(prefix)}
        self.note(REMOVE_TREE, path)

    def listdir(self, path: str) -> list[str]:
        if path not in self._directories:
            raise DiskError("list", path, errno.ENOENT)
        prefix = path + "/"
        inside = [name[len(prefix) :] for name in (*self._nodes, *self._directories) if name.startswith(prefix)]
        return sorted({name.partition("/")[0] for name in inside if name})

    def exists(self, path: str) -> bool:
        return path in self._nodes or path in self._directories

    def is_dir(self, path: str) -> bool:
        return path in self._directories

    def file_size(self, path: str) -> int:
        return len(self._node(path).data)

    def modified_ms(self, path: str) -> int:
        return self._node(path).modified_ms

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        self._node(path, "set the time of").modified_ms = modified_ms

    def mkdirs(self, path: str) -> None:
        if path not in self._directories:
            self.note(MKDIRS, path)
        while path and path not in self._directories:
            self._directories.add(path)
            path = path.rpartition("/")[0]

    def fsync_dir(self, path: str) -> None:
        """Nothing to force, but the journal says that it was done. One that was renamed meanwhile is missing."""
        if path not in self._directories:
            raise DiskError("sync", path, errno.ENOENT)
        self.note(FLUSH_DIRECTORY, path)

    def space(self, path: str) -> tuple[int, int]:
        """See `Disk.space`: as good as endless."""
        if path not in self._directories:
            raise DiskError("read", path, errno.ENOENT)
        return SPACE_BYTES, SPACE_BYTES

    def absolute(self, path: str) -> str:
        """All paths are."""
        return path

    def open_files(self) -> int:
        """Memory has no such limit; this is as good as none."""
        return 1 << 20

    def lock(self, path: str) -> Lock | None:
        if path in self._locks:
            return None
        self._locks.add(path)
        return _MemoryLock(self._locks, path)

    def flip(self, path: str, position: int, mask: int = 1) -> None:
        """Damage a byte, for tests."""
        self._nodes[path].data[position] ^= mask


def _zero() -> int:
    return 0


def journal_bytes(journal: Sequence[Change]) -> int:
    """How many cut points a journal has: one per byte appended and one per other change."""
    return sum(_weight(change) for change in journal)


def _weight(change: Change) -> int:
    operation, _, argument = change
    return len(argument) if operation == APPEND and isinstance(argument, bytes) else 1


def replay(journal: Sequence[Change], limit: int, disk: MemoryDisk | None = None) -> MemoryDisk:
    """The disk (a new one by default) after the first `limit` bytes of a journal: a stop in the middle of a write."""
    disk = MemoryDisk() if disk is None else disk
    for change in journal:
        weight = _weight(change)
        if limit < weight and change[0] != APPEND:
            break
        _apply(disk, change, limit)
        limit -= weight
        if limit <= 0:
            break
    return disk


def _apply(disk: MemoryDisk, change: Change, limit: int) -> None:
    operation, path, argument = change
    if operation == APPEND:
        assert isinstance(argument, bytes)
        disk.open(path, create=True).append([argument[:limit]])
    elif operation == TRUNCATE:
        assert isinstance(argument, int)
        disk.open(path, create=True).truncate(argument)
    elif operation == CREATE:
        disk.open(path, create=True)
    elif operation == REPLACE:
        assert isinstance(argument, bytes)
        disk.write_atomic(path, argument)
    elif operation == RENAME:
        assert isinstance(argument, str)
        disk.rename(path, argument)
    elif operation == REMOVE:
        disk.remove(path)
    elif operation == REMOVE_TREE:
        disk.remove_tree(path)
    elif operation == MKDIRS:
        disk.mkdirs(path)
