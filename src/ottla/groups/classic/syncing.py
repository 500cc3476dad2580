"""SyncGroup: the leader's assignment is written to the log, and then sent to all waiting members. Pure."""

from __future__ import annotations

from ottla.groups.classic.group import SYNC
from ottla.groups.classic.membership import GroupMemberState
from ottla.groups.classic.rebalancing import RebalancingGroup, StagedKind, cause_of
from ottla.groups.classic.states import SyncRule
from ottla.groups.events import Reply, Step, SyncGroup, SyncResult
from ottla.groups.evidence import Cause
from ottla.wire.errors import ErrorCode


class SyncHandling(RebalancingGroup):
    """Handling of SyncGroup."""

    __slots__ = ()

    def _sync(self, event: SyncGroup, step: Step, now_ms: int) -> None:
        error = self._sync_error(event)
        member = self.members.get(event.member_id)
        if error is not None or member is None:
            result = SyncResult(error or ErrorCode.UNKNOWN_MEMBER_ID)
            step.replies.append(Reply(event.token, result))
            return
        rule = self.rules.sync
        if rule is SyncRule.PARK:
            self._park_sync(member, event, step, now_ms)
        elif rule is SyncRule.ANSWER:
            self._synced(member, now_ms)
            self._renew_session(member, now_ms)
            step.replies.append(Reply(event.token, self._sync_result(member)))
            self._answered(member, step, now_ms)
        else:
            error = ErrorCode[rule.value]
            if error is ErrorCode.REBALANCE_IN_PROGRESS and self._recorder is not None:
                self._recorder.member_notified(member.member_id, now_ms)
            step.replies.append(Reply(event.token, SyncResult(error)))

    def _sync_error(self, event: SyncGroup) -> ErrorCode | None:
        error = self._identity_error(event.member_id, event.group_instance_id)
        if error is not None:
            return error
        if event.generation_id != self.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        if event.protocol_type is not None and event.protocol_type != self.protocol_type:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if event.protocol_name is not None and event.protocol_name != self.protocol_name:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return None

    def _park_sync(self, member: GroupMemberState, event: SyncGroup, step: Step, now_ms: int) -> None:
        if member.sync_token is not None:
            step.replies.append(Reply(member.sync_token, SyncResult(ErrorCode.REBALANCE_IN_PROGRESS)))
        member.sync_token = event.token
        self._synced(member, now_ms)
        if self.members.leader != member.member_id:
            return
        assignments = {m.member_id: event.assignments.get(m.member_id, b"") for m in self.members}
        record = self._generation_record(self.members, self.members.leader, assignments)
        self._stage(step, StagedKind.ASSIGNMENT, [record], now_ms)
        for waiting in self.members:
            if waiting.sync_token is not None:
                result = SyncResult(
                    ErrorCode.NONE, self.protocol_type, self.protocol_name, assignments[waiting.member_id]
                )
                step.replies.append(Reply(waiting.sync_token, result))

    def _synced(self, member: GroupMemberState, now_ms: int) -> None:
        self.pending_sync.discard(member.member_id)
        if not self.pending_sync:
            self.deadlines.cancel(SYNC)
        if self._recorder is not None:
            self._recorder.synced(member.member_id, now_ms)

    def _answered(self, member: GroupMemberState, step: Step, now_ms: int) -> None:
        if self._recorder is not None:
            self._recorder.answered(member.member_id, now_ms)
            if not self.pending_sync:
                self._close_recorder(step, now_ms)

    def _sync_deadline(self, step: Step, now_ms: int) -> None:
        """Remove members that joined but never sent SyncGroup."""
        leaving = [member for member in self.members if member.member_id in self.pending_sync]
        causes = [cause_of(Cause.SYNC_TIMEOUT, member, now_ms) for member in leaving]
        self._remove_and_rebalance(leaving, causes, step, now_ms)
