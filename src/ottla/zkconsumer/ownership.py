"""Owner nodes: one per partition, ephemeral, so that no partition has two owners. All are claimed, or none.

Source: Apache Kafka 0.8.2.2, `ZookeeperConsumerConnector.reflectPartitionOwnershipDecision` and
`releasePartitionOwnership`. There, claims whose answer was lost, and those of a session that is over, are released
blindly or not at all; here it is remembered which session made a node, and what is uncertain is looked up.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from ottla.assign.threads import ConsumerThread
from ottla.client.model import TopicPartition
from ottla.zk.client import ZkClient
from ottla.zk.layout import PartitionOwnerZnode
from ottla.zk.tree import NodeExistsError, NoNodeError, SessionExpiredError, Stat, ZkError
from ottla.zkconsumer.counters import RebalanceCounters
from ottla.zkconsumer.znodes import make_node

_log = logging.getLogger("ottla.zkconsumer")


class PartitionOwnership:
    """The owner nodes of one consumer."""

    def __init__(self, zk: ZkClient, group: str, counters: RebalanceCounters) -> None:
        self._zk = zk
        self._group = group
        self._counters = counters
        #: The session that made each node, with which it goes; None where it is not known whether it is ours.
        self._held: dict[TopicPartition, int | None] = {}
        self.in_conflict: list[str] = []
        """The owner nodes that the last claim met another consumer's at."""

    async def claim_all(self, decision: Mapping[TopicPartition, ConsumerThread]) -> bool:
        """Claim every partition for its thread; False, and none is held, where another consumer holds one of them.

        All are tried, since each conflict names a consumer that has not released yet. Raises `ZkError`s, with what
        was claimed released again as far as that can be.
        """
        self.in_conflict = []
        try:
            for partition in sorted(decision):
                if not await self._claim(partition, str(decision[partition])):
                    self.in_conflict.append(PartitionOwnerZnode.path(self._group, *partition))
            self._check_session()
        except Exception:
            await self._roll_back()
            raise
        if self.in_conflict:
            self._counters.conflicts += len(self.in_conflict)
            await self.release()
        return not self.in_conflict

    async def release(self) -> None:
        """Delete all owner nodes of this consumer. Raises `ZkError`s; what is left is deleted by the next call."""
        for partition, session_id in list(self._held.items()):
            path = PartitionOwnerZnode.path(self._group, *partition)
            if session_id is None:
                await self._release_uncertain(path)
            elif session_id == self._zk.session_id:
                self._held[partition] = None  # without an answer, the node may be another's at the retry
                await self._delete(path)
            del self._held[partition]

    async def _claim(self, partition: TopicPartition, thread: str) -> bool:
        path = PartitionOwnerZnode.path(self._group, *partition)
        self._held[partition] = None
        try:
            await make_node(self._zk, path, PartitionOwnerZnode.encode(thread), ephemeral=True)
        except NodeExistsError:
            if not await self._is_ours(path):
                del self._held[partition]
                _log.info("%s waits for the release of %s", thread, partition)
                return False
        self._held[partition] = self._zk.session_id
        return True

    def _check_session(self) -> None:
        for partition, session_id in self._held.items():
            if session_id != self._zk.session_id:
                raise SessionExpiredError(
                    PartitionOwnerZnode.path(self._group, *partition), "the session that claimed it is over"
                )

    async def _is_ours(self, path: str) -> bool:
        """Whether the node was made by this session, by a claim whose answer was lost."""
        stat: Stat | None = await self._zk.exists(path)
        return stat is not None and stat.ephemeral_owner == self._zk.session_id

    async def _release_uncertain(self, path: str) -> None:
        if await self._is_ours(path):
            await self._delete(path)

    async def _delete(self, path: str) -> None:
        try:
            await self._zk.delete(path)
        except NoNodeError:
            return

    async def _roll_back(self) -> None:
        try:
            await self.release()
        except ZkError as error:
            _log.info("claims are not released yet: %s", error)
