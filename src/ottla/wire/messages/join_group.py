"""JoinGroup (key 11): become a member of a group, or take part in its next generation.

Versions: 1 rebalance timeout; 2 throttle time; 4 MEMBER_ID_REQUIRED, the first join is answered with the member id
to join with (KIP-394); 5 static members (KIP-345); 6 flexible; 7 protocol type in the response (KIP-559);
8 reason (KIP-800); 9 the response may ask the leader to skip the assignment.
"""

from __future__ import annotations

from ottla.wire.schema import BOOL, BYTES, INT16, INT32, STRING, Message, Struct, array, field, message, struct


@struct
class JoinGroupRequestProtocol(Struct):
    """An assignor that the member supports, with its subscription for it."""

    name: str = field(STRING)
    metadata: bytes = field(BYTES)


@message(versions=(0, 9), flexible_since=6, api_key=11)
class JoinGroupRequest(Message):
    group_id: str = field(STRING)
    session_timeout_ms: int = field(INT32)  # Without a heartbeat for so long the member is dead.
    # How long the others wait for it; -1: the session timeout.
    rebalance_timeout_ms: int = field(INT32, since=1, default=-1, ignorable=True)
    member_id: str = field(STRING)  # Empty in the first join.
    group_instance_id: str | None = field(STRING, since=5, nullable_since=5, default=None)
    protocol_type: str = field(STRING)
    protocols: list[JoinGroupRequestProtocol] = field(array(JoinGroupRequestProtocol))
    reason: str | None = field(STRING, since=8, nullable_since=8, default=None, ignorable=True)


@struct
class JoinGroupResponseMember(Struct):
    """A member with its subscription, for the leader."""

    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, since=5, nullable_since=5, default=None, ignorable=True)
    metadata: bytes = field(BYTES)


@message(versions=(0, 9), flexible_since=6, api_key=11)
class JoinGroupResponse(Message):
    """The generation that began; `members` is filled for the leader only."""

    throttle_time_ms: int = field(INT32, since=2, ignorable=True)
    error_code: int = field(INT16)
    generation_id: int = field(INT32, default=-1)
    protocol_type: str | None = field(STRING, since=7, nullable_since=7, default=None, ignorable=True)
    protocol_name: str | None = field(STRING, nullable_since=7)  # The assignor that was chosen.
    leader: str = field(STRING)  # Member id of the member that assigns.
    skip_assignment: bool = field(BOOL, since=9)
    member_id: str = field(STRING)
    members: list[JoinGroupResponseMember] = field(array(JoinGroupResponseMember))
