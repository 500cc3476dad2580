"""Callbacks that wait for a partition to reach an offset."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

from ottla.wire.errors import ErrorCode

#: Called once: with NONE when the record is committed, with an error if the wait has failed.
Committed = Callable[[ErrorCode], None]


class AwaitedOffsets:
    """Waiters by offset, those of one offset in order. There are at most as many as requests in work."""

    __slots__ = ("_heap", "_order")

    def __init__(self) -> None:
        self._order = 0
        self._heap: list[tuple[int, int, Committed]] = []

    def __bool__(self) -> bool:
        return bool(self._heap)

    def add(self, offset: int, done: Committed) -> None:
        """Call `done` once the record at `offset` is reached."""
        self._order += 1
        heappush(self._heap, (offset, self._order, done))

    def reached(self, end: int) -> None:
        """Notify the waiters below `end`."""
        heap = self._heap
        while heap and heap[0][0] < end:
            heappop(heap)[2](ErrorCode.NONE)

    def fail(self, error: ErrorCode) -> None:
        """Fail all waiters."""
        heap, self._heap = self._heap, []
        for _, _, done in heap:
            done(error)
