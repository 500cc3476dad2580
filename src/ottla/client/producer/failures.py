"""The records that were not delivered and of which nobody was told yet: so that none is lost in silence."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from ottla.client.errors import ClientError, DeliveryError
from ottla.client.model import TopicPartition
from ottla.client.producer.batch import ProducerBatch
from ottla.client.producer.futures import BatchResult

MAX_BATCHES = 1000
"""Failed batches that are kept apart; of further ones only the number of their records is."""
MAX_CAUSES = 5
MAX_PARTITIONS_NAMED = 5


@dataclass(slots=True)
class _FailedBatch:
    partition: TopicPartition
    result: BatchResult
    count: int
    error: ClientError
    counts_told: bool

    @property
    def untold(self) -> int:
        """How many records there are to tell of."""
        return self.count if self.counts_told else self.result.untold(self.count)


class Failures:
    """Failed batches since `take` was last called. A record is told of by its callback, or by its future if asked."""

    def __init__(self) -> None:
        #: Whether records count from now on even if somebody is told of them: those that `close` gives up.
        self.counts_told = False
        self._batches: list[_FailedBatch] = []
        self._further = 0

    def add(self, batch: ProducerBatch, error: ClientError) -> None:
        """A batch was given up."""
        count = batch.record_count or batch.builder.count
        if len(self._batches) < MAX_BATCHES:
            self._batches.append(_FailedBatch(batch.partition, batch.result, count, error, self.counts_told))
        else:
            self._further += count if self.counts_told else batch.result.untold(count)

    def take(self) -> DeliveryError | None:
        """An error that tells of all of them, None where there is nothing to tell; then they are forgotten."""
        batches, self._batches = self._batches, []
        total, self._further = self._further, 0
        counts: Counter[TopicPartition] = Counter()
        causes: dict[str, ClientError] = {}
        for each in batches:
            count = each.untold
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
