"""Whether a consumer makes progress and, if not, why: for dashboards and probes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from ottla.client.consumer.membership import ClientState, Membership, MemberState
from ottla.client.consumer.subscription_state import FetchState, PartitionState
from ottla.client.errors import BrokerError, ClientError
from ottla.client.model import TopicPartition
from ottla.peer.errors import LEADERLESS

MAX_NAMED = 5
"""Limit of partitions listed in one finding."""

WHY_NOT_FETCHING = {
    FetchState.INITIALIZING: "committed offsets are being asked for",
    FetchState.AWAIT_RESET: "the offset to begin at is being looked up",
    FetchState.AWAIT_VALIDATION: "the position is being validated with a new leader",
}


class HealthCause(Enum):
    """Everything that can keep records from the user."""

    NOTHING_SUBSCRIBED = "nothing subscribed"
    NOT_JOINED = "not joined"
    """Subscribed, but not polled since then."""
    NO_COORDINATOR = "no coordinator"
    REBALANCING = "rebalancing"
    FENCED = "fenced"
    NOT_POLLED = "not polled"
    """Not polled for longer than max.poll.interval.ms: a member of a group has left it."""
    NO_PARTITIONS = "no partitions"
    """A member without partitions: there are more members than partitions, or no topics."""
    PAUSED = "paused"
    NO_POSITION = "no position"
    """Positions are being looked up or validated."""
    TOPIC_MISSING = "topic missing"
    """Subscribed or assigned topics do not exist."""
    NO_LEADER = "no leader"
    """Partitions have no leader at the moment, or do not exist."""
    BROKER = "broker"
    """A broker is unreachable or refuses requests; the message has the details."""


@dataclass(slots=True, frozen=True)
class HealthFinding:
    """One problem that keeps some or all records from the user."""

    cause: HealthCause
    message: str


@dataclass(slots=True, frozen=True)
class ConsumerHealth:
    """`is_progressing`: available records reach the user; `findings`: the problems, even if they affect only some
    partitions. `lag` is the number of unread records in partitions where it is known, None if it is known of none.
    """

    is_progressing: bool
    findings: tuple[HealthFinding, ...]
    state: str
    assigned_partitions: int
    lag: int | None
    last_poll_seconds_ago: float | None

    @property
    def reasons(self) -> tuple[str, ...]:
        """The findings' messages."""
        return tuple(each.message for each in self.findings)

    @property
    def causes(self) -> frozenset[HealthCause]:
        """The findings' causes."""
        return frozenset(each.cause for each in self.findings)

    @property
    def is_caught_up(self) -> bool:
        """Whether all records were read, by the ends that brokers last reported."""
        return self.lag == 0


def named(partitions: list[TopicPartition]) -> str:
    """List the partitions for a message, up to a limit."""
    text = ", ".join(map(str, partitions[:MAX_NAMED]))
    return text if len(partitions) <= MAX_NAMED else f"{text} and {len(partitions) - MAX_NAMED} more"


def partition_findings(partitions: Mapping[TopicPartition, PartitionState]) -> tuple[list[HealthFinding], bool]:
    """Return why some partitions are not read, and whether any is."""
    findings = []
    for fetch_state, why in WHY_NOT_FETCHING.items():
        if waiting := [each for each, state in partitions.items() if state.fetch_state is fetch_state]:
            findings.append(HealthFinding(HealthCause.NO_POSITION, f"{why} for {named(waiting)}"))
    if paused := [each for each, state in partitions.items() if state.paused]:
        findings.append(HealthFinding(HealthCause.PAUSED, f"paused: {named(paused)}; resume them to read on"))
    return findings, any(state.is_fetchable for state in partitions.values())


def problem_finding(problem: ClientError) -> HealthFinding:
    """Turn a failed request into a finding about its partitions or broker."""
    leaderless = isinstance(problem, BrokerError) and problem.code in LEADERLESS
    return HealthFinding(HealthCause.NO_LEADER if leaderless else HealthCause.BROKER, str(problem))


def group_findings(membership: Membership, now_ms: float, *, has_partitions: bool) -> list[HealthFinding]:
    """Return why a group member has no partitions to read, or is about to lose them."""
    if membership.fenced is not None:
        return [HealthFinding(HealthCause.FENCED, str(membership.fenced))]
    state = membership.client_state
    if state is ClientState.DOWN:
        return [HealthFinding(HealthCause.NOT_JOINED, "the group is not joined yet: poll")]
    if not membership.lookup.is_known:
        return [HealthFinding(HealthCause.NO_COORDINATOR, _coordinator_message(membership, now_ms))]
    if state is ClientState.STOPPED or membership.is_rebalancing:
        return [HealthFinding(HealthCause.REBALANCING, _rebalance_message(membership, now_ms))]
    if not has_partitions:
        why = "no partitions are assigned: the group has more members than partitions, or no topics"
        return [HealthFinding(HealthCause.NO_PARTITIONS, why)]
    return []


def _coordinator_message(membership: Membership, now_ms: float) -> str:
    since_ms = membership.lookup.lost_at_ms
    since = "" if since_ms is None else f" for {(now_ms - since_ms) / 1000:.1f} s"
    problem = f": {membership.lookup.problem}" if membership.lookup.problem else ""
    return f"the group's coordinator is not found{since}{problem}"


def _rebalance_message(membership: Membership, now_ms: float) -> str:
    started_ms = membership.rebalance_started_ms
    since = "" if started_ms is None else f" for {(now_ms - started_ms) / 1000:.1f} s"
    if membership.assignment is not None or not membership.is_joining:
        return f"the group is rebalancing{since}; poll to take part"
    if membership.state is MemberState.PREPARING_REBALANCE:
        return f"the group is rebalancing{since}; it waits for other members to join"
    return f"the group is rebalancing{since}; it waits for the assignment of its leader"
