"""How late the event loop is: the difference between when a timer was due and when it ran."""

from __future__ import annotations


class LoopLag:
    """Measured where a timer runs anyway; 0 before."""

    __slots__ = ("last_s", "max_s")

    def __init__(self) -> None:
        self.last_s = 0.0
        self.max_s = 0.0

    def measured(self, due_s: float, now_s: float) -> None:
        """A timer that was due at `due_s` ran at `now_s`, seconds of the loop's clock."""
        self.last_s = max(0.0, now_s - due_s)
        self.max_s = max(self.max_s, self.last_s)
