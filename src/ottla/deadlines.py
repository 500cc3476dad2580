"""Named deadlines: setting a name again replaces it.

Moving a deadline back, which every heartbeat does, does not touch the heap: the old entry stays and is moved when it
reaches the top.
"""

from __future__ import annotations

from collections.abc import Hashable, Set
from heapq import heappop, heappush, heapreplace
from typing import Generic, TypeVar

Name = TypeVar("Name", bound=Hashable)


class Deadlines(Generic[Name]):
    """A set of deadlines by name, in milliseconds, with access to the earliest."""

    __slots__ = ("_at", "_heap", "_queued", "_sequence")

    def __init__(self) -> None:
        self._at: dict[Name, int] = {}
        self._heap: list[tuple[int, int, Name]] = []
        #: The heap entry of each name, which is never later than its deadline.
        self._queued: dict[Name, tuple[int, int]] = {}
        self._sequence = 0

    def __len__(self) -> int:
        return len(self._at)

    def __contains__(self, name: Name) -> bool:
        return name in self._at

    def get(self, name: Name) -> int | None:
        """A deadline, None if it is not set."""
        return self._at.get(name)

    def names(self) -> Set[Name]:
        """The names that are set."""
        return self._at.keys()

    def set(self, name: Name, at_ms: int) -> None:
        """Set or replace a deadline."""
        self._at[name] = at_ms
        queued = self._queued.get(name)
        if queued is None or at_ms < queued[0]:
            self._sequence += 1
            self._queued[name] = (at_ms, self._sequence)
            heappush(self._heap, (at_ms, self._sequence, name))

    def cancel(self, name: Name) -> None:
        """Remove a deadline, if it is set."""
        self._at.pop(name, None)

    def next(self) -> int | None:
        """The earliest deadline, None if there is none."""
        top = self._top()
        return None if top is None else top[0]

    def pop_due(self, now_ms: int) -> Name | None:
        """Remove and return one deadline that has passed, the earliest first; None if none has."""
        top = self._top()
        if top is None or top[0] > now_ms:
            return None
        heappop(self._heap)
        del self._queued[top[2]]
        del self._at[top[2]]
        return top[2]

    def _top(self) -> tuple[int, int, Name] | None:
        """The heap's first current entry; outdated ones before it are removed."""
        heap = self._heap
        while heap:
            queued_ms, sequence, name = heap[0]
            if self._queued.get(name) != (queued_ms, sequence):
                heappop(heap)
                continue
            at_ms = self._at.get(name)
            if at_ms is None:
                heappop(heap)
                del self._queued[name]
            elif at_ms > queued_ms:
                self._sequence += 1
                self._queued[name] = (at_ms, self._sequence)
                heapreplace(heap, (at_ms, self._sequence, name))
            else:
                return heap[0]
        return None
