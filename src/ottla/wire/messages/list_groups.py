"""ListGroups (key 16): the groups that a broker coordinates.

Versions: 1 throttle time; 3 flexible; 4 filter by state (KIP-518); 5 filter by type (KIP-848).
"""

from __future__ import annotations

from ottla.wire.schema import INT16, INT32, STRING, Message, Struct, array, field, message, struct


@message(versions=(0, 5), flexible_since=3, api_key=16)
class ListGroupsRequest(Message):
    """Which groups; empty filters let all pass."""

    states_filter: list[str] = field(array(STRING), since=4)
    types_filter: list[str] = field(array(STRING), since=5)


@struct
class ListedGroup(Struct):
    group_id: str = field(STRING)
    protocol_type: str = field(STRING)
    group_state: str = field(STRING, since=4, ignorable=True)
    group_type: str = field(STRING, since=5, ignorable=True)


@message(versions=(0, 5), flexible_since=3, api_key=16)
class ListGroupsResponse(Message):
    throttle_time_ms: int = field(INT32, since=1, ignorable=True)
    error_code: int = field(INT16)
    groups: list[ListedGroup] = field(array(ListedGroup))
