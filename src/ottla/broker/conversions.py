"""Conversions of records between formats and compressions, away from the loop.

They are work for the processor, not the disk, and must not keep the disk threads from their other duties: only a few
run at a time, the others wait in line. A connection has one request in work, so at most one per connection waits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from ottla.env.executor import Executor

T = TypeVar("T")

#: Conversions that run at the same time.
RUNNING_LIMIT = 2


class Conversions:
    """A line of conversions before the disk threads."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._line: deque[tuple[Callable[[], Any], Callable[[Any, BaseException | None], None]]] = deque()
        self._running = 0

    def run(self, work: Callable[[], T], done: Callable[[T | None, BaseException | None], None]) -> None:
        """Run `work()` in a thread as soon as it is its turn, then `done(result, error)` on the loop."""
        self._line.append((work, done))
        self._start()

    def _start(self) -> None:
        while self._line and self._running < RUNNING_LIMIT:
            work, done = self._line.popleft()
            self._running += 1
            self._submit(work, done)

    def _submit(self, work: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        def finished(result: object, error: BaseException | None) -> None:
            self._running -= 1
            done(result, error)
            self._start()

        try:
            self._executor.call(work, finished)
        except RuntimeError as error:
            # The threads are stopped, or have far too much to do.
            finished(None, error)
