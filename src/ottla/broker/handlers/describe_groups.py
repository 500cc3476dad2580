"""DescribeGroups (key 15), versions 0 to 5: state and members of groups.

1: throttle time; 3: authorized operations (KIP-430); 4: static members (KIP-345); 5: flexible. A group that is not
there is described as Dead, without error; metadata and assignments are shown of stable groups only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.groups.machine import GroupMachine
from ottla.groups.states import GroupState
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext

MIN_VERSION = 0
MAX_VERSION = 5

#: Bits of what everybody may do with a group where nothing is protected: READ (3), DELETE (6), DESCRIBE (8).
GROUP_OPERATIONS = 1 << 3 | 1 << 6 | 1 << 8
NOT_ASKED = -0x80000000


def handle(context: RequestContext, request: DescribeGroupsRequest) -> None:
    """Answer at once."""
    operations = GROUP_OPERATIONS if request.include_authorized_operations else NOT_ASKED
    context.reply(DescribeGroupsResponse(groups=[_described(context, name, operations) for name in request.groups]))


def _described(context: RequestContext, group_id: str, operations: int) -> DescribedGroup:
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


def _members(group: GroupMachine) -> list[DescribedGroupMember]:
    stable = group.state is GroupState.STABLE
    return [
        DescribedGroupMember(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            member_metadata=member.metadata(group.protocol_name) if stable else b"",
            member_assignment=member.assignment if stable else b"",
        )
        for member in group.members
    ]
