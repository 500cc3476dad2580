"""Threads, and the locks and events between them, for clients of callers without an event loop.

They are the standard library's own. Whoever imports them here works with real threads and real time, and so has no
part in a simulation.
"""

from threading import TIMEOUT_MAX, Event, Lock, RLock, Thread
from threading import get_ident as thread_id
from time import monotonic as monotonic_s

__all__ = ["TIMEOUT_MAX", "Event", "Lock", "RLock", "Thread", "monotonic_s", "thread_id"]
