"""Counters of a rebalance's cost: reads and writes of znodes, watch events, tries. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum


class RebalanceStep(Enum):
    """The steps of a rebalance, in their order."""

    STOP_FETCHERS = "stop fetchers"
    COMMIT = "commit"
    RELEASE = "release ownership"
    READ_CONTEXT = "read context"
    ASSIGN = "assign"
    FETCH_OFFSETS = "fetch offsets"
    CLAIM = "claim"
    START_FETCHERS = "start fetchers"


class RebalanceCounters:
    """Counters of one consumer. Override `step`, `decides` and `rebalanced` to follow its progress."""

    def __init__(self) -> None:
        self.reads = 0
        """Reads of znodes: data, children, existence."""
        self.writes = 0
        """Requests to change znodes, whatever their result."""
        self.events = 0
        """Watches that fired."""
        self.rebalances = 0
        """Rebalances begun, each of one try or more."""
        self.tries = 0
        self.conflicts = 0
        """Owner nodes that another consumer held when this one claimed them."""
        self.failed = 0
        """Rebalances whose last try failed."""

    def step(self, step: RebalanceStep) -> None:
        """A step of an attempt begins."""

    def decides(self, consumers: Sequence[str], partitions: Mapping[str, tuple[int, ...]]) -> None:
        """An attempt computes the group's assignment for these consumers and the partitions of each topic."""

    def rebalanced(self, owned: int) -> None:
        """A rebalance has succeeded, with this many partitions owned."""
