"""The broker's partitions as the coordinator's log."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

from ottla.broker.coordinators.coordinator_log import Appended, HostedLog
from ottla.broker.replicas.partition import Partition
from ottla.storage.results import AppendInfo, AppendRefusal
from ottla.wire.errors import ErrorCode


class FakePartitions:
    def __init__(self) -> None:
        self.log: Any = SimpleNamespace(
            high_watermark=0,
            log_start_offset=0,
            log_end_offset=0,
            read_batches=lambda offset, _: iter([memoryview(b"x")]),
        )
        self.partition = Partition("t", UUID(int=1), 0, self.log, 0, is_internal=True)
        self.answer: AppendInfo | AppendRefusal = AppendInfo(3, 4, -1, 0)

    def get(self, topic: str, partition: int) -> Any:
        return self.partition if (topic, partition) == ("t", 0) else None

    def append(self, partition: Any, records: memoryview, origin: int) -> AppendInfo | AppendRefusal:
        assert not records.readonly
        return self.answer


def hosted() -> tuple[HostedLog, FakePartitions]:
    partitions = FakePartitions()
    return HostedLog(partitions), partitions  # type: ignore[arg-type]


def test_append():
    log, partitions = hosted()
    partitions.log.high_watermark = 5
    assert log.append("t", 0, bytearray(b"batch"), 0) == Appended(3, 5)
    partitions.answer = AppendRefusal(ErrorCode.MESSAGE_TOO_LARGE, "too large")
    assert log.append("t", 0, bytearray(b"batch"), 0) is ErrorCode.MESSAGE_TOO_LARGE
    assert log.append("t", 1, bytearray(b"batch"), 0) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_append_in_an_epoch():
    log, partitions = hosted()
    partitions.partition.leader_epoch = 3
    for epoch in (2, 4):
        assert log.append("t", 0, bytearray(b"batch"), epoch) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert isinstance(log.append("t", 0, bytearray(b"batch"), 3), Appended)
    assert isinstance(log.append("t", 0, bytearray(b"batch"), None), Appended)


def test_reading():
    log, partitions = hosted()
    assert log.is_empty("t", 0)
    assert log.is_empty("elsewhere", 0)
    partitions.log.log_end_offset = 1
    assert not log.is_empty("t", 0)
    assert [bytes(data) for data in log.read_batches("t", 0, lambda found: None)] == [b"x"]
    assert list(log.read_batches("elsewhere", 0, lambda found: None)) == []
    assert log.high_watermark("elsewhere", 0) == 0


def test_waiting_for_the_high_watermark():
    log, partitions = hosted()
    told: list[tuple[int, ErrorCode]] = []
    for offset in (7, 5, 6):
        log.when_committed("t", 0, offset, lambda error, offset=offset: told.append((offset, error)))
    assert told == []
    partitions.log.high_watermark = 7
    partitions.partition.tell_committed()
    assert told == [(5, ErrorCode.NONE), (6, ErrorCode.NONE)]
    log.when_committed("t", 0, 6, lambda error: told.append((60, error)))
    assert told[-1] == (60, ErrorCode.NONE)
    partitions.partition.tell_failed(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert told[-1] == (7, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    partitions.log.high_watermark = 9
    partitions.partition.tell_committed()
    assert len(told) == 4
    log.when_committed("elsewhere", 0, 1, lambda error: told.append((1, error)))
    assert told[-1] == (1, ErrorCode.NOT_LEADER_OR_FOLLOWER)
