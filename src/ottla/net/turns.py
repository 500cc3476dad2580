"""Turn-taking between connections: how many requests each may have answered in one turn of the loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ottla.env.network import EventLoop

#: Requests of one connection that may be answered in one turn of the loop, while no other has several.
REQUESTS_PER_TURN: Final = 64
#: Requests that all connections with several of them may have answered in one turn together; each has at least one. A
#: request of any other connection waits for this many at most.
SHARED_PER_TURN: Final = 32


class RequestTurns:
    """Shares the turns of the loop among the connections that have several requests waiting.

    One whose requests come one by one never asks, so that turn-taking costs it nothing.
    """

    __slots__ = ("_before", "_is_counting", "_now")

    def __init__(self) -> None:
        #: Connections that asked in the turn before, and in this one.
        self._before = 0
        self._now = 0
        self._is_counting = False

    def share(self, loop: EventLoop) -> int:
        """The number of requests that a connection may have answered in this turn; to be asked once in each."""
        if not self._is_counting:
            self._is_counting = True
            loop.call_soon(self._turn_over)
        self._now += 1
        busy = max(self._before, self._now)
        return REQUESTS_PER_TURN if busy == 1 else max(1, SHARED_PER_TURN // busy)

    def _turn_over(self) -> None:
        self._is_counting = False
        self._before, self._now = self._now, 0
