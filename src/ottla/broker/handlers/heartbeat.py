"""Heartbeat (key 12), versions 0-4: renews a member's session; the error says whether the group rebalances.

1 adds the throttle time; 3 static members (KIP-345); 4 is flexible.
"""

from __future__ import annotations

from ottla.broker.authorization import Accesses, on_group
from ottla.broker.context import RequestContext
from ottla.cluster.acls import Operation, ResourceType
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


def accesses(context: RequestContext, request: HeartbeatRequest) -> Accesses:
    return (on_group(Operation.READ, request.group_id),)


def handle(context: RequestContext, request: HeartbeatRequest) -> None:
    if not context.permits(Operation.READ, ResourceType.GROUP, request.group_id):
        context.reply(HeartbeatResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED))
        return
    error = context.broker.groups.heartbeat(
        request.group_id, request.member_id, request.group_instance_id, request.generation_id
    )
    context.reply(HeartbeatResponse(error_code=error))
