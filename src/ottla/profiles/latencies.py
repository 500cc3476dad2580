"""Latencies as a histogram of growing buckets, so that those of any number of records fit into little."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, log
from typing import Final

SMALLEST_MS: Final = 0.01
GROWTH: Final = 1.02
"""Each bucket reaches so much further than the one before: a percentile is at most 2 % too large."""
_LOG_GROWTH: Final = log(GROWTH)


class Latencies:
    """Counts of records by latency."""

    def __init__(self, counts: Mapping[int, int] | None = None) -> None:
        self.counts: dict[int, int] = dict(counts or {})

    def add(self, ms: float, records: int) -> None:
        """Count this number of records of a latency, in milliseconds."""
        bucket = 0 if ms <= SMALLEST_MS else ceil(log(ms / SMALLEST_MS) / _LOG_GROWTH)
        self.counts[bucket] = self.counts.get(bucket, 0) + records

    def merge(self, other: Latencies) -> None:
        """Add all that another one has counted."""
        for bucket, records in other.counts.items():
            self.counts[bucket] = self.counts.get(bucket, 0) + records

    def percentile_ms(self, percent: float) -> float | None:
        """The latency that this percentage of the records does not exceed; None where nothing was counted."""
        wanted = sum(self.counts.values()) * percent / 100
        if not wanted:
            return None
        reached = 0
        for bucket in sorted(self.counts):
            reached += self.counts[bucket]
            if reached >= wanted:
                break
        return float(SMALLEST_MS * GROWTH**bucket)
