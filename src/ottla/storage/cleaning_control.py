"""What the event loop tells a cleaning thread while that works: to stop, and how fast it may go."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ottla.env.clock import Clock

#: A cleaning thread works so long before it lets the event loop have the interpreter, and then waits so long.
WORK_MS: Final = 1.0
BREATH_MS: Final = 0.05
#: A thread that the throttle makes wait looks so often whether it is still wanted.
LONGEST_PAUSE_MS: Final = 100.0
#: Time that was not used up counts for so long only.
SAVED_MS: Final = 1000.0


class CleaningAborted(Exception):
    """The log is not to be cleaned any more."""


class CleaningControl:
    """Shared by the loop, which sets `aborted` and `bytes_per_second`, and the one thread that calls `take`."""

    __slots__ = ("_clock", "_due_ms", "_pause_ms", "_rested_ms", "aborted", "bytes_done", "bytes_per_second")

    def __init__(self, clock: Clock, pause_ms: Callable[[float], None], bytes_per_second: float) -> None:
        self._clock = clock
        self._pause_ms = pause_ms
        self.aborted = False
        #: The most bytes that may be read and written in a second.
        self.bytes_per_second = bytes_per_second
        #: Bytes read and written so far.
        self.bytes_done = 0
        self._due_ms = self._rested_ms = clock.monotonic_ms()

    def take(self, count: int) -> None:
        """`count` bytes were read or written: wait as the throttle asks. Raises CleaningAborted."""
        self.bytes_done += count
        now_ms = self._clock.monotonic_ms()
        self._due_ms = max(self._due_ms, now_ms - SAVED_MS) + 1000.0 * count / self.bytes_per_second
        if now_ms - self._rested_ms >= WORK_MS:
            self._pause_ms(BREATH_MS)
            self._rested_ms = now_ms = self._clock.monotonic_ms()
        while self._due_ms > now_ms and not self.aborted:
            self._pause_ms(min(LONGEST_PAUSE_MS, self._due_ms - now_ms))
            self._rested_ms = now_ms = self._clock.monotonic_ms()
        if self.aborted:
            raise CleaningAborted
