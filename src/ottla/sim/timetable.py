"""Virtual time: a queue of timed calls, with no time passing in between."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush


class Timetable:
    """Calls by time, milliseconds; those of one moment in the order in which they were added."""

    def __init__(self) -> None:
        self.now_ms = 0
        self._entries: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = 0

    def at(self, at_ms: int, call: Callable[[], None]) -> None:
        """Add a call; one in the past is run next."""
        self._sequence += 1
        heappush(self._entries, (max(at_ms, self.now_ms), self._sequence, call))

    def step(self) -> bool:
        """Run the next call; False if there is none."""
        if not self._entries:
            return False
        self.now_ms, _, call = heappop(self._entries)
        call()
        return True
