"""JoinGroup: new members, rejoining members, and restarted static members. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ottla.assign.consumer_protocol import PROTOCOL_TYPE, Malformed, decode_subscription
from ottla.groups.classic.membership import GroupMemberState
from ottla.groups.classic.rebalancing import RebalancingGroup, StagedKind, cause_of
from ottla.groups.classic.states import GroupState, JoinRule
from ottla.groups.events import UNKNOWN_MEMBER, JoinGroup, JoinResult, Protocols, Reply, Step
from ottla.groups.evidence import Cause, CauseEntry, rejoin_cause
from ottla.wire.errors import ErrorCode

NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000
"""How long a member that is not in a generation yet may wait for its first join to complete."""


class JoinHandling(RebalancingGroup):
    """Handling of JoinGroup."""

    __slots__ = ()

    def _join(self, event: JoinGroup, step: Step, now_ms: int) -> None:
        limits = self.limits
        is_session_valid = limits.min_session_timeout_ms <= event.session_timeout_ms <= limits.max_session_timeout_ms
        self.is_registered = self.is_registered or is_session_valid
        if not is_session_valid:
            self._refuse_join(event, ErrorCode.INVALID_SESSION_TIMEOUT, step)
        elif not self._has_room_for(event.member_id):
            self._shed(event, step, now_ms)
        elif event.protocol_type == PROTOCOL_TYPE and (problem := _metadata_problem(event.protocols)):
            self._note(now_ms, f"refused the metadata of {event.member_id or event.client_id}: {problem}")
            self._refuse_join(event, ErrorCode.INVALID_REQUEST, step)
        elif not self._supports(event.protocol_type, event.protocols):
            self._refuse_join(event, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, step)
        elif event.member_id == UNKNOWN_MEMBER:
            self._join_unknown(event, step, now_ms)
        elif event.member_id in self.members.pending:
            self._add_member(event, event.member_id, step, now_ms)
        elif (error := self._identity_error(event.member_id, event.group_instance_id)) is not None:
            self._refuse_join(event, error, step)
        else:
            self._join_known(event, step, now_ms)
        self._try_complete_join(step, now_ms)

    def _join_unknown(self, event: JoinGroup, step: Step, now_ms: int) -> None:
        """Handle a join without member id: of a static member that came back, or of a new member."""
        instance = event.group_instance_id
        new_member_id = f"{event.client_id if instance is None else instance}-{event.new_id}"
        if instance is not None and (old := self._static_member(instance)) is not None:
            self._replace_static(event, old, new_member_id, step, now_ms)
        elif event.requires_member_id and instance is None:
            self.members.pending.add(new_member_id)
            self.deadlines.set(new_member_id, now_ms + event.session_timeout_ms)
            self._note(now_ms, f"{new_member_id} shall join again with this id")
            step.replies.append(Reply(event.token, JoinResult(ErrorCode.MEMBER_ID_REQUIRED, new_member_id)))
        else:
            self._add_member(event, new_member_id, step, now_ms)

    def _join_known(self, event: JoinGroup, step: Step, now_ms: int) -> None:
        member = self.members.get(event.member_id)
        assert member is not None
        rule = self.rules.join
        unchanged = member.protocols == event.protocols
        is_leader = self.members.leader == member.member_id
        if rule is JoinRule.REFUSE:
            self._refuse_join(event, ErrorCode.UNKNOWN_MEMBER_ID, step)
        elif unchanged and (rule is JoinRule.RESEND or (rule is JoinRule.RESEND_TO_FOLLOWER and not is_leader)):
            self._note(now_ms, f"{member.member_id} joined again and is answered again")
            step.replies.append(Reply(event.token, self._join_result(member)))
        else:
            causes = [] if rule is JoinRule.PARK else self._rejoin_causes(member, event, now_ms)
            said = (event.protocols, event.rebalance_timeout_ms, event.session_timeout_ms)
            self._prepare_rebalance(causes, step, now_ms, partial(self.members.update, member, *said))
            self._park_join(member, event.token, step, now_ms)

    def _add_member(self, event: JoinGroup, member_id: str, step: Step, now_ms: int) -> None:
        if self.state is GroupState.PREPARING_REBALANCE and self.generation_id == 0:
            self._new_member_added = True
        if not len(self.members):
            self.protocol_type = event.protocol_type
        member = GroupMemberState(
            member_id,
            event.group_instance_id,
            event.client_id,
            event.client_host,
            event.rebalance_timeout_ms,
            event.session_timeout_ms,
            event.protocols,
        )
        member.is_new = True
        # It cannot send heartbeats before it has its id, and its connection is not watched while its join is parked.
        self.deadlines.set(member_id, now_ms + NEW_MEMBER_JOIN_TIMEOUT_MS)
        cause = cause_of(Cause.MEMBER_JOINED, member, now_ms, event.reason)
        self._prepare_rebalance([cause], step, now_ms, partial(self.members.add, member))
        self._park_join(member, event.token, step, now_ms)

    def _replace_static(
        self, event: JoinGroup, old: GroupMemberState, new_member_id: str, step: Step, now_ms: int
    ) -> None:
        """Replace a static member that came back under a new id; in Stable this need not disturb the others (KIP-345).

        It does if its previous incarnation had partitions to revoke: the new one does not know them, and no other
        member would begin the rebalance that reassigns them.
        """
        new = old.replaced_by(new_member_id)
        new.protocols = event.protocols
        new.rebalance_timeout_ms = event.rebalance_timeout_ms
        new.session_timeout_ms = event.session_timeout_ms
        self._answer_parked([old], ErrorCode.FENCED_INSTANCE_ID, step)
        self._note(now_ms, f"static member {event.group_instance_id}: {new_member_id} in place of {old.member_id}")
        if (
            self.state is GroupState.STABLE
            and self.members.select_protocol((old, new)) == self.protocol_name
            and not self._is_to_give_up(old)
        ):
            leader = new_member_id if self.members.leader == old.member_id else self.members.leader
            present = [new if member is old else member for member in self.members]
            assignments = {member.member_id: member.assignment for member in present}
            record = self._generation_record(present, leader, assignments)
            self._stage(step, StagedKind.STATIC_MEMBER, [record], now_ms, (old, new))
            step.replies.append(Reply(event.token, self._static_join_result(event, old, new, present)))
            return
        cause = cause_of(Cause.STATIC_MEMBER_REPLACED, new, now_ms, event.reason)
        self._prepare_rebalance([cause], step, now_ms, partial(self._put_in_place, old, new, now_ms))
        self._park_join(new, event.token, step, now_ms)

    def _static_join_result(
        self, event: JoinGroup, old: GroupMemberState, new: GroupMemberState, present: Sequence[GroupMemberState]
    ) -> JoinResult:
        """The response with its unchanged place in the group. A leader must not reassign: no member would be notified.

        From version 9 on the response says so (KIP-814); before, it names the previous member id as the leader.
        """
        result = self._join_result(new)
        if event.can_skip_assignment and self.members.leader == old.member_id:
            result.leader = new.member_id
            result.skip_assignment = True
            result.members = self._joined_members(present)
        return result

    def _shed(self, event: JoinGroup, step: Step, now_ms: int) -> None:
        member = self.members.get(event.member_id)
        if member is not None:
            if self._recorder is not None:
                self._recorder.remove(cause_of(Cause.GROUP_TOO_LARGE, member, now_ms))
            self._remove_member(member, step)
        else:
            self._drop_pending(event.member_id)
        self._note(now_ms, f"no room for {event.member_id or event.client_id}")
        step.replies.append(Reply(event.token, JoinResult(ErrorCode.GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER)))

    def _refuse_join(self, event: JoinGroup, error: ErrorCode, step: Step) -> None:
        step.replies.append(Reply(event.token, JoinResult(error, event.member_id)))

    def _park_join(self, member: GroupMemberState, token: object, step: Step, now_ms: int) -> None:
        superseded = self.members.park_join(member, token)
        if superseded is not None:
            step.replies.append(Reply(superseded, JoinResult(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)))
        if self._recorder is not None:
            self._recorder.joined(member.member_id, now_ms)

    def _rejoin_causes(self, member: GroupMemberState, event: JoinGroup, now_ms: int) -> list[CauseEntry]:
        """Why a member of the generation needs a rebalance."""
        if member.protocols != event.protocols:
            old, new = dict(member.protocols), dict(event.protocols)
            name = self.protocol_name or ""
            cause = Cause.METADATA_CHANGED
            if name in old and name in new:
                cause = rejoin_cause(event.protocol_type, old[name], new[name])
            return [cause_of(cause, member, now_ms, event.reason)]
        causes = set(self._partition_changes.values()) or {Cause.LEADER_REJOINED}
        return [cause_of(cause, member, now_ms, event.reason) for cause in sorted(causes, key=lambda c: c.value)]


def _metadata_problem(protocols: Protocols) -> str | None:
    """The problem with a consumer's metadata, None if it can be parsed."""
    for name, metadata in protocols:
        subscription = decode_subscription(metadata)
        if isinstance(subscription, Malformed):
            return f"{name}: {subscription.message}"
    return None
