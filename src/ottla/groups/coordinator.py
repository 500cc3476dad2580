"""The state of a group's coordinator: the names that metrics and logs use.

The names are those of the protocol's first draft (docs/group-protocol-draft.md), and are kept for operators: while the
state of a group (`groups.classic.states`) is what clients see, these also say whether the coordinator serves the group
at all.
"""

from __future__ import annotations

from enum import Enum

from ottla.groups.classic.states import GroupState


class CoordinatorState(Enum):
    """The state of a group's coordinator; the value is that of the metric."""

    DOWN = 0
    """This broker does not serve the groups of the partition: it is not the leader, or is not running."""

    CATCHING_UP = 1
    """It leads the partition of the offsets topic and loads it; clients are asked to retry."""

    READY = 2
    """It serves the group, and no rebalance is under way: the group is Stable or Empty, or does not exist."""

    PREPARING = 3
    """Members are asked to rejoin, and their joins are collected (PreparingRebalance)."""

    REBALANCING = 4
    """The generation has begun; the coordinator waits for the leader's assignment (CompletingRebalance)."""

    @property
    def label(self) -> str:
        """The name as text."""
        return self.name.lower().replace("_", " ")


STATE_OF: dict[GroupState, CoordinatorState] = {
    GroupState.EMPTY: CoordinatorState.READY,
    GroupState.PREPARING_REBALANCE: CoordinatorState.PREPARING,
    GroupState.COMPLETING_REBALANCE: CoordinatorState.REBALANCING,
    GroupState.STABLE: CoordinatorState.READY,
    GroupState.DEAD: CoordinatorState.READY,
}
"""Coordinator state for each group state; with the end of a group the coordinator is ready for the next."""
