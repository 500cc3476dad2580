"""The disk of a simulated machine: killed processes leave what they wrote, a loss of power what was forced."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from ottla.env.executor import InlineExecutor
from ottla.env.futures import settle
from ottla.testing.disk_faulty import FaultyDisk
from ottla.testing.disk_memory import (
    APPEND,
    CREATE,
    FLUSH,
    FLUSH_DIRECTORY,
    MKDIRS,
    Change,
    MemoryDisk,
)
from ottla.testing.disk_power import Choice, PowerLoss

T = TypeVar("T")


class _Journal(list[Change]):
    """A journal that is replayed at once and keeps nothing."""

    def __init__(self, power: PowerLoss) -> None:
        super().__init__()
        self._power = power

    def append(self, change: Change) -> None:
        """One more change of the disk."""
        self._power.take(change)


class MachineDisk:
    """A machine's disk, as its processes have it one after the other: `disk` is the present one's."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._files: MemoryDisk
        self.disk: FaultyDisk
        self.replace_with_empty()

    @property
    def files(self) -> MemoryDisk:
        """The disk's files."""
        return self._files

    def replace_with_empty(self) -> None:
        """Put in an empty disk."""
        self._put_in(MemoryDisk(self._now_ms), PowerLoss())

    def _put_in(self, files: MemoryDisk, power: PowerLoss) -> None:
        files.now_ms = self._now_ms
        files.journal = _Journal(power)
        self._files, self._power = files, power
        capacity = self.disk.capacity if hasattr(self, "disk") else None
        self.disk = FaultyDisk(files)
        self.disk.capacity = capacity

    def process_ended(self) -> None:
        """The process was killed: what it wrote is there, and what it might still write is not."""
        files = self._files.copy()
        self._files.journal = None
        self._put_in(files, self._power)

    def power_lost(self, choice: Choice) -> None:
        """The machine has lost its power; `choice` decides what is left of what was not forced."""
        self._files.journal = None
        files = self._power.survivor(choice)
        power = PowerLoss()
        for change in _forced(files, ""):
            power.take(change)
        self._put_in(files, power)

    def walk(self, directory: str) -> Iterator[tuple[str, bytes]]:
        """Paths and contents of all files below a directory."""
        for name in sorted(self._files.listdir(directory)):
            path = f"{directory}/{name}"
            if self._files.is_dir(path):
                yield from self.walk(path)
            else:
                yield path, self._files.read_bytes(path)


def _forced(files: MemoryDisk, directory: str) -> Iterator[Change]:
    """The changes that make these files, all of them forced."""
    for name in files.listdir(directory):
        path = f"{directory}/{name}"
        if files.is_dir(path):
            yield MKDIRS, path, None
            yield from _forced(files, path)
        else:
            yield CREATE, path, None
            yield APPEND, path, files.read_bytes(path)
            yield FLUSH, path, None
    yield FLUSH_DIRECTORY, directory, None


class SimulatedExecutor(InlineExecutor):
    """Disk threads in virtual time: each job takes `delay_s`, and is done at once where that is 0."""

    def __init__(self) -> None:
        self.delay_s = 0.0

    def submit(self, work: Callable[..., T], *arguments: Any) -> asyncio.Future[T]:
        """See `Executor.submit`."""
        if not self.delay_s:
            return super().submit(work, *arguments)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        loop.call_later(self.delay_s, self._do, work, arguments, future)
        return future

    def _do(self, work: Callable[..., T], arguments: Sequence[Any], future: asyncio.Future[T]) -> None:
        try:
            result = work(*arguments)
        except Exception as error:
            settle(future, None, error)
        else:
            settle(future, result)

    def call(self, work: Callable[[], T], done: Callable[[T | None, BaseException | None], None]) -> None:
        """See `Executor.call`."""
        if self.delay_s:
            asyncio.get_running_loop().call_later(self.delay_s, super().call, work, done)
        else:
            super().call(work, done)
