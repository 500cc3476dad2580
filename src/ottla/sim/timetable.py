"""Virtual time: what is to happen when, and nothing in between."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush


class Timetable:
    """Calls by time, milliseconds; those of one moment in the order in which they were entered."""

    def __init__(self) -> None:
        self.now_ms = 0
        self._entries: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = 0

    def at(self, at_ms: int, call: Callable[[], None]) -> None:
        """Enter a call; what lies in the past happens next."""
        self._sequence += 1
        heappush(self._entries, (max(at_ms, self.now_ms), self._sequence, call))

    def step(self) -> bool:
        """Let the next thing happen; False where nothing is left."""
        if not self._entries:
            return False
        self.now_ms, _, call = heappop(self._entries)
        call()
        return True
