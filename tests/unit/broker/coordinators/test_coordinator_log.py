"""The broker's partitions as the coordinator's log."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from ottla.broker.coordinators.coordinator_log import Appended, CoordinatorLog
from ottla.broker.replicas.partition import Partition, Replication
from ottla.cluster.image import PartitionImage
from ottla.storage.results import AppendInfo, AppendRefusal
from ottla.testing.disk_memory import MemoryDisk
from ottla.wire.errors import ErrorCode
from support.storage_logs import NOW_MS, append, batch, log_config, new_log


class FakePartitions:
    def __init__(self) -> None:
        self.log = new_log(MemoryDisk(), "/data")
        self.partition = Partition("t", UUID(int=1), 0, self.log, is_internal=True, replication=Replication(lambda: 0))
        self.partition.lead(PartitionImage(1, 0, (1,), (1,)), 0)
        self.answer: AppendInfo | AppendRefusal = AppendInfo(3, 4, -1, 0)

    def get(self, topic: str, partition: int) -> Any:
        return self.partition if (topic, partition) == ("t", 0) else None

    def append(self, partition: Any, records: memoryview, origin: int) -> AppendInfo | AppendRefusal:
        assert not records.readonly
        return self.answer


def hosted() -> tuple[CoordinatorLog, FakePartitions]:
    partitions = FakePartitions()
    return CoordinatorLog(partitions), partitions  # type: ignore[arg-type]


def test_append():
    log, partitions = hosted()
    for _ in range(2):
        append(partitions.log)
    assert log.append("t", 0, bytearray(b"batch"), 0, needs_replicas=False) == Appended(3, 6)
    partitions.answer = AppendRefusal(ErrorCode.MESSAGE_TOO_LARGE, "too large")
    assert log.append("t", 0, bytearray(b"batch"), 0, needs_replicas=False) is ErrorCode.MESSAGE_TOO_LARGE
    assert log.append("t", 1, bytearray(b"batch"), 0, needs_replicas=False) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_append_in_an_epoch():
    log, partitions = hosted()
    partitions.partition.lead(PartitionImage(1, 3, (1,), (1,)), 0)
    for epoch in (2, 4):
        assert log.append("t", 0, bytearray(b"batch"), epoch, needs_replicas=False) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert isinstance(log.append("t", 0, bytearray(b"batch"), 3, needs_replicas=False), Appended)
    assert isinstance(log.append("t", 0, bytearray(b"batch"), None, needs_replicas=False), Appended)


def test_append_without_enough_replicas():
    log, partitions = hosted()
    log_of = partitions.log
    log_of.config = log_config(**{"min.insync.replicas": 2})
    partitions.partition.lead(PartitionImage(1, 3, (1, 2), (1,)), 0)
    batch = bytearray(b"batch")
    assert log.append("t", 0, batch, 3, needs_replicas=True) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert isinstance(log.append("t", 0, batch, 3, needs_replicas=False), Appended)
    partitions.partition.lead(PartitionImage(1, 4, (1, 2), (1, 2)), 0)
    assert isinstance(log.append("t", 0, batch, 4, needs_replicas=True), Appended)
    partitions.partition.follow(PartitionImage(2, 5, (1, 2), (1, 2)))
    assert log.append("t", 0, batch, 5, needs_replicas=True) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_reading():
    log, partitions = hosted()
    assert log.is_empty("t", 0)
    assert log.is_empty("elsewhere", 0)
    append(partitions.log)
    assert not log.is_empty("t", 0)
    assert len(list(log.read_batches("t", 0, lambda found: None))) == 1
    assert list(log.read_batches("elsewhere", 0, lambda found: None)) == []
    assert log.high_watermark("elsewhere", 0) == 0


def test_waiting_for_the_high_watermark():
    log, partitions = hosted()
    partition = partitions.partition
    reported: list[tuple[int, ErrorCode]] = []
    for offset in (7, 5, 6):
        log.when_committed("t", 0, offset, lambda error, offset=offset: reported.append((offset, error)))
    assert reported == []
    assert isinstance(partitions.log.append(batch(7), leader_epoch=0, now_ms=NOW_MS), AppendInfo)
    partition.own_end = 7
    partition.advance()
    assert reported == [(5, ErrorCode.NONE), (6, ErrorCode.NONE)]
    log.when_committed("t", 0, 6, lambda error: reported.append((60, error)))
    assert reported[-1] == (60, ErrorCode.NONE)
    partition.end_role(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert reported[-1] == (7, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    for topic in ("t", "elsewhere"):
        log.when_committed(topic, 0, 1, lambda error: reported.append((1, error)))
        assert reported[-1] == (1, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert len(reported) == 6
