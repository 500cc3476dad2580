"""`flush.ms`: flushes a log this long after the first record that is not on the disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.storage.log import PartitionLog

#: No timer is armed for longer intervals: the flush of all logs comes first.
LATEST_MS = 24 * 3600 * 1000


class FlushTimer:
    """One timer for each log with unflushed records and a `flush.ms` setting."""

    def __init__(self, clock_now_ms: Callable[[], int], flush: Callable[[Sequence[PartitionLog]], None]) -> None:
        self._now_ms = clock_now_ms
        self._flush = flush
        self._armed: dict[PartitionLog, asyncio.TimerHandle] = {}

    def appended(self, log: PartitionLog) -> None:
        """Make sure that the log is flushed in time."""
        if log.config.flush_ms <= LATEST_MS and log not in self._armed:
            self._arm(log)

    def _arm(self, log: PartitionLog) -> None:
        due_ms = log.unflushed.last_flush_ms + log.config.flush_ms
        seconds = max(due_ms - self._now_ms(), 0) / 1000
        self._armed[log] = asyncio.get_running_loop().call_later(seconds, self._expired, log)

    def _expired(self, log: PartitionLog) -> None:
        del self._armed[log]
        if log.closed or not log.unflushed.bytes or log.config.flush_ms > LATEST_MS:
            return
        if self._now_ms() - log.unflushed.last_flush_ms >= log.config.flush_ms:
            self._flush([log])
        else:
            self._arm(log)

    def stop(self) -> None:
        """Cancel all timers."""
        for handle in self._armed.values():
            handle.cancel()
        self._armed.clear()
