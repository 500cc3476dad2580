"""Who lets go of the old content of small files that the event loop replaces."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.env.disk import DiskError, DiskFile, RealDisk
from ottla.env.executor import DiskExecutor
from ottla.storage.replaced import MOST_HELD, ReplacedFiles
from ottla.testing.disk_memory import MemoryDisk
from support.waiting import until

pytestmark = pytest.mark.spec("R7")


class _Closing:
    """A file that says which thread closed it."""

    def __init__(self, file: DiskFile, closed_by: list[int]) -> None:
        self._file = file
        self._closed_by = closed_by
        self.size = file.size

    def close(self) -> None:
        self._closed_by.append(threading.get_ident())
        self._file.close()


class WatchedDisk(RealDisk):
    """The machine's disk, and which threads closed what was opened."""

    __slots__ = ("closed_by",)

    def __init__(self) -> None:
        self.closed_by: list[int] = []

    def open(self, path: str, create: bool = False) -> Any:
        return _Closing(super().open(path, create), self.closed_by)


class KeptExecutor:
    """Runs nothing before it is told to."""

    def __init__(self) -> None:
        self.jobs: list[tuple[Callable[[], Any], Callable[[Any, BaseException | None], None]]] = []

    def call(self, work: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        self.jobs.append((work, done))

    def run(self) -> None:
        work, done = self.jobs.pop(0)
        work()
        done(None, None)


def in_loop(work: Callable[[], None]) -> None:
    async def run() -> None:
        work()

    asyncio.run(run())


def test_a_disk_thread_closes_what_the_loop_replaces(tmp_path: Path) -> None:
    disk, executor, path = WatchedDisk(), DiskExecutor(1), tmp_path / "leader-epoch-checkpoint"
    replaced = ReplacedFiles(disk, executor)

    async def run() -> None:
        for number in range(10):
            replaced.replace(str(path), b"content %d" % number)
            assert path.read_bytes() == b"content %d" % number
        await until(lambda: len(disk.closed_by) >= 9, "the files to be closed")

    asyncio.run(run())
    executor.close()
    assert threading.get_ident() not in disk.closed_by
    assert len(disk.closed_by) == 9, "there was nothing before the first"


def test_the_old_content_stays_until_then() -> None:
    disk, executor = MemoryDisk(), KeptExecutor()
    disk.mkdirs("/data")
    replaced = ReplacedFiles(disk, executor)  # type: ignore[arg-type]
    in_loop(lambda: [replaced.replace("/data/file", b"%d" % number) for number in range(3)] and None)
    assert [file.pread(10, 0) for file in replaced._held] == [b"0", b"1"]
    assert len(executor.jobs) == 1, "one job for all"
    executor.run()
    assert not replaced._held
    assert disk.read_bytes("/data/file") == b"2"


def test_one_that_comes_when_the_thread_is_done_gets_a_job_of_its_own() -> None:
    disk, executor = MemoryDisk(), KeptExecutor()
    disk.mkdirs("/data")
    replaced = ReplacedFiles(disk, executor)  # type: ignore[arg-type]
    in_loop(lambda: [replaced.replace("/data/file", b"%d" % number) for number in range(2)] and None)
    work, done = executor.jobs.pop()
    work()
    in_loop(lambda: replaced.replace("/data/file", b"late"))
    assert replaced._held
    done(None, None)
    executor.run()
    assert not replaced._held


def test_few_are_held() -> None:
    disk, executor = MemoryDisk(), KeptExecutor()
    disk.mkdirs("/data")
    replaced = ReplacedFiles(disk, executor)  # type: ignore[arg-type]
    in_loop(lambda: [replaced.replace("/data/file", b"%d" % number) for number in range(2 * MOST_HELD)] and None)
    assert len(replaced._held) == MOST_HELD
    assert disk.read_bytes("/data/file") == b"%d" % (2 * MOST_HELD - 1)


def test_without_threads_it_is_closed_here(tmp_path: Path) -> None:
    disk, executor = WatchedDisk(), DiskExecutor(1)
    executor.close()
    replaced = ReplacedFiles(disk, executor)
    path = str(tmp_path / "file")
    in_loop(lambda: [replaced.replace(path, b"%d" % number) for number in range(3)] and None)
    assert disk.closed_by == [threading.get_ident()] * 2


def test_threads_hold_nothing(tmp_path: Path) -> None:
    """Logs are opened by threads, which may wait for the disk."""
    disk, executor = WatchedDisk(), KeptExecutor()
    replaced = ReplacedFiles(disk, executor)  # type: ignore[arg-type]
    for number in range(3):
        replaced.replace(str(tmp_path / "file"), b"%d" % number)
    assert (tmp_path / "file").read_bytes() == b"2"
    assert not disk.closed_by
    assert not executor.jobs


def test_a_failed_write_leaves_the_old_content(tmp_path: Path) -> None:
    disk, executor = WatchedDisk(), DiskExecutor(1)
    replaced = ReplacedFiles(disk, executor)
    missing = str(tmp_path / "missing" / "file")

    def run() -> None:
        with pytest.raises(DiskError, match="missing"):
            replaced.replace(missing, b"new")

    in_loop(run)
    executor.close()
