"""LeaveGroup (key 13): members leave, or are removed by an administrator.

Versions: 1 throttle time; 3 many members at once, by member id or instance id (KIP-345); 4 flexible;
5 reason (KIP-800).
"""

from __future__ import annotations

from ottla.wire.schema import INT16, INT32, STRING, Message, Struct, array, field, message, struct


@struct
class MemberIdentity(Struct):
    member_id: str = field(STRING, since=3)
    group_instance_id: str | None = field(STRING, since=3, nullable_since=3, default=None)
    reason: str | None = field(STRING, since=5, nullable_since=5, default=None, ignorable=True)


@message(versions=(0, 5), flexible_since=4, api_key=13)
class LeaveGroupRequest(Message):
    group_id: str = field(STRING)
    member_id: str = field(STRING, until=2)
    members: list[MemberIdentity] = field(array(MemberIdentity), since=3)


@struct
class MemberResponse(Struct):
    member_id: str = field(STRING, since=3)
    group_instance_id: str | None = field(STRING, since=3, nullable_since=3, default=None)
    error_code: int = field(INT16, since=3)


@message(versions=(0, 5), flexible_since=4, api_key=13)
class LeaveGroupResponse(Message):
    throttle_time_ms: int = field(INT32, since=1, ignorable=True)
    error_code: int = field(INT16)
    members: list[MemberResponse] = field(array(MemberResponse), since=3)
