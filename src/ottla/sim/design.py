"""What a design of consumer groups did with a script of churn: figures that can be compared."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from ottla.sim.churn_script import Turn
from ottla.sim.consumption import Consumption, Reading

JOINING = ("JoinGroup", "SyncGroup", "LeaveGroup", "FetchOffsets")
"""Requests of a rebalance; heartbeats and commits go on all the time."""

CHANGES = ("JoinGroup", "SyncGroup", "LeaveGroup", "Commit")
"""Requests that change something at the coordinator."""


@dataclass(frozen=True, slots=True)
class Settled:
    """How long after a turn the last change came that it led to, milliseconds; whether all were read by one then."""

    turn: Turn
    after_ms: int
    is_whole: bool


@dataclass(slots=True)
class DesignResult:
    """One design through one script; everything is counted from the script's `begin_ms` on."""

    design: str
    #: Of single members: each time that one of them went through a rebalance.
    rebalances: int = 0
    #: How often one of them began one; more than `rebalances` where a try failed.
    tries: int = 0
    #: Owner nodes that another member held when they were claimed.
    conflicts: int = 0
    #: Rebalances that a member gave up after its last try; it owns nothing until the next one.
    given_up: int = 0
    #: Changes that a member asked for without learning what became of them.
    uncertain: int = 0
    znode_reads: int = 0
    znode_writes: int = 0
    watch_events: int = 0
    #: Requests to the coordinator by kind.
    requests: Counter[str] = field(default_factory=Counter)
    #: Partitions times seconds.
    unread_s: float = 0.0
    doubled_s: float = 0.0
    longest_unread_s: float = 0.0
    settled: list[Settled] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)

    @property
    def retries(self) -> int:
        """Tries of single members that did not end with an assignment."""
        return max(0, self.tries - self.rebalances)

    @property
    def requests_of_rebalances(self) -> int:
        """Requests to the coordinator that rebalances made."""
        return sum(self.requests[kind] for kind in JOINING)


class Recorder:
    """What one run adds up to: who reads what, and how long each turn takes to settle."""

    def __init__(self, design: str, partitions: int) -> None:
        self.result = DesignResult(design)
        self.consumption = Consumption(partitions)
        self._last: Turn | None = None

    def turn(self, turn: Turn) -> None:
        """A turn comes: what the one before it led to has happened."""
        self._note_settled()
        self._last = turn

    def end(self, now_ms: int) -> DesignResult:
        """The run is over; the figures of reading are filled in."""
        self._note_settled()
        self.consumption.end(now_ms)
        result, consumption = self.result, self.consumption
        result.unread_s, result.doubled_s = consumption.unread_ms / 1000, consumption.doubled_ms / 1000
        result.longest_unread_s = consumption.longest_unread_ms / 1000
        result.readings = consumption.readings
        return result

    def _note_settled(self) -> None:
        if self._last is not None:
            after_ms = max(0, self.consumption.changed_ms - self._last.at_ms)
            self.result.settled.append(Settled(self._last, after_ms, self.consumption.is_whole))
