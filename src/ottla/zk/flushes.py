"""The place of a flush: in a disk thread or, if that is fast and no other client waits, on the event loop. Pure.

Passing a flush to a thread and receiving its result costs more processor time than the flush, and the loop is idle
while the thread is scheduled. A server without other work thus waits on the loop for a fast disk, as long as only
clients with pending changes send requests. Their requests that arrive meanwhile are handled in the next slice, and
flushed together. A client that only reads waits for one flush at most.
"""

from __future__ import annotations

QUICK_MS = 5.0
"""Flushes that usually take no longer than this are waited for on the loop."""
#: Weight of one flush in the average: one that takes a second influences the next 50.
_WEIGHT = 1 / 8


class FlushPace:
    """Average duration of flushes, and the decision based on it. The first ones always go to a thread."""

    __slots__ = ("usual_ms",)

    def __init__(self) -> None:
        self.usual_ms = 2 * QUICK_MS

    def took(self, length_ms: float) -> None:
        """Register the duration of a flush, on the loop or in a thread."""
        self.usual_ms += (length_ms - self.usual_ms) * _WEIGHT

    def is_waited_for(self, others_ask: bool) -> bool:
        """Whether to run the next flush on the loop.

        `others_ask`: since the last flush there was a request of a client without changes in the next one.
        """
        return not others_ask and self.usual_ms <= QUICK_MS
