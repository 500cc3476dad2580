"""The data that a loss of power leaves on a disk in memory whose changes were kept in a journal.

Only flushed data is sure to be there: a file's bytes by its own flush, the names in a directory by the flush of that
directory. Of the rest each file and directory keeps a part of its own: a file some of the changes since its flush, in
their order, the last one possibly torn, or its length without its bytes (zeros); a directory some of its changes of
names, in their order. A file whose name is lost is lost, and a directory with everything in it.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from typing import Final

from ottla.testing.disk_memory import (
    APPEND,
    CREATE,
    FLUSH,
    FLUSH_DIRECTORY,
    MKDIRS,
    REMOVE,
    REMOVE_TREE,
    RENAME,
    REPLACE,
    TRUNCATE,
    Change,
    MemoryDisk,
    journal_bytes,
)

#: Given a number of possibilities, which of them (0 to that number, exclusive) comes true.
Choice = Callable[[int], int]

#: How unforced bytes may come out: as they were, or as zeros of the same length.
_FORMS: Final = 4


class _File:
    """The bytes of a file that are sure, and what was done to it since."""

    __slots__ = ("changes", "sure")

    def __init__(self) -> None:
        self.sure = b""
        self.changes: list[bytes | int] = []

    def after(self, count: int) -> bytes:
        """The bytes after `count` of the changes."""
        data = bytearray(self.sure)
        for change in self.changes[:count]:
            if isinstance(change, int):
                del data[change:]
                data += bytes(change - len(data))
            else:
                data += change
        return bytes(data)

    def flush(self) -> None:
        self.sure = self.after(len(self.changes))
        self.changes = []

    def survivor(self, choice: Choice) -> bytes:
        """Return the bytes that remain."""
        if not self.changes:
            return self.sure
        count = choice(len(self.changes) + 1)
        before, data = self.after(max(0, count - 1)), self.after(count)
        if count == 0 or len(data) <= len(before):
            return data
        if choice(_FORMS) == 0:
            return before + bytes(len(data) - len(before))
        return data[: len(before) + 1 + choice(len(data) - len(before))]


class _Directory:
    """The names in a directory as they are now, those that are sure, and the changes since: names that came or went."""

    __slots__ = ("changes", "names", "sure")

    def __init__(self) -> None:
        self.names: dict[str, _File | _Directory] = {}
        self.sure: dict[str, _File | _Directory] = {}
        self.changes: list[dict[str, _File | _Directory | None]] = []

    def change(self, changes: dict[str, _File | _Directory | None]) -> None:
        self.changes.append(changes)
        _apply(self.names, changes)

    def flush(self) -> None:
        self.sure = dict(self.names)
        self.changes = []

    def survivors(self, choice: Choice) -> dict[str, _File | _Directory]:
        names = dict(self.sure)
        if self.changes:
            for changes in self.changes[: choice(len(self.changes) + 1)]:
                _apply(names, changes)
        return names


def _apply(names: dict[str, _File | _Directory], changes: dict[str, _File | _Directory | None]) -> None:
    for name, node in changes.items():
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


def nothing_more(possibilities: int) -> int:
    """The choice that leaves nothing but what was forced."""
    return 0


class PowerLoss:
    """Replays a journal, change by change, and gives what a loss of power would leave at this moment."""

    def __init__(self) -> None:
        self._root = _Directory()

    def take(self, change: Change, limit: int | None = None) -> None:
        """One more change happened; of an append its first `limit` bytes."""
        operation, path, argument = change
        parent, _, name = path.rpartition("/")
        if operation == APPEND:
            assert isinstance(argument, bytes)
            self._file(path).changes.append(argument[:limit])
        elif operation == TRUNCATE:
            assert isinstance(argument, int)
            self._file(path).changes.append(argument)
        elif operation == FLUSH:
            node = self._find(path)
            if isinstance(node, _File):
                node.flush()
        elif operation == FLUSH_DIRECTORY:
            self._directory(path).flush()
        elif operation == MKDIRS:
            self._mkdirs(path)
        elif operation == CREATE:
            self._directory(parent).change({name: _File()})
        elif operation == REPLACE:
            assert isinstance(argument, bytes)
            file = _File()
            file.changes.append(argument)
            self._directory(parent).change({name: file})
        elif operation in (REMOVE, REMOVE_TREE):
            self._directory(parent).change({name: None})
        elif operation == RENAME:
            assert isinstance(argument, str)
            self._rename(path, argument)

    def take_all(self, changes: Iterable[Change]) -> None:
        """Several more changes happened."""
        for change in changes:
            self.take(change)

    def untake(self, change: Change) -> None:
        """The append that was taken in last did not happen after all."""
        file = self._file(change[1])
        if file.changes:
            file.changes.pop()

    def survivor(self, choice: Choice) -> MemoryDisk:
        """The disk as it is found when the power is back; `choice` decides where several outcomes are possible."""
        disk = MemoryDisk()
        self._restore(disk, "", self._root, choice)
        return disk

    def _restore(self, disk: MemoryDisk, path: str, directory: _Directory, choice: Choice) -> None:
        for name, node in directory.survivors(choice).items():
            inner = f"{path}/{name}"
            if isinstance(node, _Directory):
                disk.mkdirs(inner)
                self._restore(disk, inner, node, choice)
            else:
                disk.open(inner, create=True).append([node.survivor(choice)])

    def _find(self, path: str) -> _File | _Directory | None:
        node: _File | _Directory | None = self._root
        for name in path.strip("/").split("/"):
            node = node.names.get(name) if isinstance(node, _Directory) else None
        return node

    def _directory(self, path: str) -> _Directory:
        node = self._find(path) if path.strip("/") else self._root
        assert isinstance(node, _Directory), path
        return node

    def _file(self, path: str) -> _File:
        node = self._find(path)
        # Written to by a handle whose name is gone: it is not seen again.
        return node if isinstance(node, _File) else _File()

    def _mkdirs(self, path: str) -> None:
        directory = self._root
        for name in path.strip("/").split("/"):
            if name not in directory.names:
                directory.change({name: _Directory()})
            node = directory.names[name]
            assert isinstance(node, _Directory), path
            directory = node

    def _rename(self, source: str, target: str) -> None:
        node = self._find(source)
        assert node is not None, source
        parent, _, name = source.rpartition("/")
        target_parent, _, target_name = target.rpartition("/")
        if parent == target_parent:
            self._directory(parent).change({name: None, target_name: node})
        else:
            self._directory(parent).change({name: None})
            self._directory(target_parent).change({target_name: node})


def every_moment(journal: Sequence[Change], wanted: Container[int] | None = None) -> Iterator[tuple[int, PowerLoss]]:
    """After each byte of a journal, counted as `journal_bytes` does: (bytes so far, what the power loss would leave).

    With `wanted`, after those only.
    """
    power = PowerLoss()
    count = 0
    for number, change in enumerate(journal):
        weight = journal_bytes([change])
        for part in range(1, weight):
            if wanted is None or count + part in wanted:
                power.take(change, part)
                yield count + part, power
                power.untake(change)
        power.take(change)
        if change[0] == REPLACE:
            # What replaces a file and is forced is forced before it gets the name.
            power.take_all(again for again in journal[number + 1 : number + 2] if again[:2] == (FLUSH, change[1]))
        count += weight
        if weight and (wanted is None or count in wanted):
            yield count, power
