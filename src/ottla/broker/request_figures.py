"""Figures of the requests of one API: how many came in which version, and how long a sample of them took."""

from __future__ import annotations

from collections import deque
from typing import Final

#: One request of this many is timed, on the average: the distance varies, so that it meets no rhythm of the requests.
TIMED_EVERY: Final = 16
#: The latest times that are kept.
TIMES_KEPT: Final = 512


class RequestFigures:
    """Counters that the dispatcher keeps for an API, and the latest times."""

    __slots__ = ("_distance", "_until_timed", "by_version", "times_ms")

    def __init__(self, versions: int) -> None:
        self.by_version = [0] * versions
        self.times_ms: deque[float] = deque(maxlen=TIMES_KEPT)
        self._until_timed = 1
        self._distance = 0

    def taken_up(self, version: int) -> bool:
        """Count a request; return whether to time it."""
        self.by_version[version] += 1
        self._until_timed -= 1
        if self._until_timed:
            return False
        # Each number below `TIMED_EVERY` in turn, in an order that is none.
        self._distance = (5 * self._distance + 3) % TIMED_EVERY
        self._until_timed = 1 + TIMED_EVERY // 2 + self._distance
        return True

    def quantiles_ms(self, quantiles: tuple[float, ...]) -> list[float]:
        """The times that these shares of the kept ones do not exceed; empty while there are none."""
        times = sorted(self.times_ms)
        return [times[min(len(times) - 1, int(each * len(times)))] for each in quantiles] if times else []
