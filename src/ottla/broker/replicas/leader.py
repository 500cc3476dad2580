"""The leader's state in one leader epoch, and its high watermark: Kafka's rules (`Partition.scala`). Pure."""

from __future__ import annotations

from typing import Final

from ottla.cluster.image import PartitionImage
from ottla.cluster.isr import InSyncReplicas, IsAlive

#: A follower counts as read by consumers for this long after one was sent there: twice their usual
#: `metadata.max.age.ms`, after which they ask again.
READ_FOR_MS: Final = 600_000.0


class Leader:
    """The leadership of one partition in one leader epoch: its in-sync replicas, and what they have in common."""

    __slots__ = ("_read_until_ms", "epoch", "is_alone", "replicas", "start_offset")

    def __init__(
        self,
        state: PartitionImage,
        partition_epoch: int,
        start_offset: int,
        now_ms: float,
        former: Leader | None = None,
    ) -> None:
        self.epoch = state.leader_epoch
        #: Start of the leader epoch: the log end offset when leadership began.
        self.start_offset = start_offset
        #: The ISR and the followers. What `former`, the same leader in an earlier epoch, knows of them still holds.
        self.replicas: InSyncReplicas = former.replicas if former is not None else InSyncReplicas(state.leader)
        isr = state.isr or (state.leader,)
        self.replicas.elected(state.leader_epoch, partition_epoch, state.replicas, isr, start_offset, now_ms)
        #: Whether this is the only replica, so that the leader's own records are committed.
        self.is_alone = not self.replicas.followers
        #: Until when consumers may read from followers, by broker id.
        self._read_until_ms: dict[int, float] = {}

    @property
    def isr(self) -> frozenset[int]:
        """The committed ISR."""
        return self.replicas.committed

    def is_read_at(self, replica_id: int, now_ms: float) -> None:
        """Note that a consumer was sent to a follower (KIP-392)."""
        self._read_until_ms[replica_id] = now_ms + READ_FOR_MS

    @property
    def has_read_replicas(self) -> bool:
        """Whether consumers were ever sent to a follower."""
        return bool(self._read_until_ms)

    def read_replicas(self, now_ms: float) -> list[int]:
        """The followers that consumers may read from: they learn of the high watermark at once."""
        return [each for each, until_ms in self._read_until_ms.items() if now_ms < until_ms]

    def effective_minimum(self, min_insync_replicas: int) -> int:
        """The required ISR size: the setting, but at most the number of replicas."""
        return min(min_insync_replicas, 1 + len(self.replicas.followers))

    def has_enough(self, min_insync_replicas: int) -> bool:
        """Whether the ISR is large enough for acks=-1."""
        return len(self.replicas.committed) >= self.effective_minimum(min_insync_replicas)

    def high_watermark(
        self,
        before: int,
        own_end: int,
        leader_end: int,
        min_insync_replicas: int,
        now_ms: float,
        max_lag_ms: float,
        is_alive: IsAlive,
    ) -> int:
        """The end of what is committed, by `InSyncReplicas.least_end`.

        It never decreases within the epoch, and does not advance while the ISR is too small.
        """
        if not self.has_enough(min_insync_replicas):
            return before
        return max(before, self.replicas.least_end(own_end, leader_end, now_ms, max_lag_ms, is_alive))
