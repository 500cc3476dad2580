"""The partitions this broker hosts: their logs, their leadership, and who waits for their data."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING
from uuid import UUID

from ottla.storage.results import AppendRefusal
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.purgatory import DelayedFetch
    from ottla.storage.log import AppendInfo, PartitionLog

log = logging.getLogger("ottla.broker")

#: The client does not know the leader epoch.
NO_EPOCH = -1
#: The disk's trouble with a partition is told again after this long.
TELL_AGAIN_MS = 60_000


class Partition:
    """One hosted partition: its log, and the fetches that wait for it to grow."""

    __slots__ = (
        "index",
        "is_internal",
        "isr_size",
        "leader_epoch",
        "log",
        "told_ms",
        "topic",
        "topic_id",
        "waiting",
    )

    def __init__(
        self, topic: str, topic_id: UUID, index: int, log: PartitionLog, leader_epoch: int, is_internal: bool
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.log = log
        self.leader_epoch = leader_epoch
        self.is_internal = is_internal
        #: In-sync replicas, this broker's own included.
        self.isr_size = 1
        self.waiting: set[DelayedFetch] = set()
        #: When the log was last told of a write that the disk refused.
        self.told_ms: int | None = None

    def check_epoch(self, current_leader_epoch: int) -> ErrorCode:
        """Fencing by leader epoch (KIP-320); -1 means that the client does not know it."""
        if current_leader_epoch in (NO_EPOCH, self.leader_epoch):
            return ErrorCode.NONE
        if current_leader_epoch < self.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.UNKNOWN_LEADER_EPOCH

    def visible_end(self, isolation_level: int) -> int:
        """The offset that a consumer may read up to: the high watermark, or what is stable when `read_committed`."""
        return self.log.last_stable_offset if isolation_level == 1 else self.log.high_watermark


class PartitionSet:
    """All hosted partitions, by name and by topic id."""

    def __init__(self, clock_now_ms: Callable[[], int]) -> None:
        self._by_name: dict[str, dict[int, Partition]] = {}
        self._by_id: dict[UUID, dict[int, Partition]] = {}
        self._now_ms = clock_now_ms

    def __iter__(self) -> Iterator[Partition]:
        for partitions in self._by_name.values():
            yield from partitions.values()

    def get(self, topic: str, index: int) -> Partition | None:
        """The partition, or None where this broker does not host it."""
        partitions = self._by_name.get(topic)
        return partitions.get(index) if partitions is not None else None

    def get_by_id(self, topic_id: UUID, index: int) -> Partition | None:
        """The same by topic id."""
        partitions = self._by_id.get(topic_id)
        return partitions.get(index) if partitions is not None else None

    def topics(self) -> list[str]:
        """The names of the topics that have hosted partitions."""
        return list(self._by_name)

    def indexes(self, topic: str) -> list[int]:
        """The hosted partitions of a topic."""
        return sorted(self._by_name.get(topic, ()))

    def add(self, partition: Partition) -> None:
        """Host a partition."""
        self._by_name.setdefault(partition.topic, {})[partition.index] = partition
        self._by_id.setdefault(partition.topic_id, self._by_name[partition.topic])

    def remove_from(self, topic: str, first: int) -> list[Partition]:
        """Stop hosting a topic's partitions from `first` on; fetches that wait for them are completed, and will find
        them gone.
        """
        partitions = self._by_name.get(topic, {})
        removed = [partitions.pop(index) for index in list(partitions) if index >= first]
        if not partitions:
            self._by_name.pop(topic, None)
        for partition in removed:
            if not partitions:
                self._by_id.pop(partition.topic_id, None)
            for waiting in list(partition.waiting):
                waiting.complete()
        return removed

    def append(
        self, partition: Partition, records: memoryview, origin: int, *, records_checked: bool = False
    ) -> AppendInfo | AppendRefusal:
        """Append batches as leader and wake the fetches that wait for them."""
        hosted = partition.log
        before = hosted.log_end_offset
        now_ms = self._now_ms()
        info = hosted.append(
            records,
            None,
            leader_epoch=partition.leader_epoch,
            now_ms=now_ms,
            origin=origin,
            records_checked=records_checked,
        )
        if partition.waiting and hosted.log_end_offset != before:
            size = len(records)
            for waiting in list(partition.waiting):
                waiting.grown(size)
        if isinstance(info, AppendRefusal) and info.error is ErrorCode.KAFKA_STORAGE_ERROR:
            _tell(partition, info.message, now_ms)
        return info


def _tell(partition: Partition, message: str, now_ms: int) -> None:
    """Tell the operator why a partition takes nothing, now and then and not for every request."""
    if partition.told_ms is None or now_ms - partition.told_ms >= TELL_AGAIN_MS:
        partition.told_ms = now_ms
        log.error("partition %s-%d refuses records: %s", partition.topic, partition.index, message)
