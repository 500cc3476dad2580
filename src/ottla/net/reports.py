"""Reports that other processes can cause, of which a flood must not turn into a flood of log lines."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Final

#: Lines of each source in `REPORT_PERIOD_S`; of the others one line tells the number.
REPORTS_PER_PERIOD: Final = 10
REPORT_PERIOD_S: Final = 1.0


class LimitedReports:
    """Passes reports on, up to the limit of their source, which is one of few: a listener, a topic."""

    def __init__(
        self, report: Callable[[str], None], call_later: Callable[[float, Callable[[], object]], object]
    ) -> None:
        self._report = report
        self._call_later = call_later
        #: By source, in its period.
        self._counts: Counter[str] = Counter()

    def __call__(self, source: str, message: str) -> None:
        """Report the message, or count it."""
        if not self._counts[source]:
            self._call_later(REPORT_PERIOD_S, partial(self._end, source))
        self._counts[source] += 1
        if self._counts[source] <= REPORTS_PER_PERIOD:
            self._report(message)

    def _end(self, source: str) -> None:
        left_out = self._counts.pop(source) - REPORTS_PER_PERIOD
        if left_out > 0:
            self._report(f"{left_out} more lines like the last ones of {source} are left out")


def call_later(delay_s: float, callback: Callable[[], object]) -> asyncio.TimerHandle:
    """A timer of the running loop."""
    return asyncio.get_running_loop().call_later(delay_s, callback)
