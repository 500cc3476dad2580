"""Allows one thread or task at a time in a consumer, and none after close or in another process."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

from ottla.client.errors import ClientClosedError, ConcurrentUseError, ForkedError
from ottla.env.process import process_id


class Guard:
    """A context for each call that admits everybody; for the consumer wrapped by a guarded one."""

    closed = False

    @property
    def is_over(self) -> bool:
        """Whether there is nothing left to close."""
        return self.closed

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        return None


class UseGuard(Guard):
    """A context for each call. `who` identifies the caller (thread id, task); `kind` is the word for it in messages.

    Calls from a callback of a running call belong to that call.
    """

    def __init__(self, kind: str, who: Callable[[], object]) -> None:
        self._kind = kind
        self._who = who
        self._owner: object = None
        self._depth = 0
        self._process = process_id()
        self.closed = False

    @property
    def is_over(self) -> bool:
        """Whether there is nothing left to close: already closed, or owned by the parent process."""
        return self.closed or process_id() != self._process

    def __enter__(self) -> None:
        if self.closed:
            raise ClientClosedError("the consumer is closed; open a new one to read on")
        if process_id() != self._process:
            raise ForkedError("consumer")
        me = self._who()
        # No call between check and assignment, so that neither another thread nor a signal comes between.
        owner = self._owner
        if owner is None:
            self._owner = me
            self._depth = 1
        elif owner == me:
            self._depth += 1
        else:
            raise ConcurrentUseError(
                f"another {self._kind} ({owner}) is in this consumer: a consumer is for one {self._kind} at a time; "
                f"only wakeup may be called meanwhile. Give each {self._kind} a consumer, or pass on the records"
            )

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._owner = None
