"""DescribeGroups (key 15): state and members of groups.

Versions: 1 throttle time; 3 authorized operations; 4 static members (KIP-345); 5 flexible.
"""

from __future__ import annotations

from ottla.wire.schema import BOOL, BYTES, INT16, INT32, STRING, Message, Struct, array, field, message, struct


@message(versions=(0, 5), flexible_since=5, api_key=15)
class DescribeGroupsRequest(Message):
    groups: list[str] = field(array(STRING))
    include_authorized_operations: bool = field(BOOL, since=3)


@struct
class DescribedGroupMember(Struct):
    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, since=4, nullable_since=4, default=None, ignorable=True)
    client_id: str = field(STRING)
    client_host: str = field(STRING)
    member_metadata: bytes = field(BYTES)
    member_assignment: bytes = field(BYTES)


@struct
class DescribedGroup(Struct):
    error_code: int = field(INT16)
    group_id: str = field(STRING)
    group_state: str = field(STRING)
    protocol_type: str = field(STRING)
    protocol_data: str = field(STRING)  # The assignor that was chosen.
    members: list[DescribedGroupMember] = field(array(DescribedGroupMember))
    # A bit field; the smallest int32 when not asked for.
    authorized_operations: int = field(INT32, since=3, default=-0x80000000)


@message(versions=(0, 5), flexible_since=5, api_key=15)
class DescribeGroupsResponse(Message):
    throttle_time_ms: int = field(INT32, since=1, ignorable=True)
    groups: list[DescribedGroup] = field(array(DescribedGroup))
