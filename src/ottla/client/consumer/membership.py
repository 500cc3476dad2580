"""State machine of a member of a classic consumer group: which requests it sends, and how it handles responses. Pure.

The shell (`ottla.client.consumer.coordinator`) passes in time (`wake`), responses (`receive`, `request_failed`)
and the user's polls, and carries out the `actions` afterwards. The shell starts a join inside a poll, as the user's
listener has to be called before; the rest (SyncGroup, the leader's assignment) needs no poll.
The new assignment is kept in `assignment` until a poll takes it.

Source: Apache Kafka 3.9, `AbstractCoordinator`; KIP-62 (background heartbeats), KIP-345 (static members), KIP-394
(member id required), KIP-800 (reasons), KIP-814 (skipped assignment).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from ottla.assign.consumer_protocol import PROTOCOL_TYPE
from ottla.client.errors import BrokerError, ClientError, ConnectionLostError, FencedInstanceIdError
from ottla.peer.errors import COORDINATOR_MOVED
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from ottla.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

NO_GENERATION_ID = -1
NO_MEMBER_ID = ""
MAX_REASON_LENGTH = 255
JOIN_TIMEOUT_LAPSE_MS = 5_000
"""Slack for a JoinGroup response, which may come a little later than the rebalance timeout."""

KICKED_OUT = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_INSTANCE_ID)
AT_ONCE = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS)
"""Errors after which a join is retried without backoff."""


class MemberState(Enum):
    """State of a member in the group protocol."""

    UNJOINED = "unjoined"
    PREPARING_REBALANCE = "preparing rebalance"
    """JoinGroup is sent."""
    COMPLETING_REBALANCE = "completing rebalance"
    """It has joined a generation, and waits for SyncGroup."""
    STABLE = "stable"


class ClientState(Enum):
    """State of a consumer in a group; the value is that of the metric `client-state`."""

    DOWN = 0
    """Not started, unsubscribed or closed."""
    FINDING_COORDINATOR = 1
    """Looking for the coordinator for the first time."""
    MEMBER = 2
    """Has its partitions and consumes; a cooperative member also during a rebalance."""
    FINDING_COORDINATOR_AGAIN = 3
    """Looking for the coordinator again, while it continues to consume."""
    STOPPED = 4
    """Consumes nothing until a rebalance is over."""


class Generation(NamedTuple):
    """A generation of the group as a member knows it, with its member id and assignor."""

    generation_id: int = NO_GENERATION_ID
    member_id: str = NO_MEMBER_ID
    protocol_name: str | None = None


NO_GENERATION = Generation()


@dataclass(frozen=True, slots=True)
class MemberSettings:
    """Settings of a member, by the names of the consumer's settings."""

    group_id: str
    group_instance_id: str | None = None
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    request_timeout_ms: int = 30_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000


class Note(NamedTuple):
    """A message for the log."""

    text: str
    is_warning: bool = False


@dataclass(frozen=True, slots=True)
class FindCoordinator:
    """Look up the coordinator; then call `coordinator_found` or `coordinator_not_found`."""


@dataclass(frozen=True, slots=True)
class DropCoordinator:
    """Close the connections to the former coordinator, so that requests waiting there fail at once."""


@dataclass(frozen=True, slots=True)
class Send:
    """Send the request to the coordinator; then call `receive` or `request_failed`."""

    request: GroupRequest
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class Assign:
    """As leader, compute the assignment of all members; then call `assigned` or `assignment_failed`."""

    answer: JoinGroupResponse


@dataclass(slots=True)
class MemberMetrics:
    """Counts and times since the member was started; times are None before the first."""

    joins: int = 0
    syncs: int = 0
    heartbeats: int = 0
    rebalances: int = 0
    failed_rebalances: int = 0
    rebalance_latency_total_ms: float = 0.0
    rebalance_latency_max_ms: float = 0.0
    last_rebalance_at_ms: float | None = None
    last_heartbeat_at_ms: float | None = None

    def rebalanced(self, latency_ms: float, now_ms: float) -> None:
        """Count a rebalance that is complete."""
        self.syncs += 1
        self.rebalances += 1
        self.rebalance_latency_total_ms += latency_ms
        self.rebalance_latency_max_ms = max(self.rebalance_latency_max_ms, latency_ms)
        self.last_rebalance_at_ms = now_ms


GroupRequest = JoinGroupRequest | SyncGroupRequest | HeartbeatRequest | LeaveGroupRequest
GroupResponse = JoinGroupResponse | SyncGroupResponse | HeartbeatResponse | LeaveGroupResponse
Action = FindCoordinator | DropCoordinator | Send | Assign


class CoordinatorLookup:
    """Whether the coordinator is known, and when to look for it; the rest is as for `Membership`."""

    def __init__(self, settings: MemberSettings, jitter: Callable[[float], float]) -> None:
        self._settings = settings
        self._jitter = jitter
        self.is_known = False
        self.lost_at_ms: float | None = None
        """Since when the coordinator is unknown, None while it is known."""
        self.problem: ClientError | str | None = None
        self.is_wanted = False
        """Whether a caller that is not a member (yet) needs it."""
        self._in_progress = False
        self._due_ms = 0.0
        self._failures = 0
        self._found_at_ms = float("-inf")
        self._losses_in_a_row = 0
        """How often the coordinator was lost soon after it had been found."""

    @property
    def due_ms(self) -> float | None:
        """When to look for an unknown coordinator; None while that is in progress."""
        return None if self._in_progress else self._due_ms

    def begin(self, now_ms: float) -> bool:
        """Begin to look if that is due; returns whether it did."""
        if self._in_progress or now_ms < self._due_ms:
            return False
        self._in_progress = True
        return True

    def found(self, now_ms: float) -> None:
        """Handle a successful lookup."""
        self._in_progress = self.is_wanted = False
        self.is_known = True
        self._found_at_ms = now_ms
        self.lost_at_ms = self.problem = None
        self._failures = 0

    def failed(self, error: ClientError, now_ms: float) -> None:
        """Handle a failed lookup; it is repeated after a backoff, unless the error is fatal and no member needs it."""
        self._in_progress = False
        self.problem = error
        self._due_ms = now_ms + backoff_ms(self._settings, self._jitter, self._failures)
        self._failures += 1
        self.is_wanted = self.is_wanted and error.retriable

    def lost(self, why: ClientError | str, now_ms: float) -> None:
        """Look for the coordinator at once, but after a backoff if one was found and lost just before.

        Brokers name a coordinator that is gone until they know another one.
        """
        self.is_known = False
        self.lost_at_ms = now_ms
        self.problem = why
        if now_ms - self._found_at_ms >= self._settings.retry_backoff_max_ms:
            self._losses_in_a_row = 0
        before = self._losses_in_a_row
        self._losses_in_a_row += 1
        pause_ms = backoff_ms(self._settings, self._jitter, before - 1) if before else 0.0
        self._due_ms = now_ms + pause_ms


def backoff_ms(settings: MemberSettings, jitter: Callable[[float], float], failures: int) -> float:
    """The pause after one more than `failures` failures in a row."""
    return jitter(min(settings.retry_backoff_ms * 2 ** min(failures, 30), settings.retry_backoff_max_ms))


def is_overtaken(code: int, state: MemberState) -> bool:
    """Whether JoinGroup, on its connection, may have overtaken the request refused with `code`: ignore the refusal.

    The response to JoinGroup tells whether it is a member.
    """
    return code == ErrorCode.ILLEGAL_GENERATION and state is MemberState.PREPARING_REBALANCE


class Membership:
    """See the module. Times are milliseconds of one monotonic clock."""

    def __init__(self, settings: MemberSettings, jitter: Callable[[float], float] = float) -> None:
        self.settings = settings
        self._jitter = jitter
        self.state = MemberState.UNJOINED
        self.generation = NO_GENERATION
        self.is_active = False
        """Whether it should be a member: from `start` to `stop`."""
        self.is_leader = False
        self.lookup = CoordinatorLookup(settings, jitter)
        self.rejoin_needed = False
        self.rejoin_reason = ""
        self.needs_prepare = True
        """Whether the listener has to be called before the next join."""
        self.gave_up_all = False
        """Whether all partitions were revoked before the join, as eager members do; set by the shell."""
        self.assignment: bytes | None = None
        """The assignment from SyncGroup, until a poll takes it."""
        self.failure: ClientError | None = None
        """A fatal error; a poll raises it."""
        self.fenced: FencedInstanceIdError | None = None
        self.actions: list[Action] = []
        self.notes: list[Note] = []
        """Events to be logged."""
        self.last_poll_ms = 0.0
        self.rebalance_started_ms: float | None = None
        self.metrics = MemberMetrics()
        self._was_member = False
        self._join_due_ms = 0.0
        self._failures = 0
        self._joining: JoinGroupRequest | SyncGroupRequest | None = None
        self._assigning: JoinGroupResponse | None = None
        self._heartbeat: tuple[HeartbeatRequest, Generation] | None = None
        self._heartbeat_due_ms = 0.0
        self._session_deadline_ms = 0.0

    # State

    @property
    def client_state(self) -> ClientState:
        """State of the consumer, for metrics."""
        if not self.is_active:
            return ClientState.DOWN
        if not self.lookup.is_known:
            return ClientState.FINDING_COORDINATOR_AGAIN if self._was_member else ClientState.FINDING_COORDINATOR
        return ClientState.MEMBER if self._was_member and self.consumes else ClientState.STOPPED

    @property
    def consumes(self) -> bool:
        """Whether it may consume: it is stable, or keeps its partitions during a rebalance."""
        return self.generation.generation_id != NO_GENERATION_ID and not self.gave_up_all

    @property
    def is_rebalancing(self) -> bool:
        """Whether it has joined a rebalance that is not complete."""
        return self.state in (MemberState.PREPARING_REBALANCE, MemberState.COMPLETING_REBALANCE)

    @property
    def has_lost_membership(self) -> bool:
        """Whether it fell out of the group: its partitions may have other owners."""
        return self.generation.generation_id == NO_GENERATION_ID or self.generation.member_id == NO_MEMBER_ID

    @property
    def is_joining(self) -> bool:
        """Whether a join is in progress, until a poll takes the assignment."""
        return self._joining is not None or self._assigning is not None

    def can_join(self, now_ms: float) -> bool:
        """Whether a poll should start a join now."""
        return (
            self.is_active
            and self.rejoin_needed
            and self.assignment is None
            and self.lookup.is_known
            and not self.is_joining
            and now_ms >= self._join_due_ms
        )

    def wants_poll(self, now_ms: float) -> bool:
        """Whether there is work for a poll."""
        return self.failure is not None or self.assignment is not None or self.can_join(now_ms)

    @property
    def poll_deadline_ms(self) -> float:
        """When it leaves the group unless the user polls before."""
        return self.last_poll_ms + self.settings.max_poll_interval_ms

    # Time

    def start(self, now_ms: float) -> None:
        """Become a member; no effect on a member."""
        if not self.is_active:
            self.is_active = True
            self.rejoin_needed, self.needs_prepare = True, True
            self.last_poll_ms = now_ms
            self._was_member = False
            if not self.lookup.is_known:
                self.lookup.lost_at_ms = self.lookup.lost_at_ms or now_ms
            self.wake(now_ms)

    def stop(self) -> None:
        """Stop being a member, without a request to the coordinator; call `leave` before to send LeaveGroup."""
        self.is_active = False
        self._reset(NO_GENERATION)
        self.rejoin_needed = False
        self.failure = None

    def want_coordinator(self, now_ms: float) -> None:
        """Find the coordinator for a caller that is not a member (yet)."""
        self.lookup.is_wanted = True
        self.wake(now_ms)

    def polled(self, now_ms: float) -> None:
        """Note that the user polled: it is alive."""
        self.last_poll_ms = now_ms

    def wake(self, now_ms: float) -> None:
        """Handle the passing of time."""
        if not self.lookup.is_known:
            if (self.is_active or self.lookup.is_wanted) and self.lookup.begin(now_ms):
                self.actions.append(FindCoordinator())
        elif self._is_in_generation:
            self._keep_alive(now_ms)

    def next_deadline_ms(self, now_ms: float) -> float | None:
        """When to call `wake` or to request a poll next; None for never."""
        due: list[float] = []
        if not self.lookup.is_known:
            if (self.is_active or self.lookup.is_wanted) and self.lookup.due_ms is not None:
                due.append(self.lookup.due_ms)
        elif self._is_in_generation:
            due += [self._session_deadline_ms, self.poll_deadline_ms]
            due += [self._heartbeat_due_ms] if self._heartbeat is None else []
        if self.rejoin_needed and self.is_active and not self.is_joining and self._join_due_ms > now_ms:
            due.append(self._join_due_ms)
        return min(due, default=None)

    @property
    def _is_in_generation(self) -> bool:
        return self.is_active and self.state in (MemberState.COMPLETING_REBALANCE, MemberState.STABLE)

    def _keep_alive(self, now_ms: float) -> None:
        settings = self.settings
        if now_ms >= self._session_deadline_ms:
            self.coordinator_lost(
                f"it answered no heartbeat within session.timeout.ms={settings.session_timeout_ms}", now_ms
            )
        elif now_ms >= self.poll_deadline_ms:
            late_ms = now_ms - self.last_poll_ms
            text = (
                f"leaving, as poll was not called for {late_ms:.0f} ms, longer than max.poll.interval.ms="
                f"{settings.max_poll_interval_ms}: the work between two polls takes too long; raise the setting, or "
                "lower max.poll.records"
            )
            self.notes.append(Note(text, is_warning=True))
            self.leave("consumer poll timeout has expired.")
        elif self._heartbeat is None and now_ms >= self._heartbeat_due_ms:
            who = self.generation
            request = HeartbeatRequest(
                group_id=settings.group_id,
                generation_id=who.generation_id,
                member_id=who.member_id,
                group_instance_id=settings.group_instance_id,
            )
            self._heartbeat = (request, who)
            self._heartbeat_due_ms = now_ms + settings.heartbeat_interval_ms
            self.metrics.last_heartbeat_at_ms = now_ms
            self.actions.append(Send(request, settings.request_timeout_ms))

    # The coordinator

    def coordinator_found(self, now_ms: float) -> None:
        """Handle a successful lookup."""
        self.lookup.found(now_ms)
        self._session_deadline_ms = now_ms + self.settings.session_timeout_ms
        self._heartbeat_due_ms = min(self._heartbeat_due_ms, now_ms)
        self.wake(now_ms)

    def coordinator_not_found(self, error: ClientError, now_ms: float) -> None:
        """Handle a failed lookup; it is retried after a backoff, unless the error is fatal."""
        self.lookup.failed(error, now_ms)
        if not error.retriable:
            self.failure = error if self.is_active else None

    def coordinator_lost(self, why: ClientError | str, now_ms: float) -> None:
        """Note that the broker is not the coordinator any more, or unreachable: find it again.

        Its pending responses are ignored; a join in progress is restarted with the coordinator that is found.
        """
        if self.lookup.is_known:
            self.lookup.lost(why, now_ms)
            self.notes.append(Note(f"the coordinator is lost and looked for: {why}"))
            self._heartbeat = None
            self.actions.append(DropCoordinator())
            if self._joining is not None:
                self._joining = None
                gone = ConnectionLostError(f"the coordinator is lost: {why}", retriable=True)
                self._join_failed(gone, type(gone).__name__, now_ms)
        self.wake(now_ms)

    # Joining

    def request_rejoin(self, reason: str) -> None:
        """Take part in a rebalance with the next poll, or trigger one; `reason` is sent to the coordinator."""
        self.rejoin_needed = True
        self.rejoin_reason = reason

    def join(self, protocols: Sequence[tuple[str, bytes]], now_ms: float) -> None:
        """Send JoinGroup with a subscription for each assignor, in order of preference."""
        settings = self.settings
        self.needs_prepare = False
        self.state = MemberState.PREPARING_REBALANCE
        if self.rebalance_started_ms is None:
            self.rebalance_started_ms = now_ms
        request = JoinGroupRequest(
            group_id=settings.group_id,
            session_timeout_ms=settings.session_timeout_ms,
            rebalance_timeout_ms=settings.max_poll_interval_ms,
            member_id=self.generation.member_id,
            group_instance_id=settings.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[JoinGroupRequestProtocol(name=name, metadata=metadata) for name, metadata in protocols],
            reason=self.rejoin_reason[:MAX_REASON_LENGTH],
        )
        self._send_joining(request)

    def assigned(self, answer: JoinGroupResponse, assignments: Mapping[str, bytes]) -> None:
        """The leader has computed the assignment of each member: send SyncGroup."""
        if answer is self._assigning:
            self._assigning = None
            self._sync(assignments)

    def assignment_failed(self, answer: JoinGroupResponse, error: ClientError, now_ms: float) -> None:
        """The leader's assignor failed."""
        if answer is self._assigning:
            self._assigning = None
            self._join_failed(error, type(error).__name__, now_ms)

    def assignment_taken(self) -> None:
        """A poll has taken the assignment: the rebalance is complete."""
        self.assignment = None
        self.needs_prepare = True
        self.gave_up_all = False
        self._was_member = True

    def _sync(self, assignments: Mapping[str, bytes]) -> None:
        settings, who = self.settings, self.generation
        request = SyncGroupRequest(
            group_id=settings.group_id,
            generation_id=who.generation_id,
            member_id=who.member_id,
            group_instance_id=settings.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=who.protocol_name,
            assignments=[
                SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
                for member_id, assignment in assignments.items()
            ],
        )
        self._send_joining(request)

    def _send_joining(self, request: JoinGroupRequest | SyncGroupRequest) -> None:
        settings = self.settings
        timeout_ms = max(settings.request_timeout_ms, settings.max_poll_interval_ms + JOIN_TIMEOUT_LAPSE_MS)
        self._joining = request
        self.actions.append(Send(request, timeout_ms))

    # Responses

    def receive(self, request: GroupRequest, answer: GroupResponse, now_ms: float) -> None:
        """Handle a response; one to an obsolete request is ignored."""
        if self._heartbeat is not None and request is self._heartbeat[0]:
            sent_as = self._heartbeat[1]
            self._heartbeat = None
            self.metrics.heartbeats += 1
            self._heartbeat_answered(answer.error_code, sent_as, now_ms)
        elif request is self._joining:
            self._joining = None
            if isinstance(answer, JoinGroupResponse):
                self._join_answered(answer, now_ms)
            elif isinstance(answer, SyncGroupResponse):
                self._sync_answered(answer, now_ms)
        self.wake(now_ms)

    def request_failed(self, request: GroupRequest, error: ClientError, now_ms: float) -> None:
        """Handle a request without response: connection lost, or timeout."""
        waited_for = request is self._joining or (self._heartbeat is not None and request is self._heartbeat[0])
        if not waited_for:
            return
        if request is self._joining:
            self._joining = None
            self._join_failed(error, type(error).__name__, now_ms)
        else:
            self._heartbeat = None
        if error.retriable:
            self.coordinator_lost(error, now_ms)
        else:
            self.failure = error

    def _heartbeat_answered(self, code: int, sent_as: Generation, now_ms: float) -> None:
        is_current = sent_as == self.generation
        if code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
            self._session_deadline_ms = now_ms + self.settings.session_timeout_ms
            is_stable = is_current and self.state is MemberState.STABLE
            if code == ErrorCode.REBALANCE_IN_PROGRESS and is_stable and not self.rejoin_needed:
                self.request_rejoin("group is already rebalancing")
        elif code in COORDINATOR_MOVED:
            self.coordinator_lost(self._refusal(code, "the broker is not its coordinator"), now_ms)
        elif code in KICKED_OUT:
            if is_current and not is_overtaken(code, self.state):
                self.kicked_out(code, "heartbeat")
        elif not self._refusal(code, "").retriable:
            self.failure = self._refusal(code, "a heartbeat was refused")

    def _join_answered(self, answer: JoinGroupResponse, now_ms: float) -> None:
        code = answer.error_code
        if code == ErrorCode.NONE:
            if answer.protocol_type not in (None, PROTOCOL_TYPE):
                code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
            else:
                self._joined(answer, now_ms)
                return
        if code == ErrorCode.MEMBER_ID_REQUIRED:
            self.generation = Generation(NO_GENERATION_ID, answer.member_id)
            self.request_rejoin("rebalance failed due to MemberIdRequiredException")
        else:
            self._joining_refused(code, "cannot be joined", now_ms)

    def _joined(self, answer: JoinGroupResponse, now_ms: float) -> None:
        self.metrics.joins += 1
        self.state = MemberState.COMPLETING_REBALANCE
        self.generation = Generation(answer.generation_id, answer.member_id, answer.protocol_name)
        self._failures = 0
        self._session_deadline_ms = now_ms + self.settings.session_timeout_ms
        self._heartbeat_due_ms = now_ms + self.settings.heartbeat_interval_ms
        self.last_poll_ms = now_ms
        if answer.leader == answer.member_id:
            self._assigning = answer
            self.actions.append(Assign(answer))
        else:
            self._sync({})

    def _sync_answered(self, answer: SyncGroupResponse, now_ms: float) -> None:
        code = answer.error_code
        if code == ErrorCode.NONE and answer.protocol_name not in (None, self.generation.protocol_name):
            code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if code != ErrorCode.NONE:
            self._joining_refused(code, "gives no assignment", now_ms)
            return
        self.state = MemberState.STABLE
        self.rejoin_needed, self.rejoin_reason = False, ""
        began_ms, self.rebalance_started_ms = self.rebalance_started_ms, None
        self.metrics.rebalanced(0.0 if began_ms is None else now_ms - began_ms, now_ms)
        self._session_deadline_ms = now_ms + self.settings.session_timeout_ms
        self.assignment = answer.assignment

    def _joining_refused(self, code: int, context: str, now_ms: float) -> None:
        error = self._refusal(code, context)
        if code in COORDINATOR_MOVED:
            self.coordinator_lost(error, now_ms)
        elif code in KICKED_OUT:
            self.kicked_out(code, "joining")
        if code in AT_ONCE:
            self.rejoin_needed = True
            self._join_due_ms = now_ms
            self.rejoin_reason = self.rejoin_reason or f"rebalance failed due to {error.name}"
        else:
            self._join_failed(error, error.name, now_ms)

    def _join_failed(self, error: ClientError, name: str, now_ms: float) -> None:
        """Handle a failed join: retry after a backoff, or keep a fatal error for the user."""
        self.metrics.failed_rebalances += 1
        self.request_rejoin(f"rebalance failed due to {name}")
        self.notes.append(Note(f"joining failed: {error}"))
        self._join_due_ms = now_ms + backoff_ms(self.settings, self._jitter, self._failures)
        self._failures += 1
        if not error.retriable and self.fenced is None:
            self.failure = error

    # Leaving

    def kicked_out(self, code: int, while_doing: str) -> None:
        """Handle the loss of membership, reported by a heartbeat, join, sync or commit response.

        With ILLEGAL_GENERATION the member id may still be valid. FENCED_INSTANCE_ID is fatal: a poll raises it.
        """
        if code == ErrorCode.FENCED_INSTANCE_ID:
            settings = self.settings
            who = f"this member, whose group.instance.id is {settings.group_instance_id}"
            self.fenced = FencedInstanceIdError(code, f"group {settings.group_id} has shut out {who}")
            self.failure = self.fenced
        name = self._refusal(code, "").name
        text = f"the group continued without this member ({name} from {while_doing}): what it owned is lost"
        self.notes.append(Note(text, is_warning=not self.has_lost_membership))
        keeps_id = code == ErrorCode.ILLEGAL_GENERATION
        self._reset(Generation(NO_GENERATION_ID, self.generation.member_id) if keeps_id else NO_GENERATION)
        self.request_rejoin(f"encountered {name} from {while_doing} response")

    def leave(self, reason: str) -> None:
        """Leave the group: send LeaveGroup, unless the member is static, and forget the member id."""
        settings, who = self.settings, self.generation
        if (
            settings.group_instance_id is None
            and self.lookup.is_known
            and self.state is not MemberState.UNJOINED
            and who.member_id != NO_MEMBER_ID
        ):
            leaver = MemberIdentity(member_id=who.member_id, reason=reason[:MAX_REASON_LENGTH])
            request = LeaveGroupRequest(group_id=settings.group_id, members=[leaver])
            self.actions.append(Send(request, settings.request_timeout_ms))
        self._reset(NO_GENERATION)
        self.request_rejoin("consumer pro-actively leaving the group")

    def _reset(self, generation: Generation) -> None:
        self.state = MemberState.UNJOINED
        self.generation = generation
        self.assignment = None
        self.needs_prepare = True
        self.is_leader = False
        self.rebalance_started_ms = None
        self._joining = self._assigning = self._heartbeat = None

    def _refusal(self, code: int, context: str) -> BrokerError:
        return BrokerError(code, f"group {self.settings.group_id}: {context}")

    # Invariants

    def check_invariants(self) -> None:
        """Raise AssertionError if the state contradicts itself; for tests."""
        in_generation = self.state in (MemberState.COMPLETING_REBALANCE, MemberState.STABLE)
        assert not in_generation or not self.has_lost_membership, (self.state, self.generation)
        assert self.assignment is None or self.state is MemberState.STABLE, self.state
        assert self._heartbeat is None or in_generation or self.state is MemberState.PREPARING_REBALANCE, self.state
        assert self._joining is None or self.is_rebalancing, self.state
        assert self._assigning is None or self.state is MemberState.COMPLETING_REBALANCE, self.state
        assert self.is_active or (self.state is MemberState.UNJOINED and self.assignment is None), self.state
        assert self.state is not MemberState.UNJOINED or self.has_lost_membership, self.generation
        assert not self.is_active or self.rejoin_needed or self.state is MemberState.STABLE, self.state
