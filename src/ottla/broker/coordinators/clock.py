"""Time for coordinators: wall-clock milliseconds that never jump, since session timeouts are measured with them."""

from __future__ import annotations

from ottla.env.clock import Clock

MAX_CORRECTION_MS = 500.0


class SteadyClock:
    """Starts at the wall clock's time and runs with the monotonic clock; `correct` follows the wall in small steps."""

    __slots__ = ("_clock", "_offset_ms")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset_ms = clock.now_ms() - clock.monotonic_ms()

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch."""
        return int(self._clock.monotonic_ms() + self._offset_ms)

    def correct(self) -> None:
        """Move towards the wall clock, in a step too small to affect heartbeats."""
        drift_ms = self._clock.now_ms() - self._clock.monotonic_ms() - self._offset_ms
        self._offset_ms += max(-MAX_CORRECTION_MS, min(MAX_CORRECTION_MS, drift_ms))
