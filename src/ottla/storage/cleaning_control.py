"""The event loop's control of a cleaning thread at work: abort and throttle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ottla.env.clock import Clock

#: A cleaning thread works for this long, then yields the interpreter to the event loop for as long.
WORK_MS: Final = 1.0
BREATH_MS: Final = 0.05
#: A throttled thread checks for an abort at this interval.
LONGEST_PAUSE_MS: Final = 100.0
#: Unused throttle time is carried over up to this much.
SAVED_MS: Final = 1000.0


class CleaningAborted(Exception):
    """The round was aborted."""


class CleaningControl:
    """Shared between the loop, which sets `aborted` and `bytes_per_second`, and the one thread that calls `take`."""

    __slots__ = ("_clock", "_due_ms", "_pause_ms", "_rested_ms", "aborted", "bytes_done", "bytes_per_second")

    def __init__(self, clock: Clock, pause_ms: Callable[[float], None], bytes_per_second: float) -> None:
        self._clock = clock
        self._pause_ms = pause_ms
        self.aborted = False
        #: Limit of bytes read and written per second.
        self.bytes_per_second = bytes_per_second
        #: Bytes read and written so far.
        self.bytes_done = 0
        self._due_ms = self._rested_ms = clock.monotonic_ms()

    def take(self, count: int) -> None:
        """Account for `count` bytes read or written, and sleep as the throttle asks. Raises CleaningAborted."""
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
