"""The limit on bytes of requests that wait or are worked on (`queued.max.request.bytes`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

#: No limit, Kafka's default.
UNLIMITED: Final = -1


class QueuedBytes:
    """Counts the bytes of requests that handlers keep.

    Above the limit, connections that are in the middle of a request stop reading. They are notified when there is room
    again, in the order in which they stopped.
    """

    __slots__ = ("_limit", "_waiting", "held")

    def __init__(self, limit: int = UNLIMITED) -> None:
        self._limit = limit
        #: Bytes kept now.
        self.held = 0
        self._waiting: dict[Callable[[], None], None] = {}

    @property
    def is_full(self) -> bool:
        """Whether the limit is reached, so that reading has to stop."""
        return 0 <= self._limit <= self.held

    def add(self, size: int) -> None:
        """Count a kept request of `size` bytes."""
        self.held += size

    def remove(self, size: int) -> None:
        """Count a kept request as finished."""
        self.held -= size
        while self._waiting and not self.is_full:
            resume = next(iter(self._waiting))
            del self._waiting[resume]
            resume()

    def wait(self, resume: Callable[[], None]) -> None:
        """Call `resume` once, when there is room again."""
        self._waiting[resume] = None

    def forget(self, resume: Callable[[], None]) -> None:
        """Remove a waiting callback; its connection is closed."""
        self._waiting.pop(resume, None)
