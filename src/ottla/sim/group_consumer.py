"""A consumer of a group in the simulator: the shipped client's `Membership`, without sockets and without records.

The rest of the consumer (`client.consumer.coordinator`, `client.consumer.rebalance`) is reimplemented here for virtual
time: polling, the leader's assignment, revoking before a join, commits. An owned partition's position advances and is
committed. Responses are passed to `receive`, a broken connection to `disconnected`, time to `wake`; requests to send
are in `outbox` afterwards.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from ottla.assign.assignor import (
    ClusterMetadata,
    GroupMetadata,
    MemberSubscription,
    PartitionAssignor,
    RebalanceProtocol,
    SubscribedTopic,
)
from ottla.assign.consumer_protocol import (
    HIGHEST_VERSION,
    Assignment,
    Malformed,
    decode_assignment,
    decode_subscription,
    encode_assignments,
    encode_subscription,
)
from ottla.client.consumer.membership import (
    KICKED_OUT,
    Assign,
    DropCoordinator,
    FindCoordinator,
    Generation,
    GroupRequest,
    MemberSettings,
    Membership,
    MemberState,
    Send,
)
from ottla.client.errors import ConnectionLostError
from ottla.groups import events
from ottla.groups.records import StoredOffset
from ottla.peer.errors import COORDINATOR_MOVED
from ottla.sim.group_wire import event_of, response_of
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.join_group import JoinGroupResponse
from ottla.wire.messages.leave_group import LeaveGroupRequest

GROUP_ID = "churned"
TOPIC = "t"
MOST_RECORDS_AT_ONCE = 5


@dataclass(frozen=True, slots=True)
class MemberTimes:
    """Intervals and timeouts, milliseconds, by the names of the consumer's settings."""

    session_timeout_ms: int = 10_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 30_000
    auto_commit_interval_ms: int = 5_000
    request_timeout_ms: int = 5_000
    retry_backoff_ms: int = 100
    metadata_max_age_ms: int = 5_000


@dataclass(eq=False, slots=True)
class LookUpCoordinator:
    """FindCoordinator of the group; the response is an ErrorResult."""

    token: object


@dataclass(eq=False, slots=True)
class FetchOffsets:
    """OffsetFetch of partitions of the topic; the response has an offset for each, 0 if none is committed."""

    token: object
    partitions: Sequence[int]


Request = events.GroupRequest | FetchOffsets | LookUpCoordinator
Answer = events.Result | dict[int, int]


class OwnershipListener(Protocol):
    """Rebalance listener of all members."""

    def claimed(self, member: SimulatedConsumer, partitions: Iterable[int]) -> None:
        """The member owns them from now on."""

    def released(self, member: SimulatedConsumer, partitions: Iterable[int]) -> None:
        """The member no longer owns them."""


@dataclass(eq=False, slots=True)
class _PendingRequest:
    """A pending request: the token of its event. It times out at `until_ms`.

    `request` is the membership's own; None for the consumer's other requests: FindCoordinator, OffsetFetch, commits.
    """

    until_ms: float
    generation: Generation
    request: GroupRequest | None = None


class SimulatedConsumer:
    """One member. `partition_count` returns the topic's number of partitions, `new_id` a unique text."""

    def __init__(
        self,
        name: str,
        assignor: PartitionAssignor,
        listener: OwnershipListener,
        partition_count: Callable[[], int],
        new_id: Callable[[], str],
        chance: random.Random,
        times: MemberTimes,
        group_instance_id: str | None = None,
    ) -> None:
        self.name = name
        #: Whether another process has taken over its instance id; this one has stopped.
        self.is_fenced = False
        self.owned: set[int] = set()
        #: Position by owned partition; missing if the committed offset is not known yet.
        self.positions: dict[int, int] = {}
        self.outbox: list[Request] = []
        self.membership = Membership(
            MemberSettings(
                GROUP_ID,
                group_instance_id,
                times.session_timeout_ms,
                times.heartbeat_interval_ms,
                times.max_poll_interval_ms,
                times.request_timeout_ms,
                times.retry_backoff_ms,
            )
        )
        self._times = times
        self._assignor = assignor
        self._is_cooperative = RebalanceProtocol.COOPERATIVE in assignor.supported_protocols
        self._listener = listener
        self._partition_count = partition_count
        self._new_id = new_id
        self._chance = chance
        self._pending: dict[_PendingRequest, None] = {}
        #: The pending commit and the pending OffsetFetch, of which there is one at a time.
        self._commit: _PendingRequest | None = None
        self._fetch: _PendingRequest | None = None
        self._commit_due_ms = self._metadata_due_ms = 0.0
        #: Number of partitions in the metadata of the last assignment, if this member leads.
        self._assigned_from: int | None = None

    @property
    def member_id(self) -> str:
        """The id assigned by the coordinator, empty before."""
        return self.membership.generation.member_id

    @property
    def generation_id(self) -> int:
        """The generation that it last joined, -1 for none."""
        return self.membership.generation.generation_id

    @property
    def group_instance_id(self) -> str | None:
        """The instance id of a static member."""
        return self.membership.settings.group_instance_id

    @property
    def is_stable(self) -> bool:
        """Whether it has its assignment and needs no rebalance."""
        membership = self.membership
        return membership.state is MemberState.STABLE and membership.assignment is None and not membership.rejoin_needed

    # -- events

    def start(self, now_ms: int) -> None:
        """Start with the first join."""
        self.membership.start(now_ms)
        self._advance(now_ms)

    def leave(self) -> None:
        """Close: revoke everything and leave the group; a static member keeps its place."""
        self._release(self.owned)
        self.membership.leave("the consumer is being closed")
        for action in self.membership.actions:
            if isinstance(action, Send) and isinstance(action.request, LeaveGroupRequest):
                self.outbox.append(event_of(action.request, object(), self.name, ""))
        self.membership.stop()

    def die(self) -> None:
        """The process ends without a notification."""
        self._release(self.owned)
        self.membership.stop()

    def disconnected(self, now_ms: int) -> None:
        """The connection broke: pending requests get no response."""
        if not self.membership.is_active:
            return
        gone = ConnectionLostError("the connection broke", retriable=True)
        pending, self._pending = self._pending, {}
        self._commit = self._fetch = None
        for one in pending:
            if one.request is not None:
                self.membership.request_failed(one.request, gone, now_ms)
            elif self.membership.lookup.is_known:
                self.membership.coordinator_lost(gone, now_ms)
            else:
                self.membership.coordinator_not_found(gone, now_ms)
        self._advance(now_ms)

    def wake(self, now_ms: int) -> None:
        """Time has passed."""
        if not self.membership.is_active:
            return
        if any(now_ms >= one.until_ms for one in self._pending):
            self.disconnected(now_ms)
        self.membership.wake(now_ms)
        self._advance(now_ms)

    def next_deadline_ms(self, now_ms: int) -> int | None:
        """When `wake` must be called; None for never."""
        membership = self.membership
        if not membership.is_active:
            return None
        due = [one.until_ms for one in self._pending]
        own_ms = membership.next_deadline_ms(now_ms)
        due += [] if own_ms is None else [own_ms]
        if self.is_stable:
            due += [] if self._assigned_from is None else [self._metadata_due_ms]
            due += [] if self._commit is not None else [self._commit_due_ms]
        return math.ceil(min(due)) if due else None

    def receive(self, request: Request, answer: Answer, now_ms: int) -> None:
        """Handle a response; one to a request that is not pending any more is ignored."""
        pending = request.token
        if not isinstance(pending, _PendingRequest) or pending not in self._pending:
            return
        del self._pending[pending]
        if isinstance(answer, dict):
            self._fetch = None
            self.positions.update({one: offset for one, offset in answer.items() if one in self.owned})
        elif isinstance(answer, events.CommitResult):
            self._commit = None
            self._committed(pending, answer, now_ms)
        elif pending.request is None:
            self.membership.coordinator_found(now_ms)
        else:
            self.membership.receive(pending.request, response_of(answer), now_ms)
        self._advance(now_ms)

    def _committed(self, pending: _PendingRequest, answer: events.CommitResult, now_ms: int) -> None:
        error = next((error for error in answer.errors if error is not ErrorCode.NONE), ErrorCode.NONE)
        if error in COORDINATOR_MOVED:
            self.membership.coordinator_lost(error.name, now_ms)
        elif error in KICKED_OUT and pending.generation == self.membership.generation:
            self.membership.kicked_out(error, "offset commit")

    # -- polling

    def _advance(self, now_ms: int) -> None:
        """Carry out the membership's actions, and poll, until there are none left."""
        self._act(now_ms)
        self.membership.polled(now_ms)
        self._look_at_metadata(now_ms)
        while self.membership.wants_poll(now_ms):
            self._poll(now_ms)
            self._act(now_ms)
        if self.is_stable:
            self._work(now_ms)
        self.membership.notes.clear()
        self.membership.check_invariants()

    def _act(self, now_ms: int) -> None:
        membership = self.membership
        while membership.actions:
            actions, membership.actions = membership.actions, []
            for action in actions:
                if isinstance(action, Send):
                    pending = self._new_request(now_ms + action.timeout_ms, action.request)
                    self.outbox.append(event_of(action.request, pending, self.name, self._new_id()))
                elif isinstance(action, FindCoordinator):
                    self.outbox.append(LookUpCoordinator(self._new_request(now_ms + self._times.request_timeout_ms)))
                elif isinstance(action, Assign):
                    membership.assigned(action.answer, self._assign(action.answer))
                else:
                    assert isinstance(action, DropCoordinator)
                    self._pending.clear()
                    self._commit = self._fetch = None

    def _new_request(self, until_ms: float, request: GroupRequest | None = None) -> _PendingRequest:
        pending = _PendingRequest(until_ms, self.membership.generation, request)
        self._pending[pending] = None
        return pending

    def _poll(self, now_ms: int) -> None:
        membership = self.membership
        membership.failure = None  # raised to the user, who polls again
        if membership.fenced is not None:
            self.is_fenced = True
            self.die()
        elif membership.assignment is not None:
            self._complete(membership.assignment, now_ms)
        else:
            if membership.needs_prepare:
                self._prepare(now_ms)
            membership.join(self._protocols(), now_ms)

    def _prepare(self, now_ms: int) -> None:
        """Before a join: commit, and revoke what has to be revoked."""
        membership = self.membership
        membership.needs_prepare = False
        if membership.has_lost_membership:
            self._release(self.owned)
        else:
            self._commit_now(self.owned, now_ms)
            if not self._is_cooperative:
                self._release(self.owned)
        membership.gave_up_all = not self.owned
        membership.is_leader = False
        self._assigned_from = None

    def _protocols(self) -> list[tuple[str, bytes]]:
        metadata = encode_subscription(
            [TOPIC],
            self._assignor.subscription_user_data([TOPIC]),
            HIGHEST_VERSION,
            owned_partitions={TOPIC: tuple(sorted(self.owned))} if self.owned else {},
            generation_id=self.generation_id,
        )
        return [(self._assignor.name, metadata)]

    def _assign(self, answer: JoinGroupResponse) -> dict[str, bytes]:
        """The leader's assignment; empty if a static leader came back and the assignment is unchanged (KIP-814)."""
        self.membership.is_leader = True
        self._assigned_from = self._partition_count()
        if answer.skip_assignment:
            return {}
        subscriptions = {}
        for member in answer.members:
            subscription = decode_subscription(member.metadata)
            assert not isinstance(subscription, Malformed), subscription
            subscriptions[member.member_id] = MemberSubscription(subscription, member.group_instance_id)
        cluster = ClusterMetadata({TOPIC: SubscribedTopic(self._assigned_from)})
        return encode_assignments(self._assignor.assign(cluster, subscriptions))

    def _complete(self, assignment: bytes, now_ms: int) -> None:
        read = decode_assignment(assignment)
        assert isinstance(read, Assignment), read
        wanted = set(read.partitions.get(TOPIC, ()))
        revoked, added = self.owned - wanted, wanted - self.owned
        if revoked:
            self._commit_now(revoked, now_ms)
            self._release(revoked)
            self.membership.request_rejoin("need to revoke partitions and re-join")
        who = GroupMetadata(GROUP_ID, self.generation_id, self.member_id, self.group_instance_id)
        self._assignor.on_assignment(read, who)
        self.membership.assignment_taken()
        self.owned |= added
        self._listener.claimed(self, added)
        self._commit_due_ms = now_ms + self._times.auto_commit_interval_ms
        self._metadata_due_ms = now_ms + self._times.metadata_max_age_ms

    def _look_at_metadata(self, now_ms: int) -> None:
        """The leader checks its metadata for more partitions than it assigned."""
        if self._assigned_from is None or not self.is_stable or now_ms < self._metadata_due_ms:
            return
        self._metadata_due_ms = now_ms + self._times.metadata_max_age_ms
        if self._partition_count() != self._assigned_from:
            self.membership.request_rejoin("cached metadata has changed")

    def _work(self, now_ms: int) -> None:
        """Consume: fetch committed offsets, commit at intervals."""
        unknown = sorted(self.owned - self.positions.keys())
        if unknown and self._fetch is None and self.membership.lookup.is_known:
            self._fetch = self._new_request(now_ms + self._times.request_timeout_ms)
            self.outbox.append(FetchOffsets(self._fetch, unknown))
        if self._commit is None and now_ms >= self._commit_due_ms:
            self._commit_due_ms = now_ms + self._times.auto_commit_interval_ms
            self._commit_now(self.owned, now_ms)

    def _commit_now(self, partitions: Iterable[int], now_ms: int) -> None:
        """Consume a little more, and commit it."""
        known = [one for one in sorted(partitions) if one in self.positions]
        if not known or not self.membership.lookup.is_known:
            return
        for one in known:
            self.positions[one] += self._chance.randint(0, MOST_RECORDS_AT_ONCE)
        offsets = [(TOPIC, one, StoredOffset(self.positions[one], -1, "", now_ms)) for one in known]
        self._commit = self._new_request(now_ms + self._times.request_timeout_ms)
        who = (GROUP_ID, self.generation_id, self.member_id, self.group_instance_id)
        self.outbox.append(events.OffsetCommit(self._commit, *who, offsets))

    def _release(self, partitions: Iterable[int]) -> None:
        gone = set(partitions)
        self.owned -= gone
        for one in gone:
            self.positions.pop(one, None)
        self._listener.released(self, gone)
