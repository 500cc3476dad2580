"""What a design of consumer groups did with a script of churn: figures that can be compared."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from ottla.sim.churn_script import Turn
from ottla.sim.consumption import Reading

JOINING = ("JoinGroup", "SyncGroup", "LeaveGroup", "FetchOffsets")
"""Requests of a rebalance; heartbeats and commits go on all the time."""


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
    def requests_of_rebalances(self) -> int:
        """Requests to the coordinator that rebalances made."""
        return sum(self.requests[kind] for kind in JOINING)
