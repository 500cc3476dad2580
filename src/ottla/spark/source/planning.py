"""How much of what a topic holds a micro-batch takes, and the ranges of offsets that the tasks of a query read.

Sources: Spark's KafkaMicroBatchStream, for `maxOffsetsPerTrigger` and `minOffsetsPerTrigger`, and its
KafkaOffsetRangeCalculator, for how many tasks a range is split into.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from pyspark.sql.datasource import InputPartition

from ottla.client.model import TopicPartition
from ottla.env.clock import Clock
from ottla.spark.source.offsets import Offsets
from ottla.spark.source.options import AdmissionLimits, SplitOptions

NO_SPLIT = SplitOptions()


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


@dataclass(frozen=True, slots=True)
class PartitionRange(InputPartition):
    """The input of one task: the records of one partition from `start` (inclusive) to `end` (exclusive)."""

    topic: str
    partition: int
    start: int
    end: int

    def __repr__(self) -> str:
        return f"PartitionRange({self.topic}-{self.partition}, {self.start} to {self.end})"

    @property
    def size(self) -> int:
        """How many offsets it has."""
        return self.end - self.start


def plan_ranges(
    start: Offsets,
    end: Offsets,
    split: SplitOptions = NO_SPLIT,
    record_bytes: Mapping[TopicPartition, float] | None = None,
) -> list[PartitionRange]:
    """One range per partition that has records, split further where `split` asks for it.

    `record_bytes` is the average size of a record, for `split.max_bytes`; a partition that it leaves out is not split
    by size. Ranges come in the order of topic, partition, offset.
    """
    ranges: list[PartitionRange] = []
    for each in sorted(end, key=lambda each: (each.topic, each.partition)):
        if end[each] > start[each]:
            whole = PartitionRange(each.topic, each.partition, start[each], end[each])
            most = _most_records(split, (record_bytes or {}).get(each, 0))
            ranges.extend(_split(whole, 1 if most is None else -(-whole.size // most)))
    if split.min_tasks is None or len(ranges) >= split.min_tasks:
        return ranges
    return _into_tasks(ranges, split.min_tasks)


def _most_records(split: SplitOptions, record_bytes: float) -> int | None:
    limits = [] if split.max_records is None else [split.max_records]
    if split.max_bytes is not None and record_bytes > 0:
        limits.append(max(1, int(split.max_bytes / record_bytes)))
    return min(limits, default=None)


def _into_tasks(ranges: Sequence[PartitionRange], tasks: int) -> list[PartitionRange]:
    """Split in proportion to size; ranges too small for two tasks stay whole, and the others share what is left."""
    total = sum(each.size for each in ranges)
    whole = {each for each in ranges if _task_count(each.size, total, tasks) == 1}
    left = sum(each.size for each in ranges if each not in whole)
    for_large = max(1, tasks - len(whole))
    return [
        part
        for each in ranges
        for part in _split(each, 1 if each in whole else _task_count(each.size, left, for_large))
    ]


def _task_count(size: int, total: int, tasks: int) -> int:
    """`tasks * size / total`, rounded half up, as Java's Math.round does."""
    return max(1, (2 * tasks * size + total) // (2 * total))


def _split(whole: PartitionRange, tasks: int) -> Sequence[PartitionRange]:
    tasks = min(tasks, whole.size)
    cuts = [whole.start + whole.size * part // tasks for part in range(tasks + 1)]
    return [PartitionRange(whole.topic, whole.partition, low, high) for low, high in pairwise(cuts)]
