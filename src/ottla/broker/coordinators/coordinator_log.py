"""The log of coordinators, over the broker's partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from ottla.broker.replicas.manager import ReplicaManager, RoleListener
from ottla.broker.replicas.partition import Committed
from ottla.storage.log import COORDINATOR
from ottla.storage.results import AppendRefusal, UnreadableRange
from ottla.wire.errors import ErrorCode


class Appended(NamedTuple):
    """An appended batch: its first offset, and the high watermark after the append."""

    first_offset: int
    high_watermark: int


class CoordinatorLog:
    """The log of a coordinator's internal topic: the partitions of it that this broker hosts."""

    def __init__(self, partitions: ReplicaManager) -> None:
        self._partitions = partitions

    def append(
        self, topic: str, partition: int, batch: bytearray, leader_epoch: int | None, *, needs_replicas: bool
    ) -> Appended | ErrorCode:
        """Append one encoded batch as leader in `leader_epoch` (None: in any epoch), or return the error.

        If this broker leads the partition in another epoch, nothing is written: NOT_LEADER_OR_FOLLOWER. With
        `needs_replicas` neither if too few replicas are in sync (`min.insync.replicas`): NOT_ENOUGH_REPLICAS.
        """
        hosted = self._partitions.get(topic, partition)
        if hosted is None or hosted.leader is None or leader_epoch not in (None, hosted.leader_epoch):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if needs_replicas and not hosted.leader.has_enough(hosted.log.config.min_insync_replicas):
            return ErrorCode.NOT_ENOUGH_REPLICAS
        info = self._partitions.append(hosted, memoryview(batch), COORDINATOR)
        if isinstance(info, AppendRefusal):
            return info.error
        return Appended(info.first_offset, hosted.log.high_watermark)

    def follow_roles(self, topic: str, listener: RoleListener | None) -> None:
        """Tell `listener` of the partitions of a topic that this broker leads now, and of each later change of role.

        None ends that.
        """
        self._partitions.follow_roles(topic, listener)

    def read_batches(
        self, topic: str, partition: int, unreadable: Callable[[UnreadableRange], None]
    ) -> Iterator[memoryview]:
        """The intact batches of a partition, from its start to its present end.

        Calls `unreadable` for each damaged range between them. Raises DiskError.
        """
        hosted = self._partitions.get(topic, partition)
        return iter(()) if hosted is None else hosted.log.read_batches(hosted.log.log_start_offset, unreadable)

    def is_empty(self, topic: str, partition: int) -> bool:
        """Whether the partition has no records to read."""
        hosted = self._partitions.get(topic, partition)
        return hosted is None or hosted.log.log_start_offset == hosted.log.log_end_offset

    def end_offset(self, topic: str, partition: int) -> int:
        """The offset after the last record, committed or not."""
        hosted = self._partitions.get(topic, partition)
        return 0 if hosted is None else hosted.log.log_end_offset

    def high_watermark(self, topic: str, partition: int) -> int:
        """The offset below which records are committed."""
        hosted = self._partitions.get(topic, partition)
        return 0 if hosted is None else hosted.log.high_watermark

    def when_committed(self, topic: str, partition: int, offset: int, done: Committed) -> None:
        """Call `done` once the record at `offset` is committed; at once if it is already."""
        hosted = self._partitions.get(topic, partition)
        if hosted is None:
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        else:
            hosted.when_committed(offset, done)
