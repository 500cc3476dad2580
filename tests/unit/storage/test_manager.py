from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import cast
from uuid import UUID

import pytest

from ottla.env.clock import VirtualClock
from ottla.env.disk import Disk, DiskError, RealDisk
from ottla.env.executor import DiskExecutor, NoThread
from ottla.storage.checkpoints import MetaProperties
from ottla.storage.flush_queue import LOGS_PER_ROUND, ROUNDS, FlushQueue
from ottla.storage.flushing import FlushJob
from ottla.storage.log import AppendInfo, AppendRefusal, PartitionLog
from ottla.storage.manager import LogManager
from ottla.storage.truncation import delete_records
from ottla.storage.upkeep import StorageSettings
from ottla.testing.disk_faulty import FaultyDisk
from ottla.testing.disk_memory import MemoryDisk
from ottla.wire.errors import ErrorCode
from support.storage_logs import NOW_MS, HandExecutor, append, batch, broker_config, log_config, read_all
from support.storage_managers import ManagerSetup as Setup
from support.storage_managers import was_clean

TOPIC_ID = UUID("c0ffee00-1234-4abc-8def-0123456789ff")


@pytest.fixture
def setup(ground: tuple[Disk, str]) -> Setup:
    return Setup(ground[0], f"{ground[1]}/logs")


def kill(manager: LogManager) -> None:
    """The process is gone: its locks are free."""
    for folder in manager.directories.all:
        folder.release()


@pytest.mark.spec("L3")
def test_what_is_created_is_found_again(setup: Setup) -> None:
    manager = setup.opened()
    log = manager.create("orders", TOPIC_ID, 0)
    assert manager.create("orders", TOPIC_ID, 0) is log
    manager.create("orders", TOPIC_ID, 1)
    assert manager.get("orders", 0) is log
    assert manager.get("orders", 2) is None
    append(log)
    assert manager.unflushed_bytes == len(batch())
    assert manager.directories.claim("cluster", 3) is None
    assert manager.close() == len(batch())
    assert manager.notes == []
    assert setup.read("recovery-point-offset-checkpoint") == b"0\n2\norders 0 3\norders 1 0\n"
    assert setup.read("replication-offset-checkpoint") == b"0\n2\norders 0 3\norders 1 0\n"
    assert setup.read("log-start-offset-checkpoint") == b"0\n0\n"
    assert setup.disk.exists(f"{setup.folders[0]}/.kafka_cleanshutdown")

    again = setup.opened()
    assert not setup.disk.exists(f"{setup.folders[0]}/.kafka_cleanshutdown")
    assert was_clean(again)
    assert again.directories.stored_identity == MetaProperties("cluster", 3)
    assert [(found.topic, found.topic_id, found.partition, found.leader_epoch) for found in again.found] == [
        ("orders", TOPIC_ID, 0, 0),
        ("orders", TOPIC_ID, 1, -1),
    ]
    found = again.get("orders", 0)
    assert found is not None
    assert len(read_all(found)) == 3
    assert {log.name for log in again.logs()} == {"orders-0", "orders-1"}
    again.close()


@pytest.mark.spec("L9")
def test_after_a_kill_everything_acknowledged_is_there(setup: Setup) -> None:
    manager = setup.opened()
    log = manager.create("orders", TOPIC_ID, 0)
    for _ in range(10):
        append(log)
    manager.checkpoints.write()
    append(log)
    kill(manager)
    again = setup.opened()
    assert not was_clean(again)
    found = again.get("orders", 0)
    assert found is not None
    assert [record.offset for record in read_all(found)] == list(range(33))
    assert again.unflushed_bytes == found.size_bytes
    again.close()


def test_a_directory_in_use_is_refused(setup: Setup) -> None:
    manager = setup.opened()
    refusal = setup.manager().open()
    assert refusal is not None
    assert setup.folders[0] in refusal.message
    manager.create("orders", None, 0)
    manager.close()
    setup.opened().close()


def test_locking_is_all_or_nothing(ground: tuple[Disk, str]) -> None:
    disk, root = ground
    second = Setup(disk, f"{root}/b").opened()
    assert Setup(disk, f"{root}/a", f"{root}/b").manager().directories.lock() is not None
    first = Setup(disk, f"{root}/a").opened()
    first.close()
    second.close()
    assert second.close() == 0


def test_ids_of_others_are_refused(setup: Setup) -> None:
    manager = setup.opened()
    assert manager.directories.claim("cluster", 3) is None
    wrong = manager.directories.claim("other", 3)
    assert wrong is not None
    assert "The Cluster ID other doesn't match stored clusterId cluster" in wrong.message
    wrong = manager.directories.claim("cluster", 4)
    assert wrong is not None
    assert "Configured broker.id 4 doesn't match stored broker.id 3" in wrong.message
    manager.close()


@pytest.mark.spec("L8")
def test_new_partitions_go_to_the_emptiest_directory(ground: tuple[Disk, str]) -> None:
    disk, root = ground
    setup = Setup(disk, f"{root}/a", f"{root}/b/")
    manager = setup.opened()
    homes = [manager.create("t", None, number).directory.split("/")[-2] for number in range(6)]
    assert homes == ["a", "b", "a", "b", "a", "b"]
    manager.close()
    assert disk.read_bytes(f"{root}/b/recovery-point-offset-checkpoint") == b"0\n3\nt 1 0\nt 3 0\nt 5 0\n"
    again = setup.opened()
    assert len(again.found) == 6
    again.close()
    disk.mkdirs(f"{root}/b/t-0")
    refusal = setup.manager().open()
    assert refusal is not None
    assert "Duplicate log directories for t-0" in refusal.message
    disk.remove_tree(f"{root}/b/t-0")
    setup.opened().close()


def test_names_that_are_no_partitions_are_left_alone(setup: Setup) -> None:
    folder = setup.folders[0]
    for name in ("orders-0.x-future", "orders-1.x-stray", "other", "orders-2.abc-delete"):
        setup.disk.mkdirs(f"{folder}/{name}")
    setup.disk.write_atomic(f"{folder}/file-7", b"")
    manager = setup.opened()
    assert manager.found == []
    setup.later(manager, 0)
    assert {"orders-0.x-future", "orders-1.x-stray", "other", "file-7"} <= set(setup.disk.listdir(folder))
    assert not setup.disk.exists(f"{folder}/orders-2.abc-delete")
    manager.close()


def test_a_deleted_partition_is_renamed_and_later_removed(ground: tuple[Disk, str]) -> None:
    setup = Setup(ground[0], f"{ground[1]}/logs", file_delete_delay_ms=5000)
    manager = setup.opened()
    log = manager.create("orders", TOPIC_ID, 0)
    append(log)
    read = log.read(0, 1000)
    assert manager.delete("orders", 0)
    assert not manager.delete("orders", 0)
    assert manager.get("orders", 0) is None
    names = [name for name in setup.disk.listdir(setup.folders[0]) if name.startswith("orders")]
    assert len(names) == 1
    assert names[0].startswith("orders-0.")
    assert names[0].endswith("-delete")
    fresh = manager.create("orders", None, 0)
    assert fresh.log_end_offset == 0
    assert manager.delete("orders", 0)
    setup.later(manager, 4999)
    assert len([name for name in setup.disk.listdir(setup.folders[0]) if name.startswith("orders")]) == 2
    setup.later(manager, 1)
    assert not [name for name in setup.disk.listdir(setup.folders[0]) if name.startswith("orders")]
    assert read.slice.read(), "a range that is being sent stays readable"  # type: ignore[union-attr]
    manager.close()


def test_flushes_come_with_their_interval(setup: Setup) -> None:
    manager = setup.opened(flush_interval_ms=5000)
    logs = [manager.create("t", None, number) for number in range(2 * ROUNDS * LOGS_PER_ROUND + 5)]
    for log in logs:
        append(log)
    setup.later(manager, 5000)
    assert manager.unflushed_bytes == 0
    assert all(log.recovery_point == 3 for log in logs)
    manager.close()


@pytest.mark.spec("L6")
def test_flushes_by_the_topics_own_settings(ground: tuple[Disk, str]) -> None:
    setup = Setup(ground[0], f"{ground[1]}/logs", flush_messages=7, flush_ms=3000)
    manager = setup.opened(flush_interval_ms=10**9)
    log = manager.create("t", None, 0)
    append(log)
    append(log)
    setup.later(manager, 1)
    assert log.recovery_point == 0
    append(log)
    setup.later(manager, 1)
    assert log.recovery_point == 9
    append(log, now_ms=setup.clock.now_ms())
    setup.later(manager, 2999)
    assert log.recovery_point == 9
    setup.later(manager, 1)
    assert log.recovery_point == 12
    manager.close()


@pytest.mark.spec("L4")
def test_retention_checkpoints_and_producers_in_the_background(ground: tuple[Disk, str]) -> None:
    setup = Setup(ground[0], f"{ground[1]}/logs", retention_ms=60_000, segment_bytes=200, file_delete_delay_ms=1000)
    manager = setup.opened(
        retention_check_interval_ms=10_000,
        high_watermark_checkpoint_interval_ms=1000,
        recovery_point_checkpoint_interval_ms=2000,
        log_start_checkpoint_interval_ms=3000,
        producer_expiration_ms=50_000,
        producer_expiration_check_interval_ms=7000,
    )
    log = manager.create("t", None, 0)
    for number in range(4):
        append(log, batch(3, producer_id=4, producer_epoch=0, base_sequence=3 * number))
    setup.later(manager, 1000)
    assert setup.read("replication-offset-checkpoint") == b"0\n1\nt 0 12\n"
    assert not setup.disk.exists(f"{setup.folders[0]}/recovery-point-offset-checkpoint")
    setup.later(manager, 4000)
    setup.later(manager, 2000)
    assert setup.read("recovery-point-offset-checkpoint") == b"0\n1\nt 0 12\n"
    setup.later(manager, 54_000)
    assert len(log.producers) == 0
    assert log.log_start_offset == 12
    assert [name for name in setup.disk.listdir(log.directory) if name.endswith(".deleted")]
    delete_records(log, 12)
    append(log)
    append(log)
    delete_records(log, 13)
    setup.later(manager, 1000)
    assert not [name for name in setup.disk.listdir(log.directory) if name.endswith(".deleted")]
    setup.later(manager, 3000)
    assert setup.read("log-start-offset-checkpoint") == b"0\n1\nt 0 13\n"
    manager.close()
    again = setup.opened()
    found = again.get("t", 0)
    assert found is not None
    assert (found.log_start_offset, found.log_end_offset) == (13, 18)
    again.close()


@pytest.mark.parametrize("restarted", [False, True])
def test_a_topic_made_again_is_not_taken_for_its_former_self(setup: Setup, restarted: bool) -> None:
    """Checkpoints of the deleted partition do not hold for the new one, not even after a kill."""
    manager = setup.opened()
    old = manager.create("t", None, 0)
    for _ in range(4):
        append(old)
    assert delete_records(old, 12) == 12
    manager.checkpoints.write()
    assert b"t 0 12" in setup.read("log-start-offset-checkpoint")
    manager.delete("t", 0)
    if restarted:
        kill(manager)
        manager = setup.opened()
    append(manager.create("t", None, 0))
    kill(manager)
    again = setup.opened()
    found = again.get("t", 0)
    assert found is not None
    assert (found.log_start_offset, len(read_all(found))) == (0, 3)
    assert found.recovery_point == 0
    again.close()


@pytest.mark.spec("L9")
def test_a_checkpoint_that_is_written_late_does_not_replace_a_newer_one(setup: Setup) -> None:
    """Disk threads may be late: what they write of a deleted partition must not be believed of the one made again."""
    executor = HandExecutor()
    manager = LogManager(setup.disk, setup.clock, executor, setup.folders, lambda _: setup.config)
    assert manager.open() is None
    old = manager.create("t", None, 0)
    for _ in range(4):
        append(old)
    old.flush()
    setup.later(manager, 60_000)
    assert executor.works, "the checkpoint of the old partition waits for a thread"
    manager.delete("t", 0)
    append(manager.create("t", None, 0))
    while executor.works:
        executor.finish()
    kill(manager)
    again = setup.opened()
    found = again.get("t", 0)
    assert found is not None
    assert (found.recovery_point, len(read_all(found))) == (0, 3)
    again.close()


def test_a_wall_clock_that_is_set_back_does_not_stop_the_flushes(setup: Setup) -> None:
    manager = setup.opened(flush_interval_ms=5000)
    log = manager.create("t", None, 0)
    append(log)
    setup.clock.set_wall(setup.clock.now_ms() - 3_600_000)
    setup.later(manager, 1000)
    setup.later(manager, 5000)
    assert log.recovery_point == 3
    manager.close()


# Disks that fail


@pytest.fixture
def faulty() -> tuple[FaultyDisk, Setup]:
    disk = FaultyDisk(MemoryDisk())
    return disk, Setup(disk, "/logs")


def test_a_failed_flush_is_reported_and_the_next_start_recovers(faulty: tuple[FaultyDisk, Setup]) -> None:
    disk, setup = faulty
    manager = setup.opened()
    log, other = manager.create("t", None, 0), manager.create("t", None, 1)
    append(log)
    append(other)
    disk.fail("flush", "*/t-0/*.log", times=1)
    setup.later(manager, 5000)
    assert any("flush of t-0" in note for note in manager.notes)
    assert (log.recovery_point, other.recovery_point) == (0, 3)
    assert not isinstance(log.append(batch(), leader_epoch=0, now_ms=NOW_MS), AppendInfo)
    assert isinstance(other.append(batch(), leader_epoch=0, now_ms=NOW_MS), AppendInfo)
    manager.close()
    assert not disk.exists("/logs/.kafka_cleanshutdown")
    again = setup.opened()
    found = again.get("t", 0)
    assert found is not None
    assert len(read_all(found)) == 3
    append(found)
    again.close()
    assert disk.exists("/logs/.kafka_cleanshutdown")


def test_after_a_failed_flush_a_later_one_proves_nothing(faulty: tuple[FaultyDisk, Setup]) -> None:
    """The system drops pages that it could not write: the next fsync says yes to what is not there."""
    disk, setup = faulty
    manager = setup.opened()
    log = manager.create("t", None, 0)
    append(log)
    disk.fail("flush", "*/t-0/*.log", times=1)
    setup.later(manager, 5000)
    setup.later(manager, 5000)
    assert log.recovery_point == 0
    assert len(manager.notes) == 1, "one failure is told once"
    setup.later(manager, 60_000)
    assert setup.read("recovery-point-offset-checkpoint") == b"0\n1\nt 0 0\n"
    manager.close()


@pytest.mark.parametrize(
    "plan", ["flush */t-0/*.log", "write */t-0/*.timeindex", "replace */t-0/*.snapshot", "replace *recovery-point*"]
)
def test_a_close_that_fails_is_not_a_clean_one(faulty: tuple[FaultyDisk, Setup], plan: str) -> None:
    disk, setup = faulty
    manager = setup.opened()
    append(manager.create("t", None, 0))
    disk.fail(*plan.split())
    manager.close()
    assert manager.notes
    assert not disk.exists("/logs/.kafka_cleanshutdown")
    disk.heal()
    again = setup.opened()
    found = again.get("t", 0)
    assert found is not None
    assert len(read_all(found)) == 3
    again.close()


def test_a_partition_that_cannot_be_made_leaves_nothing(faulty: tuple[FaultyDisk, Setup]) -> None:
    disk, setup = faulty
    manager = setup.opened()
    disk.fail("open", "*.log")
    with pytest.raises(DiskError):
        manager.create("t", TOPIC_ID, 0)
    assert manager.get("t", 0) is None
    assert not disk.exists("/logs/t-0")
    disk.heal()
    manager.create("t", TOPIC_ID, 0)
    manager.close()


@pytest.mark.parametrize("plan", ["read /logs", "read *recovery-point*", "open */t-0/*", "read */t-0"])
def test_a_directory_that_cannot_be_read(faulty: tuple[FaultyDisk, Setup], plan: str) -> None:
    disk, setup = faulty
    manager = setup.opened()
    append(manager.create("t", None, 0))
    manager.close()
    disk.fail(*plan.split())
    again = setup.manager()
    refusal = again.open()
    if "recovery-point" in plan:
        assert refusal is None
        assert any("recovery-point" in note for note in again.notes)
        again.close()
    else:
        assert refusal is not None
        assert "log.dirs" in refusal.message
    disk.heal()
    setup.opened().close()


def test_retention_that_fails_is_reported(faulty: tuple[FaultyDisk, Setup]) -> None:
    disk, setup = faulty
    setup.config = log_config(retention_ms=1)
    manager = setup.opened()
    append(manager.create("t", None, 0))
    disk.fail("rename")
    setup.later(manager, 60_000)
    assert any("retention of t-0" in note for note in manager.notes)
    manager.close()


def test_many_files_are_removed_by_one_job_at_a_time(ground: tuple[Disk, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.storage.removals.REMOVALS_PER_JOB", 4)
    setup = Setup(ground[0], f"{ground[1]}/logs", file_delete_delay_ms=0, retention_ms=1, segment_bytes=150)
    executor = HandExecutor()
    manager = LogManager(setup.disk, setup.clock, executor, setup.folders, lambda _: setup.config, StorageSettings())
    assert manager.open() is None
    log = manager.create("t", None, 0)
    for _ in range(6):
        append(log)
    setup.clock.advance(60_000)
    list(manager.upkeep.apply_retention(setup.clock.now_ms()))
    folder = f"{setup.folders[0]}/t-0"
    assert len([name for name in setup.disk.listdir(folder) if name.endswith(".deleted")]) > 8
    before = len(executor.works)
    manager._removals.remove_due(setup.clock.now_ms())
    manager._removals.remove_due(setup.clock.now_ms())
    assert len(executor.works) == before + 1, "not one job a file"
    while executor.works:
        executor.finish()
    assert not [name for name in setup.disk.listdir(folder) if name.endswith(".deleted")]
    manager.close()


def test_what_no_disk_thread_takes_is_done_later(ground: tuple[Disk, str]) -> None:
    setup = Setup(ground[0], f"{ground[1]}/logs", file_delete_delay_ms=0, retention_ms=1, segment_bytes=150)
    executor = HandExecutor()
    manager = LogManager(setup.disk, setup.clock, executor, setup.folders, lambda _: setup.config, StorageSettings())
    assert manager.open() is None
    told: list[BaseException | None] = []
    manager.upkeep.on_flushed = lambda _log, _size, error: told.append(error)
    logs = [manager.create("t", None, number) for number in range(2 * ROUNDS * LOGS_PER_ROUND)]
    for log in logs:
        append(log)
    executor.refuses = True
    setup.later(manager, 60_000)
    setup.later(manager, 1_000)
    assert [type(error) for error in told][: len(logs)] == [NoThread] * len(logs)
    assert all(log.failure is None for log in logs), "nothing was forced, and nothing can have been lost"
    removed = [path for log in logs for path in setup.disk.listdir(log.directory) if path.endswith(".deleted")]
    assert removed
    executor.refuses = False
    told.clear()
    setup.later(manager, 60_000)
    while executor.works:
        executor.finish()
    assert not [error for error in told if error is not None]
    assert manager.unflushed_bytes == 0
    assert not [path for log in logs for path in setup.disk.listdir(log.directory) if path.endswith(".deleted")]
    manager.close()


class EndlesslyUnflushed:
    """A log as the queue of flushes sees it, with what it has not flushed."""

    closed = False
    log_end_offset = 0
    segment_list = ()
    resources = SimpleNamespace(disk=MemoryDisk())

    @property
    def unflushed(self) -> EndlesslyUnflushed:
        return self

    def flush_needed(self) -> bool:
        return True

    def save_epochs(self) -> None:
        pass

    def begin(self, *_: object) -> FlushJob:
        return FlushJob(self.resources.disk, None, 0, 0)

    def complete(self, *_: object) -> None:
        pass

    repeat = complete


def test_a_long_queue_of_flushes_that_nobody_takes_ends() -> None:
    executor = HandExecutor()
    executor.refuses = True
    told: list[object] = []
    queue = FlushQueue(executor, lambda: NOW_MS, lambda log, _size, _error: told.append(log))
    logs = [cast("PartitionLog", EndlesslyUnflushed()) for _ in range(LOGS_PER_ROUND * 500)]
    queue.add(logs)
    assert sorted(map(id, told)) == sorted(map(id, logs))


def test_no_flush_of_a_log_that_is_held_back_is_begun() -> None:
    executor = HandExecutor()
    told: list[object] = []
    queue = FlushQueue(executor, lambda: NOW_MS, lambda log, _size, _error: told.append(log))
    held, free = (cast("PartitionLog", EndlesslyUnflushed()) for _ in range(2))
    queue.add([held])
    queue.hold_back(held)
    queue.add([held, free])
    while executor.works:
        executor.finish()
    assert told == [held, free], "what was begun is finished"
    queue.add([held])
    assert not executor.works
    queue.let_go(held)
    executor.finish()
    assert told == [held, free, held]
    queue.let_go(held)
    assert not executor.works


def test_a_file_that_cannot_be_removed_does_not_keep_the_others(faulty: tuple[FaultyDisk, Setup]) -> None:
    disk, setup = faulty
    setup.config = log_config(file_delete_delay_ms=0, retention_ms=1, segment_bytes=150)
    manager = setup.opened()
    log = manager.create("t", None, 0)
    for _ in range(3):
        append(log)
    disk.fail("remove", "*.timeindex.deleted")
    setup.later(manager, 60_000)
    setup.later(manager, 1_000)
    left = [name for name in disk.listdir("/logs/t-0") if name.endswith(".deleted")]
    assert left
    assert all(name.endswith(".timeindex.deleted") for name in left)
    assert any("timeindex.deleted" in note for note in manager.notes)
    manager.close()


def test_a_partition_is_deleted_again_by_a_clock_that_was_set_back(faulty: tuple[FaultyDisk, Setup]) -> None:
    disk, setup = faulty
    for _ in range(2):
        manager = setup.opened()
        append(manager.create("t", None, 0))
        assert manager.delete("t", 0)
        manager.close()
    assert len([name for name in disk.listdir("/logs") if name.endswith("-delete")]) == 2


def test_what_could_not_be_renamed_goes_aside_when_the_partition_comes_again(
    faulty: tuple[FaultyDisk, Setup],
) -> None:
    disk, setup = faulty
    setup.config = log_config(segment_bytes=150)
    manager = setup.opened()
    log = manager.create("t", None, 0)
    for _ in range(3):
        append(log)
    end = log.log_end_offset
    disk.fail("rename", "/logs/t-0")
    with pytest.raises(DiskError):
        manager.delete("t", 0)
    with pytest.raises(DiskError):
        manager.create("t", None, 0)
    disk.heal()
    fresh = manager.create("t", None, 0)
    assert (fresh.log_start_offset, fresh.log_end_offset) == (0, 0)
    assert len([name for name in disk.listdir("/logs/t-0") if name.endswith(".log")]) == 1
    (aside,) = [name for name in disk.listdir("/logs") if name.endswith("-stray")]
    assert len([name for name in disk.listdir(f"/logs/{aside}") if name.endswith(".log")]) > 1
    assert any(aside in note for note in manager.notes)
    append(fresh)
    manager.close()
    again = setup.opened()
    found = again.get("t", 0)
    assert found is not None
    assert 0 < found.log_end_offset < end
    again.close()


def test_it_goes_aside_in_whatever_directory_it_is() -> None:
    disk = FaultyDisk(MemoryDisk())
    setup = Setup(disk, "/a", "/b")
    manager = setup.opened()
    append(manager.create("t", None, 0))
    manager.create("u", None, 0)
    manager.create("u", None, 1)
    disk.fail("rename", "/a/t-0")
    with pytest.raises(DiskError):
        manager.delete("t", 0)
    manager.delete("u", 0)
    with pytest.raises(DiskError):
        manager.create("t", None, 0)
    disk.heal()
    assert manager.create("t", None, 0).log_end_offset == 0
    assert [name for name in disk.listdir("/a") if name.endswith("-stray")]
    manager.close()
    again = setup.opened()
    found = again.get("t", 0)
    assert found is not None
    assert found.log_end_offset == 0
    again.close()


def test_retention_reads_what_is_cold_in_a_disk_thread(
    ground: tuple[Disk, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = Setup(ground[0], f"{ground[1]}/logs", retention_ms=1, segment_bytes=150)
    executor = HandExecutor()
    manager = LogManager(setup.disk, setup.clock, executor, setup.folders, lambda _: setup.config, StorageSettings())
    assert manager.open() is None
    log = manager.create("t", None, 0)
    for _ in range(3):
        append(log)
    setup.clock.advance(60_000)
    warm = False
    file_class = type(setup.disk.open(log.segments[0].log.path))
    monkeypatch.setattr(file_class, "is_warm", lambda *_: warm)
    before = len(executor.works)
    list(manager.upkeep.apply_retention(setup.clock.now_ms()))
    assert log.log_start_offset == 0, "nothing is deleted before the disk was asked"
    assert len(executor.works) == before + 1
    warm = True
    while executor.works:
        executor.finish()
    assert log.log_start_offset == log.log_end_offset
    manager.close()


# With threads


async def flushed(manager: LogManager) -> None:
    """The background has forced everything to disk; the test's time limit bounds the wait."""
    while manager.unflushed_bytes:  # noqa: ASYNC110 (there is no event to wait for: the threads' results come by the loop)
        await asyncio.sleep(0)


def test_background_work_in_threads(tmp_path: Path) -> None:
    clock = VirtualClock(NOW_MS)
    config = log_config()

    async def run() -> None:
        executor = DiskExecutor(2)
        manager = LogManager(RealDisk(), clock, executor, [str(tmp_path)], lambda _: config)
        assert manager.open() is None
        logs = [manager.create("t", TOPIC_ID, number) for number in range(40)]
        for log in logs:
            append(log)
        clock.advance(5000)
        list(manager.upkeep.maintain(clock.now_ms()))
        await flushed(manager)
        for log in logs:
            append(log)
        list(manager.upkeep.maintain(clock.now_ms()))
        assert manager.close() == 40 * len(batch())
        assert manager.notes == []
        executor.close()

    asyncio.run(run())
    assert (tmp_path / ".kafka_cleanshutdown").exists()


def test_settings_are_the_brokers() -> None:
    settings = StorageSettings.of(
        broker_config(log_retention_check_interval_ms=7, ottla_flush_interval_ms=8, producer_id_expiration_ms=9)
    )
    assert (settings.retention_check_interval_ms, settings.flush_interval_ms, settings.producer_expiration_ms) == (
        7,
        8,
        9,
    )
    assert settings.recovery_point_checkpoint_interval_ms == 60_000


# Folders that fail


@pytest.mark.spec("L8")
def test_a_log_is_made_in_another_directory_where_one_has_failed() -> None:
    disk = FaultyDisk(MemoryDisk())
    setup = Setup(disk, "/one", "/two")
    manager = setup.opened()
    gone: list[tuple[object, bool]] = []
    manager.on_log_dir_failed = lambda keys, is_last: gone.append((keys, is_last))
    manager.create("t", None, 0)
    disk.fail("*", "/two*")
    made = manager.create("t", None, 1)
    assert made.directory == "/one/t-1"
    assert gone == [([], False)]
    assert manager.failed_log_dirs == ["/two"]
    assert [(content.path, content.failure is None, len(content.logs)) for content in manager.contents()] == [
        ("/one", True, 2),
        ("/two", False, 0),
    ]
    assert any("Stopping serving logs in dir /two" in note for note in manager.notes)
    append(made)
    manager.close()
    disk.heal()
    again = setup.opened()
    assert {log.name for log in again.logs()} == {"t-0", "t-1"}
    assert was_clean(again)
    again.close()


@pytest.mark.spec("L8")
def test_a_checkpoint_that_cannot_be_written_brings_a_failed_directory_to_light() -> None:
    disk = FaultyDisk(MemoryDisk())
    setup = Setup(disk, "/one", "/two")
    manager = setup.opened(high_watermark_checkpoint_interval_ms=1000)
    gone: list[tuple[object, bool]] = []
    manager.on_log_dir_failed = lambda keys, is_last: gone.append((keys, is_last))
    logs = [manager.create("t", None, index) for index in range(2)]
    for log in logs:
        append(log)
    disk.fail("replace", "/two/*")
    setup.later(manager, 1000)
    assert gone == [([("t", 1)], False)]
    assert logs[1].closed
    assert append_answer(logs[1]) is ErrorCode.KAFKA_STORAGE_ERROR
    disk.fail("replace", "/one/*")
    append(logs[0])
    setup.later(manager, 1000)
    assert gone[1:] == [([("t", 0)], True)]
    manager.close()


def test_the_first_checkpoint_of_high_watermarks_comes_after_its_interval() -> None:
    disk = MemoryDisk()
    setup = Setup(disk, "/one")
    manager = setup.opened(high_watermark_checkpoint_interval_ms=1000)
    append(manager.create("t", None, 0))
    setup.later(manager, 999)
    assert not disk.exists("/one/replication-offset-checkpoint")
    setup.later(manager, 1)
    assert disk.exists("/one/replication-offset-checkpoint")
    manager.close()


def append_answer(log: PartitionLog) -> ErrorCode:
    answer = log.append(batch(), leader_epoch=0, now_ms=NOW_MS)
    assert isinstance(answer, AppendRefusal)
    return answer.error


@pytest.mark.spec("R2", "L9")
def test_after_a_truncation_the_recovery_point_is_stored_before_more_is_appended(setup: Setup) -> None:
    """Below it nothing is checked after an unclean stop, and other records than those that were forced are there."""
    manager = setup.opened()
    log = manager.create("t", None, 0)
    for _ in range(3):
        append(log)
    log.flush()
    manager.checkpoints.write()
    assert setup.read("recovery-point-offset-checkpoint").endswith(b"t 0 9\n")
    done: list[bool] = []
    manager.truncate(log, 4)
    manager.checkpoints.store_recovery_points(lambda: done.append(True))
    assert done == [True]
    assert setup.read("recovery-point-offset-checkpoint").endswith(b"t 0 3\n")
    manager.checkpoints.store_recovery_points(lambda: done.append(True))
    assert done == [True, True], "there is nothing to write"
    manager.close()


@pytest.mark.spec("R2")
def test_the_files_of_a_log_that_begins_anew_are_removed_later(setup: Setup) -> None:
    setup.config = log_config(segment_bytes=200, file_delete_delay_ms=1000)
    manager = setup.opened()
    log = manager.create("t", None, 0)
    for _ in range(4):
        append(log)
    manager.truncate_fully(log, 100)
    folder = f"{setup.folders[0]}/t-0"
    assert [name for name in setup.disk.listdir(folder) if name.endswith(".deleted")]
    setup.later(manager, 2000)
    assert not [name for name in setup.disk.listdir(folder) if name.endswith(".deleted")]
    assert append(log).first_offset == 100
    manager.close()
