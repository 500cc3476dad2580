"""The machine of one group: membership, generations, timers. Pure: events and time in, steps out.

Theory of operation. A group goes through generations. Whatever disturbs a generation (a member joins, leaves, expires,
changes what it wants) takes the group to PreparingRebalance, where joins are parked. When every member has joined, or
the one join deadline passes, the next generation begins: all parked joins are answered, the leader's with the members'
metadata, and the group is CompletingRebalance until the leader's SyncGroup brings the assignment. The assignment is
one record of the offsets topic; with it in the log the group is Stable.

What lives only here (parked requests, votes, deadlines, a generation without assignment) changes in `handle`. What the
log knows (a generation's members and assignment, offsets, the end of the group) changes in `replay` alone, which the
shell calls for each record right after it was appended, and for every record of the log when it loads a group. A step
with batches is therefore *staged*: its outcome is prepared, and takes place in `replay`, or in `AppendFailed`.

Rules by state are in `ottla.groups.states`. Source: Apache Kafka 3.9, `kafka.coordinator.group.GroupCoordinator`;
KIP-62, 134, 345, 394, 559, 814. On purpose different: metadata of consumers that cannot be read refuses its member
(`INVALID_REQUEST`), a request that a later one of the same member supersedes is answered (`REBALANCE_IN_PROGRESS`)
instead of never, and a static member that comes back before it gave up what the assignment took from it begins a
rebalance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from typing import Any

from ottla.assign.consumer_protocol import PROTOCOL_TYPE, Malformed, decode_subscription
from ottla.groups.events import (
    UNKNOWN_MEMBER,
    AppendFailed,
    Batch,
    CommitResult,
    DeleteGroup,
    DeleteOffsets,
    DeleteOffsetsResult,
    ErrorResult,
    ExpireOffsets,
    GroupEvent,
    Heartbeat,
    JoinGroup,
    JoinResult,
    LeaveGroup,
    LeaveResult,
    LeavingMember,
    OffsetCommit,
    PartitionsChanged,
    Protocols,
    Reply,
    Step,
    SyncGroup,
    SyncResult,
    TopicsDeleted,
)
from ottla.groups.evidence import Cause, CauseEntry, partition_count_cause, rejoin_cause
from ottla.groups.failures import failed_result, group_write_error
from ottla.groups.group import JOIN, SYNC, Group, GroupLimits
from ottla.groups.invariants import problems
from ottla.groups.membership import MemberState
from ottla.groups.offsets import TopicPartition, metadata_size
from ottla.groups.records import GroupMetadataValue, GroupRecord, LogRecord, OffsetRecord
from ottla.groups.states import GroupState, JoinRule, OffsetDeleteRule, SyncRule
from ottla.wire.errors import ErrorCode

NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000
"""How long a member that is not in a generation yet may wait for its first join to complete."""
TOMBSTONES_PER_BATCH = 500
POSTPONED_JOIN_MS = 100
"""The least time between two attempts to complete a join for which nobody has come."""


class _Kind(Enum):
    """What a staged step is about."""

    ASSIGNMENT = auto()
    STATIC_MEMBER = auto()
    EMPTY = auto()
    COMMIT = auto()
    REMOVAL = auto()


@dataclass(slots=True)
class _Staged:
    """A step whose batches are not in the log yet."""

    step: Step
    kind: _Kind
    now_ms: int
    replaced: MemberState | None = None
    replacement: MemberState | None = None


class GroupMachine(Group):
    """One group, as a machine (DESIGN 3): `handle`, `replay`, `next_deadline_ms`, `expire`, and what tells of it."""

    __slots__ = ("_staged", "_steps")

    def __init__(self, group_id: str, partition: int, limits: GroupLimits) -> None:
        super().__init__(group_id, partition, limits)
        self._staged: _Staged | None = None
        self._steps = 0

    def handle(self, event: GroupEvent, now_ms: int) -> Step:
        """Take in an event; the shell appends the step's batches, replays their records, then sends the replies."""
        step = self._new_step()
        _HANDLERS[type(event)](self, event, step, now_ms)
        return step

    def next_deadline_ms(self) -> int | None:
        """When `expire` wants to be called, None for never."""
        return self.deadlines.next()

    def expire(self, now_ms: int) -> Step:
        """Do what is due. Stops at the first batch: what else is due has its deadline still."""
        step = self._new_step()
        while not step.batches and (name := self.deadlines.pop_due(now_ms)) is not None:
            if name == JOIN:
                self._join_deadline(step, now_ms)
            elif name == SYNC:
                self._sync_deadline(step, now_ms)
            else:
                self._session_deadline(name, step, now_ms)
        return step

    def replay(self, record: LogRecord, log_offset: int) -> None:
        """Take up a record that is in the log."""
        if isinstance(record, OffsetRecord):
            self.offsets.replay((record.topic, record.partition), record.value, log_offset)
        elif record.value is None:
            self._replay_end()
        else:
            self._replay_generation(record.value)

    def loaded(self, now_ms: int) -> Step:
        """The log has been read to its end: every member gets a fresh session deadline."""
        step = self._new_step()
        self._loaded_at_ms = now_ms
        self._tell(now_ms, f"loaded: {self.state.value}, generation {self.generation_id}, {len(self.members)} members")
        for member in self.members:
            self._renew_session(member, now_ms)
        if len(self.members) > self.limits.max_size:
            self._prepare_rebalance([CauseEntry(Cause.GROUP_TOO_LARGE, now_ms)], step, now_ms)
        return step

    def check_invariants(self) -> None:
        """AssertionError with the story where something does not add up."""
        found = problems(self)
        if found:
            raise AssertionError("; ".join(found) + "\n" + self.story())

    def unload(self, now_ms: int) -> Step:
        """Leadership of the partition goes: whoever waits is sent to look for the coordinator again."""
        step = self._new_step()
        self._answer_parked(self.members, ErrorCode.NOT_COORDINATOR, step)
        self._close_recorder(step, now_ms)
        self._enter(GroupState.DEAD, now_ms)
        return step

    # JoinGroup

    def _join(self, event: JoinGroup, step: Step, now_ms: int) -> None:
        limits = self.limits
        is_session_valid = limits.min_session_timeout_ms <= event.session_timeout_ms <= limits.max_session_timeout_ms
        self.is_kept = self.is_kept or is_session_valid
        if not is_session_valid:
            self._refuse_join(event, ErrorCode.INVALID_SESSION_TIMEOUT, step)
        elif not self._has_room_for(event.member_id):
            self._shed(event, step, now_ms)
        elif event.protocol_type == PROTOCOL_TYPE and (problem := _metadata_problem(event.protocols)):
            self._tell(now_ms, f"refused the metadata of {event.member_id or event.client_id}: {problem}")
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
        """Somebody without member id: a static member that came back, or somebody new."""
        instance = event.group_instance_id
        new_member_id = f"{event.client_id if instance is None else instance}-{event.new_id}"
        if instance is not None and (old := self._static_member(instance)) is not None:
            self._replace_static(event, old, new_member_id, step, now_ms)
        elif event.requires_member_id and instance is None:
            self.members.pending.add(new_member_id)
            self.deadlines.set(new_member_id, now_ms + event.session_timeout_ms)
            self._tell(now_ms, f"{new_member_id} shall join again with this id")
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
            self._tell(now_ms, f"{member.member_id} joined again and is answered again")
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
        member = MemberState(
            member_id,
            event.group_instance_id,
            event.client_id,
            event.client_host,
            event.rebalance_timeout_ms,
            event.session_timeout_ms,
            event.protocols,
        )
        member.is_new = True
        # It cannot send heartbeats before it knows its id, and its connection is not watched while its join waits.
        self.deadlines.set(member_id, now_ms + NEW_MEMBER_JOIN_TIMEOUT_MS)
        cause = _cause(Cause.MEMBER_JOINED, member, now_ms, event.reason)
        self._prepare_rebalance([cause], step, now_ms, partial(self.members.add, member))
        self._park_join(member, event.token, step, now_ms)

    def _replace_static(self, event: JoinGroup, old: MemberState, new_member_id: str, step: Step, now_ms: int) -> None:
        """A static member came back under a new id; in Stable that need not disturb the others (KIP-345).

        It does where its old self had partitions to give up: it knows nothing of them, and nobody else would ever
        begin the rebalance that gives them away.
        """
        new = old.replaced_by(new_member_id)
        new.protocols = event.protocols
        new.rebalance_timeout_ms = event.rebalance_timeout_ms
        new.session_timeout_ms = event.session_timeout_ms
        self._answer_parked([old], ErrorCode.FENCED_INSTANCE_ID, step)
        self._tell(now_ms, f"static member {event.group_instance_id}: {new_member_id} in place of {old.member_id}")
        if (
            self.state is GroupState.STABLE
            and self.members.select_protocol((old, new)) == self.protocol_name
            and not self._is_to_give_up(old)
        ):
            leader = new_member_id if self.members.leader == old.member_id else self.members.leader
            present = [new if member is old else member for member in self.members]
            assignments = {member.member_id: member.assignment for member in present}
            record = self._generation_record(present, leader, assignments)
            self._stage(step, _Kind.STATIC_MEMBER, [record], now_ms, replaced=old, replacement=new)
            step.replies.append(Reply(event.token, self._static_join_result(event, old, new, present)))
            return
        cause = _cause(Cause.STATIC_MEMBER_REPLACED, new, now_ms, event.reason)
        self._prepare_rebalance([cause], step, now_ms, partial(self._put_in_place, old, new, now_ms))
        self._park_join(new, event.token, step, now_ms)

    def _put_in_place(self, old: MemberState, new: MemberState, now_ms: int) -> None:
        self.members.replace(old, new)
        self.deadlines.cancel(old.member_id)
        self._renew_session(new, now_ms)
        if old.member_id in self.pending_sync:
            self.pending_sync.remove(old.member_id)
            self.pending_sync.add(new.member_id)

    def _static_join_result(
        self, event: JoinGroup, old: MemberState, new: MemberState, present: Sequence[MemberState]
    ) -> JoinResult:
        """Its place as it was. A leader must not assign anew, since nobody would be told.

        From version 9 on it is told so (KIP-814); before, it is told that its old self leads.
        """
        was_leader = self.members.leader == old.member_id
        result = JoinResult(
            ErrorCode.NONE,
            new.member_id,
            self.generation_id,
            self.protocol_type,
            self.protocol_name,
            self.members.leader or "",
        )
        if event.can_skip_assignment and was_leader:
            result.leader = new.member_id
            result.skip_assignment = True
            result.members = self._joined_members(present)
        return result

    def _shed(self, event: JoinGroup, step: Step, now_ms: int) -> None:
        member = self.members.get(event.member_id)
        if member is not None:
            if self._recorder is not None:
                self._recorder.remove(_cause(Cause.GROUP_TOO_LARGE, member, now_ms))
            self._remove_member(member, step)
        else:
            self._drop_pending(event.member_id)
        self._tell(now_ms, f"no room for {event.member_id or event.client_id}")
        step.replies.append(Reply(event.token, JoinResult(ErrorCode.GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER)))

    def _refuse_join(self, event: JoinGroup, error: ErrorCode, step: Step) -> None:
        step.replies.append(Reply(event.token, JoinResult(error, event.member_id)))

    def _park_join(self, member: MemberState, token: object, step: Step, now_ms: int) -> None:
        superseded = self.members.park_join(member, token)
        if superseded is not None:
            result = JoinResult(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)
            step.replies.append(Reply(superseded, result))
        if self._recorder is not None:
            self._recorder.joined(member.member_id, now_ms)

    def _rejoin_causes(self, member: MemberState, event: JoinGroup, now_ms: int) -> list[CauseEntry]:
        """Why a member that is in the generation wants another."""
        if member.protocols != event.protocols:
            old, new = dict(member.protocols), dict(event.protocols)
            name = self.protocol_name or ""
            cause = Cause.METADATA_CHANGED
            if name in old and name in new:
                cause = rejoin_cause(event.protocol_type, old[name], new[name])
            return [_cause(cause, member, now_ms, event.reason)]
        causes = set(self._partition_changes.values()) or {Cause.LEADER_REJOINED}
        return [_cause(cause, member, now_ms, event.reason) for cause in sorted(causes, key=lambda c: c.value)]

    # The rebalance

    def _prepare_rebalance(
        self,
        causes: Sequence[CauseEntry],
        step: Step,
        now_ms: int,
        change: Callable[[], None] | None = None,
        leaving: Sequence[MemberState] = (),
    ) -> None:
        """Begin a rebalance for `causes`, or note what adds to one that goes on.

        The `change` of the membership takes place, and those `leaving` are removed, when the old generation is over.
        """
        before = self.state
        if before is not GroupState.PREPARING_REBALANCE:
            self._open_recorder(step, now_ms)
            if before is GroupState.COMPLETING_REBALANCE:
                self._void_assignment(ErrorCode.REBALANCE_IN_PROGRESS, leaving, step, now_ms)
            self.deadlines.cancel(SYNC)
            self.pending_sync.clear()
            self._enter(GroupState.PREPARING_REBALANCE, now_ms)
        for entry in causes:
            self._tell(now_ms, f"rebalance: {entry.cause.value} {entry.member_id}")
            if self._recorder is not None:
                self._recorder.add_cause(entry)
        if change is not None:
            change()
        for member in leaving:
            self._remove_member(member, step)
        if before is GroupState.EMPTY:
            delay_ms = self.limits.initial_rebalance_delay_ms
            self._initial_remaining_ms = max(self.members.rebalance_timeout_ms - delay_ms, 0)
            self._new_member_added = False
            self.deadlines.set(JOIN, now_ms + delay_ms)
        elif before is not GroupState.PREPARING_REBALANCE:
            self.deadlines.set(JOIN, now_ms + self.members.rebalance_timeout_ms)

    def _try_complete_join(self, step: Step, now_ms: int) -> None:
        """Complete the join if nobody is missing; the first members of a group wait for the initial delay."""
        if self.state is not GroupState.PREPARING_REBALANCE or step.batches:
            return
        at_ms = self.deadlines.get(JOIN)
        assert at_ms is not None, self.story()
        if at_ms <= now_ms:
            self._join_deadline(step, now_ms)
        elif self._initial_remaining_ms is None and self.members.all_joined:
            self._complete_join(step, now_ms)

    def _join_deadline(self, step: Step, now_ms: int) -> None:
        remaining = self._initial_remaining_ms
        if remaining and self._new_member_added:
            delay_ms = min(self.limits.initial_rebalance_delay_ms, remaining)
            self._initial_remaining_ms = remaining - delay_ms
            self._new_member_added = False
            self.deadlines.set(JOIN, now_ms + delay_ms)
        else:
            self._complete_join(step, now_ms)

    def _complete_join(self, step: Step, now_ms: int) -> None:
        """Begin the next generation with those who joined, and with static members, who may be late."""
        self._initial_remaining_ms = None
        self.deadlines.cancel(JOIN)
        for member in [m for m in self.members if m.join_token is None and not m.is_static]:
            entry = _cause(Cause.REBALANCE_TIMEOUT, member, now_ms)
            if self._recorder is not None:
                self._recorder.add_cause(entry)
                self._recorder.remove(entry)
            self._tell(now_ms, f"{member.member_id} did not join in time")
            self._remove_member(member, step)
        if not len(self.members):
            self._stage(step, _Kind.EMPTY, [self._empty_record(now_ms)], now_ms)
        elif not self.members.elect_joined_leader():
            wait_ms = max(self.members.rebalance_timeout_ms, POSTPONED_JOIN_MS)
            self.deadlines.set(JOIN, now_ms + wait_ms)
            self._tell(now_ms, "nobody joined; waiting for the static members")
        else:
            self._begin_generation(step, now_ms)

    def _begin_generation(self, step: Step, now_ms: int) -> None:
        self.generation_id += 1
        self.protocol_name = self.members.select_protocol()
        assert self.protocol_name is not None, self.story()
        self.subscribed_topics = self._subscribed_topics()
        self._enter(GroupState.COMPLETING_REBALANCE, now_ms)
        if self._recorder is not None:
            self._recorder.joined_at_ms = now_ms
        self._partition_changes.clear()
        for member in self.members:
            token = self.members.take_join(member)
            if token is not None:
                step.replies.append(Reply(token, self._join_result(member)))
            self._renew_session(member, now_ms)
            member.is_new = False
            self.pending_sync.add(member.member_id)
        self.deadlines.set(SYNC, now_ms + self.members.rebalance_timeout_ms)

    def _void_assignment(self, error: ErrorCode, leaving: Sequence[MemberState], step: Step, now_ms: int) -> None:
        """The generation will have no assignment: tell those who wait for it."""
        for member in self.members:
            if member in leaving or member.sync_token is None:
                continue
            step.replies.append(Reply(member.sync_token, SyncResult(error)))
            member.sync_token = None
            self._renew_session(member, now_ms)
            if self._recorder is not None:
                self._recorder.told(member.member_id, now_ms)

    # SyncGroup

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
                self._recorder.told(member.member_id, now_ms)
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

    def _park_sync(self, member: MemberState, event: SyncGroup, step: Step, now_ms: int) -> None:
        if member.sync_token is not None:
            step.replies.append(Reply(member.sync_token, SyncResult(ErrorCode.REBALANCE_IN_PROGRESS)))
        member.sync_token = event.token
        self._synced(member, now_ms)
        if self.members.leader != member.member_id:
            return
        assignments = {m.member_id: event.assignments.get(m.member_id, b"") for m in self.members}
        record = self._generation_record(self.members, self.members.leader, assignments)
        self._stage(step, _Kind.ASSIGNMENT, [record], now_ms)
        for waiting in self.members:
            if waiting.sync_token is not None:
                result = SyncResult(
                    ErrorCode.NONE, self.protocol_type, self.protocol_name, assignments[waiting.member_id]
                )
                step.replies.append(Reply(waiting.sync_token, result))

    def _synced(self, member: MemberState, now_ms: int) -> None:
        self.pending_sync.discard(member.member_id)
        if not self.pending_sync:
            self.deadlines.cancel(SYNC)
        if self._recorder is not None:
            self._recorder.synced(member.member_id, now_ms)

    def _answered(self, member: MemberState, step: Step, now_ms: int) -> None:
        if self._recorder is not None:
            self._recorder.answered(member.member_id, now_ms)
            if not self.pending_sync:
                self._close_recorder(step, now_ms)

    def _sync_deadline(self, step: Step, now_ms: int) -> None:
        """Members that took part in the join but never asked for their assignment are given up."""
        leaving = [member for member in self.members if member.member_id in self.pending_sync]
        causes = [_cause(Cause.SYNC_TIMEOUT, member, now_ms) for member in leaving]
        self._remove_and_rebalance(leaving, causes, step, now_ms)

    # Heartbeat, LeaveGroup, sessions

    def heartbeat(self, member_id: str, group_instance_id: str | None, generation_id: int, now_ms: int) -> ErrorCode:
        """The answer to a Heartbeat; the hot path, without a step."""
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
            self._recorder.told(member_id, now_ms)
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
        entry = _cause(Cause.MEMBER_LEFT, member, now_ms, leaving.reason)
        self._remove_and_rebalance([member], [entry], step, now_ms, complete=False)
        return ErrorCode.NONE

    def _session_deadline(self, member_id: str, step: Step, now_ms: int) -> None:
        if member_id in self.members.pending:
            self._drop_pending(member_id)
            self._try_complete_join(step, now_ms)
            return
        member = self.members.get(member_id)
        if member is None:
            return
        if not member.is_new and (member.join_token is not None or member.sync_token is not None):
            # Who waits for us is alive; its deadline is set anew with the answer.
            return
        self._remove_and_rebalance([member], [_cause(Cause.SESSION_EXPIRED, member, now_ms)], step, now_ms)

    def _remove_and_rebalance(
        self,
        leaving: Sequence[MemberState],
        causes: Sequence[CauseEntry],
        step: Step,
        now_ms: int,
        complete: bool = True,
    ) -> None:
        self._prepare_rebalance(causes, step, now_ms, leaving=leaving)
        if self._recorder is not None:
            for entry in causes:
                self._recorder.remove(entry)
        if complete:
            self._try_complete_join(step, now_ms)

    # Offsets

    def _commit(self, event: OffsetCommit, step: Step, now_ms: int) -> None:
        self.is_kept = True
        error = self._commit_refusal(event, now_ms)
        if error is not None:
            step.replies.append(Reply(event.token, CommitResult([error] * len(event.offsets))))
            return
        limit = self.limits.offset_metadata_max_bytes
        errors: list[ErrorCode] = []
        records: list[LogRecord] = []
        for topic, partition, value in event.offsets:
            if metadata_size(value.metadata) > limit:
                errors.append(ErrorCode.OFFSET_METADATA_TOO_LARGE)
            else:
                errors.append(ErrorCode.NONE)
                records.append(OffsetRecord(self.group_id, topic, partition, value))
        step.replies.append(Reply(event.token, CommitResult(errors)))
        if records:
            self._stage(step, _Kind.COMMIT, records, now_ms)

    def _delete(self, event: DeleteGroup, step: Step, now_ms: int) -> None:
        error = self.rules.delete
        step.replies.append(Reply(event.token, ErrorResult(error)))
        if error is ErrorCode.NONE:
            self._remove_offsets(self.offsets.all_keys(), step, now_ms, is_deleted=True)

    def _delete_offsets(self, event: DeleteOffsets, step: Step, now_ms: int) -> None:
        """Offsets of topics that nobody subscribes to go, and an empty group that is left with none goes with them."""
        is_free = self.rules.delete_offsets is OffsetDeleteRule.DELETE
        if not is_free and self.protocol_type != PROTOCOL_TYPE:
            step.replies.append(Reply(event.token, DeleteOffsetsResult(ErrorCode.NON_EMPTY_GROUP)))
            return
        held = () if is_free else self.subscribed_topics
        errors = [
            ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if held is None or topic in held else ErrorCode.NONE
            for topic, _ in event.partitions
        ]
        step.replies.append(Reply(event.token, DeleteOffsetsResult(ErrorCode.NONE, errors)))
        present = dict.fromkeys(self.offsets.all_keys())
        asked = zip(event.partitions, errors, strict=True)
        keys = list(dict.fromkeys(key for key, error in asked if error is ErrorCode.NONE and key in present))
        self._remove_offsets(keys, step, now_ms)

    def _expire_offsets(self, event: ExpireOffsets, step: Step, now_ms: int) -> None:
        self._remove_offsets(self._expired_offsets(event.retention_ms, now_ms), step, now_ms)

    def _topics_deleted(self, event: TopicsDeleted, step: Step, now_ms: int) -> None:
        self._remove_offsets([key for key in self.offsets.all_keys() if key[0] in event.topics], step, now_ms)

    def _partitions_changed(self, event: PartitionsChanged, step: Step, now_ms: int) -> None:
        """Remember what will make the leader join again, to name it as the cause."""
        for topic, (before, now) in event.counts.items():
            if self.subscribed_topics is not None and topic in self.subscribed_topics and before != now:
                self._partition_changes[topic] = partition_count_cause(before, now)

    def _remove_offsets(
        self, keys: Sequence[TopicPartition], step: Step, now_ms: int, is_deleted: bool = False
    ) -> None:
        """Tombstones for offsets and, when an empty group is left with none, for the group.

        As in Apache Kafka ids that were handed out do not keep it. A group that never had members has no record.
        """
        records: list[LogRecord] = [OffsetRecord(self.group_id, topic, index, None) for topic, index in keys]
        is_last = len(keys) == len(self.offsets.all_keys()) and not self.offsets.has_transactional
        if is_deleted or (is_last and self.state is GroupState.EMPTY):
            for member_id in list(self.members.pending):
                self._drop_pending(member_id)
            self.is_kept = False
            if self.generation_id > 0:
                records.append(GroupRecord(self.group_id, None))
        if records:
            self._stage(step, _Kind.REMOVAL, records, now_ms)

    def _stage(
        self,
        step: Step,
        kind: _Kind,
        records: Sequence[LogRecord],
        now_ms: int,
        replaced: MemberState | None = None,
        replacement: MemberState | None = None,
    ) -> None:
        assert not step.batches, self.story()
        size = TOMBSTONES_PER_BATCH if kind is _Kind.REMOVAL else len(records)
        for start in range(0, len(records), size):
            step.batches.append(Batch(self.partition, records[start : start + size]))
        self._staged = _Staged(step, kind, now_ms, replaced, replacement)

    def _replay_end(self) -> None:
        """The group's tombstone: it was deleted or has expired."""
        staged, self._staged = self._staged, None
        if staged is not None and staged.kind is _Kind.REMOVAL:
            self._enter(GroupState.DEAD, staged.now_ms)
        else:
            self._forget_generation()

    def _replay_generation(self, value: GroupMetadataValue) -> None:
        """A generation as the log has it: the outcome of a staged step, or part of loading."""
        staged, self._staged = self._staged, None
        if staged is None or staged.kind in (_Kind.COMMIT, _Kind.REMOVAL):
            self._restore(value)
        elif staged.kind is _Kind.EMPTY:
            self._become_empty(staged.step, staged.now_ms)
        elif staged.kind is _Kind.STATIC_MEMBER:
            assert staged.replaced is not None
            assert staged.replacement is not None
            # The generation's topics stay as they were, as in Apache Kafka.
            self._put_in_place(staged.replaced, staged.replacement, staged.now_ms)
        else:
            self._become_stable(value, staged)

    def _become_stable(self, value: GroupMetadataValue, staged: _Staged) -> None:
        for written in value.members:
            member = self.members.get(written.member_id)
            assert member is not None, self.story()
            member.assignment = written.assignment
            if member.sync_token is not None and self._recorder is not None:
                self._recorder.answered(member.member_id, staged.now_ms)
            member.sync_token = None
            # The leader's sync is a sign of life of the generation: it renews every member's session (SPEC G3).
            self._renew_session(member, staged.now_ms)
        self._enter(GroupState.STABLE, staged.now_ms)
        if self._recorder is not None:
            self._recorder.stable_at_ms = staged.now_ms
            self._recorder.outcome = "stable"
        if not self.pending_sync:
            self._close_recorder(staged.step, staged.now_ms)

    def _become_empty(self, step: Step, now_ms: int) -> None:
        self.generation_id += 1
        self.protocol_name = None
        self.subscribed_topics = frozenset() if self.protocol_type == PROTOCOL_TYPE else None
        self._enter(GroupState.EMPTY, now_ms)
        if self._recorder is not None:
            self._recorder.outcome = "empty"
            self._close_recorder(step, now_ms)

    def _append_failed(self, event: AppendFailed, step: Step, now_ms: int) -> None:
        """A staged step is not in the log: undo it, and answer with what the log's error means to a client."""
        staged = self._staged
        if staged is None or staged.step.id != event.step_id:
            return
        self._staged = None
        self._tell(now_ms, f"append failed: {event.error.name}")
        if staged.kind is _Kind.EMPTY:
            # Nothing is lost: a coordinator that loads the older generation will see its members expire.
            self._become_empty(step, now_ms)
            step.replies += staged.step.replies
        elif staged.kind is _Kind.ASSIGNMENT:
            if self._recorder is not None:
                self._recorder.outcome = "failed"
            self._void_assignment(group_write_error(event.error), (), step, now_ms)
            self._prepare_rebalance([CauseEntry(Cause.ASSIGNMENT_NOT_WRITTEN, now_ms)], step, now_ms)
        else:
            for reply in staged.step.replies:
                step.replies.append(Reply(reply.token, failed_result(reply.result, event.error)))

    def _new_step(self) -> Step:
        self._steps += 1
        return Step(self._steps, self.group_id)


_HANDLERS: dict[type, Callable[[GroupMachine, Any, Step, int], None]] = {
    JoinGroup: GroupMachine._join,
    SyncGroup: GroupMachine._sync,
    Heartbeat: GroupMachine._heartbeat,
    LeaveGroup: GroupMachine._leave,
    OffsetCommit: GroupMachine._commit,
    DeleteGroup: GroupMachine._delete,
    DeleteOffsets: GroupMachine._delete_offsets,
    ExpireOffsets: GroupMachine._expire_offsets,
    TopicsDeleted: GroupMachine._topics_deleted,
    PartitionsChanged: GroupMachine._partitions_changed,
    AppendFailed: GroupMachine._append_failed,
}


def _cause(cause: Cause, member: MemberState, now_ms: int, detail: str | None = None) -> CauseEntry:
    return CauseEntry(
        cause, now_ms, member.member_id, member.group_instance_id, member.client_id, member.client_host, detail
    )


def _metadata_problem(protocols: Protocols) -> str | None:
    """What is wrong with a consumer's metadata, None where it can be read (DESIGN 7)."""
    for name, metadata in protocols:
        subscription = decode_subscription(metadata)
        if isinstance(subscription, Malformed):
            return f"{name}: {subscription.message}"
    return None
