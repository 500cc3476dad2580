"""SyncGroup (key 14), versions 0-5: the leader submits the assignment, every member receives its part.

1 adds the throttle time; 3 static members (KIP-345); 4 is flexible; 5 adds protocol type and name, which must be the
group's (KIP-559).
"""

from __future__ import annotations

from functools import partial

from ottla.broker.authorization import Accesses, on_group
from ottla.broker.context import RequestContext
from ottla.cluster.acls import Operation, ResourceType
from ottla.groups.events import SyncGroup, SyncResult
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

FIRST_VERSION_WITH_PROTOCOL = 5
#: Assignments processed between two slices.
ASSIGNMENTS_PER_SLICE = 64


def accesses(context: RequestContext, request: SyncGroupRequest) -> Accesses:
    return (on_group(Operation.READ, request.group_id),)


def handle(context: RequestContext, request: SyncGroupRequest) -> None:
    """Pass the sync to its group; the response is sent with the assignment."""
    lacks_protocol = request.protocol_type is None or request.protocol_name is None
    if context.api_version >= FIRST_VERSION_WITH_PROTOCOL and lacks_protocol:
        _answer(context, SyncResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        return
    if not context.permits(Operation.READ, ResourceType.GROUP, request.group_id):
        _answer(context, SyncResult(ErrorCode.GROUP_AUTHORIZATION_FAILED))
        return
    context.run(_sync(context, request))


async def _sync(context: RequestContext, request: SyncGroupRequest) -> None:
    assignments: dict[str, bytes] = {}
    for number, entry in enumerate(request.assignments):
        assignments[entry.member_id] = entry.assignment
        if number % ASSIGNMENTS_PER_SLICE == 0:
            await context.broker.slices.point()
    context.broker.groups.submit(
        SyncGroup(
            token=partial(_answer, context),
            group_id=request.group_id,
            generation_id=request.generation_id,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignments=assignments,
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
