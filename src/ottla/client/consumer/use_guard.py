"""One thread, or one task, in a consumer at a time; and none once it is closed, or in another process."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

from ottla.client.errors import ClientClosedError, ConcurrentUseError, ForkedError
from ottla.env.process import process_id


class Guard:
    """A context for each call that lets everybody in; for the consumer inside of a guarded one."""

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
    """A context for each call. `who` tells the caller apart (a thread's number, a task), `kind` is its word.

    Calls from a callback of a call that is under way belong to that one.
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
        """Whether there is nothing left to close: it was done, or is the parent process's to do."""
        return self.closed or process_id() != self._process

    def __enter__(self) -> None:
        if self.closed:
            raise ClientClosedError("the consumer is closed; open a new one to read on")
        if process_id() != self._process:
            raise ForkedError("consumer")
        me = self._who()
        # Between looking and taking nothing is called, so that neither another thread nor a signal comes between.
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
