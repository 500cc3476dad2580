"""Conversions of records between formats and compression types, in threads.

They take processor time, not disk time, and must not occupy the disk threads: only a few run at a time, the others are
queued. A connection has one request in work, so it queues at most one; but clients may reconnect, so the bytes held by
queued conversions have a limit of their own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from ottla.env.executor import Executor

T = TypeVar("T")

#: Conversions that run at the same time.
RUNNING_LIMIT = 2
#: Bytes of requests held by queued conversions.
WAITING_BYTES_LIMIT = 256 * 1024 * 1024


class Conversions:
    """A queue of conversions in front of the thread pool."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._line: deque[tuple[Callable[[], Any], Callable[[Any, BaseException | None], None], int]] = deque()
        self._running = 0
        self._waiting_bytes = 0
        self._starting = False

    def run(
        self, work: Callable[[], T], done: Callable[[T | None, BaseException | None], None], held_bytes: int = 0
    ) -> bool:
        """Run `work()` in a thread when its turn comes, then `done(result, error)` on the loop.

        `held_bytes` is the memory it holds while queued. Returns False, and does nothing, if the queue holds too much.
        """
        if held_bytes and self._waiting_bytes + held_bytes > WAITING_BYTES_LIMIT and self._line:
            return False
        self._waiting_bytes += held_bytes
        self._line.append((work, done, held_bytes))
        self._start()
        return True

    def _start(self) -> None:
        # If the executor rejects work, `done` is called at once: a long queue must not become a deep recursion.
        if self._starting:
            return
        self._starting = True
        try:
            while self._line and self._running < RUNNING_LIMIT:
                work, done, held_bytes = self._line.popleft()
                self._waiting_bytes -= held_bytes
                self._running += 1
                self._submit(work, done)
        finally:
            self._starting = False

    def _submit(self, work: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        def finished(result: object, error: BaseException | None) -> None:
            self._running -= 1
            try:
                done(result, error)
            finally:
                self._start()

        self._executor.call(work, finished)
