"""A shard of groups with a log, a clock and clients that remember what they were told: no broker, no sockets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from ottla.groups.classic.group import GroupLimits
from ottla.groups.classic.machine import GroupMachine
from ottla.groups.events import AppendFailed, GroupEvent, Reply, Step
from ottla.groups.evidence import Evidence
from ottla.groups.failures import failed_result
from ottla.groups.records import LogRecord, UnknownRecord, decode_record, encode_record
from ottla.groups.shard import GroupShard
from ottla.wire.errors import ErrorCode

GROUP = "g"


@dataclass
class Outcome:
    """What one command led to."""

    replies: list[Reply] = field(default_factory=list)
    records: list[LogRecord] = field(default_factory=list)
    evidence: list[Evidence] = field(default_factory=list)


class World:
    """One shard; every step is carried out as the broker's runtime does, and the invariants are checked after it.

    The log keeps bytes: what a machine replays has been encoded and decoded.
    """

    def __init__(self, limits: GroupLimits | None = None, now_ms: int = 0) -> None:
        self.limits = limits or GroupLimits()
        self.now_ms = now_ms
        self.log: list[tuple[bytes, bytes | None]] = []
        self.shard = self._new_shard()
        #: The error that the next append is to meet.
        self.next_error: ErrorCode | None = None
        self.open_tokens: set[object] = set()
        self.outcome = Outcome()
        #: Whether other brokers follow; how much of the log they have, and how much the leader knows them to have.
        self.is_followed = True
        self.copied = 0
        self.committed = 0
        #: Replies whose records are not committed.
        self.waiting: list[Reply] = []

    def _new_shard(self) -> GroupShard:
        shard = GroupShard(0, self.limits)
        shard.loading = False
        return shard

    @property
    def machine(self) -> GroupMachine | None:
        """The one group of most tests."""
        return self.shard.machines.get(GROUP)

    def take(self) -> Outcome:
        """What happened since the last call."""
        outcome, self.outcome = self.outcome, Outcome()
        return outcome

    def submit(self, event: GroupEvent) -> None:
        """One event now."""
        token = getattr(event, "token", None)
        if token is not None:
            assert token not in self.open_tokens, f"token {token} used twice"
            self.open_tokens.add(token)
        self.carry_out(self.shard.handle(event, self.now_ms))

    def advance(self, by_ms: int) -> None:
        """Let time pass; what is due happens when it is due."""
        end_ms = self.now_ms + by_ms
        while (due_ms := self.shard.next_deadline_ms()) is not None and due_ms <= end_ms:
            self.now_ms = max(self.now_ms, due_ms)
            while (step := self.shard.expire(self.now_ms)) is not None:
                self.carry_out(step)
        self.now_ms = end_ms

    def carry_out(self, step: Step) -> None:
        """Append, replay, settle, answer."""
        for batch in step.batches:
            if self.next_error is not None:
                error, self.next_error = self.next_error, None
                self.carry_out(self.shard.handle(AppendFailed(step.group_id, step.id, error), self.now_ms))
                return
            for record in batch.records:
                key, value = encode_record(record)
                self.log.append((key, value))
                decoded = decode_record(key, value)
                assert not isinstance(decoded, UnknownRecord)
                assert decoded == record
                self.outcome.records.append(decoded)
                self.shard.replay(decoded, len(self.log) - 1)
        if self.is_followed:
            self.copied = self.committed = len(self.log)
        self.shard.committed(self.committed)
        self.shard.settle(step)
        self.outcome.evidence += step.notes
        if self.committed < len(self.log):
            self.waiting += step.replies
        else:
            self._answer(step.replies)
        self.check()

    def _answer(self, replies: Iterable[Reply]) -> None:
        for reply in replies:
            assert reply.token in self.open_tokens, f"token {reply.token} answered twice or never asked"
            self.open_tokens.remove(reply.token)
            self.outcome.replies.append(reply)

    def check(self) -> None:
        """The invariants of every group."""
        for machine in self.shard.machines.values():
            machine.check_invariants()

    def restored(self) -> GroupShard:
        """Another shard, loaded from the log."""
        shard = self._new_shard()
        shard.loading = True
        for offset, (key, value) in enumerate(self.log):
            record = decode_record(key, value)
            assert not isinstance(record, UnknownRecord)
            shard.replay(record, offset)
        shard.committed(len(self.log))
        return shard

    def restart(self) -> None:
        """The coordinator is killed and loads its log; who waited is never answered."""
        self.shard = self.restored()
        self.open_tokens.clear()
        self.waiting.clear()
        for step in self._loaded():
            self.carry_out(step)

    def take_over(self) -> None:
        """The coordinator is killed, and another broker leads, which has what was copied to it."""
        del self.log[self.copied :]
        self.is_followed = True
        self.committed = self.copied
        self.restart()

    def resign(self) -> None:
        """Another broker leads, and the coordinator hears of it: it answers those who wait, and has the log later."""
        waiting, self.waiting = self.waiting, []
        for reply in waiting:
            self._answer([Reply(reply.token, failed_result(reply.result, ErrorCode.NOT_LEADER_OR_FOLLOWER))])
        for step in self.shard.unload(self.now_ms):
            self.outcome.evidence += step.notes
            self._answer(step.replies)

    def _loaded(self) -> Iterator[Step]:
        return self.shard.loaded(self.now_ms)
