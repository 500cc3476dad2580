"""A group for examples: the coordinator's state machine on a virtual clock, with consumers that follow a script.

What happens is written as lines: requests (→), responses (←), changes of state. The consumers call their listeners as
eager clients do: revoked before the first join of each rebalance, assigned after its sync.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

from ottla.assign.consumer_protocol import (
    PROTOCOL_TYPE,
    Malformed,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from ottla.groups.classic.group import GroupLimits
from ottla.groups.events import (
    CommitResult,
    GroupRequest,
    Heartbeat,
    JoinGroup,
    JoinResult,
    LeaveGroup,
    LeavingMember,
    SyncGroup,
    SyncResult,
)
from ottla.rebalance.notation import partitions_text
from ottla.sim.group_consumer import GROUP_ID, Answer
from ottla.sim.group_coordinator import Answered, SimulatedCoordinator
from ottla.wire.errors import ErrorCode

SESSION_TIMEOUT_MS = 10_000
REBALANCE_TIMEOUT_MS = 60_000
HOST = "127.0.0.1"
#: Limit on the deadlines that expire in one `wait`.
MOST_DEADLINES = 1_000


@dataclass
class ScriptedConsumer:
    """A consumer of the group, with counts of its joins and listener calls."""

    name: str
    assignors: tuple[str, ...]
    member_id: str = ""
    generation_id: int = -1
    joins: int = 0
    revokes: int = 0
    assigns: int = 0
    in_rebalance: bool = False
    owned: tuple[int, ...] = ()


class ScriptedGroup:
    """One group without a broker. The leader assigns the `partitions` partitions of `topic` by range."""

    def __init__(self, topic: str = "topic1", partitions: int = 3) -> None:
        self.topic = topic
        self.partitions = partitions
        self.now_ms = 0
        self.lines: list[str] = []
        self.consumers: dict[str, ScriptedConsumer] = {}
        self._coordinator = SimulatedCoordinator(GroupLimits(initial_rebalance_delay_ms=0), self._answered)
        #: How many of the state machine's transitions have been written.
        self._transitions_written = 0
        #: Name of the consumer that waits for the response, by request token.
        self._pending: dict[object, str] = {}
        self._tokens = itertools.count(1)
        self._members: dict[str, list[str]] = {}

    def say(self, text: str) -> None:
        """Write a sentence of explanation."""
        if self.lines:
            self.lines.append("")
        self.lines.append(text)

    def join(self, name: str, *assignors: str) -> None:
        """A consumer sends JoinGroup; it is created on first use."""
        consumer = self.consumers.get(name)
        if consumer is None:
            consumer = self.consumers[name] = ScriptedConsumer(name, assignors or ("range",))
        elif assignors:
            consumer.assignors = assignors
        consumer.joins += 1
        if not consumer.in_rebalance:
            consumer.in_rebalance = True
            consumer.revokes += 1
        metadata = encode_subscription([self.topic])
        request = JoinGroup(
            self._asking(name, "JoinGroup" + (f" ({', '.join(assignors)})" if assignors else "")),
            GROUP_ID,
            consumer.member_id,
            None,
            name,
            HOST,
            SESSION_TIMEOUT_MS,
            REBALANCE_TIMEOUT_MS,
            PROTOCOL_TYPE,
            tuple((assignor, metadata) for assignor in consumer.assignors),
            f"id-of-{name}",
        )
        self._submit(request)

    def sync(self, *names: str) -> None:
        """Consumers send SyncGroup; the leader's contains the assignment."""
        for name in names:
            consumer = self.consumers[name]
            assignments = self._assignments(self._members[name]) if self._members.get(name) else {}
            token = self._asking(name, "SyncGroup" + (" with the assignment" if assignments else ""))
            generation_id, member_id = consumer.generation_id, consumer.member_id
            self._submit(SyncGroup(token, GROUP_ID, generation_id, member_id, assignments=assignments))

    def heartbeat(self, *names: str) -> None:
        """Consumers send Heartbeat."""
        for name in names:
            consumer = self.consumers[name]
            token = self._asking(name, "Heartbeat")
            self._submit(Heartbeat(token, GROUP_ID, consumer.generation_id, consumer.member_id))

    def leave(self, name: str) -> None:
        """A consumer closes and sends LeaveGroup."""
        consumer = self.consumers[name]
        self._submit(LeaveGroup(self._asking(name, "LeaveGroup"), GROUP_ID, [LeavingMember(consumer.member_id)]))

    def wait(self, by_ms: int) -> None:
        """Advance the clock and expire deadlines on the way."""
        end_ms = self.now_ms + by_ms
        for _ in range(MOST_DEADLINES):
            due_ms = self._coordinator.next_deadline_ms()
            if due_ms is None or due_ms > end_ms:
                break
            self.now_ms = max(self.now_ms, due_ms)
            self._coordinator.expire(self.now_ms)
            self._write_transitions()
        self.now_ms = end_ms
        self.lines.append(f"  … {by_ms / 1000:g} s later")

    def lose_answer(self, name: str) -> None:
        """Write that the last response never reached the consumer; the coordinator does not know."""
        self.lines.append(f"  ✗ {name} never gets that answer")

    def rejoin(self, *names: str) -> None:
        """Heartbeats notify consumers of a rebalance; each joins again, and at last all sync."""
        for name in names:
            self.heartbeat(name)
            self.join(name)
        self.sync(*names)

    def sum_up(self) -> None:
        """Write how often each consumer joined and had its listener called."""
        self.say("In the end:")
        for one in self.consumers.values():
            calls = f"revoke called {one.revokes}×, assign {one.assigns}×"
            self.lines.append(f"  {one.name}: JoinGroup sent {one.joins}×, {calls}")

    def _asking(self, name: str, what: str) -> object:
        """Write a request; returns the token for its response."""
        token = f"{name}-{next(self._tokens)}"
        self._pending[token] = name
        self.lines.append(f"  {name} → {what}")
        return token

    def _submit(self, request: GroupRequest) -> None:
        self._coordinator.take(request, self.now_ms)
        self._write_transitions()

    def _write_transitions(self) -> None:
        transitions = [line for line in self._coordinator.story().splitlines() if " -> " in line]
        for line in transitions[self._transitions_written :]:
            before, _, after = line.partition(",")[0].split(maxsplit=1)[1].partition(" -> ")
            self.lines.append(f"      state: {before} → {after}")
        self._transitions_written = len(transitions)

    def _answered(self, answered: Answered) -> None:
        self._write_transitions()
        consumer = self.consumers[self._pending.pop(answered.request.token)]
        self.lines.append(f"  {consumer.name} ← {self._answer(consumer, answered.answer)}")

    def _answer(self, consumer: ScriptedConsumer, result: Answer) -> str:
        assert not isinstance(result, dict)
        if not isinstance(result, CommitResult) and result.error is not ErrorCode.NONE:
            return result.error.name
        if isinstance(result, JoinResult):
            consumer.member_id, consumer.generation_id = result.member_id, result.generation_id
            self._members[consumer.name] = [member.member_id for member in result.members]
            joined = f"generation {result.generation_id}, {result.protocol_name}"
            if not result.members:
                return joined
            return f"{joined}; you lead: {', '.join(self._names(member.member_id for member in result.members))}"
        if isinstance(result, SyncResult):
            consumer.assigns += 1
            consumer.in_rebalance = False
            assignment = decode_assignment(result.assignment)
            if isinstance(assignment, Malformed):
                return assignment.message
            consumer.owned = tuple(assignment.partitions.get(self.topic, ()))
            return f"yours: {partitions_text(assignment.partitions) or 'nothing'}"
        return "ok"

    def _names(self, member_ids: Iterable[str]) -> list[str]:
        names = {consumer.member_id: consumer.name for consumer in self.consumers.values()}
        return [names.get(member_id) or member_id.partition("-")[0] for member_id in member_ids]

    def _assignments(self, member_ids: list[str]) -> dict[str, bytes]:
        each, over = divmod(self.partitions, len(member_ids))
        shares, start = {}, 0
        for at, member_id in enumerate(sorted(member_ids)):
            end = start + each + (at < over)
            shares[member_id] = encode_assignment({self.topic: range(start, end)} if end > start else {})
            start = end
        return shares
