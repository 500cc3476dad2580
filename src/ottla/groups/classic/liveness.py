"""Heartbeat, LeaveGroup, and expired sessions. Pure."""

from __future__ import annotations

from ottla.groups.classic.membership import GroupMemberState
from ottla.groups.classic.rebalancing import RebalancingGroup, cause_of
from ottla.groups.events import (
    UNKNOWN_MEMBER,
    ErrorResult,
    ExpireMember,
    Heartbeat,
    LeaveGroup,
    LeaveResult,
    LeavingMember,
    Reply,
    RequestRebalance,
    Step,
)
from ottla.groups.evidence import Cause, CauseEntry
from ottla.wire.errors import ErrorCode


class LivenessHandling(RebalancingGroup):
    """Keeping members in a group, and removing them."""

    __slots__ = ()

    def heartbeat(self, member_id: str, group_instance_id: str | None, generation_id: int, now_ms: int) -> ErrorCode:
        """The response to a Heartbeat; the hot path, without a step."""
        member = self.members.get(member_id)
        if member is None or group_instance_id is not None:
            error = self._identity_error(member_id, group_instance_id)
            if error is not None:
                return error
            assert member is not None
        if generation_id != self.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        self.deadlines.set(member_id, now_ms + member.session_timeout_ms)
        answer = self.rules.heartbeat
        if answer is ErrorCode.REBALANCE_IN_PROGRESS and self._recorder is not None:
            self._recorder.member_notified(member_id, now_ms)
        return answer

    def _heartbeat(self, event: Heartbeat, step: Step, now_ms: int) -> None:
        error = self.heartbeat(event.member_id, event.group_instance_id, event.generation_id, now_ms)
        step.replies.append(Reply(event.token, ErrorResult(error)))

    def _leave(self, event: LeaveGroup, step: Step, now_ms: int) -> None:
        results = [(leaving, self._leave_one(leaving, step, now_ms)) for leaving in event.members]
        self._try_complete_join(step, now_ms)
        step.replies.append(Reply(event.token, LeaveResult(ErrorCode.NONE, results)))

    def _leave_one(self, leaving: LeavingMember, step: Step, now_ms: int) -> ErrorCode:
        member_id, instance = leaving.member_id, leaving.group_instance_id
        if member_id == UNKNOWN_MEMBER:
            member = self._static_member(instance) if instance is not None else None
            if member is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
        elif member_id in self.members.pending:
            self._drop_pending(member_id)
            return ErrorCode.NONE
        else:
            error = self._identity_error(member_id, instance)
            if error is not None:
                return error
            member = self.members.get(member_id)
            assert member is not None
        entry = cause_of(Cause.MEMBER_LEFT, member, now_ms, leaving.reason)
        self._remove_and_rebalance([member], [entry], step, now_ms, complete=False)
        return ErrorCode.NONE

    def _session_deadline(self, member_id: str, step: Step, now_ms: int) -> None:
        if member_id in self.members.pending:
            self._drop_pending(member_id)
            self._try_complete_join(step, now_ms)
            return
        member = self.members.get(member_id)
        # A member with a parked request is alive; its deadline is set with the response.
        if member is not None and (member.is_new or (member.join_token is None and member.sync_token is None)):
            self._end_session(member, step, now_ms)

    def _expire_member(self, event: ExpireMember, step: Step, now_ms: int) -> None:
        member = self.members.get(event.member_id)
        if member is not None:
            self._end_session(member, step, now_ms)

    def _end_session(self, member: GroupMemberState, step: Step, now_ms: int) -> None:
        self._remove_and_rebalance([member], [cause_of(Cause.SESSION_EXPIRED, member, now_ms)], step, now_ms)

    def _request_rebalance(self, event: RequestRebalance, step: Step, now_ms: int) -> None:
        if len(self.members):
            self._prepare_rebalance([CauseEntry(Cause.REBALANCE_REQUESTED, now_ms, detail=event.reason)], step, now_ms)
