"""Time that a test can move: an event loop and a clock whose "now" is the machine's time plus a shift.

Between moves time passes as always, so that clients in other threads and processes are served as usual. After a move
every timer that has become due runs at once.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

#: A move has at most this many parts, each followed by all that is due then: a session that ends in the middle starts
#: the retention of its group's offsets there, not at the end of the move.
PARTS_OF_A_MOVE: Final = 64
#: No part of a move is shorter, in milliseconds.
SHORTEST_PART_MS: Final = 250.0
#: Turns of the loop after each part, in which timers run, and what they start begins.
TURNS_PER_PART: Final = 8
#: The end of the year 9999, milliseconds since the Unix epoch: dates behind it cannot be shown.
LATEST_MS: Final = 253_402_300_799_999


class MovableTimeLoop(asyncio.SelectorEventLoop):
    """An event loop whose time is ahead of the machine's by `shift_s`.

    A selector loop on every platform: the default loop of Windows cannot watch sockets.
    """

    def __init__(self) -> None:
        #: How far this loop is ahead of the machine, in seconds.
        self.shift_s = 0.0
        super().__init__()

    def time(self) -> float:
        """See `asyncio.AbstractEventLoop.time`."""
        return super().time() + self.shift_s

    async def move(self, by_ms: float) -> None:
        """Let `by_ms` milliseconds pass at once, with everything that becomes due."""
        moves = max(1, min(PARTS_OF_A_MOVE, int(by_ms / SHORTEST_PART_MS)))
        for _ in range(moves):
            self.shift_s += by_ms / moves / 1000.0
            for _ in range(TURNS_PER_PART):
                await asyncio.sleep(0)


class MovableClock:
    """The clock that belongs to the loop (`ottla.env.clock.Clock`)."""

    __slots__ = ("_loop",)

    def __init__(self, loop: MovableTimeLoop) -> None:
        self._loop = loop

    def now_ms(self) -> int:
        """Wall-clock milliseconds since the Unix epoch, moved like the loop."""
        return time.time_ns() // 1_000_000 + int(self._loop.shift_s * 1000)

    def monotonic_ms(self) -> float:
        """Milliseconds of the monotonic clock, moved like the loop."""
        return (time.monotonic() + self._loop.shift_s) * 1000.0
