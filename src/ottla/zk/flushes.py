"""Where the log is forced to disk: in a disk thread or, where it is quick and little waits for it, on the loop. Pure.

To hand a flush to a thread and to hear of its end costs more processor time than the flush. So a server that has
nothing else to do waits for it, as long as that is a matter of milliseconds, few transactions wait, and nobody but
their clients asks for anything: what these ask for meanwhile is worked on in the next turn, and forced together.
"""

from __future__ import annotations

QUICK_MS = 5.0
"""A flush that usually takes no longer than this is waited for."""
FEW_TRANSACTIONS = 16
"""With more of them it pays to go on working while the disk is busy."""
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

    def is_waited_for(self, transactions: int, clients: int) -> bool:
        """Whether the next flush is not given to a thread.

        So many `transactions` wait for it, and so many `clients` have asked for something since the last one.
        """
        return clients <= transactions <= FEW_TRANSACTIONS and self.usual_ms <= QUICK_MS
