"""How far a coordinator is with a group: the names that metrics and logs use.

The names are those of the protocol's first draft (docs/group-protocol-draft.md), and are kept for operators: while the
state of a group (`ottla.groups.states`) is what clients see, these tell whether somebody answers for it at all.
"""

from __future__ import annotations

from enum import Enum

from ottla.groups.states import GroupState


class CoordinatorState(Enum):
    """The state of a group's coordinator; the value is that of the metric."""

    DOWN = 0
    """This broker answers for no group of the partition: it does not lead it, or does not run."""

    CATCHING_UP = 1
    """It leads the partition of the offsets topic and reads it; clients are told to wait."""

    READY = 2
    """It answers, and no rebalance is under way: the group is Stable or Empty, or there is none."""

    PREPARING = 3
    """Members are told to join again, and their joins are gathered (PreparingRebalance)."""

    REBALANCING = 4
    """The generation has begun; the leader's assignment is waited for (CompletingRebalance)."""

    @property
    def label(self) -> str:
        """The name in words."""
        return self.name.lower().replace("_", " ")


STATE_OF: dict[GroupState, CoordinatorState] = {
    GroupState.EMPTY: CoordinatorState.READY,
    GroupState.PREPARING_REBALANCE: CoordinatorState.PREPARING,
    GroupState.COMPLETING_REBALANCE: CoordinatorState.REBALANCING,
    GroupState.STABLE: CoordinatorState.READY,
    GroupState.DEAD: CoordinatorState.READY,
}
"""What the coordinator of a group does that is in a state; the end of a group leaves it ready for the next."""
