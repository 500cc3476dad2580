"""DeleteGroups (key 42).

Versions: 2 flexible.
"""

from __future__ import annotations

from ottla.wire.schema import INT16, INT32, STRING, Message, Struct, array, field, message, struct


@message(versions=(0, 2), flexible_since=2, api_key=42)
class DeleteGroupsRequest(Message):
    groups_names: list[str] = field(array(STRING))


@struct
class DeletableGroupResult(Struct):
    group_id: str = field(STRING)
    error_code: int = field(INT16)


@message(versions=(0, 2), flexible_since=2, api_key=42)
class DeleteGroupsResponse(Message):
    throttle_time_ms: int = field(INT32)
    results: list[DeletableGroupResult] = field(array(DeletableGroupResult))
