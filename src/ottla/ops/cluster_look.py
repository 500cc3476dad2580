"""Looks at a cluster, one after the other, for its rates.

Each look asks for the metadata, the reassignments, and of each broker for its log directories, the groups that it
coordinates with their committed offsets, and the ends of the logs that it leads. The offsets come before the ends, so
that a commit in between cannot make a lag negative.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Sequence
from typing import TypeVar

from ottla.client.errors import BrokerError, ClientError
from ottla.client.group_offsets import GroupOffsets, fetch_request
from ottla.client.groups import DEAD, EMPTY, Groups
from ottla.client.model import LATEST, Node, TopicPartition
from ottla.client.offsets import list_offsets
from ottla.groups.evidence import EVIDENCE_TOPIC
from ottla.ops.cluster_status import ClusterStatus, read_cluster_status
from ottla.ops.cluster_view import ClusterLook, ClusterRates, DatedOffset, GroupLook, compare
from ottla.ops.rebalances import RebalanceLog, RebalanceRecord
from ottla.peer.cluster import Cluster
from ottla.peer.model import READ_UNCOMMITTED
from ottla.wire.messages.list_groups import ListedGroup
from ottla.wire.messages.offset_fetch import OffsetFetchResponse

MOST_GROUPS = 200
"""Groups that are described at a look, those with members first."""
PARTITIONS_A_REQUEST = 2_000
RATE_WINDOW_MS = 10_000
"""Rates are those of the looks within this time, twice the interval at which consumers commit."""
MOST_LOOKS = 20
EVIDENCE_TIMEOUT_S = 2.0
"""How long a look waits for the evidence of rebalances; without it, that comes with the next look."""

T = TypeVar("T")


class ClusterLooks:
    """The looks at one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._groups = Groups(cluster)
        self._log = RebalanceLog(cluster)
        self._is_following = False
        self._looks: deque[ClusterLook] = deque(maxlen=MOST_LOOKS)

    async def next(self) -> ClusterRates:
        """Look, and compare with the looks before. Raises ClientError where no broker answers."""
        look = await self._look()
        rebalances = await self._rebalances(look.status)
        self._looks.append(look)
        while len(self._looks) > 2 and look.at_ms - self._looks[1].at_ms >= RATE_WINDOW_MS:
            self._looks.popleft()
        return compare(list(self._looks), rebalances)

    async def _look(self) -> ClusterLook:
        cluster = self._cluster
        status = await read_cluster_status(cluster, configs=(), offsets=False)
        nodes = {each.node.node_id: each.node for each in status.brokers}
        known = {**(self._looks[-1].nodes if self._looks else {}), **nodes}
        problems = status.silent
        silent = {each.node.node_id for each in status.brokers if each.problem and not each.is_refusal}

        async def answer_of(node: Node, work: Awaitable[T]) -> T | None:
            try:
                return await work
            except ClientError as error:
                problems.setdefault(node.node_id, str(error))
                if not isinstance(error, BrokerError):
                    silent.add(node.node_id)
                return None

        answering = [each for each in nodes.values() if each.node_id not in silent]
        answers = await asyncio.gather(*(answer_of(each, self._groups.list_on(each)) for each in answering))
        listed = [(node, group) for node, groups in zip(answering, answers, strict=True) for group in groups or ()]
        listed.sort(key=lambda each: (each[1].group_state in (EMPTY, DEAD), each[1].group_id))
        chosen = {node: [group for at, group in listed[:MOST_GROUPS] if at is node] for node in answering}
        described = await asyncio.gather(
            *(answer_of(node, self._describe(node, groups)) for node, groups in chosen.items() if groups)
        )
        leaders = {each: _led(status, each.node_id) for each in answering if each.node_id not in silent}
        ends = await asyncio.gather(*(answer_of(node, self._ends(node, led)) for node, led in leaders.items()))
        return ClusterLook(
            at_ms=cluster.clock.now_ms(),
            status=status,
            nodes=known,
            ends={partition: end for each in ends for partition, end in (each or {}).items()},
            groups={each.group.group_id: each for groups in described for each in groups or ()},
            group_count=len(listed),
            silent=frozenset(silent),
            problems=problems,
        )

    async def _describe(self, node: Node, listed: Sequence[ListedGroup]) -> list[GroupLook]:
        described = await self._groups.describe_listed(node, listed)
        connection = await self._cluster.connection(node.node_id)
        answers = await connection.request_together([fetch_request(each.group_id, None) for each in described])
        at_ms = self._cluster.clock.monotonic_ms()
        return [
            GroupLook(group, self._committed(group.group_id, answer), at_ms)
            for group, answer in zip(described, answers, strict=True)
        ]

    def _committed(self, group: str, answer: OffsetFetchResponse) -> dict[TopicPartition, int] | None:
        try:
            found = GroupOffsets(self._cluster, group).committed_in(answer)
        except BrokerError:  # its coordinator moves, or its offsets may not be read
            return None
        return {partition: each.offset for partition, each in found.items()}

    async def _ends(self, node: Node, led: Sequence[TopicPartition]) -> dict[TopicPartition, DatedOffset]:
        ends: dict[TopicPartition, DatedOffset] = {}
        for start in range(0, len(led), PARTITIONS_A_REQUEST):
            wanted = dict.fromkeys(led[start : start + PARTITIONS_A_REQUEST], LATEST)
            found, _ = await list_offsets(self._cluster, node.node_id, wanted, READ_UNCOMMITTED)
            at_ms = self._cluster.clock.monotonic_ms()
            ends |= {each: DatedOffset(offset.offset, at_ms) for each, offset in found.items() if offset is not None}
        return ends

    async def _rebalances(self, status: ClusterStatus) -> Sequence[RebalanceRecord] | None:
        """Rebalances that ended since the look before; None where the cluster keeps no evidence of them."""
        evidence = next((each for each in status.topics if each.name == EVIDENCE_TOPIC), None)
        if evidence is None:
            self._is_following = True  # from its beginning, when it is made
            return None
        if any(each.is_offline for each in evidence.partitions):
            return []
        try:
            async with asyncio.timeout(EVIDENCE_TIMEOUT_S):
                if self._is_following:
                    return await self._log.follow()
                await self._log.skip_to_end()
                self._is_following = True
        except (ClientError, TimeoutError):
            pass
        return []


def _led(status: ClusterStatus, broker: int) -> list[TopicPartition]:
    return [each.partition for each in status.partitions if each.leader == broker]
