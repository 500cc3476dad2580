"""Which replicas of this broker have lost their logs, and which never had one.

A broker whose disk was lost must not lead with an empty log what others may have acknowledged: it refuses the role
(KAFKA_STORAGE_ERROR), and its replica counts as offline. The controller marks new partitions in its first LeaderAndIsr;
where it died before it could send that, its successor does not know that they are new. The znodes say so: a partition
whose state was made while this process was registered has lost nothing here, since its log would still be there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.zk.layout import PartitionStateZnode

if TYPE_CHECKING:
    from ottla.broker.control.membership import ClusterMembership
    from ottla.zk.client import ZkClient


class LostLogs:
    """Tells lost logs from those that were never made."""

    def __init__(self, zk: ZkClient, membership: ClusterMembership, accepts_others: bool) -> None:
        self._zk = zk
        self._membership = membership
        self._accepts_others = accepts_others

    async def is_lost(self, topic: str, partition: int) -> bool:
        """Whether a replica without a log, of a partition not marked as new, had one. Raises `ZkError`.

        If the metadata is this broker's own, no other broker could lead: it begins with an empty log.
        """
        if not self._accepts_others:
            return False
        stat = await self._zk.exists(PartitionStateZnode.path(topic, partition))
        return stat is None or stat.czxid <= self._membership.first_epoch
