"""The power goes after any byte: what was forced to disk before it was promised is there, nothing corrupt is served."""

from __future__ import annotations

import random
from collections.abc import Container
from dataclasses import dataclass, field

import pytest

from ottla.env.clock import VirtualClock
from ottla.env.executor import InlineExecutor
from ottla.records.batch import check_crc, split_batches
from ottla.records.record import Record
from ottla.storage.log import AppendInfo, PartitionLog
from ottla.storage.manager import LogManager
from ottla.storage.scan import scan_batches
from ottla.storage.truncation import delete_records
from ottla.storage.upkeep import StorageSettings
from ottla.testing.disk_memory import Change, MemoryDisk, journal_bytes
from ottla.testing.disk_power import every_moment, nothing_more
from support.storage_logs import NOW_MS, batch, committed, decode, log_config, of_records, read_bytes

ROOT = "/disk/data"
CONFIG = log_config(segment_bytes=600, index_interval_bytes=100, retention_bytes=1500, file_delete_delay_ms=0)
SETTINGS = StorageSettings(retention_check_interval_ms=1, flush_interval_ms=1 << 40)
Key = tuple[str, int]

pytestmark = [pytest.mark.spec("L9"), pytest.mark.slow]


def opened(disk: MemoryDisk, clock: VirtualClock) -> LogManager:
    manager = LogManager(disk, clock, InlineExecutor(), [ROOT], lambda topic: CONFIG, SETTINGS)
    assert manager.open() is None
    return manager


@dataclass
class Moment:
    """What was known when this many bytes of the journal were written."""

    at: int
    #: Of each partition: the offset below which everything was acknowledged, the log's start, the newest epoch.
    promised: dict[Key, tuple[int, int, int]]


@dataclass
class Run:
    """A broker's storage at work, each change of its disk kept, with what it promised."""

    journal: list[Change] = field(default_factory=list)
    moments: list[Moment] = field(default_factory=list)
    values: dict[tuple[Key, int], bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.disk = MemoryDisk(journal=self.journal)
        self.disk.mkdirs("/disk")
        self.disk.fsync_dir("/")
        self.clock = VirtualClock(NOW_MS)
        self.manager = opened(self.disk, self.clock)
        self.acknowledged: dict[Key, tuple[int, int]] = {}

    def log(self, key: Key) -> PartitionLog:
        return self.manager.get(*key) or self.manager.create(key[0], None, key[1])

    def append(self, key: Key, count: int, epoch: int, producer: bool) -> None:
        log = self.log(key)
        start = log.log_end_offset
        content = [
            Record(number, NOW_MS + start, b"k", b"%d of %s" % (start + number, key[0].encode()))
            for number in range(count)
        ]
        options = {}
        if producer:
            entry = log.producers.get(7)
            options = {"producer_id": 7, "producer_epoch": 0}
            options["base_sequence"] = entry.last_sequence + 1 if entry is not None else 0
        info = log.append(of_records(content, **options), leader_epoch=epoch, now_ms=self.clock.now_ms())
        assert isinstance(info, AppendInfo)
        committed(log)
        for number, record in enumerate(content):
            self.values[key, start + number] = record.value or b""

    def acknowledge(self, key: Key) -> None:
        """As in durable mode: forced to disk, then promised."""
        log = self.log(key)
        log.flush(self.clock.now_ms())
        self.acknowledged[key] = (log.log_end_offset, log.leader_epoch)
        self.note()

    def note(self, at: int | None = None) -> None:
        promised = {
            key: (end, self.log(key).log_start_offset, epoch) for key, (end, epoch) in self.acknowledged.items()
        }
        self.moments.append(Moment(journal_bytes(self.journal) if at is None else at, promised))

    def tick(self) -> None:
        """Retention and removals: what they take is not promised any more from the moment they begin."""
        self.clock.advance(1000)
        before = journal_bytes(self.journal)
        list(self.manager.upkeep.maintain(self.clock.now_ms()))
        self.note(before)


def check(run: Run, disk: MemoryDisk, promised: dict[Key, tuple[int, int, int]]) -> None:
    """Open what is left, read all of it, and continue writing."""
    manager = opened(disk, VirtualClock(NOW_MS))
    for key, (end, start, epoch) in promised.items():
        log = manager.get(*key)
        if log is None:  # nothing is forced to disk for a partition that never had records
            assert (start, end) == (0, 0), f"{key} is lost"
            continue
        assert log.log_start_offset <= start, (key, log, start)
        assert log.log_end_offset >= end, (key, log, end, manager.notes)
        assert log.leader_epoch >= epoch or end <= start, (key, log.epochs.entries, epoch)
    for log in manager.logs():
        key = (log.topic, log.partition)
        found = dict(served(log))
        for offset, value in found.items():
            assert run.values[key, offset] == value, (key, offset)
        end, start, _ = promised.get(key, (0, 0, 0))
        assert found.keys() >= set(range(start, end)), (key, sorted(found), manager.notes)
        entry = log.producers.get(7)
        sequence = entry.last_sequence + 1 if entry is not None else 0
        again = batch(2, producer_id=7, producer_epoch=0, base_sequence=sequence)
        info = log.append(again, leader_epoch=99, now_ms=NOW_MS)
        assert isinstance(info, AppendInfo), info
        assert info.first_offset == log.log_end_offset - 2
    manager.close()


def served(log: PartitionLog) -> list[tuple[int, bytes]]:
    """All that a consumer gets, which checks what it gets.

    A gap is allowed: where the system wrote a later segment before an older one, what is there of both is kept.
    """
    offset = log.log_start_offset
    found: list[tuple[int, bytes]] = []
    while offset < log.log_end_offset:
        data = read_bytes(log.read(offset, 400))
        headers = split_batches(data, partial_tail=True)
        if not headers:
            assert not any(segment.size for segment in log.segments if segment.base_offset >= offset)
            break
        assert all(check_crc(data, header) for header in headers)
        found += [(record.offset, record.value or b"") for record in decode(data) if record.offset >= offset]
        offset = headers[-1].next_offset
    assert [offset for offset, _ in found] == sorted({offset for offset, _ in found})
    return found


def check_all(run: Run, wanted: Container[int] | None, seeds: int) -> int:
    """The power goes at each of the `wanted` moments, in `seeds` ways besides that in which only the forced stays."""
    moments = iter([*run.moments, Moment(1 << 60, {})])
    promised: dict[Key, tuple[int, int, int]] = {}
    following = next(moments)
    count = 0
    for at, power in every_moment(run.journal, wanted):
        while following.at <= at:
            promised = following.promised
            following = next(moments)
        check(run, power.survivor(nothing_more), promised)
        for seed in range(seeds):
            check(run, power.survivor(random.Random(1000 * at + seed).randrange), promised)
        count += 1 + seeds
    return count


def test_the_power_goes_after_every_byte() -> None:
    run = Run()
    one, two = ("one", 0), ("two", 3)
    for number in range(10):
        run.append(one, 2 + number % 2, number // 5, producer=True)
        if number % 2:
            run.acknowledge(one)
        if number % 3 == 0:
            run.append(two, 3, 0, producer=False)
            run.acknowledge(two)
        if number == 6:
            run.manager.checkpoints.write()
    run.tick()
    run.manager.close()
    assert check_all(run, None, seeds=3) > 5000


def settled(disk: MemoryDisk, folder: str = "") -> MemoryDisk:
    """A copy of a disk on which everything is sure to stay, and whose journal begins with it."""
    copy = MemoryDisk(journal=[])
    folders = [folder]
    while folders:
        folder = folders.pop()
        for name in disk.listdir(folder):
            path = f"{folder}/{name}"
            if disk.is_dir(path):
                folders.append(path)
                copy.mkdirs(path)
                copy.fsync_dir(folder)
            else:
                copy.write_atomic(path, disk.read_bytes(path))
    return copy


@pytest.mark.parametrize("seed", range(3))
def test_the_power_goes_again_while_the_log_is_recovered(seed: int) -> None:
    run = long_run(seed, 120)
    chosen = random.Random(seed)
    total = journal_bytes(run.journal)
    moments = [Moment(0, {}), *run.moments]
    for at, power in every_moment(run.journal, {chosen.randrange(1, total) for _ in range(12)}):
        promised = next(moment.promised for moment in reversed(moments) if moment.at <= at)
        first = settled(power.survivor(chosen.randrange))
        for key, (end, start, _) in promised.items():
            if chosen.random() < 0.3 and end > start:
                flip_behind(first, key, end)
        journal = first.journal
        assert journal is not None
        before = journal_bytes(journal)
        opened(first, VirtualClock(NOW_MS))
        wanted = {chosen.randrange(before, journal_bytes(journal) + 1) for _ in range(12)}
        for _, again in every_moment(journal, wanted):
            check(run, again.survivor(chosen.randrange), promised)


def flip_behind(disk: MemoryDisk, key: Key, end: int) -> None:
    """Damage what lies behind the promised records, so that there is something to take out."""
    folder = f"{ROOT}/{key[0]}-{key[1]}"
    path = max(f"{folder}/{name}" for name in disk.listdir(folder) if name.endswith(".log"))
    file = disk.open(path)
    found = next((each for each in scan_batches(file, 0, file.size) if each.first_offset >= end), None)
    if found is not None:
        disk.flip(path, found.position + 20)


def long_run(seed: int, steps: int) -> Run:
    chosen = random.Random(seed)
    run = Run()
    keys = [("t", number) for number in range(3)]
    epochs = dict.fromkeys(keys, 0)
    for _ in range(steps):
        key = chosen.choice(keys)
        step = chosen.random()
        if step < 0.6:
            run.append(key, chosen.randint(1, 9), epochs[key], producer=chosen.random() < 0.6)
        elif step < 0.8:
            run.acknowledge(key)
        elif step < 0.86:
            epochs[key] += 1
        elif step < 0.9:
            run.log(key).roll(run.clock.now_ms())
        elif step < 0.93:
            log = run.log(key)
            delete_records(log, chosen.randint(log.log_start_offset, log.high_watermark))
            run.note()
        elif step < 0.96:
            run.manager.checkpoints.write()
        elif step < 0.98:
            run.tick()
        else:
            run.manager.close()
            run.manager = opened(run.disk, run.clock)
    return run


def check_long_run(seed: int, steps: int, cuts: int) -> None:
    run = long_run(seed, steps)
    chosen = random.Random(-seed)
    check_all(run, {chosen.randrange(1, journal_bytes(run.journal)) for _ in range(cuts)}, seeds=2)


@pytest.mark.parametrize("seed", range(4))
def test_the_power_goes_somewhere_in_a_long_run(seed: int) -> None:
    check_long_run(seed, 300, 60)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(100, 130))
def test_the_power_goes_somewhere_in_many_long_runs(seed: int) -> None:
    check_long_run(seed, 1000, 200)
