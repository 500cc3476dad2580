"""Causes and pauses of rebalances by group, for the metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from ottla.groups.evidence import Evidence

#: Most groups with figures; for another one, those of the group that rebalanced longest ago go.
MOST_GROUPS: Final = 1_000


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

    def add(self, closed: Iterable[Evidence]) -> None:
        """Count rebalances that have ended."""
        for evidence in closed:
            value = evidence.value
            figures = self.groups.pop(evidence.group_id, None) or GroupFigures()
            if len(self.groups) >= MOST_GROUPS:
                del self.groups[next(iter(self.groups))]
            self.groups[evidence.group_id] = figures
            figures.causes[value["causes"][0]["cause"] if value["causes"] else "unknown"] += 1
            figures.rebalance_ms += value["duration_ms"]
            figures.last_pause_ms = max((member["pause_ms"] or 0 for member in value["members"]), default=0)
            figures.pause_ms += figures.last_pause_ms
