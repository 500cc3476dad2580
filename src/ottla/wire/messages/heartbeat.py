"""Heartbeat (key 12): a member says that it is alive and learns that the group rebalances.

Versions: 1 throttle time; 3 static members (KIP-345); 4 flexible.
"""

from __future__ import annotations

from ottla.wire.schema import INT16, INT32, STRING, Message, field, message


@message(versions=(0, 4), flexible_since=4, api_key=12)
class HeartbeatRequest(Message):
    """A member is alive."""

    group_id: str = field(STRING)
    generation_id: int = field(INT32)
    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, since=3, nullable_since=3, default=None)


@message(versions=(0, 4), flexible_since=4, api_key=12)
class HeartbeatResponse(Message):
    """Success, or REBALANCE_IN_PROGRESS."""

    throttle_time_ms: int = field(INT32, since=1, ignorable=True)
    error_code: int = field(INT16)
