"""Admin calls about groups: list, describe, delete. For any Kafka cluster, over the wire."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ottla.assign.consumer_protocol import (
    PROTOCOL_TYPE,
    Assignment,
    Subscription,
    decode_assignment,
    decode_subscription,
)
from ottla.client.coordinator import GroupCoordinator
from ottla.client.errors import BrokerError
from ottla.client.model import Node, TopicPartition
from ottla.peer.cluster import Cluster
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from ottla.wire.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from ottla.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

EMPTY = "Empty"
DEAD = "Dead"
"""State of a group that does not exist."""
CLASSIC = "classic"

GROUPS_PER_REQUEST = 100


@dataclass(slots=True, frozen=True)
class GroupMember:
    """A member; its subscription and assignment are decoded as far as possible, in a stable group."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    partitions: tuple[TopicPartition, ...]
    subscribed_topics: tuple[str, ...]


@dataclass(slots=True, frozen=True)
class GroupDescription:
    """A group and its members; `assignor` is empty unless the group is stable."""

    group_id: str
    state: str
    protocol_type: str
    assignor: str
    coordinator: Node
    members: tuple[GroupMember, ...]
    group_type: str = CLASSIC

    @property
    def is_active(self) -> bool:
        """Whether it has members; then only they may commit offsets."""
        return self.state not in (EMPTY, DEAD)

    @property
    def member_count(self) -> int | None:
        """Its members; None of a group with the consumer protocol (KIP-848), whose members are not described here."""
        return None if self.is_active and not self.members and self.group_type != CLASSIC else len(self.members)


class Groups:
    """Admin calls about groups."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def list_all(self) -> list[GroupDescription]:
        """Return all groups of the cluster, sorted by id, described by their coordinators."""
        return await self._cluster.retry("listing groups", self._list_all)

    async def _list_all(self) -> list[GroupDescription]:
        metadata = await self._cluster.refresh([])

        async def all_of(node: Node) -> list[GroupDescription]:
            return await self.describe_listed(node, await self.list_on(node))

        found = await asyncio.gather(*map(all_of, list(metadata.nodes.values())))
        return sorted((group for groups in found for group in groups), key=lambda group: group.group_id)

    async def list_on(self, node: Node) -> list[ListedGroup]:
        """Ask a broker for the groups that it coordinates."""
        answer: ListGroupsResponse = await self._cluster.request(node.node_id, ListGroupsRequest())
        if answer.error_code != ErrorCode.NONE:
            raise BrokerError(answer.error_code, f"{node} cannot list its groups")
        return answer.groups

    async def describe_listed(self, node: Node, groups: Sequence[ListedGroup]) -> list[GroupDescription]:
        """Describe groups that this broker has listed."""
        listed = {each.group_id: each for each in groups}
        names = list(listed)
        described: list[GroupDescription] = []
        for first in range(0, len(names), GROUPS_PER_REQUEST):
            request = DescribeGroupsRequest(groups=names[first : first + GROUPS_PER_REQUEST])
            result: DescribeGroupsResponse = await self._cluster.request(node.node_id, request)
            for group in result.groups:
                if group.error_code not in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND):
                    raise BrokerError(group.error_code, f"group {group.group_id} cannot be described")
                found = _described(group, node, listed[group.group_id].group_type or CLASSIC)
                # Groups of the consumer protocol (KIP-848) are listed, but DescribeGroups reports them as dead.
                if found.state == DEAD:
                    found = replace(found, state=listed[group.group_id].group_state or DEAD)
                described.append(found)
        return described

    async def describe(self, group_id: str, timeout_ms: int | None = None) -> GroupDescription:
        """Return state and members; a group that does not exist is `DEAD`."""
        coordinator = GroupCoordinator(self._cluster, group_id)

        async def attempt() -> GroupDescription:
            answer: DescribeGroupsResponse = await coordinator.ask(DescribeGroupsRequest(groups=[group_id]))
            for group in answer.groups:
                if group.error_code != ErrorCode.GROUP_ID_NOT_FOUND:
                    coordinator.check(group.error_code, "it cannot be described")
                return _described(group, await coordinator.node(), CLASSIC)
            raise BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, f"group {group_id} is left out of the answer")

        return await self._cluster.retry(f"describing group {group_id}", attempt, timeout_ms)

    async def find(self, group_id: str) -> GroupDescription:
        """As `describe`, and the state of a group with the consumer protocol (KIP-848), which is described as dead."""
        found = await self.describe(group_id)
        if found.state != DEAD:
            return found
        listed = [each for each in await self.list_on(found.coordinator) if each.group_id == group_id]
        return next(iter(await self.describe_listed(found.coordinator, listed)), found)

    async def describe_each(self, group_ids: Sequence[str]) -> list[GroupDescription]:
        """Return the descriptions of several groups, in their order."""
        return list(await asyncio.gather(*map(self.describe, group_ids)))

    async def delete(self, group_id: str, timeout_ms: int | None = None) -> None:
        """Delete a group and its offsets. Raises BrokerError if it has members (NON_EMPTY_GROUP) or does not exist."""
        coordinator = GroupCoordinator(self._cluster, group_id)
        attempts = 0

        async def attempt() -> None:
            nonlocal attempts
            attempts += 1
            answer: DeleteGroupsResponse = await coordinator.ask(DeleteGroupsRequest(groups_names=[group_id]))
            for result in answer.results:
                if result.error_code == ErrorCode.GROUP_ID_NOT_FOUND and attempts > 1:
                    return  # deleted by an earlier attempt, whose response was lost
                coordinator.check(result.error_code, "it is not deleted")

        await self._cluster.retry(f"deleting group {group_id}", attempt, timeout_ms)


def _described(group: DescribedGroup, coordinator: Node, group_type: str) -> GroupDescription:
    is_consumer = group.protocol_type == PROTOCOL_TYPE
    return GroupDescription(
        group_id=group.group_id,
        state=group.group_state or DEAD,
        protocol_type=group.protocol_type,
        assignor=group.protocol_data,
        coordinator=coordinator,
        members=tuple(_member(each, is_consumer) for each in group.members),
        group_type=group_type,
    )


def _member(member: DescribedGroupMember, is_consumer: bool) -> GroupMember:
    assignment = decode_assignment(member.member_assignment) if is_consumer else None
    subscription = decode_subscription(member.member_metadata) if is_consumer else None
    partitions: list[TopicPartition] = []
    if isinstance(assignment, Assignment):
        partitions = [
            TopicPartition(topic, each) for topic, indexes in assignment.partitions.items() for each in indexes
        ]
    return GroupMember(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        # Java's brokers include the leading slash of InetAddress.
        client_host=member.client_host.removeprefix("/"),
        partitions=tuple(sorted(partitions)),
        subscribed_topics=tuple(sorted(subscription.topics)) if isinstance(subscription, Subscription) else (),
    )
