"""SyncGroup (key 14), versions 0 to 5: the leader hands in the assignment, every member gets its part.

1: throttle time; 3: static members (KIP-345); 4: flexible; 5: protocol type and name, which must be the group's
(KIP-559).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ottla.groups.events import SyncGroup, SyncResult
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext

MIN_VERSION = 0
MAX_VERSION = 5

FIRST_VERSION_WITH_PROTOCOL = 5


def handle(context: RequestContext, request: SyncGroupRequest) -> None:
    """Hand the sync to its group; the answer comes with the assignment."""
    lacks_protocol = request.protocol_type is None or request.protocol_name is None
    if context.api_version >= FIRST_VERSION_WITH_PROTOCOL and lacks_protocol:
        _answer(context, SyncResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        return
    context.broker.groups.submit(
        SyncGroup(
            token=partial(_answer, context),
            group_id=request.group_id,
            generation_id=request.generation_id,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignments={entry.member_id: entry.assignment for entry in request.assignments},
        )
    )


def _answer(context: RequestContext, result: SyncResult) -> None:
    context.reply(
        SyncGroupResponse(
            error_code=result.error,
            protocol_type=result.protocol_type,
            protocol_name=result.protocol_name,
            assignment=result.assignment,
        )
    )
