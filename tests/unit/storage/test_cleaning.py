from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path

import pytest

from ottla.env.clock import SystemClock, VirtualClock
from ottla.env.disk import Disk, RealDisk
from ottla.env.executor import DiskExecutor, InlineExecutor
from ottla.storage.cleanable import examine, group_segments
from ottla.storage.cleaner import BREATH_MS, WORK_MS, CleaningAborted, CleaningControl
from ottla.storage.cleaning import POSTPONED_MS, CleanerSettings
from ottla.storage.log import PartitionLog
from ottla.storage.manager import LogManager
from ottla.storage.offset_map import OffsetMap
from ottla.storage.truncation import truncate_to
from ottla.storage.upkeep import StorageSettings
from ottla.testing.disk_faulty import FaultyDisk
from ottla.testing.disk_memory import MemoryDisk
from support.compaction import HOUR_MS, KEY, Cleaning, cleaning, compact_config, contents, newest, put
from support.storage_logs import NOW_MS, HandExecutor, append, batch, new_log


def filled(log: PartitionLog, rounds: int = 4) -> None:
    """Some closed segments in which every key comes again."""
    for number in range(rounds):
        put(log, ("a", f"{number}"), ("b", f"{number}"), (f"only-{number}", "x" * 50))
        log.roll(NOW_MS)


@pytest.mark.spec("L5")
def test_only_what_is_dirty_enough_is_cleaned(ground: tuple[Disk, str]) -> None:
    subject = cleaning(ground, compact_config(min_cleanable_dirty_ratio=0.5))
    filled(subject.log)
    assert examine(subject.log, None, NOW_MS).dirty_ratio == 1.0
    subject.clean()
    end = subject.log.log_end_offset
    assert subject.cleaner.checkpoints == {KEY: end}
    put(subject.log, ("a", "later"))
    subject.log.roll(NOW_MS)
    found = examine(subject.log, end, NOW_MS)
    assert 0 < found.dirty_ratio < 0.5
    assert not found.is_due
    subject.clean()
    assert subject.cleaner.checkpoints == {KEY: end}
    subject.log.config = compact_config(min_cleanable_dirty_ratio=0.1)
    subject.clean()
    assert subject.cleaner.checkpoints == {KEY: end + 1}


def test_no_file_stays_open(tmp_path: Path) -> None:
    def files() -> list[str]:
        """Files below the folder that are open; other tests of this process may close theirs meanwhile."""
        links = (os.path.realpath(each) for each in Path("/proc/self/fd").iterdir())
        return [each for each in links if each.startswith(f"{tmp_path}/")]

    subject = cleaning((RealDisk(), str(tmp_path)))
    filled(subject.log)
    assert files()
    subject.clean()
    subject.log.close()
    assert files() == []


@pytest.mark.spec("L5")
def test_lags_hold_records_back_and_press_them(ground: tuple[Disk, str]) -> None:
    subject = cleaning(ground, compact_config(min_compaction_lag_ms=HOUR_MS))
    filled(subject.log)
    subject.clean()
    assert subject.cleaner.checkpoints == {}
    assert examine(subject.log, None, NOW_MS).dirty_bytes == 0
    subject.clock.advance(2 * HOUR_MS)
    subject.clean()
    assert subject.cleaner.checkpoints == {KEY: subject.log.log_end_offset}
    # A maximum lag makes a round due whatever the ratio says.
    pressed = compact_config(max_compaction_lag_ms=HOUR_MS, min_cleanable_dirty_ratio=1)
    subject.log.config = pressed
    put(subject.log, ("a", "late"))
    subject.log.roll(NOW_MS)
    assert not examine(subject.log, subject.cleaner.checkpoints[KEY], NOW_MS + HOUR_MS - 1).is_due
    assert examine(subject.log, subject.cleaner.checkpoints[KEY], NOW_MS + HOUR_MS + 1).is_due


@pytest.mark.spec("L5")
def test_a_maximum_lag_rolls_the_active_segment(ground: tuple[Disk, str]) -> None:
    log = new_log(ground[0], ground[1], compact_config(max_compaction_lag_ms=1000))
    append(log, batch(1))
    append(log, batch(1, timestamp=NOW_MS + 1001))
    assert len(log.segments) == 2


@pytest.mark.spec("L5")
def test_what_is_not_stable_is_not_cleaned(ground: tuple[Disk, str]) -> None:
    log = new_log(ground[0], ground[1], compact_config())
    filled(log)
    log.update_high_watermark(4)
    found = examine(log, None, NOW_MS)
    assert found.end_offset == 3, "the segment that begins at or below the last stable offset is held back"


def test_what_is_not_on_the_disk_is_not_cleaned(ground: tuple[Disk, str]) -> None:
    log = new_log(ground[0], ground[1], compact_config())
    for _ in range(3):
        append(log, batch(2))
        log.roll(NOW_MS)
    assert log.recovery_point < log.segments[-1].base_offset
    assert examine(log, None, NOW_MS).dirty_bytes == 0, "a newer value that is lost must not have cost the older one"
    log.flush()
    assert log.recovery_point == log.log_end_offset
    assert examine(log, None, NOW_MS).end_offset == log.log_end_offset


def test_a_checkpoint_that_cannot_be_is_not_believed(ground: tuple[Disk, str]) -> None:
    log = new_log(ground[0], ground[1], compact_config())
    filled(log)
    assert examine(log, 10_000, NOW_MS).first_dirty_offset == 0
    assert examine(log, 6, NOW_MS).first_dirty_offset == 6
    log.raise_log_start(5)
    assert examine(log, 3, NOW_MS).first_dirty_offset == 5


def test_groups_keep_to_the_size_of_segments(ground: tuple[Disk, str]) -> None:
    log = new_log(ground[0], ground[1], compact_config())
    filled(log, 6)
    size = log.segments[0].size
    log.config = compact_config(segment_bytes=2 * size + 10)
    assert [len(group) for group in group_segments(log, log.log_end_offset)] == [2, 2, 2]
    assert [len(group) for group in group_segments(log, 7)] == [2, 1]


@pytest.mark.spec("L5")
def test_a_small_map_takes_several_rounds(ground: tuple[Disk, str]) -> None:
    subject = cleaning(ground, dedupe_buffer_bytes=2000)
    for number in range(60):
        put(subject.log, *[(f"key-{(number * 7 + other) % 90}", str(number)) for other in range(5)])
    subject.log.roll(NOW_MS)
    expected = newest(contents(subject.log))
    subject.clean()
    assert subject.cleaner.checkpoints == {KEY: subject.log.log_end_offset}
    assert newest(contents(subject.log)) == expected
    assert len(contents(subject.log)) == len(expected)


@pytest.mark.spec("L5")
def test_a_damaged_log_is_left_alone(ground: tuple[Disk, str]) -> None:
    disk, root = ground
    subject = Cleaning(disk, new_log(disk, root, compact_config()))
    filled(subject.log)
    path = subject.log.segments[1].log.path
    before = disk.read_bytes(path)
    file = disk.open(path)
    file.truncate(0)
    file.append([before[:70] + bytes([before[70] ^ 1]) + before[71:]])
    file.close()
    names = disk.listdir(subject.log.directory)
    subject.clock.advance(HOUR_MS)
    subject.cleaner.maintain({KEY: subject.log}, subject.clock.now_ms())
    assert "damaged batch at position 0" in subject.cleaner.uncleanable[KEY]
    assert len(subject.notes) == 1
    assert disk.listdir(subject.log.directory) == names
    subject.clock.advance(HOUR_MS)
    subject.cleaner.maintain({KEY: subject.log}, subject.clock.now_ms())
    assert len(subject.notes) == 1


@pytest.mark.spec("L5")
@pytest.mark.parametrize("operation", ["write", "flush", "open", "rename", "read"])
@pytest.mark.parametrize("after", range(0, 14, 2))
def test_a_failing_disk_loses_nothing(operation: str, after: int) -> None:
    memory = MemoryDisk()
    memory.mkdirs("/data")
    disk = FaultyDisk(memory)
    subject = Cleaning(disk, new_log(disk, "/data", compact_config()))
    filled(subject.log)
    subject.log.flush(NOW_MS)
    expected = newest(contents(subject.log))
    disk.fail(operation, "*/orders-0*", errno.EIO, after)
    subject.clock.advance(HOUR_MS)
    subject.cleaner.maintain({KEY: subject.log}, subject.clock.now_ms())
    disk.heal()
    assert newest(contents(subject.log)) == expected, "what is served stays right"
    from support.storage_logs import open_log

    again = open_log(memory, "/data", compact_config())
    assert newest(contents(again)) == expected


def test_a_full_disk_is_tried_again_later() -> None:
    memory = MemoryDisk()
    memory.mkdirs("/data")
    disk = FaultyDisk(memory)
    subject = Cleaning(disk, new_log(disk, "/data", compact_config()))
    filled(subject.log)
    disk.capacity = 10
    subject.clock.advance(HOUR_MS)
    subject.cleaner.maintain({KEY: subject.log}, subject.clock.now_ms())
    assert [note for note in subject.notes if "not compacted for now" in note]
    assert not [name for name in memory.listdir("/data/orders-0") if name.endswith(".cleaned")]
    disk.heal()
    subject.notes.clear()
    subject.clock.advance(HOUR_MS)
    subject.clean()
    assert len(contents(subject.log)) == 6


@pytest.mark.spec("L5")
def test_the_throttle_holds() -> None:
    clock = VirtualClock(NOW_MS)
    control = CleaningControl(clock, lambda length_ms: clock.advance(max(1, round(length_ms))), 1_000_000)
    start = clock.monotonic_ms()
    for _ in range(100):
        control.take(50_000)
    assert 3_900 <= clock.monotonic_ms() - start <= 5_100
    control.bytes_per_second = 10_000_000
    start = clock.monotonic_ms()
    for _ in range(100):
        control.take(50_000)
    assert clock.monotonic_ms() - start < 700
    control.aborted = True
    with pytest.raises(CleaningAborted):
        control.take(1)


def test_cleaning_lets_others_work_after_each_millisecond() -> None:
    clock = VirtualClock(NOW_MS)
    pauses: list[float] = []
    control = CleaningControl(clock, pauses.append, 1e12)
    for _ in range(10):
        clock.advance(round(WORK_MS))
        control.take(1)
    assert pauses == [BREATH_MS] * 10


class Managed:
    """A manager with a compacted topic."""

    def __init__(self, tmp_path: Path, executor: DiskExecutor | InlineExecutor, **settings: object) -> None:
        self.config = compact_config(**settings)
        self.clock = VirtualClock(NOW_MS)
        self.root = tmp_path
        self.manager = LogManager(
            RealDisk(),
            self.clock,
            executor,
            [str(tmp_path)],
            lambda _: self.config,
            StorageSettings(),
            CleanerSettings(backoff_ms=1000),
            executor if isinstance(executor, DiskExecutor) else None,
        )
        assert self.manager.open() is None
        self.log = self.manager.create("orders", None, 0)
        filled(self.log)

    def later(self, by_ms: int = 1000) -> None:
        self.clock.advance(by_ms)
        list(self.manager.upkeep.maintain(self.clock.now_ms()))


@pytest.mark.spec("L5")
def test_the_checkpoint_is_kafkas_and_survives(tmp_path: Path) -> None:
    managed = Managed(tmp_path, InlineExecutor())
    managed.later()
    checkpoint = tmp_path / "cleaner-offset-checkpoint"
    assert checkpoint.read_text() == "0\n1\norders 0 12\n"
    old = sorted(path.name for path in tmp_path.glob("orders-0/*.deleted"))
    assert len([name for name in old if name.endswith(".log.deleted")]) == 4
    managed.later(61_000)
    assert not list(tmp_path.glob("orders-0/*.deleted"))
    managed.manager.close()
    again = LogManager(RealDisk(), managed.clock, InlineExecutor(), [str(tmp_path)], lambda _: managed.config)
    assert again.open() is None
    assert again.cleaner.checkpoints == {KEY: 12}
    assert again.delete("orders", 0)
    assert again.cleaner.checkpoints == {}
    again.close()


@pytest.mark.spec("L5")
@pytest.mark.parametrize("load_factor", [0.0, -3.0, 5.0, 5e-324, float("inf")])
def test_a_load_factor_that_makes_no_sense_stops_nothing(ground: tuple[Disk, str], load_factor: float) -> None:
    subject = cleaning(ground, buffer_load_factor=load_factor)
    for _ in range(4):
        put(subject.log, *[(f"k{number}", "v") for number in range(50)])
        subject.log.roll(NOW_MS)
    subject.clean()
    assert subject.cleaner.checkpoints == {KEY: 200}
    assert len(contents(subject.log)) == 50


def test_a_map_that_the_system_has_no_memory_for_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_memory(*_: object) -> OffsetMap:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    managed = Managed(tmp_path, InlineExecutor())
    with monkeypatch.context() as scarce:
        scarce.setattr("ottla.storage.cleaning.new_map", no_memory)
        managed.later()
    assert any("Cannot allocate memory" in note for note in managed.manager.notes)
    assert managed.manager.cleaner.checkpoints == {}
    managed.later(POSTPONED_MS + 1000)
    assert managed.manager.cleaner.checkpoints == {KEY: 12}
    managed.manager.close()


def test_a_round_that_no_disk_thread_takes_is_tried_again(tmp_path: Path) -> None:
    executor = HandExecutor()
    managed = Managed(tmp_path, executor)
    executor.refuses = True
    managed.later()
    assert not managed.manager.cleaner.is_cleaning(KEY)
    assert managed.manager.cleaner.uncleanable == {}
    executor.refuses = False
    managed.later(POSTPONED_MS + 1000)
    while executor.works:
        executor.finish()
    assert managed.manager.cleaner.checkpoints == {KEY: 12}
    managed.manager.close()


@pytest.mark.spec("L5", "L4")
def test_compact_and_delete(tmp_path: Path) -> None:
    managed = Managed(tmp_path, InlineExecutor(), cleanup_policy="compact,delete", retention_ms=HOUR_MS)
    managed.later()
    assert len(contents(managed.log)) == 6
    managed.clock.advance(2 * HOUR_MS)
    put(managed.log, ("a", "new"))
    managed.later(300_000)
    assert managed.log.log_start_offset == 13
    assert contents(managed.log) == []


@pytest.mark.spec("L5")
def test_a_deleted_partition_is_not_cleaned_on(tmp_path: Path) -> None:
    async def main() -> None:
        executor = DiskExecutor(1)
        managed = Managed(tmp_path, executor)
        # Throttled so much that the round cannot end by itself.
        managed.manager.cleaner.apply_settings(CleanerSettings(backoff_ms=1000, bytes_per_second=1))
        managed.manager.cleaner._clock = SystemClock()
        managed.later()
        assert managed.manager.cleaner.is_cleaning(KEY)
        managed.manager.delete("orders", 0)
        for _ in range(500):
            if not managed.manager.cleaner.is_cleaning(KEY):
                break
            await asyncio.sleep(0.01)  # sleep: looks again for what a thread does
        assert not managed.manager.cleaner.is_cleaning(KEY)
        assert managed.manager.cleaner.uncleanable == {}
        # A new one of the same name starts from nothing.
        managed.manager.create("orders", None, 0)
        assert managed.manager.cleaner.checkpoints == {}
        managed.manager.close()

    asyncio.run(main())


@pytest.mark.spec("L5")
def test_a_round_in_threads_while_records_come(tmp_path: Path) -> None:
    async def main() -> None:
        executor = DiskExecutor(2)
        managed = Managed(tmp_path, executor)
        expected = newest(contents(managed.log))
        managed.later()
        put(managed.log, ("a", "meanwhile"))
        for _ in range(500):
            if KEY in managed.manager.cleaner.checkpoints:
                break
            await asyncio.sleep(0.01)  # sleep: looks again for what a thread does
        assert managed.manager.cleaner.checkpoints == {KEY: 12}
        found = newest(contents(managed.log))
        assert found.pop(b"a") == (12, b"meanwhile")
        expected.pop(b"a")
        assert found == expected
        assert managed.manager.notes == []
        managed.manager.close()

    asyncio.run(main())


@pytest.mark.spec("L5")
def test_closing_ends_a_round_at_once(tmp_path: Path) -> None:
    async def main() -> None:
        managed = Managed(tmp_path, DiskExecutor(2))
        managed.manager.cleaner._clock = SystemClock()
        managed.manager.cleaner.apply_settings(CleanerSettings(backoff_ms=1000, bytes_per_second=1))
        managed.later()
        assert managed.manager.cleaner.is_cleaning(KEY)
        managed.manager.close()
        await asyncio.sleep(0)
        again = LogManager(RealDisk(), managed.clock, InlineExecutor(), [str(tmp_path)], lambda _: managed.config)
        assert again.open() is None
        log = again.get("orders", 0)
        assert log is not None
        assert len(contents(log)) == 12
        again.close()

    asyncio.run(main())


@pytest.mark.spec("L5")
def test_a_round_whose_log_was_cut_meanwhile_ends_and_leaves_nothing(ground: tuple[Disk, str]) -> None:
    """Else it would be taken to go on for ever, and nothing of the log would be deleted or compacted any more."""
    subject = cleaning(ground)
    filled(subject.log)
    subject.cleaner._executor = executor = HandExecutor()
    subject.clean()
    executor.finish()  # the map of keys
    executor.finish()  # the new segment
    assert [name for name in subject.disk.listdir(subject.log.directory) if name.endswith(".swap")]
    truncate_to(subject.log, 4, NOW_MS)
    executor.finish()  # its name forced to the disk
    assert executor.works == []
    assert not subject.cleaner.is_cleaning(KEY)
    assert not [name for name in subject.disk.listdir(subject.log.directory) if name.endswith(".swap")]
    assert [record.offset for record in contents(subject.log)] == [0, 1, 2]


@pytest.mark.spec("L5")
def test_ranges_being_sent_stay_readable(ground: tuple[Disk, str]) -> None:
    subject = cleaning(ground)
    filled(subject.log)
    read = subject.log.read(0, 1 << 20)
    before = read.slice.read()  # type: ignore[union-attr]
    subject.clean()
    for path in subject.discarded:
        ground[0].remove(path)
    assert read.slice.read() == before  # type: ignore[union-attr]
    read.slice.release()  # type: ignore[union-attr]
