"""Clocks: the system's, and one that a test or the simulator moves by hand."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """A clock in milliseconds; nothing above `env` reads time in any other way."""

    def now_ms(self) -> int:
        """Wall-clock time, milliseconds since the Unix epoch: what Kafka writes into records."""
        ...

    def monotonic_ms(self) -> float:
        """Time that never goes backwards, milliseconds from an arbitrary start: for deadlines."""
        ...


def thread_cpu_s() -> float:
    """Processor time of the calling thread, in seconds: for figures only, no decision depends on it."""
    return time.thread_time()


class SystemClock:
    """The machine's clocks."""

    __slots__ = ()

    def now_ms(self) -> int:
        """Wall-clock milliseconds since the Unix epoch."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> float:
        """Milliseconds of the monotonic clock."""
        return time.monotonic() * 1000.0


class VirtualClock:
    """A clock that stands still until `advance` is called."""

    __slots__ = ("_elapsed_ms", "_start_ms")

    def __init__(self, now_ms: int = 0) -> None:
        self._start_ms = now_ms
        self._elapsed_ms = 0

    def now_ms(self) -> int:
        """The virtual wall clock, milliseconds since the Unix epoch."""
        return self._start_ms + self._elapsed_ms

    def monotonic_ms(self) -> float:
        """Milliseconds advanced so far."""
        return float(self._elapsed_ms)

    def advance(self, by_ms: int) -> None:
        """Move the clock forward by `by_ms` milliseconds; negative values are a bug."""
        if by_ms < 0:
            raise ValueError(f"a clock cannot be moved back ({by_ms} ms)")
        self._elapsed_ms += by_ms

    def set_wall(self, now_ms: int) -> None:
        """Set the wall clock, forwards or back; the monotonic clock does not change."""
        self._start_ms = now_ms - self._elapsed_ms
