"""LeaveGroup (key 13), versions 0 to 5: members leave, or an administrator removes static ones.

0 to 2: one member, whose error is that of the answer; 1: throttle time; 3: many members, each with an error of its
own (KIP-345); 4: flexible; 5: reason (KIP-800).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ottla.groups.events import LeaveGroup, LeaveResult, LeavingMember
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext

MIN_VERSION = 0
MAX_VERSION = 5

FIRST_VERSION_WITH_MANY_MEMBERS = 3


def handle(context: RequestContext, request: LeaveGroupRequest) -> None:
    """Let the members go."""
    if context.api_version >= FIRST_VERSION_WITH_MANY_MEMBERS:
        members = [LeavingMember(m.member_id, m.group_instance_id, m.reason) for m in request.members]
    else:
        members = [LeavingMember(request.member_id)]
    context.broker.groups.submit(LeaveGroup(partial(_answer, context), request.group_id, members))


def _answer(context: RequestContext, result: LeaveResult) -> None:
    if context.api_version >= FIRST_VERSION_WITH_MANY_MEMBERS:
        members = [
            MemberResponse(member_id=m.member_id, group_instance_id=m.group_instance_id, error_code=error)
            for m, error in result.members
        ]
        context.reply(LeaveGroupResponse(error_code=result.error, members=members))
        return
    error = result.error
    if error is ErrorCode.NONE and result.members:
        error = result.members[0][1]
    context.reply(LeaveGroupResponse(error_code=error))
