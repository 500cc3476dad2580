"""How much of what a topic holds a micro-batch takes: `maxOffsetsPerTrigger`, `minOffsetsPerTrigger`.

Source: Spark's KafkaMicroBatchStream.
"""

from __future__ import annotations

from ottla.env.clock import Clock
from ottla.spark.source.offsets import Offsets
from ottla.spark.source.options import AdmissionLimits


class Admission:
    """Decides whether a micro-batch of a stream waits for more records."""

    def __init__(self, limits: AdmissionLimits, clock: Clock) -> None:
        self._limits = limits
        self._clock = clock
        self._last_batch_ms: float | None = None

    def waits(self, start: Offsets, latest: Offsets) -> bool:
        """Whether there are fewer records than `minOffsetsPerTrigger`, and `maxTriggerDelay` is not over.

        The first batch does not wait; the delay counts from the last one that did not.
        """
        least = self._limits.min_offsets
        now_ms = self._clock.monotonic_ms()
        if least is not None and self._last_batch_ms is not None:
            there = sum(max(0, latest[each] - start.get(each, latest[each])) for each in latest)
            if there < least and now_ms - self._last_batch_ms < self._limits.max_delay_ms:
                return True
        self._last_batch_ms = now_ms
        return False


def limit_offsets(start: Offsets, latest: Offsets, max_records: int) -> Offsets:
    """The end of a batch of about `max_records`, shared over the partitions in proportion to what each has.

    A partition that has anything gets at least one record, as with Spark's Kafka source, so none starves.
    """
    available = {each: max(0, latest[each] - start.get(each, latest[each])) for each in latest}
    total = sum(available.values())
    if total <= max_records:
        return dict(latest)
    shares = {each: min(size, max(1, max_records * size // total)) for each, size in available.items()}
    return {each: start[each] + shares[each] if shares[each] else latest[each] for each in latest}
