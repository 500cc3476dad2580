"""Groups and their offsets."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from ottla.client.admin.model import GroupListing, MemberToRemove
from ottla.client.admin.outcomes import AdminCalls, Outcomes
from ottla.client.coordinator import GroupCoordinator
from ottla.client.errors import BrokerError, ClientError, InvalidArgumentError
from ottla.client.group_offsets import GroupOffsets, offset_and_metadata
from ottla.client.groups import GroupDescription, Groups
from ottla.client.model import Node, OffsetAndMetadata, TopicPartition
from ottla.peer import arguments
from ottla.peer.arguments import several, several_names, text
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from ottla.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse

V = TypeVar("V")

WITH_STATES = (4, 5)
WITH_TYPES = (5, 5)
"""Versions of ListGroups that filter by states (KIP-518), and by types."""
MANY_MEMBERS = (3, 5)
"""Versions of LeaveGroup that name members (KIP-345)."""
REMOVED_BY_ADMIN = "member was removed by an admin"


class GroupAdmin(AdminCalls):
    """Admin calls about groups."""

    async def list_groups(
        self, *, states: Sequence[str] = (), types: Sequence[str] = (), timeout_ms: int | None = None
    ) -> list[GroupListing]:
        """Return the groups, sorted by id; if given, of `states` ("Stable", "Empty", …) or `types` ("classic", …)."""
        request = ListGroupsRequest(
            states_filter=several_names("states", states), types_filter=several_names("types", types)
        )
        versions = WITH_TYPES if types else WITH_STATES if states else None

        async def list_on(node: Node) -> list[GroupListing]:
            answer: ListGroupsResponse = await self._cluster.request(node.node_id, request, versions=versions)
            if answer.error_code != ErrorCode.NONE:
                raise BrokerError(answer.error_code, f"{node} cannot list its groups")
            return [
                GroupListing(each.group_id, each.protocol_type, each.group_state, each.group_type)
                for each in answer.groups
            ]

        async def attempt() -> list[GroupListing]:
            nodes = (await self._cluster.refresh([])).nodes
            found = await asyncio.gather(*map(list_on, list(nodes.values())))
            return sorted(group for groups in found for group in groups)

        return await self._cluster.retry("listing groups", attempt, timeout_ms)

    async def describe_groups(
        self, group_ids: Iterable[str], *, timeout_ms: int | None = None
    ) -> dict[str, GroupDescription]:
        """Return state, members and their partitions; a group that does not exist has the state "Dead".

        Raises BrokerError, PartlyFailedError for several groups.
        """
        groups = Groups(self._cluster)
        outcomes: Outcomes[str, GroupDescription] = Outcomes("describing groups", several_names("group ids", group_ids))

        async def describe(group_id: str) -> None:
            try:
                outcomes.succeed(group_id, await groups.describe(group_id, timeout_ms))
            except ClientError as error:
                outcomes.fail(group_id, not_retriable(error))

        return await self._each(outcomes, describe, timeout_ms)

    async def delete_groups(self, group_ids: Iterable[str], *, timeout_ms: int | None = None) -> None:
        """Delete groups and their offsets.

        Raises BrokerError (NON_EMPTY_GROUP with members, GROUP_ID_NOT_FOUND), PartlyFailedError.
        """
        groups = Groups(self._cluster)
        outcomes: Outcomes[str, None] = Outcomes("deleting groups", several_names("group ids", group_ids))

        async def delete(group_id: str) -> None:
            try:
                await groups.delete(group_id, timeout_ms)
                outcomes.succeed(group_id, None)
            except ClientError as error:
                outcomes.fail(group_id, not_retriable(error))

        await self._each(outcomes, delete, timeout_ms)

    async def _each(
        self, outcomes: Outcomes[str, V], ask: Callable[[str], Awaitable[None]], timeout_ms: int | None
    ) -> dict[str, V]:
        async def attempt(pending: list[str]) -> None:
            await asyncio.gather(*map(ask, pending))

        return await outcomes.work_off(self._cluster, attempt, timeout_ms)

    async def list_group_offsets(
        self, group_id: str, partitions: Sequence[TopicPartition] | None = None, *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return a group's committed offsets of these partitions, or of all; those without an offset are left out."""
        offsets = GroupOffsets(self._cluster, group_id)
        text("group_id", group_id)
        wanted = None if partitions is None else arguments.partitions(partitions)
        return await offsets.committed(wanted, timeout_ms)

    async def alter_group_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata],
        *,
        timeout_ms: int | None = None,
    ) -> None:
        """Set the offsets of a group without members. Raises BrokerError if it has any: only they may commit then."""
        text("group_id", group_id)
        wanted = {
            each: offset_and_metadata(each, offset)
            for each, offset in arguments.by_partition("offsets (see also delete_group_offsets)", offsets).items()
        }
        await GroupOffsets(self._cluster, group_id).commit_all(wanted, timeout_ms)

    async def delete_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition], *, timeout_ms: int | None = None
    ) -> None:
        """Delete a group's committed offsets of these partitions.

        Raises BrokerError (GROUP_SUBSCRIBED_TO_TOPIC while members are subscribed to the topic), PartlyFailedError.
        """
        offsets = GroupOffsets(self._cluster, group_id)
        text("group_id", group_id)
        wanted = arguments.partitions(partitions)
        outcomes: Outcomes[TopicPartition, None] = Outcomes(f"deleting offsets of group {group_id}", wanted)

        async def attempt(pending: list[TopicPartition]) -> None:
            for partition, code in (await offsets.delete(pending)).items():
                if code == ErrorCode.NONE:
                    outcomes.succeed(partition, None)
                else:
                    what = f"group {group_id}: its offset of {partition} is not deleted"
                    outcomes.fail(partition, not_retriable(BrokerError(code, what)))
            outcomes.check_answered(pending)

        await outcomes.work_off(self._cluster, attempt, timeout_ms)

    async def remove_members_from_group(
        self,
        group_id: str,
        members: Iterable[MemberToRemove | str] | None = None,
        *,
        reason: str = "",
        timeout_ms: int | None = None,
    ) -> None:
        """Remove members by `group.instance.id` (a plain string is one) or member id; all for None.

        Raises BrokerError (UNKNOWN_MEMBER_ID), PartlyFailedError for several members.
        """
        text("group_id", group_id)
        if members is None:
            described = await Groups(self._cluster).describe(group_id, timeout_ms)
            members = [
                MemberToRemove(each.group_instance_id, "" if each.group_instance_id else each.member_id)
                for each in described.members
            ]
        wanted = [_member(each) for each in several("members", members)]
        if not isinstance(reason, str):
            raise InvalidArgumentError(f"the reason is a text, not {reason!r:.80}")
        outcomes: Outcomes[MemberToRemove, None] = Outcomes(f"removing members of group {group_id}", wanted)
        coordinator = GroupCoordinator(self._cluster, group_id)
        why = f"{REMOVED_BY_ADMIN}: {reason}" if reason else REMOVED_BY_ADMIN

        async def attempt(pending: list[MemberToRemove]) -> None:
            leaving = [
                MemberIdentity(member_id=each.member_id, group_instance_id=each.group_instance_id, reason=why)
                for each in pending
            ]
            request = LeaveGroupRequest(group_id=group_id, members=leaving)
            answer: LeaveGroupResponse = await coordinator.ask(request, versions=MANY_MEMBERS)
            coordinator.check(answer.error_code, "its members are not removed")
            # Results are in request order; that of an instance may contain the member id that it had.
            for each, result in zip(pending, answer.members, strict=False):
                gone = result.error_code == ErrorCode.UNKNOWN_MEMBER_ID and each in outcomes.uncertain
                if result.error_code == ErrorCode.NONE or gone:
                    outcomes.succeed(each, None)
                else:
                    named = f"instance {each.group_instance_id}" if each.group_instance_id else each.member_id
                    what = f"group {group_id}: member {named} is not removed"
                    outcomes.fail(each, BrokerError(result.error_code, what))
            outcomes.check_answered(pending)

        await outcomes.work_off(self._cluster, attempt, timeout_ms)


def _member(value: Any) -> MemberToRemove:
    member = MemberToRemove(value) if isinstance(value, str) else value
    if not isinstance(member, MemberToRemove):
        raise InvalidArgumentError(f"a member is a MemberToRemove or a group.instance.id (text), not {value!r:.80}")
    return member


def not_retriable(error: ClientError) -> ClientError:
    """Mark an error as not retriable: the call has made its own retries, or a retry would not change the result."""
    error.retriable = False
    return error
