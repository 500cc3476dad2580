"""Conversions of records between formats and compressions, away from the loop.

They are work for the processor, not the disk, and must not keep the disk threads from their other duties: only a few
run at a time, the others wait in line. A connection has one request in work, so at most one per connection waits; but
clients may go and come again, so the bytes that wait with them have a limit of their own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from ottla.env.executor import Executor

T = TypeVar("T")

#: Conversions that run at the same time.
RUNNING_LIMIT = 2
#: Bytes of requests that may wait to be converted.
WAITING_BYTES_LIMIT = 256 * 1024 * 1024


class Conversions:
    """A line of conversions before the disk threads."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._line: deque[tuple[Callable[[], Any], Callable[[Any, BaseException | None], None], int]] = deque()
        self._running = 0
        self._waiting_bytes = 0
        self._starting = False

    def run(
        self, work: Callable[[], T], done: Callable[[T | None, BaseException | None], None], held_bytes: int = 0
    ) -> bool:
        """Run `work()` in a thread as soon as it is its turn, then `done(result, error)` on the loop.

        `held_bytes` is what it keeps in memory while it waits. False, with nothing done, where too much waits already.
        """
        if held_bytes and self._waiting_bytes + held_bytes > WAITING_BYTES_LIMIT and self._line:
            return False
        self._waiting_bytes += held_bytes
        self._line.append((work, done, held_bytes))
        self._start()
        return True

    def _start(self) -> None:
        # Where no thread takes them their outcomes come at once: a long line must not be a deep recursion.
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
            done(result, error)
            self._start()

        self._executor.call(work, finished)
