"""Reports of refused clients, which a flood of them must not turn into a flood of log lines."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Final

#: Lines of each listener in `REPORT_PERIOD_S`; of the others one line tells the number.
REPORTS_PER_PERIOD: Final = 10
REPORT_PERIOD_S: Final = 1.0


class LimitedReports:
    """Passes reports on, up to the limit of their listener."""

    def __init__(
        self, report: Callable[[str], None], call_later: Callable[[float, Callable[[], object]], object]
    ) -> None:
        self._report = report
        self._call_later = call_later
        #: By listener, in its period.
        self._counts: Counter[str] = Counter()

    def __call__(self, listener_name: str, message: str) -> None:
        """Report a client of a listener, or count it."""
        if not self._counts[listener_name]:
            self._call_later(REPORT_PERIOD_S, partial(self._end, listener_name))
        self._counts[listener_name] += 1
        if self._counts[listener_name] <= REPORTS_PER_PERIOD:
            self._report(message)

    def _end(self, listener_name: str) -> None:
        left_out = self._counts.pop(listener_name) - REPORTS_PER_PERIOD
        if left_out > 0:
            self._report(f"{left_out} more lines like the last ones of listener {listener_name} are left out")


def call_later(delay_s: float, callback: Callable[[], object]) -> asyncio.TimerHandle:
    """A timer of the running loop."""
    return asyncio.get_running_loop().call_later(delay_s, callback)
