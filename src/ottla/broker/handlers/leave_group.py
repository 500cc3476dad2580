"""LeaveGroup (key 13), versions 0-5: members leave, or an administrator removes static ones.

0 to 2: one member, whose error is the response's; 1: throttle time; 3: many members, each with its own error (KIP-345);
4: flexible; 5: reason (KIP-800).
"""

from __future__ import annotations

from functools import partial

from ottla.broker.authorization import Accesses, on_group
from ottla.broker.context import RequestContext
from ottla.cluster.acls import Operation, ResourceType
from ottla.groups.events import LeaveGroup, LeaveResult, LeavingMember
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from ottla.wire.sliced import mapped

FIRST_VERSION_WITH_MANY_MEMBERS = 3
#: Members removed between two slices.
MEMBERS_PER_SLICE = 500


def accesses(context: RequestContext, request: LeaveGroupRequest) -> Accesses:
    return (on_group(Operation.READ, request.group_id),)


def handle(context: RequestContext, request: LeaveGroupRequest) -> None:
    if not context.permits(Operation.READ, ResourceType.GROUP, request.group_id):
        _answer(context, LeaveResult(ErrorCode.GROUP_AUTHORIZATION_FAILED, ()))
        return
    if context.api_version < FIRST_VERSION_WITH_MANY_MEMBERS:
        members = [LeavingMember(request.member_id)]
        context.broker.groups.submit(LeaveGroup(partial(_answer, context), request.group_id, members))
    else:
        context.run(_leave(context, request))


async def _leave(context: RequestContext, request: LeaveGroupRequest) -> None:
    """Remove many members, in parts."""
    answers = _Answers(context)
    leaving: list[LeavingMember] = []
    for member in request.members:
        leaving.append(LeavingMember(member.member_id, member.group_instance_id, member.reason))
        if len(leaving) == MEMBERS_PER_SLICE:
            answers.ask(request.group_id, leaving)
            leaving = []
            await context.broker.slices.point()
    if leaving or not answers.submitted:
        answers.ask(request.group_id, leaving)
    answers.no_more()


class _Answers:
    """Collects the results of the parts of a large LeaveGroup; the last one sends the response."""

    def __init__(self, context: RequestContext) -> None:
        self._context = context
        self._results: dict[int, LeaveResult] = {}
        self.submitted = 0
        self._is_complete = False

    def ask(self, group_id: str, members: list[LeavingMember]) -> None:
        part = self.submitted
        self.submitted += 1
        self._context.broker.groups.submit(LeaveGroup(partial(self._take, part), group_id, members))

    def no_more(self) -> None:
        self._is_complete = True
        self._answer()

    def _take(self, part: int, result: LeaveResult) -> None:
        self._results[part] = result
        self._answer()

    def _answer(self) -> None:
        if not self._is_complete or len(self._results) < self.submitted:
            return
        results = [self._results[part] for part in range(self.submitted)]
        error = next((one.error for one in results if one.error is not ErrorCode.NONE), ErrorCode.NONE)
        _answer(self._context, LeaveResult(error, [member for one in results for member in one.members]))


def _answer(context: RequestContext, result: LeaveResult) -> None:
    if context.api_version >= FIRST_VERSION_WITH_MANY_MEMBERS:
        members = mapped(
            result.members,
            lambda left: MemberResponse(
                member_id=left[0].member_id, group_instance_id=left[0].group_instance_id, error_code=left[1]
            ),
        )
        context.reply_in_slices(LeaveGroupResponse(error_code=result.error, members=members))
        return
    error = result.error
    if error is ErrorCode.NONE and result.members:
        error = result.members[0][1]
    context.reply(LeaveGroupResponse(error_code=error))
