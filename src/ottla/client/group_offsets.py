"""Committed offsets of a consumer group, for those who are not a member of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from ottla.client.cluster import COORDINATOR, Cluster
from ottla.client.errors import BrokerError
from ottla.client.model import Node, TopicPartition
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from ottla.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponse
from ottla.wire.schema import Message

V = TypeVar("V")

GROUP = 0
NO_GENERATION = -1
NO_MEMBER = ""
MOVED = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
MEMBERS_IN_CHARGE = (
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.STALE_MEMBER_EPOCH,
)


class GroupOffsets:
    """The offsets of one group, kept by its coordinator."""

    def __init__(self, cluster: Cluster, group: str) -> None:
        self._cluster = cluster
        self._group = group
        self._coordinator: int | None = None

    async def fetch(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """The committed offset of each partition, -1 where there is none."""
        request = OffsetFetchRequest(
            group_id=self._group,
            topics=[
                OffsetFetchRequestTopic(name=name, partition_indexes=indexes)
                for name, indexes in _by_topic({partition: partition.partition for partition in partitions}).items()
            ],
        )

        async def attempt() -> dict[TopicPartition, int]:
            answer: OffsetFetchResponse = await self._ask(request)
            self._check(answer.error_code, "offsets cannot be read")
            found = dict.fromkeys(partitions, -1)
            for topic in answer.topics:
                for each in topic.partitions:
                    self._check(each.error_code, f"the offset of {topic.name}-{each.partition_index} cannot be read")
                    found[TopicPartition(topic.name, each.partition_index)] = each.committed_offset
            return found

        return await self._cluster.retry(f"reading the offsets of group {self._group}", attempt)

    async def commit(self, offsets: Mapping[TopicPartition, int], metadata: str = "") -> None:
        """Commit for a group without members, or whose members do not commit (generation -1, no member id).

        BrokerError where the group has members: they alone may commit then.
        """
        if not offsets:
            return
        wanted = {
            partition: OffsetCommitRequestPartition(
                partition_index=partition.partition, committed_offset=offset, committed_metadata=metadata
            )
            for partition, offset in offsets.items()
        }
        request = OffsetCommitRequest(
            group_id=self._group,
            generation_id_or_member_epoch=NO_GENERATION,
            member_id=NO_MEMBER,
            topics=[OffsetCommitRequestTopic(name=name, partitions=each) for name, each in _by_topic(wanted).items()],
        )

        async def attempt() -> None:
            answer: OffsetCommitResponse = await self._ask(request)
            for topic in answer.topics:
                for each in topic.partitions:
                    self._check(each.error_code, f"the offset of {topic.name}-{each.partition_index} is not committed")

        await self._cluster.retry(f"committing offsets of group {self._group}", attempt)

    async def _ask(self, request: Message) -> Any:
        if self._coordinator is None:
            self._coordinator = await self._find_coordinator()
        try:
            return await self._cluster.request(self._coordinator, request, purpose=COORDINATOR)
        except BaseException:
            self._coordinator = None
            raise

    async def _find_coordinator(self) -> int:
        request = FindCoordinatorRequest(key=self._group, key_type=GROUP)
        answer: FindCoordinatorResponse = await self._cluster.request_any(request)
        if answer.error_code != ErrorCode.NONE:
            raise BrokerError(answer.error_code, f"group {self._group} has no coordinator", answer.error_message)
        node = Node(answer.node_id, answer.host, answer.port)
        self._cluster.metadata.nodes[node.node_id] = node
        return node.node_id

    def _check(self, code: int, context: str) -> None:
        if code == ErrorCode.NONE:
            return
        if code in MOVED:
            self._coordinator = None
        detail = None
        if code in MEMBERS_IN_CHARGE:
            detail = "the group has active members and only they may commit; stop them, or use another group"
        raise BrokerError(code, f"group {self._group}: {context}", detail)


def _by_topic(values: Mapping[TopicPartition, V]) -> dict[str, list[V]]:
    grouped: dict[str, list[V]] = {}
    for (topic, _), value in values.items():
        grouped.setdefault(topic, []).append(value)
    return grouped
