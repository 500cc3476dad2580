from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from ottla.env.clock import VirtualClock
from ottla.env.disk import DiskError, RealDisk
from ottla.env.executor import DiskExecutor, InlineExecutor
from ottla.storage.log import PartitionLog
from ottla.storage.manager import LogManager
from ottla.storage.opening import Unreadable, load_logs
from ottla.storage.recovery import LogPlace, create_log, load_log
from ottla.storage.resources import LogResources
from ottla.storage.upkeep import StorageSettings
from ottla.testing.disk_faulty import FaultyDisk
from support.storage_logs import NOW_MS, append, batch, broker_config, log_config, read_all

CONFIG = log_config(segment_bytes=1000, index_interval_bytes=200)


def places(root: Path, count: int) -> list[LogPlace]:
    return [LogPlace(f"{root}/t-{number}", "t", number, CONFIG) for number in range(count)]


def written(root: Path, count: int) -> None:
    resources = LogResources(RealDisk())
    for place in places(root, count):
        log = create_log(resources, place, None, NOW_MS)
        for number in range(10 + place.partition):
            append(log, batch(3, producer_id=5, producer_epoch=1, base_sequence=3 * number))
        for segment in log.segments:
            segment.close()


@pytest.mark.spec("L9")
def test_several_threads_for_each_directory(tmp_path: Path) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        written(folder, 5)
    resources = LogResources(RealDisk(), open_files=16)
    executor = DiskExecutor(1)
    loaded = load_logs(resources, executor, [places(folder, 5) for folder in folders], 2, NOW_MS)
    executor.close()
    assert len(resources.files) == 0
    for folder, logs in zip(folders, loaded, strict=True):
        for number, log in enumerate(logs):
            assert isinstance(log, PartitionLog)
            assert log.directory == f"{folder}/t-{number}"
            end = 3 * (10 + number)
            assert [record.offset for record in read_all(log)] == list(range(end))
            assert append(log, batch(3, producer_id=5, producer_epoch=1, base_sequence=end)).first_offset == end
            log.close()
    assert len(resources.files) == 0


def test_a_log_that_cannot_be_read_stops_its_directory_only(tmp_path: Path) -> None:
    for name in ("a", "b"):
        written(tmp_path / name, 3)
    disk = FaultyDisk(RealDisk())
    disk.fail("open", "*/a/t-1/*.log")
    loaded = load_logs(
        LogResources(disk), InlineExecutor(), [places(tmp_path / "a", 3), places(tmp_path / "b", 3)], 1, NOW_MS
    )
    assert [type(log) for log in loaded[0]] == [PartitionLog, DiskError, type(None)]
    assert [type(log) for log in loaded[1]] == [PartitionLog] * 3


class CountingExecutor(InlineExecutor):
    """Notes how many threads were asked for."""

    def __init__(self) -> None:
        self.thread_counts: list[int] = []

    def run_all(self, works: Sequence[Callable[[], object]], own_threads: int = 0) -> list[Exception | None]:
        self.thread_counts.append(own_threads)
        return super().run_all(works, own_threads)


@pytest.mark.parametrize("threads", [1, 3, 50])
def test_the_setting_is_honoured(tmp_path: Path, threads: int) -> None:
    for name in ("a", "b"):
        written(tmp_path / name, 4)
    executor = CountingExecutor()
    settings = StorageSettings.of(broker_config(num_recovery_threads_per_data_dir=threads))
    folders = [str(tmp_path / name) for name in ("a", "b")]
    # Both folders hold partitions of the same names: not at one time.
    for folder in folders:
        manager = LogManager(RealDisk(), VirtualClock(NOW_MS), executor, [folder], lambda topic: CONFIG, settings)
        assert manager.open() is None
        assert executor.thread_counts == [min(threads, 4)]
        executor.thread_counts.clear()
        manager.close()
        executor.thread_counts.clear()


def test_own_threads_of_an_executor_are_there_for_the_works_only() -> None:
    executor = DiskExecutor(1)
    meeting = threading.Barrier(3, timeout=30)
    assert executor.run_all([lambda: meeting.wait()] * 3, 3) == [None, None, None]
    assert not any("own" in thread.name for thread in threading.enumerate())
    executor.close()


def test_what_lies_in_one_partition_takes_only_that_one_offline(tmp_path: Path) -> None:
    for name in ("a", "b"):
        written(tmp_path / name, 3)
    (tmp_path / "a" / "t-1" / f"{99:020}.log").mkdir()
    loaded = load_logs(
        LogResources(RealDisk()), InlineExecutor(), [places(tmp_path / "a", 3), places(tmp_path / "b", 3)], 1, NOW_MS
    )
    assert [type(log) for log in loaded[0]] == [PartitionLog, Unreadable, PartitionLog]
    assert [type(log) for log in loaded[1]] == [PartitionLog] * 3
    text = str(loaded[0][1])
    assert f"{tmp_path}/a/t-1 cannot be opened" in text
    assert "Is a directory" in text
    assert "t-1 is offline" in text


def test_an_exception_in_one_partition_takes_only_that_one_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, 3)

    def load(resources: LogResources, place: LogPlace, *arguments: Any) -> PartitionLog:
        if place.partition == 1:
            raise ValueError("bytes that nobody thought of")
        return load_log(resources, place, *arguments)

    monkeypatch.setattr("ottla.storage.opening.load_log", load)
    loaded = load_logs(LogResources(RealDisk()), InlineExecutor(), [places(tmp_path, 3)], 1, NOW_MS)
    assert [type(log) for log in loaded[0]] == [PartitionLog, Unreadable, PartitionLog]
    assert "ValueError: bytes that nobody thought of" in str(loaded[0][1])


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("leader-epoch-checkpoint", b"1\n1\n0 0\n"),
        ("partition.metadata", b"version: 1\ntopic_id: wP_uABI0SryN7wEjRWeJ_w"),
    ],
)
def test_a_partition_of_a_newer_release_is_offline_and_stays_as_it_is(
    tmp_path: Path, name: str, content: bytes
) -> None:
    written(tmp_path, 2)
    newer = tmp_path / "t-1" / name
    newer.write_bytes(content)
    loaded = load_logs(LogResources(RealDisk()), InlineExecutor(), [places(tmp_path, 2)], 1, NOW_MS)
    assert [type(log) for log in loaded[0]] == [PartitionLog, Unreadable]
    assert str(loaded[0][1]).startswith(
        f"t-1 is offline: {newer}: version 1 is of a newer release, and this one knows 0; start the release that wrote "
        "it, or a later one, with this directory"
    )
    assert newer.read_bytes() == content
