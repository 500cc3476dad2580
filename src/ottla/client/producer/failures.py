"""Undelivered records that were not reported to the user yet, so that no loss goes unnoticed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from ottla.client.errors import ClientError, DeliveryError
from ottla.client.model import TopicPartition
from ottla.client.producer.batch import ProducerBatch
from ottla.client.producer.futures import BatchResult

MAX_BATCHES = 1000
"""Limit of failed batches kept individually; of further ones only the number of records is kept."""
MAX_CAUSES = 5
MAX_PARTITIONS_NAMED = 5


@dataclass(slots=True)
class _FailedBatch:
    partition: TopicPartition
    result: BatchResult
    count: int
    error: ClientError
    counts_reported: bool

    @property
    def unreported(self) -> int:
        """Number of records not reported yet."""
        return self.count if self.counts_reported else self.result.unreported(self.count)


class Failures:
    """Failed batches since the last `take`. A record is reported by its callback, or once its future is retrieved."""

    def __init__(self) -> None:
        #: Whether records count from now on even if they were reported: those that `close` fails.
        self.counts_reported = False
        self._batches: list[_FailedBatch] = []
        self._further = 0

    def add(self, batch: ProducerBatch, error: ClientError) -> None:
        """Record a batch that failed."""
        count = batch.record_count or batch.builder.count
        if len(self._batches) < MAX_BATCHES:
            self._batches.append(_FailedBatch(batch.partition, batch.result, count, error, self.counts_reported))
        else:
            self._further += count if self.counts_reported else batch.result.unreported(count)

    def take(self) -> DeliveryError | None:
        """Return an error for all of them, None if there are none; then they are forgotten."""
        batches, self._batches = self._batches, []
        total, self._further = self._further, 0
        counts: Counter[TopicPartition] = Counter()
        causes: dict[str, ClientError] = {}
        for each in batches:
            count = each.unreported
            if count:
                counts[each.partition] += count
                causes.setdefault(str(each.error), each.error)
        total += counts.total()
        if not total:
            return None
        named = ", ".join(f"{count} of {partition}" for partition, count in counts.most_common(MAX_PARTITIONS_NAMED))
        more = "" if len(counts) <= MAX_PARTITIONS_NAMED else f" and of {len(counts) - MAX_PARTITIONS_NAMED} more"
        first = list(causes.values())[:MAX_CAUSES]
        error = DeliveryError(f"{total} records were not acknowledged ({named}{more}): {first[0]}", total, first)
        error.__cause__ = first[0]
        return error
