"""Threads, and the locks and events between them, for clients of callers without an event loop.

They are the standard library's own, but for `Latch`. A module that imports them here works with real threads and
real time, and so has no part in a simulation.

Python runs the handlers of signals between its own instructions. A signal that comes after the last of them before a
wait, or is delivered to another thread, does not end that wait, and its handler would run after it. So long waits in
callers' threads are made of pieces of `SIGNAL_POLL_S`.

A handler that raises (KeyboardInterrupt) may do so inside `threading.Condition` too, which is written in Python. Then
it stays locked for ever, or RuntimeError takes the place of what the handler raised. So nothing that a caller waits for
is made of it: neither `threading.Event` nor `concurrent.futures.Future`.
"""

from __future__ import annotations

from threading import TIMEOUT_MAX, Lock, RLock, Thread
from threading import get_ident as thread_id
from time import monotonic as monotonic_s
from typing import Final

__all__ = ["SIGNAL_POLL_S", "TIMEOUT_MAX", "Latch", "Lock", "RLock", "Thread", "monotonic_s", "thread_id"]

SIGNAL_POLL_S: Final = 0.25
"""Limit on one wait, and so on the time until a signal's handler runs that the wait did not notice."""


class Latch:
    """As `threading.Event` without `clear`, for one waiting thread, which signal handlers may interrupt anywhere."""

    __slots__ = ("_is_set", "_unset")

    def __init__(self) -> None:
        self._is_set = False
        self._unset = Lock()
        self._unset.acquire()

    def is_set(self) -> bool:
        """Whether `set` was called."""
        return self._is_set

    def set(self) -> None:
        """End the wait, and all later ones. One thread only may call it; again has no effect."""
        if not self._is_set:
            self._is_set = True
            self._unset.release()

    def wait(self, timeout_s: float = TIMEOUT_MAX) -> bool:
        """Wait until it is set; returns whether it is. What a signal's handler raises comes out unchanged."""
        deadline_s = monotonic_s() + timeout_s
        while not self._is_set:
            left_s = deadline_s - monotonic_s()
            if left_s <= 0 or self._unset.acquire(timeout=min(left_s, SIGNAL_POLL_S)):
                break
        return self._is_set
