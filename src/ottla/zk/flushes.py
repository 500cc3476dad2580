"""Where the log is forced to disk: in a disk thread or, where it is quick and nobody else waits, on the loop. Pure.

To hand a flush to a thread and to hear of its end costs more processor time than the flush, and while the thread takes
up its work and comes back, the loop does nothing either. So a server that has nothing else to do waits for a disk that
is quick, as long as nobody but the clients which have changed something asks for anything. What these ask for meanwhile
is worked on in the next turn, and forced together. Whoever only reads waits for one flush at most.
"""

from __future__ import annotations

QUICK_MS = 5.0
"""A flush that usually takes no longer than this is waited for."""
#: How much one flush counts: one that takes a second is remembered for 50 others.
_WEIGHT = 1 / 8


class FlushPace:
    """How long flushes usually take, and what follows from it. The first ones go to a thread, whatever they take."""

    __slots__ = ("usual_ms",)

    def __init__(self) -> None:
        self.usual_ms = 2 * QUICK_MS

    def took(self, length_ms: float) -> None:
        """A flush, wherever it was, took so long."""
        self.usual_ms += (length_ms - self.usual_ms) * _WEIGHT

    def is_waited_for(self, others_ask: bool) -> bool:
        """Whether the next flush is not given to a thread.

        `others_ask`: somebody whose changes it does not hold has asked for something since the last one.
        """
        return not others_ask and self.usual_ms <= QUICK_MS
