"""SyncGroup (key 14): the leader hands in the assignment, every member gets its part.

Versions: 1 throttle time; 3 static members (KIP-345); 4 flexible; 5 protocol type and name (KIP-559).
"""

from __future__ import annotations

from ottla.wire.schema import BYTES, INT16, INT32, STRING, Message, Struct, array, field, message, struct


@struct
class SyncGroupRequestAssignment(Struct):
    member_id: str = field(STRING)
    assignment: bytes = field(BYTES)


@message(versions=(0, 5), flexible_since=4, api_key=14)
class SyncGroupRequest(Message):
    """A member asks for its part; the leader brings everybody's."""

    group_id: str = field(STRING)
    generation_id: int = field(INT32)
    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, since=3, nullable_since=3, default=None)
    protocol_type: str | None = field(STRING, since=5, nullable_since=5, default=None, ignorable=True)
    protocol_name: str | None = field(STRING, since=5, nullable_since=5, default=None, ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = field(array(SyncGroupRequestAssignment))


@message(versions=(0, 5), flexible_since=4, api_key=14)
class SyncGroupResponse(Message):
    throttle_time_ms: int = field(INT32, since=1, ignorable=True)
    error_code: int = field(INT16)
    protocol_type: str | None = field(STRING, since=5, nullable_since=5, default=None, ignorable=True)
    protocol_name: str | None = field(STRING, since=5, nullable_since=5, default=None, ignorable=True)
    assignment: bytes = field(BYTES)
