"""How late the event loop is: the difference between when a timer was due and when it ran."""

from __future__ import annotations


class LoopLag:
    """The last and the largest lag, measured by an existing periodic timer; 0 before the first measurement."""

    __slots__ = ("last_s", "max_s")

    def __init__(self) -> None:
        self.last_s = 0.0
        self.max_s = 0.0

    def measured(self, due_s: float, now_s: float) -> None:
        """Record that a timer due at `due_s` ran at `now_s`, in seconds of the loop's clock."""
        self.last_s = max(0.0, now_s - due_s)
        self.max_s = max(self.max_s, self.last_s)
