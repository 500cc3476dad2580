"""The leader's side of a throttle: what a follower that is not in sync gets of throttled partitions."""

from __future__ import annotations

from ottla.broker.quotas.replication import ReplicationQuota, is_throttled
from ottla.broker.replicas.partition import Partition


class LeaderThrottle:
    """The limit of the bytes of throttled partitions in one response to a follower.

    As in Kafka, all bytes that followers get of them count, and only followers that are not in sync have to wait.
    """

    __slots__ = ("_broker_id", "_left", "_quota", "_replica_id", "_size", "_size_in_sync", "holds_back")

    def __init__(self, quota: ReplicationQuota, broker_id: int, replica_id: int) -> None:
        self._quota = quota
        self._broker_id = broker_id
        self._replica_id = replica_id
        self._left = 0 if quota.is_exceeded else quota.most_at_once
        self._size = self._size_in_sync = 0
        #: Whether any records are held back.
        self.holds_back = False

    def allowed(self, partition: Partition) -> int | None:
        """Most bytes of a partition that the follower may get now; None for any."""
        if self._is_in_sync(partition) or not self._is_throttled(partition):
            return None
        self.holds_back |= self._left <= 0
        return self._left

    def read(self, partition: Partition, size: int) -> None:
        """Count what was read of a partition."""
        if not self._is_throttled(partition):
            return
        self._size += size
        if self._is_in_sync(partition):
            self._size_in_sync += size
        else:
            self._left = max(0, self._left - size)

    def sent(self) -> None:
        """The response goes out with all that was read."""
        if self._size:
            self._quota.record(self._size - self._size_in_sync)
            self._quota.record(self._size_in_sync, is_free=True)

    @property
    def wait_ms(self) -> float:
        """How long until the follower may get more."""
        return self._quota.wait_ms

    def _is_throttled(self, partition: Partition) -> bool:
        return is_throttled(partition.log.config.leader_throttled, partition.index, self._broker_id)

    def _is_in_sync(self, partition: Partition) -> bool:
        leader = partition.leader
        return leader is not None and self._replica_id in leader.replicas.committed
