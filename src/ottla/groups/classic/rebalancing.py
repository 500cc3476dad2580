"""Transitions of a group from one generation to the next, and staged steps. Pure.

`ottla.groups.classic.machine` has the overview; requests are handled there, and in `joining`, `syncing` and `liveness`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from ottla.groups.classic.group import JOIN, SYNC, Group, GroupLimits
from ottla.groups.classic.membership import GroupMemberState
from ottla.groups.classic.states import GroupState
from ottla.groups.events import Batch, Reply, Step, SyncResult
from ottla.groups.evidence import Cause, CauseEntry
from ottla.groups.records import LogRecord
from ottla.wire.errors import ErrorCode

TOMBSTONES_PER_BATCH = 500
SECOND_ROUND = ("need to re-join with the given member-id", "rebalance failed due to MemberIdRequiredException")
"""How the reasons begin that clients send with the second JoinGroup of a new member (KIP-394): Java's since 3.4, and
older ones' and ours. The cause is that the member joined.
"""
POSTPONED_JOIN_MS = 100
"""Minimum delay between two attempts to complete a join while no member has joined."""


class StagedKind(Enum):
    """The purpose of a staged step."""

    ASSIGNMENT = auto()
    STATIC_MEMBER = auto()
    EMPTY = auto()
    COMMIT = auto()
    REMOVAL = auto()


@dataclass(slots=True)
class StagedStep:
    """A step whose batches are not in the log yet."""

    step: Step
    kind: StagedKind
    now_ms: int
    replaced: tuple[GroupMemberState, GroupMemberState] | None = None
    """A static member, and the one in its place."""


class RebalancingGroup(Group):
    """A group with its transitions: preparing a rebalance, completing the join, staging writes to the log."""

    __slots__ = ("_staged", "_steps")

    def __init__(self, group_id: str, partition: int, limits: GroupLimits) -> None:
        super().__init__(group_id, partition, limits)
        self._staged: StagedStep | None = None
        self._steps = 0

    # The rebalance

    def _prepare_rebalance(
        self,
        causes: Sequence[CauseEntry],
        step: Step,
        now_ms: int,
        change: Callable[[], None] | None = None,
        leaving: Sequence[GroupMemberState] = (),
    ) -> None:
        """Begin a rebalance for `causes`, or add them to the one under way.

        The membership `change` is applied, and those `leaving` are removed, when the old generation is over.
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
            self._note(now_ms, f"rebalance: {entry.cause.value} {entry.member_id}")
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
        """Complete the join if all members have joined; the first members of a group wait for the initial delay."""
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
            entry = cause_of(Cause.REBALANCE_TIMEOUT, member, now_ms)
            if self._recorder is not None:
                self._recorder.add_cause(entry)
                self._recorder.remove(entry)
            self._note(now_ms, f"{member.member_id} did not join in time")
            self._remove_member(member, step)
        if not len(self.members):
            self._stage(step, StagedKind.EMPTY, [self._empty_record(now_ms)], now_ms)
        elif not self.members.elect_joined_leader():
            wait_ms = max(self.members.rebalance_timeout_ms, POSTPONED_JOIN_MS)
            self.deadlines.set(JOIN, now_ms + wait_ms)
            self._note(now_ms, "no member joined; waiting for the static members")
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

    def _void_assignment(self, error: ErrorCode, leaving: Sequence[GroupMemberState], step: Step, now_ms: int) -> None:
        """Answer pending syncs with an error: the generation will have no assignment."""
        for member in self.members:
            if member in leaving or member.sync_token is None:
                continue
            step.replies.append(Reply(member.sync_token, SyncResult(error)))
            member.sync_token = None
            self._renew_session(member, now_ms)
            if self._recorder is not None:
                self._recorder.member_notified(member.member_id, now_ms)

    def _remove_and_rebalance(
        self,
        leaving: Sequence[GroupMemberState],
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

    def _put_in_place(self, old: GroupMemberState, new: GroupMemberState, now_ms: int) -> None:
        self.members.replace(old, new)
        self.deadlines.cancel(old.member_id)
        self._renew_session(new, now_ms)
        if old.member_id in self.pending_sync:
            self.pending_sync.remove(old.member_id)
            self.pending_sync.add(new.member_id)

    # The log

    def _stage(
        self,
        step: Step,
        kind: StagedKind,
        records: Sequence[LogRecord],
        now_ms: int,
        replaced: tuple[GroupMemberState, GroupMemberState] | None = None,
    ) -> None:
        assert not step.batches, self.story()
        size = TOMBSTONES_PER_BATCH if kind is StagedKind.REMOVAL else len(records)
        for start in range(0, len(records), size):
            step.batches.append(Batch(self.partition, records[start : start + size]))
        self._staged = StagedStep(step, kind, now_ms, replaced)

    def _new_step(self) -> Step:
        self._steps += 1
        return Step(self._steps, self.group_id)


def cause_of(cause: Cause, member: GroupMemberState, now_ms: int, detail: str | None = None) -> CauseEntry:
    """A rebalance cause with the member that led to it; `detail` is the reason that the member gives."""
    if detail is not None and detail.startswith(SECOND_ROUND):
        detail = None
    return CauseEntry(
        cause, now_ms, member.member_id, member.group_instance_id, member.client_id, member.client_host, detail
    )
