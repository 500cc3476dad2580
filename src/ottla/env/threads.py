"""Threads, and the locks and events between them, for clients of callers without an event loop.

They are the standard library's own. Whoever imports them here works with real threads and real time, and so has no
part in a simulation.

Python runs the handlers of signals between its own instructions. A signal that comes after the last of them before a
wait, or is delivered to another thread, does not end that wait, and its handler would run after it. So long waits in
callers' threads are made of pieces of `SIGNAL_POLL_S`.
"""

from threading import TIMEOUT_MAX, Event, Lock, RLock, Thread
from threading import get_ident as thread_id
from time import monotonic as monotonic_s
from typing import Final

__all__ = ["SIGNAL_POLL_S", "TIMEOUT_MAX", "Event", "Lock", "RLock", "Thread", "monotonic_s", "thread_id"]

SIGNAL_POLL_S: Final = 0.25
"""Limit on one wait, and so on the time until a signal's handler runs that the wait did not notice."""
