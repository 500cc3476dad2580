"""The state machine of one group: membership, generations, timers. Pure: events and time in, steps out.

Theory of operation. A group goes through generations. A change of membership or metadata (a member joins, leaves,
expires, or changes its subscription) moves the group to PreparingRebalance, where joins are parked. When every member
has joined, or the join deadline passes, the next generation begins: all parked joins are answered, the leader's with
the members' metadata, and the group is CompletingRebalance until the leader's SyncGroup brings the assignment. The
assignment is one record of the offsets topic; once that is in the log the group is Stable.

In-memory state (parked requests, votes, deadlines, a generation without assignment) changes in `handle`. State in the
log (a generation's members and assignment, offsets, the end of the group) changes in `replay` alone, which the shell
calls for each record right after it was appended, and for every record of the log when it loads a group. A step with
batches is therefore *staged*: its effect is prepared, and takes place in `replay`, or is dropped in `AppendFailed`.

Rules by state are in `states`. Source: Apache Kafka 3.9, `kafka.coordinator.group.GroupCoordinator`; KIP-62, 134, 345,
394, 559, 814. Intentional differences: a member with consumer metadata that cannot be parsed is refused
(`INVALID_REQUEST`), a request superseded by a later one of the same member is answered (`REBALANCE_IN_PROGRESS`)
instead of never, and a static member that comes back before it revoked what the assignment took from it begins a
rebalance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ottla.assign.consumer_protocol import PROTOCOL_TYPE
from ottla.groups.classic.group import JOIN, SYNC, Group
from ottla.groups.classic.joining import JoinHandling
from ottla.groups.classic.liveness import LivenessHandling
from ottla.groups.classic.rebalancing import StagedKind, StagedStep
from ottla.groups.classic.states import GroupState, OffsetDeleteRule
from ottla.groups.classic.syncing import SyncHandling
from ottla.groups.events import (
    AppendFailed,
    Batch,
    CommitResult,
    DeleteGroup,
    DeleteOffsets,
    DeleteOffsetsResult,
    ErrorResult,
    ExpireMember,
    ExpireOffsets,
    GroupEvent,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    OffsetCommit,
    PartitionsChanged,
    Reply,
    RequestRebalance,
    Step,
    SyncGroup,
    TopicsDeleted,
)
from ottla.groups.evidence import Cause, CauseEntry, partition_count_cause
from ottla.groups.failures import failed_result, group_write_error
from ottla.groups.offsets import TopicPartition
from ottla.groups.records import GroupMetadataValue, GroupRecord, LogRecord, OffsetRecord
from ottla.wire.errors import ErrorCode


class GroupMachine(JoinHandling, SyncHandling, LivenessHandling):
    """One group, as a state machine: `handle`, `replay`, `next_deadline_ms`, `expire`, and queries."""

    __slots__ = ()

    def handle(self, event: GroupEvent, now_ms: int) -> Step:
        """Handle an event; the shell appends the step's batches, replays their records, then sends the replies."""
        step = self._new_step()
        _HANDLERS[type(event)](self, event, step, now_ms)
        return step

    def next_deadline_ms(self) -> int | None:
        """When `expire` must be called, None for never."""
        return self.deadlines.next()

    def expire(self, now_ms: int) -> Step:
        """Handle passed deadlines. Stops at the first batch: the other deadlines stay set."""
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
        """Apply a record that is in the log."""
        if isinstance(record, OffsetRecord):
            self.offsets.replay(record, log_offset)
        elif record.value is None:
            self._replay_end()
        else:
            self._replay_generation(record.value)

    def loaded(self, now_ms: int) -> Step:
        """Finish loading, at the end of the log: every member gets a new session deadline."""
        step = self._new_step()
        self._loaded_at_ms = now_ms
        self._note(now_ms, f"loaded: {self.state.value}, generation {self.generation_id}, {len(self.members)} members")
        for member in self.members:
            self._renew_session(member, now_ms)
        if len(self.members) > self.limits.max_size:
            self._prepare_rebalance([CauseEntry(Cause.GROUP_TOO_LARGE, now_ms)], step, now_ms)
        return step

    def check_invariants(self) -> None:
        """Raise AssertionError, with the latest events, if an invariant is violated."""
        found = problems(self)
        if found:
            raise AssertionError("; ".join(found) + "\n" + self.story())

    def unload(self, now_ms: int) -> Step:
        """Resign as coordinator: fail pending requests with NOT_COORDINATOR."""
        step = self._new_step()
        self._answer_parked(self.members, ErrorCode.NOT_COORDINATOR, step)
        self._close_recorder(step, now_ms)
        self._enter(GroupState.DEAD, now_ms)
        return step

    # Offsets

    def _commit(self, event: OffsetCommit, step: Step, now_ms: int) -> None:
        self.is_registered = True
        refusal = self._commit_refusal(event, now_ms)
        if refusal is not None:
            step.replies.append(Reply(event.token, CommitResult([refusal] * len(event.offsets))))
            return
        errors, records = self.offsets.commit(event.offsets, self.limits.offset_metadata_max_bytes)
        step.replies.append(Reply(event.token, CommitResult(errors)))
        if records and event.is_transactional:
            step.batches.append(Batch(self.partition, records, event.producer_id, event.producer_epoch))
            self._staged = StagedStep(step, StagedKind.COMMIT, now_ms)
        elif records:
            self._stage(step, StagedKind.COMMIT, records, now_ms)

    def _delete(self, event: DeleteGroup, step: Step, now_ms: int) -> None:
        error = self.rules.delete
        step.replies.append(Reply(event.token, ErrorResult(error)))
        if error is ErrorCode.NONE:
            # What a transaction has committed so far goes, too, or it would come back where the log is loaded.
            self._remove_offsets(self.offsets.partitions(with_pending=True), step, now_ms, is_deleted=True)

    def _delete_offsets(self, event: DeleteOffsets, step: Step, now_ms: int) -> None:
        """Delete offsets of topics without subscribers, and an empty group if it has no offsets left."""
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
        present = frozenset(self.offsets.partitions(with_pending=True))
        outcomes = zip(event.partitions, errors, strict=True)
        keys = list(dict.fromkeys(key for key, error in outcomes if error is ErrorCode.NONE and key in present))
        self._remove_offsets(keys, step, now_ms)

    def _expire_offsets(self, event: ExpireOffsets, step: Step, now_ms: int) -> None:
        self._remove_offsets(self._expired_offsets(event.retention_ms, now_ms), step, now_ms)

    def _topics_deleted(self, event: TopicsDeleted, step: Step, now_ms: int) -> None:
        keys = [key for key in self.offsets.partitions(with_pending=True) if key[0] in event.topics]
        self._remove_offsets(keys, step, now_ms)

    def _remove_offsets(
        self, keys: Sequence[TopicPartition], step: Step, now_ms: int, is_deleted: bool = False
    ) -> None:
        """Write tombstones for offsets and, if an empty group has none left, for the group.

        As in Apache Kafka, pending member ids do not keep it. A group that never had members has no record.
        """
        records: list[LogRecord] = [*self.offsets.tombstones(keys)]
        is_last = len(keys) == len(self.offsets.partitions()) and not self.offsets.has_pending
        if is_deleted or (is_last and self.state is GroupState.EMPTY):
            for member_id in list(self.members.pending):
                self._drop_pending(member_id)
            self.is_registered = False
            if self.generation_id > 0:
                records.append(GroupRecord(self.group_id, None))
        if records:
            self._stage(step, StagedKind.REMOVAL, records, now_ms)

    # Generations

    def _partitions_changed(self, event: PartitionsChanged, step: Step, now_ms: int) -> None:
        """Keep the change, to report it as the cause when the leader rejoins."""
        for topic, (before, now) in event.counts.items():
            if self.subscribed_topics is not None and topic in self.subscribed_topics and before != now:
                self._partition_changes[topic] = partition_count_cause(before, now)

    def _replay_end(self) -> None:
        """Apply the group's tombstone: it was deleted or has expired."""
        staged, self._staged = self._staged, None
        if staged is not None and staged.kind is StagedKind.REMOVAL:
            self._enter(GroupState.DEAD, staged.now_ms)
        else:
            # Offsets have their own tombstones, and may outlive it.
            self._restore(GroupMetadataValue())

    def _replay_generation(self, value: GroupMetadataValue) -> None:
        """Apply a generation from the log: the effect of a staged step, or part of loading."""
        staged, self._staged = self._staged, None
        if staged is None or staged.kind in (StagedKind.COMMIT, StagedKind.REMOVAL):
            self._restore(value)
        elif staged.kind is StagedKind.EMPTY:
            self._become_empty(staged.step, staged.now_ms)
        elif staged.kind is StagedKind.STATIC_MEMBER:
            assert staged.replaced is not None
            # The generation's subscribed topics stay, as in Apache Kafka.
            self._put_in_place(*staged.replaced, staged.now_ms)
        else:
            self._become_stable(value, staged)

    def _become_stable(self, value: GroupMetadataValue, staged: StagedStep) -> None:
        for written in value.members:
            member = self.members.get(written.member_id)
            assert member is not None, self.story()
            member.assignment = written.assignment
            if member.sync_token is not None and self._recorder is not None:
                self._recorder.answered(member.member_id, staged.now_ms)
            member.sync_token = None
            # The leader's SyncGroup renews every member's session.
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
        """Undo a staged step whose append failed, and answer with the client error for the log's error."""
        staged = self._staged
        if staged is None or staged.step.id != event.step_id:
            return
        self._staged = None
        self._note(now_ms, f"append failed: {event.error.name}")
        if staged.kind is StagedKind.EMPTY:
            # Nothing is lost: a coordinator that loads the older generation will expire its members.
            self._become_empty(step, now_ms)
            step.replies += staged.step.replies
        elif staged.kind is StagedKind.ASSIGNMENT:
            if self._recorder is not None:
                self._recorder.outcome = "failed"
            self._void_assignment(group_write_error(event.error), (), step, now_ms)
            self._prepare_rebalance([CauseEntry(Cause.ASSIGNMENT_NOT_WRITTEN, now_ms)], step, now_ms)
        else:
            for reply in staged.step.replies:
                step.replies.append(Reply(reply.token, failed_result(reply.result, event.error)))


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
    RequestRebalance: GroupMachine._request_rebalance,
    ExpireMember: GroupMachine._expire_member,
    AppendFailed: GroupMachine._append_failed,
}


# Invariants of a group between two steps; tests check them after each.

_SETTLED = (GroupState.COMPLETING_REBALANCE, GroupState.STABLE)


def problems(group: Group) -> list[str]:
    """Violated invariants; empty if there are none."""
    return group.members.problems() + _of_state(group) + _of_parked(group) + _of_deadlines(group)


def _of_state(group: Group) -> list[str]:
    found = []
    state, size = group.state, len(group.members)
    if state in (GroupState.EMPTY, GroupState.DEAD) and size:
        found.append(f"{state.value} with {size} members")
    if state in _SETTLED:
        if not size:
            found.append(f"{state.value} without members")
        if group.generation_id <= 0:
            found.append(f"{state.value} in generation {group.generation_id}")
        if any(group.protocol_name not in dict(member.protocols) for member in group.members):
            found.append(f"{group.protocol_name} is not supported by all members")
    elif group.pending_sync:
        found.append(f"{len(group.pending_sync)} members should sync in {state.value}")
    if state is GroupState.COMPLETING_REBALANCE and group.members.leader not in group.pending_sync:
        found.append(f"the leader {group.members.leader} has handed in an assignment that is not there")
    found += [f"{member_id} should sync but is not a member" for member_id in group.pending_sync - group.members.ids()]
    return found


def _of_parked(group: Group) -> list[str]:
    found = []
    for member in group.members:
        if member.join_token is not None and group.state is not GroupState.PREPARING_REBALANCE:
            found.append(f"{member.member_id} waits for a join in {group.state.value}")
        if member.sync_token is not None and group.state is not GroupState.COMPLETING_REBALANCE:
            found.append(f"{member.member_id} waits for a sync in {group.state.value}")
        if member.is_new and member.join_token is None:
            found.append(f"{member.member_id} is new and does not wait for its first join")
    return found


def _of_deadlines(group: Group) -> list[str]:
    found = []
    deadlines = group.deadlines
    if (JOIN in deadlines) != (group.state is GroupState.PREPARING_REBALANCE):
        found.append(f"join deadline {deadlines.get(JOIN)} in {group.state.value}")
    if (SYNC in deadlines) != bool(group.pending_sync):
        found.append(f"sync deadline {deadlines.get(SYNC)}, {len(group.pending_sync)} have not synced")
    for member in group.members:
        waits = member.join_token is not None or member.sync_token is not None
        if member.member_id not in deadlines and not waits:
            found.append(f"{member.member_id} has no session deadline")
    found += [f"pending {member_id} has no deadline" for member_id in group.members.pending - deadlines.names()]
    known = {JOIN, SYNC} | group.members.ids() | group.members.pending
    found += [f"deadline of {name}, who is not a member" for name in deadlines.names() - known]
    return found
