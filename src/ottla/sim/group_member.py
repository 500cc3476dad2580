"""A member of a consumer group as a machine: what it sends when, what it owns, and what it makes of every answer.

It behaves as Kafka's own consumer does (Apache Kafka 3.9, `AbstractCoordinator` and `ConsumerCoordinator`), without
records: whoever owns a partition has its position move on, and commits it. Answers come to `receive`, a broken
connection to `disconnected`, time to `wake`; what it wants to send lies in `outbox` afterwards.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from ottla.assign.assignor import (
    ClusterMetadata,
    GroupMetadata,
    MemberSubscription,
    PartitionAssignor,
    RebalanceProtocol,
    TopicMetadata,
)
from ottla.assign.consumer_protocol import (
    HIGHEST_VERSION,
    PROTOCOL_TYPE,
    Assignment,
    Malformed,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from ottla.groups.events import (
    NO_GENERATION,
    UNKNOWN_MEMBER,
    CommitResult,
    ErrorResult,
    GroupRequest,
    Heartbeat,
    JoinedMember,
    JoinGroup,
    JoinResult,
    LeaveGroup,
    LeavingMember,
    OffsetCommit,
    Result,
    SyncGroup,
    SyncResult,
)
from ottla.groups.offsets import OffsetAndMetadata
from ottla.wire.errors import ErrorCode

GROUP_ID = "churned"
TOPIC = "t"
HOST = "127.0.0.1"
MOST_RECORDS_AT_ONCE = 5

#: The coordinator is elsewhere, or not up yet: ask again later.
TRY_LATER = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


class Phase(Enum):
    """Where a member stands (SPEC G10)."""

    STOPPED = "stopped"
    FINDING_COORDINATOR = "finding the coordinator"
    JOINING = "joining"
    SYNCING = "syncing"
    MEMBER = "member"


@dataclass(frozen=True, slots=True)
class MemberTimes:
    """Intervals and limits, milliseconds, by the names of the consumer's settings."""

    session_timeout_ms: int = 10_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 30_000
    auto_commit_interval_ms: int = 5_000
    request_timeout_ms: int = 5_000
    retry_backoff_ms: int = 100
    metadata_max_age_ms: int = 5_000


class FetchOffsets:
    """OffsetFetch of partitions of the topic; answered with an offset for each, 0 where none is committed."""

    __slots__ = ("partitions", "token")

    def __init__(self, token: object, partitions: Sequence[int]) -> None:
        self.token = token
        self.partitions = partitions


Request = GroupRequest | FetchOffsets
Answer = Result | dict[int, int]


class OwnershipListener(Protocol):
    """Told when a member takes and gives up partitions: its rebalance listener."""

    def claimed(self, member: SimulatedMember, partitions: Iterable[int]) -> None:
        """It owns them from now on."""

    def released(self, member: SimulatedMember, partitions: Iterable[int]) -> None:
        """It owns them no more."""


class SimulatedMember:
    """One member. `partition_count` tells how many partitions the topic has now, `new_id` gives a unique text."""

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
        self.group_instance_id = group_instance_id
        #: Whether another process has its instance id now; this one has stopped.
        self.is_fenced = False
        self.times = times
        self.phase = Phase.STOPPED
        self.member_id = UNKNOWN_MEMBER
        self.generation_id = NO_GENERATION
        self.is_leader = False
        self.owned: set[int] = set()
        #: Where it stands in what it owns; a partition whose position it does not know yet is missing.
        self.positions: dict[int, int] = {}
        self.outbox: list[Request] = []
        self._assignor = assignor
        self._is_cooperative = RebalanceProtocol.COOPERATIVE in assignor.supported_protocols
        self._listener = listener
        self._partition_count = partition_count
        self._new_id = new_id
        self._chance = chance
        #: What it waits for an answer to, and until when; heartbeats and commits have their own.
        self._waiting: tuple[Request, int] | None = None
        self._heartbeat: tuple[Request, int] | None = None
        self._commit: tuple[Request, int] | None = None
        self._heartbeat_due_ms = self._commit_due_ms = self._retry_due_ms = self._metadata_due_ms = 0
        self._known_partitions = 0

    @property
    def is_cooperative(self) -> bool:
        """Whether it keeps what it owns while it joins."""
        return self._is_cooperative

    # -- what happens to it

    def start(self, now_ms: int) -> None:
        """Begin: the first join."""
        self._join(now_ms)

    def leave(self) -> None:
        """Close: give everything up, tell the coordinator, forget the member id; a static member keeps its place."""
        self._release(self.owned)
        if self.member_id != UNKNOWN_MEMBER and self.group_instance_id is None:
            self.outbox.append(LeaveGroup(object(), GROUP_ID, [LeavingMember(self.member_id)]))
        self._stop()

    def die(self) -> None:
        """The process is gone; nobody is told."""
        self._release(self.owned)
        self._stop()

    def disconnected(self, now_ms: int) -> None:
        """The connection broke: nothing that it waits for will come."""
        if self.phase is Phase.STOPPED:
            return
        self._waiting = self._heartbeat = self._commit = None
        if self.phase is not Phase.MEMBER:
            self._retry(now_ms)

    def wake(self, now_ms: int) -> None:
        """Time has passed."""
        if self.phase is Phase.STOPPED:
            return
        for waiting in (self._waiting, self._heartbeat, self._commit):
            if waiting is not None and now_ms >= waiting[1]:
                self.disconnected(now_ms)
                break
        if self.phase is Phase.FINDING_COORDINATOR:
            if now_ms >= self._retry_due_ms:
                self._join(now_ms)
        elif self.phase is Phase.MEMBER:
            self._work(now_ms)

    def next_deadline_ms(self) -> int | None:
        """When `wake` wants to be called; None for never."""
        if self.phase is Phase.STOPPED:
            return None
        due = [waiting[1] for waiting in (self._waiting, self._heartbeat, self._commit) if waiting is not None]
        if self.phase is Phase.FINDING_COORDINATOR:
            due.append(self._retry_due_ms)
        elif self.phase is Phase.MEMBER:
            due += [self._metadata_due_ms] if self.is_leader else []
            due += [] if self._heartbeat is not None else [self._heartbeat_due_ms]
            due += [] if self._commit is not None else [self._commit_due_ms]
        return min(due, default=None)

    def receive(self, request: Request, answer: Answer, now_ms: int) -> None:
        """An answer; one to a request that it does not wait for any more is thrown away."""
        if self._heartbeat is not None and self._heartbeat[0] is request:
            self._heartbeat = None
            assert isinstance(answer, ErrorResult)
            self._heartbeat_answered(answer.error, now_ms)
        elif self._commit is not None and self._commit[0] is request:
            self._commit = None
            assert isinstance(answer, CommitResult)
            self._fenced(next((error for error in answer.errors if error is not ErrorCode.NONE), None), now_ms)
        elif self._waiting is not None and self._waiting[0] is request:
            self._waiting = None
            if isinstance(answer, JoinResult):
                self._joined(answer, now_ms)
            elif isinstance(answer, SyncResult):
                self._synced(answer, now_ms)
            elif isinstance(answer, dict):
                self.positions.update({one: offset for one, offset in answer.items() if one in self.owned})

    # -- joining

    def _join(self, now_ms: int) -> None:
        if not self._is_cooperative:
            self._release(self.owned)
        self.phase = Phase.JOINING
        owned = {TOPIC: tuple(sorted(self.owned))} if self._is_cooperative else {}
        metadata = encode_subscription(
            [TOPIC],
            self._assignor.subscription_user_data([TOPIC]),
            HIGHEST_VERSION,
            owned_partitions=owned,
            generation_id=self.generation_id,
        )
        self._ask(
            JoinGroup(
                object(),
                GROUP_ID,
                self.member_id,
                self.group_instance_id,
                self.name,
                HOST,
                self.times.session_timeout_ms,
                self.times.max_poll_interval_ms,
                PROTOCOL_TYPE,
                ((self._assignor.name, metadata),),
                self._new_id(),
                requires_member_id=True,
                can_skip_assignment=True,
            ),
            now_ms + self.times.max_poll_interval_ms + self.times.request_timeout_ms,
        )

    def _joined(self, answer: JoinResult, now_ms: int) -> None:
        if answer.error is ErrorCode.NONE:
            self.phase = Phase.SYNCING
            self.member_id, self.generation_id = answer.member_id, answer.generation_id
            self.is_leader = answer.leader == answer.member_id
            # A static leader that comes back leaves the assignment as it is (KIP-814).
            assignments = self._assign(answer.members) if self.is_leader and not answer.skip_assignment else {}
            who = (object(), GROUP_ID, self.generation_id, self.member_id, self.group_instance_id)
            request = SyncGroup(*who, PROTOCOL_TYPE, self._assignor.name, assignments)
            self._ask(request, now_ms + self.times.max_poll_interval_ms + self.times.request_timeout_ms)
        elif answer.error is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            self._join(now_ms)
        elif answer.error in TRY_LATER or answer.error is ErrorCode.REBALANCE_IN_PROGRESS:
            self._retry(now_ms)
        else:
            self._refused(answer.error, now_ms)

    def _assign(self, members: Sequence[JoinedMember]) -> dict[str, bytes]:
        subscriptions = {}
        for member in members:
            subscription = decode_subscription(member.metadata)
            assert not isinstance(subscription, Malformed), subscription
            subscriptions[member.member_id] = MemberSubscription(subscription, member.group_instance_id)
        self._known_partitions = self._partition_count()
        cluster = ClusterMetadata({TOPIC: TopicMetadata(self._known_partitions)})
        assigned = self._assignor.assign(cluster, subscriptions)
        return {
            member_id: encode_assignment(one.partitions, one.user_data, HIGHEST_VERSION)
            for member_id, one in assigned.items()
        }

    def _synced(self, answer: SyncResult, now_ms: int) -> None:
        if answer.error is not ErrorCode.NONE:
            if answer.error in TRY_LATER or answer.error is ErrorCode.REBALANCE_IN_PROGRESS:
                self._retry(now_ms)
            else:
                self._refused(answer.error, now_ms)
            return
        read = decode_assignment(answer.assignment)
        assert isinstance(read, Assignment), read
        metadata = GroupMetadata(GROUP_ID, self.generation_id, self.member_id, self.group_instance_id)
        self._assignor.on_assignment(read, metadata)
        wanted = set(read.partitions.get(TOPIC, ()))
        given_up, added = self.owned - wanted, wanted - self.owned
        self._commit_now(given_up, now_ms)
        self._release(given_up)
        self.owned |= added
        self._listener.claimed(self, added)
        self._become_member(now_ms)
        if given_up:
            self._join(now_ms)
        elif unknown := sorted(self.owned - self.positions.keys()):
            self._ask(FetchOffsets(object(), unknown), now_ms + self.times.request_timeout_ms)

    def _become_member(self, now_ms: int) -> None:
        self.phase = Phase.MEMBER
        self._heartbeat_due_ms = now_ms + self.times.heartbeat_interval_ms
        self._commit_due_ms = now_ms + self.times.auto_commit_interval_ms
        self._metadata_due_ms = now_ms + self.times.metadata_max_age_ms

    # -- being a member

    def _work(self, now_ms: int) -> None:
        unknown = sorted(self.owned - self.positions.keys())
        if unknown and self._waiting is None:
            self._ask(FetchOffsets(object(), unknown), now_ms + self.times.request_timeout_ms)
        if self._heartbeat is None and now_ms >= self._heartbeat_due_ms:
            self._heartbeat_due_ms = now_ms + self.times.heartbeat_interval_ms
            request = Heartbeat(object(), GROUP_ID, self.generation_id, self.member_id, self.group_instance_id)
            self._heartbeat = (request, now_ms + self.times.request_timeout_ms)
            self.outbox.append(request)
        if self._commit is None and now_ms >= self._commit_due_ms:
            self._commit_due_ms = now_ms + self.times.auto_commit_interval_ms
            self._commit_now(self.owned, now_ms)
        if self.is_leader and now_ms >= self._metadata_due_ms:
            self._metadata_due_ms = now_ms + self.times.metadata_max_age_ms
            if self._partition_count() != self._known_partitions:
                self._rejoin(now_ms)

    def _commit_now(self, partitions: Iterable[int], now_ms: int) -> None:
        """Consume a little more, and commit it."""
        known = [one for one in sorted(partitions) if one in self.positions]
        if not known:
            return
        for one in known:
            self.positions[one] += self._chance.randint(0, MOST_RECORDS_AT_ONCE)
        offsets = [(TOPIC, one, OffsetAndMetadata(self.positions[one], -1, "", now_ms)) for one in known]
        who = (object(), GROUP_ID, self.generation_id, self.member_id, self.group_instance_id)
        request = OffsetCommit(*who, offsets)
        self._commit = (request, now_ms + self.times.request_timeout_ms)
        self.outbox.append(request)

    def _heartbeat_answered(self, error: ErrorCode, now_ms: int) -> None:
        if self.phase is not Phase.MEMBER or error is ErrorCode.NONE:
            return
        if error is ErrorCode.REBALANCE_IN_PROGRESS:
            self._rejoin(now_ms)
        else:
            self._fenced(error, now_ms)

    def _fenced(self, error: ErrorCode | None, now_ms: int) -> None:
        """A heartbeat or a commit was refused."""
        if error is ErrorCode.FENCED_INSTANCE_ID or (
            error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION) and self.phase is Phase.MEMBER
        ):
            self._refused(error, now_ms)

    def _rejoin(self, now_ms: int) -> None:
        """Take part in a rebalance: commit what it has, give it up where it is eager, join."""
        self._commit_now(self.owned, now_ms)
        self._join(now_ms)

    def _refused(self, error: ErrorCode, now_ms: int) -> None:
        """The group went on without it: what it owned is others' now. Who is fenced stops for good."""
        self._release(self.owned)
        if error is ErrorCode.FENCED_INSTANCE_ID:
            self.is_fenced = True
            self._stop()
            return
        self.generation_id = NO_GENERATION
        if error is ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = UNKNOWN_MEMBER
        self._retry(now_ms)

    def _retry(self, now_ms: int) -> None:
        self.phase = Phase.FINDING_COORDINATOR
        self._waiting = None
        self._retry_due_ms = now_ms + self.times.retry_backoff_ms

    def _ask(self, request: Request, until_ms: int) -> None:
        self._waiting = (request, until_ms)
        self.outbox.append(request)

    def _release(self, partitions: Iterable[int]) -> None:
        gone = set(partitions)
        self.owned -= gone
        for one in gone:
            self.positions.pop(one, None)
        self._listener.released(self, gone)

    def _stop(self) -> None:
        self.phase = Phase.STOPPED
        self.member_id, self.generation_id = UNKNOWN_MEMBER, NO_GENERATION
        self._waiting = self._heartbeat = self._commit = None
