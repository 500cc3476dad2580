"""Results of a consumer group design under a script of churn, as comparable figures."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from ottla.rebalance.designs.churn_script import Turn
from ottla.rebalance.designs.consumption import Consumption, Reading

JOINING = ("JoinGroup", "SyncGroup", "LeaveGroup", "FetchOffsets")
"""Requests of a rebalance; heartbeats and commits are sent all the time."""

CHANGES = ("JoinGroup", "SyncGroup")
"""Requests by which a member changes the group and waits for the result; who leaves does not wait."""


@dataclass(frozen=True, slots=True)
class Settled:
    """Time from an event to its last effect, milliseconds; whether every partition had one reader then."""

    turn: Turn
    after_ms: int
    is_whole: bool


@dataclass(slots=True)
class DesignResult:
    """Results of one design for one script; everything is counted from the script's `begin_ms` on."""

    design: str
    #: Counted per member: each rebalance that a member completed.
    rebalances: int = 0
    #: Rebalance attempts of members; more than `rebalances` if attempts failed.
    tries: int = 0
    #: Assignments that members computed for the group, and those on a view that another's at that time differed from.
    decisions: int = 0
    differing_decisions: int = 0
    #: Owner nodes held by another member when they were claimed.
    conflicts: int = 0
    #: Rebalances abandoned after a member's last attempt; it owns nothing until the next one.
    abandoned: int = 0
    #: Requests of members that were refused as their generation or membership was over.
    refused: int = 0
    #: Offsets committed by members that did not own the partition any more: those stored, and those refused.
    stale_offsets_stored: int = 0
    stale_offsets_refused: int = 0
    #: Changes of membership or ownership requested by a member whose result it never received.
    uncertain: int = 0
    znode_reads: int = 0
    znode_writes: int = 0
    watch_events: int = 0
    #: Requests to the coordinator by kind.
    requests: Counter[str] = field(default_factory=Counter)
    #: Sum over partitions, in seconds.
    unread_s: float = 0.0
    doubled_s: float = 0.0
    #: Read by members that had lost the partition and did not know it.
    stale_s: float = 0.0
    longest_unread_s: float = 0.0
    settled: list[Settled] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)

    @property
    def retries(self) -> int:
        """Attempts of members that did not end with an assignment."""
        return max(0, self.tries - self.rebalances)

    @property
    def requests_of_rebalances(self) -> int:
        """Requests to the coordinator caused by rebalances."""
        return sum(self.requests[kind] for kind in JOINING)


@dataclass(eq=False, slots=True)
class _Decision:
    view: object
    differs: bool = False


class Decisions:
    """Assignments that members decide, each on its own view of the group, and those that others decided differently.

    A decision stands from the look at the group until its assignment is carried out, refused or dropped.
    """

    def __init__(self) -> None:
        self.made = 0
        #: Decisions that stood at the same time as another member's decision on another view.
        self.differing = 0
        self._standing: dict[str, _Decision] = {}

    def begin(self) -> None:
        """Start counting."""
        self.made = self.differing = 0

    def decided(self, member: str, view: object) -> None:
        """The member computes an assignment from this view: who is in the group, and which partitions there are."""
        self.made += 1
        decision = _Decision(view)
        self._standing.pop(member, None)
        for other in self._standing.values():
            if other.view != view:
                self._count(other)
                self._count(decision)
        self._standing[member] = decision

    def ended(self, member: str) -> None:
        """The member's decision stands no longer."""
        self._standing.pop(member, None)

    def _count(self, decision: _Decision) -> None:
        if not decision.differs:
            decision.differs = True
            self.differing += 1


class Recorder:
    """Collects the results of one run: who reads what, and how long the group takes to settle after each event."""

    def __init__(self, design: str, partitions: int) -> None:
        self.result = DesignResult(design)
        self.consumption = Consumption(partitions)
        self.decisions = Decisions()
        self._last: Turn | None = None

    def begin(self, now_ms: int) -> None:
        """Start counting."""
        self.consumption.begin(now_ms)
        self.decisions.begin()

    def turn(self, turn: Turn) -> None:
        """An event begins: the effects of the one before are complete."""
        self._note_settled()
        self._last = turn

    def end(self, now_ms: int) -> DesignResult:
        """The run is over; fill in the figures of reading."""
        self._note_settled()
        self.consumption.end(now_ms)
        result, consumption = self.result, self.consumption
        result.unread_s, result.doubled_s = consumption.unread_ms / 1000, consumption.doubled_ms / 1000
        result.stale_s = consumption.stale_ms / 1000
        result.decisions, result.differing_decisions = self.decisions.made, self.decisions.differing
        result.longest_unread_s = consumption.longest_unread_ms / 1000
        result.readings = consumption.readings
        return result

    def _note_settled(self) -> None:
        if self._last is not None:
            after_ms = max(0, self.consumption.changed_ms - self._last.at_ms)
            self.result.settled.append(Settled(self._last, after_ms, self.consumption.is_whole))
