"""All groups of one partition of the offsets topic, and one heap of their deadlines.

A state machine exists as long as its group: it is created by the first event that can create a group (a join without
member id, a commit without generation), even if that is refused, and dropped when the group is deleted or an expiry run
finds that nothing would be lost with it, as in Apache Kafka. Events for groups that do not exist are answered here, by
the row `Dead` of the table of states.
"""

from __future__ import annotations

from collections.abc import Iterator

from ottla.deadlines import Deadlines
from ottla.groups.classic.group import GroupLimits
from ottla.groups.classic.machine import GroupMachine
from ottla.groups.classic.states import RULES, GroupState
from ottla.groups.events import (
    NO_GENERATION,
    UNKNOWN_MEMBER,
    AppendFailed,
    CommitResult,
    DeleteGroup,
    DeleteOffsets,
    DeleteOffsetsResult,
    ErrorResult,
    GroupEvent,
    GroupRequest,
    Heartbeat,
    JoinGroup,
    JoinResult,
    LeaveGroup,
    LeaveResult,
    OffsetCommit,
    Reply,
    Result,
    Step,
    SyncGroup,
    SyncResult,
)
from ottla.groups.records import LogRecord, OffsetRecord
from ottla.records.control import TransactionMarker
from ottla.wire.errors import ErrorCode

_DEAD = RULES[GroupState.DEAD]


class GroupShard:
    """The groups of one partition. `loading` until `loaded` has been called."""

    __slots__ = (
        "_carried_out",
        "_deadlines",
        "_producers",
        "_uncommitted",
        "limits",
        "loading",
        "machines",
        "partition",
    )

    def __init__(self, partition: int, limits: GroupLimits) -> None:
        self.partition = partition
        self.limits = limits
        self.loading = True
        self.machines: dict[str, GroupMachine] = {}
        self._deadlines: Deadlines[str] = Deadlines()
        #: Groups with offsets above the high watermark.
        self._uncommitted: dict[str, GroupMachine] = {}
        #: The group whose step is carried out now.
        self._carried_out: str | None = None
        #: Groups with offsets of an open transaction, by producer id.
        self._producers: dict[int, set[str]] = {}

    def handle(self, event: GroupEvent, now_ms: int) -> Step:
        """Handle an event; the shell carries the step out and then calls `settle` with it."""
        machine = self.machines.get(event.group_id)
        if machine is None:
            if not _makes_a_group(event):
                return _answer_absent(event)
            machine = self._make(event.group_id)
        self._carried_out = event.group_id
        return machine.handle(event, now_ms)

    def append_failed(self, step: Step, error: ErrorCode, now_ms: int) -> Step:
        """Handle a failed append of the batches of `step`."""
        return self.handle(AppendFailed(step.group_id, step.id, error), now_ms)

    def settle(self, step: Step) -> None:
        """The step was carried out: register its group's next deadline, or drop a group that has ended."""
        group_id = step.group_id
        self._carried_out = None
        machine = self.machines.get(group_id)
        if machine is None:
            return
        if machine.is_blank or machine.state is GroupState.DEAD:
            del self.machines[group_id]
            self._uncommitted.pop(group_id, None)
            self._deadlines.cancel(group_id)
            return
        at_ms = machine.next_deadline_ms()
        if at_ms is None:
            self._deadlines.cancel(group_id)
        else:
            self._deadlines.set(group_id, at_ms)

    def next_deadline_ms(self) -> int | None:
        """The latest time at which `expire` must be called; it may find that nothing is due yet."""
        return self._deadlines.next()

    def expire(self, now_ms: int) -> Step | None:
        """Handle the passed deadlines of one group; None if there are none. The shell carries it out and settles it."""
        group_id = self._deadlines.pop_due(now_ms)
        return None if group_id is None else self.machines[group_id].expire(now_ms)

    def replay(self, record: LogRecord, log_offset: int, producer_id: int = -1) -> None:
        """Apply a record that is in the log; `producer_id` is that of a transaction, -1 for none."""
        machine = self.machines.get(record.group_id)
        if machine is None:
            if record.value is None:
                return
            machine = self._make(record.group_id)
        if producer_id >= 0 and isinstance(record, OffsetRecord):
            machine.offsets.pending(producer_id, record, log_offset)
            self._producers.setdefault(producer_id, set()).add(record.group_id)
            return
        machine.replay(record, log_offset)
        if machine.offsets.has_uncommitted:
            self._uncommitted[record.group_id] = machine

    def replay_marker(self, marker: TransactionMarker, log_offset: int) -> None:
        """Apply a marker in this partition: the producer's transaction ends once the marker is committed."""
        for group_id in self._producers.pop(marker.producer_id, ()):
            machine = self.machines.get(group_id)
            if machine is not None:
                machine.offsets.complete(marker.producer_id, marker.is_commit, log_offset)
                self._uncommitted[group_id] = machine

    def committed(self, high_watermark: int) -> None:
        """Handle a new high watermark: records below it are committed."""
        for group_id, machine in list(self._uncommitted.items()):
            machine.offsets.commit_up_to(high_watermark)
            if not machine.offsets.has_uncommitted:
                del self._uncommitted[group_id]
                # Offsets that were removed have just gone; an unfinished step is settled at its end.
                if machine.is_blank and group_id != self._carried_out and not self.loading:
                    del self.machines[group_id]
                    self._deadlines.cancel(group_id)

    def lead(self, coordinator_epoch: int, now_ms: int) -> Iterator[Step]:
        """Continue in a newer leader epoch: no group's state depends on it."""
        return iter(())

    def loaded(self, now_ms: int) -> Iterator[Step]:
        """Finish loading; each step is carried out and settled like any other, and then requests are accepted."""
        for machine in list(self.machines.values()):
            yield machine.loaded(now_ms)
        self.loading = False

    def unload(self, now_ms: int) -> Iterator[Step]:
        """Resign as coordinator: answer pending requests."""
        for machine in list(self.machines.values()):
            yield machine.unload(now_ms)

    def _make(self, group_id: str) -> GroupMachine:
        machine = self.machines[group_id] = GroupMachine(group_id, self.partition, self.limits)
        return machine


def refused(request: GroupRequest, error: ErrorCode) -> Result:
    """The response with only `error`, in the request's own form."""
    if isinstance(request, JoinGroup):
        return JoinResult(error, request.member_id)
    if isinstance(request, SyncGroup):
        return SyncResult(error)
    if isinstance(request, LeaveGroup):
        return LeaveResult(error)
    if isinstance(request, OffsetCommit):
        return CommitResult([error] * len(request.offsets))
    if isinstance(request, DeleteOffsets):
        return DeleteOffsetsResult(error)
    return ErrorResult(error)


def refused_while_loading(request: GroupRequest) -> Result:
    """The response while the partition loads, in a form that old clients can handle.

    A member's heartbeats succeed; one that sends SyncGroup has to rejoin, since the generation that it joined is not in
    the log.
    """
    if isinstance(request, Heartbeat):
        return ErrorResult(ErrorCode.NONE)
    if isinstance(request, SyncGroup):
        return SyncResult(ErrorCode.REBALANCE_IN_PROGRESS)
    return refused(request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


def _makes_a_group(event: GroupEvent) -> bool:
    if isinstance(event, JoinGroup):
        return event.member_id == UNKNOWN_MEMBER
    return isinstance(event, OffsetCommit) and (event.generation_id <= NO_GENERATION or event.is_transactional)


def _answer_absent(event: GroupEvent) -> Step:
    step = Step(0, event.group_id)
    if isinstance(event, GroupRequest):
        step.replies.append(Reply(event.token, _absent(event)))
    return step


def _absent(request: GroupRequest) -> Result:
    if isinstance(request, LeaveGroup):
        members = [(member, ErrorCode.UNKNOWN_MEMBER_ID) for member in request.members]
        return LeaveResult(ErrorCode.NONE, members)
    if isinstance(request, OffsetCommit):
        return refused(request, ErrorCode[_DEAD.commit.value])
    if isinstance(request, DeleteOffsets):
        return refused(request, ErrorCode[_DEAD.delete_offsets.value])
    return refused(request, _DEAD.delete if isinstance(request, DeleteGroup) else _DEAD.heartbeat)
