"""Assignments that members decide, each on its own view of the group, and those that others decided differently."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(eq=False, slots=True)
class _Decision:
    view: object
    differs: bool = False


class Decisions:
    """A decision stands from the look at the group until its assignment is carried out, refused or dropped."""

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
