"""Who lets go of the old content of small files that the event loop replaces."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from ottla.env.disk import DiskError, DiskFile, RealDisk
from ottla.env.executor import DiskExecutor
from ottla.storage.resources import MOST_HELD, ReplacedFiles
from ottla.testing.disk_faulty import FaultyDisk
from ottla.testing.disk_memory import MemoryDisk
from support.storage_logs import HandExecutor
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


def replace_in_loop(replaced: ReplacedFiles, path: str, times: int) -> None:
    """Give the file the contents 0, 1, 2, …, one after the other."""

    async def run() -> None:
        for number in range(times):
            replaced.replace(path, b"%d" % number)

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
    disk, executor = MemoryDisk(), HandExecutor()
    disk.mkdirs("/data")
    replaced = ReplacedFiles(disk, executor)
    replace_in_loop(replaced, "/data/file", 3)
    assert [file.pread(10, 0) for file in replaced._held] == [b"0", b"1"]
    assert len(executor.works) == 1, "one job for all"
    executor.finish()
    assert not replaced._held
    assert disk.read_bytes("/data/file") == b"2"


def test_one_that_comes_when_the_thread_is_done_gets_a_job_of_its_own() -> None:
    disk, executor = MemoryDisk(), HandExecutor()
    disk.mkdirs("/data")
    replaced = ReplacedFiles(disk, executor)
    replace_in_loop(replaced, "/data/file", 2)
    work, done = executor.works.pop()
    work()
    replace_in_loop(replaced, "/data/file", 1)
    assert replaced._held
    done(None, None)
    executor.finish()
    assert not replaced._held


def test_few_are_held() -> None:
    disk, executor = MemoryDisk(), HandExecutor()
    disk.mkdirs("/data")
    replaced = ReplacedFiles(disk, executor)
    replace_in_loop(replaced, "/data/file", 2 * MOST_HELD)
    assert len(replaced._held) == MOST_HELD
    assert disk.read_bytes("/data/file") == b"%d" % (2 * MOST_HELD - 1)


def test_without_threads_it_is_closed_here(tmp_path: Path) -> None:
    disk, executor = WatchedDisk(), DiskExecutor(1)
    executor.close()
    replaced = ReplacedFiles(disk, executor)
    path = str(tmp_path / "file")
    replace_in_loop(replaced, path, 3)
    assert disk.closed_by == [threading.get_ident()] * 2


def test_threads_hold_nothing(tmp_path: Path) -> None:
    """Logs are opened by threads, which may wait for the disk."""
    disk, executor = WatchedDisk(), HandExecutor()
    replaced = ReplacedFiles(disk, executor)
    for number in range(3):
        replaced.replace(str(tmp_path / "file"), b"%d" % number)
    assert (tmp_path / "file").read_bytes() == b"2"
    assert not disk.closed_by
    assert not executor.works


def test_a_failed_write_leaves_the_old_content_and_lets_go_of_it() -> None:
    disk, executor = FaultyDisk(MemoryDisk()), HandExecutor()
    disk.mkdirs("/data")
    replaced = ReplacedFiles(disk, executor)
    replace_in_loop(replaced, "/data/file", 1)
    disk.fail("replace", "*file")
    with pytest.raises(DiskError, match="/data/file"):
        replace_in_loop(replaced, "/data/file", 1)
    assert disk.read_bytes("/data/file") == b"0"
    executor.finish()
    assert not replaced._held


def test_where_nothing_can_be_written_it_is_said(tmp_path: Path) -> None:
    replaced = ReplacedFiles(WatchedDisk(), DiskExecutor(1))
    with pytest.raises(DiskError, match="missing"):
        replace_in_loop(replaced, str(tmp_path / "missing" / "file"), 1)
