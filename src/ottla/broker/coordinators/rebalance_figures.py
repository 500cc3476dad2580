"""Causes and pauses of rebalances by group, for the metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from ottla.groups.evidence import Evidence

#: Most groups with figures, and most causes of all of them; for others, those of the group that rebalanced longest ago
#: go.
MOST_GROUPS: Final = 1_000
MOST_CAUSES: Final = 5_000


class GroupFigures:
    """The rebalances of one group since this broker saw the first of them."""

    __slots__ = ("causes", "last_pause_ms", "pause_ms", "rebalance_ms")

    def __init__(self) -> None:
        #: Rebalances by their first cause.
        self.causes: Counter[str] = Counter()
        #: How long the rebalances took, and the longest pause of a member in each of them, summed up.
        self.rebalance_ms = 0
        self.pause_ms = 0
        #: The longest pause of a member in the last one.
        self.last_pause_ms = 0


class RebalanceFigures:
    """The figures of the groups that rebalanced last."""

    def __init__(self) -> None:
        self.groups: dict[str, GroupFigures] = {}
        self._causes = 0

    def add(self, closed: Iterable[Evidence]) -> None:
        """Count rebalances that have ended."""
        for evidence in closed:
            value = evidence.value
            figures = self.groups.pop(evidence.group_id, None) or GroupFigures()
            cause = value["causes"][0]["cause"] if value["causes"] else "unknown"
            self._causes += cause not in figures.causes
            figures.causes[cause] += 1
            while self.groups and (len(self.groups) >= MOST_GROUPS or self._causes > MOST_CAUSES):
                self._causes -= len(self.groups.pop(next(iter(self.groups))).causes)
            self.groups[evidence.group_id] = figures
            figures.rebalance_ms += value["duration_ms"]
            figures.last_pause_ms = max((member["pause_ms"] or 0 for member in value["members"]), default=0)
            figures.pause_ms += figures.last_pause_ms
