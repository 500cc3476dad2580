"""A coordinator in the simulator: a shard of groups, its log, crashes, and its responses to clients."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ottla.groups.classic.group import GroupLimits
from ottla.groups.classic.machine import GroupMachine
from ottla.groups.events import (
    AppendFailed,
    CommitResult,
    ErrorResult,
    GroupEvent,
    GroupRequest,
    OffsetCommit,
    Reply,
    Step,
)
from ottla.groups.records import LogRecord, UnknownRecord, decode_record, encode_record
from ottla.groups.shard import GroupShard, refused_while_loading
from ottla.sim.group_consumer import GROUP_ID, TOPIC, Answer, FetchOffsets, LookUpCoordinator, Request
from ottla.sim.witness import Witness, Wrong
from ottla.wire.errors import ErrorCode

PARTITION = 0


class Answered(NamedTuple):
    """A response on its way to the client."""

    request: Request
    answer: Answer


class SimulatedCoordinator:
    """One broker that holds the group. `on_answer` is called with every response; `is_up` is False while it is down."""

    def __init__(self, limits: GroupLimits, on_answer: Callable[[Answered], None]) -> None:
        self._limits = limits
        self._on_answer = on_answer
        self._shard = self._new_shard(loading=False)
        #: The log, compacted as it grows: the newest value of each key, in log order.
        self._log: dict[bytes, tuple[int, bytes | None]] = {}
        self._end = 0
        self._requests: dict[object, GroupRequest] = {}
        self._witness = Witness()
        #: Error of the next append, None for success.
        self.next_error: ErrorCode | None = None
        self.is_up = True
        #: The committed offset of each partition, which may only increase.
        self.committed: dict[int, int] = {}
        #: Members of the group as last known, also while the coordinator is down.
        self.member_ids: frozenset[str] = frozenset()

    @property
    def machine(self) -> GroupMachine | None:
        """The group's state machine, None if there is none (or it is not loaded)."""
        return self._shard.machines.get(GROUP_ID)

    @property
    def generation_id(self) -> int:
        """The group's generation, -1 without a group."""
        return -1 if self.machine is None else self.machine.generation_id

    @property
    def joined(self) -> frozenset[str]:
        """Members that joined the current generation; a late static member did not."""
        return self._witness.joined

    def story(self) -> str:
        """The latest events."""
        return "no group" if self.machine is None else self.machine.story()

    # -- life cycle

    def crash(self) -> None:
        """The process ends; everything that is not in the log is lost."""
        self.is_up = False
        self._requests.clear()
        self.next_error = None
        self._shard = self._new_shard(loading=True)

    def load(self) -> None:
        """Restart, and begin to read the log."""
        self.is_up = True
        for key, (offset, value) in sorted(self._log.items(), key=lambda item: item[1][0]):
            record = decode_record(key, value)
            assert not isinstance(record, UnknownRecord)
            self._shard.replay(record, offset)
        self._shard.committed(self._end)

    def finish_loading(self, now_ms: int) -> None:
        """The log is read: each member gets a new session."""
        self._witness.loaded(now_ms)
        for step in self._shard.loaded(now_ms):
            self._carry_out(step, now_ms)

    @property
    def is_loading(self) -> bool:
        """Whether it is up but has not loaded its groups yet."""
        return self._shard.loading

    def _new_shard(self, *, loading: bool) -> GroupShard:
        shard = GroupShard(PARTITION, self._limits)
        shard.loading = loading
        return shard

    # -- requests

    def take(self, request: Request, now_ms: int) -> None:
        """Handle a request."""
        if isinstance(request, LookUpCoordinator):
            self._on_answer(Answered(request, ErrorResult(ErrorCode.NONE)))
            return
        if isinstance(request, FetchOffsets):
            if not self.is_loading:
                self._on_answer(Answered(request, self._offsets(request)))
            return
        if self.is_loading:
            self._on_answer(Answered(request, refused_while_loading(request)))
            return
        self._requests[request.token] = request
        self.submit(request, now_ms)

    def submit(self, event: GroupEvent, now_ms: int) -> None:
        """Handle any event, including those without a response."""
        self._carry_out(self._shard.handle(event, now_ms), now_ms)

    def next_deadline_ms(self) -> int | None:
        """When `expire` must be called."""
        return None if self.is_loading else self._shard.next_deadline_ms()

    def expire(self, now_ms: int) -> None:
        """Handle all passed deadlines."""
        while not self.is_loading and (step := self._shard.expire(now_ms)) is not None:
            self._carry_out(step, now_ms)

    def _offsets(self, request: FetchOffsets) -> dict[int, int]:
        machine = self.machine
        found = {}
        for partition in request.partitions:
            value = None if machine is None else machine.committed.get((TOPIC, partition))
            found[partition] = 0 if value is None else value.offset
            if found[partition] != self.committed.get(partition, 0):
                raise Wrong(
                    f"partition {partition}: {self.committed.get(partition, 0)} was committed, {found[partition]} is "
                    f"served\n{self.story()}"
                )
        return found

    def _carry_out(self, step: Step, now_ms: int) -> None:
        for batch in step.batches:
            if self.next_error is not None:
                error, self.next_error = self.next_error, None
                self.submit(AppendFailed(step.group_id, step.id, error), now_ms)
                return
            for record in batch.records:
                self._append(record, now_ms)
        self._shard.committed(self._end)
        machine = self.machine
        if machine is not None:
            machine.check_invariants()
            self.member_ids = frozenset(machine.members.ids())
        self._shard.settle(step)
        for reply in step.replies:
            self._reply(reply, now_ms)

    def _append(self, record: LogRecord, now_ms: int) -> None:
        key, value = encode_record(record)
        self._log.pop(key, None)
        self._log[key] = (self._end, value)
        self._shard.replay(record, self._end)
        self._end += 1
        self._seen(lambda: self._witness.logged(record, now_ms))

    def _seen(self, see: Callable[[], None]) -> None:
        """Run a check of the witness; a violation is raised with the latest events."""
        try:
            see()
        except Wrong as wrong:
            raise Wrong(f"{wrong}\n{self.story()}") from wrong

    def _reply(self, reply: Reply, now_ms: int) -> None:
        request = self._requests.pop(reply.token, None)
        if request is None:
            raise Wrong(f"an answer without a request, or a second one: {reply.result}\n{self.story()}")
        self._seen(lambda: self._witness.answered(request, reply.result, now_ms))
        if isinstance(request, OffsetCommit) and isinstance(reply.result, CommitResult):
            self._note_commit(request, reply.result)
        self._on_answer(Answered(request, reply.result))

    def _note_commit(self, request: OffsetCommit, result: CommitResult) -> None:
        for (_, partition, value), error in zip(request.offsets, result.errors, strict=True):
            if error is not ErrorCode.NONE:
                continue
            before = self.committed.get(partition, 0)
            if value.offset < before:
                raise Wrong(f"partition {partition} went back from {before} to {value.offset}\n{self.story()}")
            self.committed[partition] = value.offset
