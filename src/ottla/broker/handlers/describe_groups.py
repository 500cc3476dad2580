"""DescribeGroups (key 15), versions 0-5: state and members of groups.

1 adds the throttle time; 3 authorized operations (KIP-430); 4 static members (KIP-345); 5 is flexible. An unknown group
is described as Dead, without error; metadata and assignments are returned for stable groups only.
"""

from __future__ import annotations

from typing import Any

from ottla.broker.authorization import AUTHORIZED_OPERATIONS_OMITTED, Accesses, on_group
from ottla.broker.context import RequestContext
from ottla.cluster.acls import Operation, ResourceType
from ottla.groups.classic.states import GroupState
from ottla.groups.view import GroupView
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from ottla.wire.sliced import mapped


def accesses(context: RequestContext, request: DescribeGroupsRequest) -> Accesses:
    return (on_group(Operation.DESCRIBE, name) for name in request.groups)


def handle(context: RequestContext, request: DescribeGroupsRequest) -> None:
    """Describe each group, once even if it is named repeatedly."""
    context.run(_describe(context, request))


async def _describe(context: RequestContext, request: DescribeGroupsRequest) -> None:
    wants_operations = request.include_authorized_operations
    names = await context.broker.slices.distinct(request.groups, None)
    await context.replied(
        DescribeGroupsResponse(groups=mapped(names, lambda name: _described(context, name, wants_operations)))
    )
    await context.broker.slices.empty(names)


def _described(context: RequestContext, group_id: str, wants_operations: bool) -> DescribedGroup:
    if not context.permits(Operation.DESCRIBE, ResourceType.GROUP, group_id):
        return DescribedGroup(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED, group_id=group_id)
    operations = AUTHORIZED_OPERATIONS_OMITTED
    if wants_operations:
        operations = context.authorized_operations(ResourceType.GROUP, group_id)
    found = context.broker.groups.describe(group_id)
    if isinstance(found, ErrorCode):
        return DescribedGroup(error_code=found, group_id=group_id, authorized_operations=operations)
    if found is None:
        state = GroupState.DEAD.value
        return DescribedGroup(group_id=group_id, group_state=state, authorized_operations=operations)
    return DescribedGroup(
        group_id=group_id,
        group_state=found.state.value,
        protocol_type=found.protocol_type or "",
        protocol_data=(found.protocol_name or "") if found.state is GroupState.STABLE else "",
        members=_members(found),
        authorized_operations=operations,
    )


def _members(group: GroupView) -> Any:
    stable = group.state is GroupState.STABLE
    protocol_name = group.protocol_name
    return mapped(
        list(group.members),
        lambda member: DescribedGroupMember(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            member_metadata=member.metadata(protocol_name) if stable else b"",
            member_assignment=member.assignment if stable else b"",
        ),
    )
