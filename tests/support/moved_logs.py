"""A broker's storage that moves partitions between two disks, step by step, and what it promised meanwhile."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from uuid import UUID

from ottla.broker.quotas.replication import ReplicationQuota
from ottla.broker.replicas.manager import ReplicaManager
from ottla.broker.replicas.moving import ReplicaMover
from ottla.broker.replicas.partition import Partition
from ottla.broker.slices import LoopSlices
from ottla.cluster.image import PartitionImage, TopicImage
from ottla.env.clock import VirtualClock
from ottla.env.disk import Disk
from ottla.env.executor import InlineExecutor
from ottla.records.batch import check_crc, split_batches
from ottla.records.record import Record
from ottla.storage.log import AppendInfo, PartitionLog
from ottla.storage.manager import LogManager
from ottla.storage.truncation import delete_records
from ottla.storage.upkeep import StorageSettings
from ottla.testing.disk_memory import Change, MemoryDisk, journal_bytes
from ottla.wire.errors import ErrorCode
from support.storage_logs import NOW_MS, decode, log_config, of_records, read_bytes

ROOTS = ("/one/data", "/two/data")
NAME = "t-0"
CONFIG = log_config(segment_bytes=600, index_interval_bytes=100, retention_bytes=6000, file_delete_delay_ms=0)
SETTINGS = StorageSettings(retention_check_interval_ms=1, flush_interval_ms=1 << 40)
TOPIC = TopicImage("t", UUID(int=7), (), {}, False)
#: Turns of the loop after which a move has ended that nothing hinders.
MANY_TURNS = 2_000


@dataclass
class Promise:
    """What was known when this many bytes of the journal were written."""

    at: int
    #: Records from the start to here were acknowledged as being on disk.
    start: int = 0
    end: int = 0


class MovingBroker:
    """The storage of one broker, with one partition. Use it inside an event loop."""

    def __init__(self, disk: Disk, clock: VirtualClock, epoch: int = 0) -> None:
        self.disk = disk
        self.clock = clock
        self.epoch = epoch
        self.logs = LogManager(disk, clock, InlineExecutor(), ROOTS, lambda topic: CONFIG, SETTINGS)
        refusal = self.logs.open()
        assert refusal is None, refusal
        self.replicas = ReplicaManager(self.logs, clock.now_ms)
        slices, limit = LoopSlices(clock.monotonic_ms), ReplicationQuota(clock.monotonic_ms)
        self.mover = ReplicaMover(self.replicas, self.logs, disk, InlineExecutor(), clock, slices, 2, limit)
        self.replicas.make_mover = lambda: self.mover
        self.lead()

    def lead(self) -> Partition:
        """Lead the partition, in the present epoch."""
        return self.replicas.make_leader(TOPIC, 0, PartitionImage(1, self.epoch, (1,), (1,)), CONFIG)

    @property
    def log(self) -> PartitionLog:
        """The log of the partition now."""
        partition = self.replicas.get("t", 0)
        assert partition is not None
        return partition.log

    def move(self, root: str) -> None:
        """Ask for a move to one of the two."""
        assert self.mover.move("t", 0, root) is ErrorCode.NONE

    def append(self, content: list[Record], producer: int = -1) -> None:
        """Append as leader, and commit."""
        options = {}
        if producer >= 0:
            entry = self.log.producers.get(producer)
            options = {"producer_id": producer, "producer_epoch": 0}
            options["base_sequence"] = entry.last_sequence + 1 if entry is not None else 0
        partition = self.replicas.get("t", 0)
        assert partition is not None
        info = self.replicas.append(partition, of_records(content, **options), 0)
        assert isinstance(info, AppendInfo), info

    async def turns(self, count: int) -> None:
        """Let the loop continue."""
        for _ in range(count):
            await asyncio.sleep(0)

    async def settled(self) -> None:
        """Until nothing is moved any more."""
        for _ in range(MANY_TURNS):
            await asyncio.sleep(0)
            if not len(self.logs.placement.futures) and not self.mover._active:
                return
        raise AssertionError(
            f"the move does not end: {[each.log for each in self.logs.placement.futures.values()]} {self.logs.notes}"
        )

    def directories(self) -> list[str]:
        """The directories of the partition that are in service."""
        return [f"{root}/{NAME}" for root in ROOTS if self.disk.exists(f"{root}/{NAME}")]

    async def close(self) -> None:
        """A clean stop."""
        await self.mover.stop()
        self.logs.close()


@dataclass
class MoveRun:
    """Random steps, each change of the disks kept, with what was promised."""

    seed: int
    journal: list[Change] = field(default_factory=list)
    promises: list[Promise] = field(default_factory=list)
    #: The values that were ever written at an offset.
    values: dict[int, set[bytes]] = field(default_factory=dict)
    #: The values that are there now.
    model: dict[int, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.disk = MemoryDisk(journal=self.journal)
        for root in ROOTS:
            self.disk.mkdirs(root.rpartition("/")[0])
        self.disk.fsync_dir("/")
        self.clock = VirtualClock(NOW_MS)
        self.chosen = random.Random(self.seed)
        self.acknowledged = 0
        self.broker: MovingBroker
        #: Moves that ended, and those that were under way at a restart.
        self.moved = self.interrupted = 0

    async def play(self, steps: int) -> None:
        """Random steps, then a clean stop."""
        self.broker = MovingBroker(self.disk, self.clock)
        for _ in range(steps):
            await self._step(self.chosen.random())
            check_model(self.broker.log, self.model)
        await self.broker.settled()
        check_model(self.broker.log, self.model)
        assert self.broker.directories() == [self.broker.log.directory]
        self.moved += self.broker.mover.moved
        await self.broker.close()

    async def _step(self, step: float) -> None:
        broker, chosen = self.broker, self.chosen
        log = broker.log
        if step < 0.45:
            self._append()
        elif step < 0.55:
            broker.move(chosen.choice(ROOTS))
        elif step < 0.62:
            log.flush(self.clock.now_ms())
            self.acknowledged = log.log_end_offset
            self._promise()
        elif step < 0.67:
            offset = chosen.randint(log.log_start_offset, log.high_watermark)
            delete_records(log, offset)
            self._promise()
            self.model = {at: value for at, value in self.model.items() if at >= offset}
        elif step < 0.73:
            self._truncate()
        elif step < 0.77:
            self.clock.advance(1000)
            self._promise()
            list(broker.logs.upkeep.maintain(self.clock.now_ms()))
            start = broker.log.log_start_offset
            self.model = {at: value for at, value in self.model.items() if at >= start}
            self.promises[-1].start = start
        elif step < 0.8:
            broker.logs.checkpoints.write()
        elif step < 0.82:
            self.acknowledged = max(self.acknowledged, log.log_end_offset)
            self.moved += broker.mover.moved
            self.interrupted += len(broker.logs.placement.futures)
            await broker.close()
            self.broker = MovingBroker(self.disk, self.clock, broker.epoch)
            self._promise()
        await self.broker.turns(chosen.choice((0, 1, 3, 10)))

    def _append(self) -> None:
        start = self.broker.log.log_end_offset
        content = [
            Record(
                number,
                NOW_MS + start,
                b"k",
                b"%d in %d, step %d" % (start + number, self.broker.epoch, len(self.journal)),
            )
            for number in range(self.chosen.randint(1, 6))
        ]
        self.broker.append(content, self.chosen.choice((-1, 7)))
        for number, record in enumerate(content):
            self.values.setdefault(start + number, set()).add(record.value or b"")
            self.model[start + number] = record.value or b""

    def _truncate(self) -> None:
        """As a follower of another leader, which has no more than was acknowledged; then lead again."""
        broker = self.broker
        log = broker.log
        end = self.chosen.randint(max(self.acknowledged, log.log_start_offset), log.log_end_offset)
        broker.epoch += 1
        broker.replicas.make_follower(TOPIC, 0, PartitionImage(2, broker.epoch, (1, 2), (1, 2)), CONFIG)
        broker.logs.truncate(log, end)
        broker.logs.checkpoints.store_recovery_points(lambda: None)
        self.acknowledged = min(self.acknowledged, log.log_end_offset)
        self._promise()
        self.model = {at: value for at, value in self.model.items() if at < log.log_end_offset}
        broker.epoch += 1
        broker.lead()

    def _promise(self) -> None:
        start = self.broker.log.log_start_offset
        self.promises.append(Promise(journal_bytes(self.journal), start, self.acknowledged))


def served(log: PartitionLog) -> dict[int, bytes]:
    """All that a consumer gets."""
    offset = log.log_start_offset
    found: dict[int, bytes] = {}
    while offset < log.log_end_offset:
        data = read_bytes(log.read(offset, 400))
        headers = split_batches(data, partial_tail=True)
        if not headers:
            assert not any(segment.size for segment in log.segments if segment.base_offset >= offset)
            break
        assert all(check_crc(data, header) for header in headers)
        found |= {record.offset: record.value or b"" for record in decode(data) if record.offset >= offset}
        offset = headers[-1].next_offset
    return found


def check_model(log: PartitionLog, model: dict[int, bytes]) -> None:
    """The log has these records and no others."""
    found = served(log)
    assert found == model, (log, sorted(found.keys() ^ model.keys()))
