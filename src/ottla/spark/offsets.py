"""Offsets of a Spark source: their JSON, the ranges tasks read, and how a batch is limited.

The JSON is that of Spark's Kafka source, `{"topic": {"0": 23, "1": -2}}`, so a checkpoint reads the same. Everything
here is a pure function of its arguments. Source of the rules: Spark's Structured Streaming + Kafka integration guide.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ottla.records.extras import require_extra

require_extra("ottla.spark", "spark", "pyspark", "pyarrow")

from pyspark.sql.datasource import InputPartition

from ottla.client.model import TopicPartition

EARLIEST = -2
LATEST = -1

Offsets = dict[TopicPartition, int]
"""The next offset to read, per partition."""

OffsetJson = dict[str, dict[str, int]]
"""The same, as Spark stores it."""


class OffsetJsonError(ValueError):
    """A JSON text that does not describe offsets; the message says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class PartitionRange(InputPartition):
    """What one task reads: the records of one partition from `start` (inclusive) to `end` (exclusive)."""

    topic: str
    partition: int
    start: int
    end: int

    def __repr__(self) -> str:
        return f"PartitionRange({self.topic}-{self.partition}, {self.start} to {self.end})"


def to_json(offsets: Mapping[TopicPartition, int]) -> OffsetJson:
    """Offsets as Spark's JSON object, topics and partitions in order."""
    document: OffsetJson = {}
    for partition in sorted(offsets, key=lambda each: (each.topic, each.partition)):
        document.setdefault(partition.topic, {})[str(partition.partition)] = offsets[partition]
    return document


def from_json(document: object, *, lowest: int = EARLIEST) -> Offsets:
    """Offsets out of Spark's JSON object.

    `lowest` is the smallest number allowed: -2 where "earliest" may be asked for, -1 where only "latest" may, 0 for
    plain offsets and timestamps. Raises OffsetJsonError.
    """
    if not isinstance(document, Mapping):
        raise OffsetJsonError(f'expected {{"topic": {{"0": 23}}}}, got {json.dumps(document)}')
    offsets: Offsets = {}
    for topic, partitions in document.items():
        if not isinstance(partitions, Mapping):
            raise OffsetJsonError(f"topic {topic!r}: expected an object of partition and offset, got {partitions!r}")
        for partition, offset in partitions.items():
            if not partition.isascii() or not partition.isdigit():
                raise OffsetJsonError(f"topic {topic!r}: {partition!r} is not a partition number")
            if isinstance(offset, bool) or not isinstance(offset, int) or offset < lowest:
                raise OffsetJsonError(f"{topic}-{partition}: {offset!r} is not a number of {lowest} or more")
            offsets[TopicPartition(topic, int(partition))] = offset
    return offsets


def parse_offsets(text: str, *, lowest: int = EARLIEST) -> Offsets:
    """Offsets out of a JSON text; see `from_json`. Raises OffsetJsonError."""
    try:
        document = json.loads(text)
    except ValueError as problem:
        raise OffsetJsonError(f"not JSON ({problem})") from None
    return from_json(document, lowest=lowest)


def parse_assignment(text: str) -> list[TopicPartition]:
    """The partitions of the option `assign`, `{"topic": [0, 1]}`. Raises OffsetJsonError."""
    try:
        document = json.loads(text)
    except ValueError as problem:
        raise OffsetJsonError(f"not JSON ({problem})") from None
    if not isinstance(document, dict) or not document:
        raise OffsetJsonError(f'expected {{"topic": [0, 1]}}, got {text}')
    assigned: list[TopicPartition] = []
    for topic, partitions in document.items():
        if not isinstance(partitions, list) or not partitions:
            raise OffsetJsonError(f"topic {topic!r}: expected a list of partition numbers, got {partitions!r}")
        for partition in partitions:
            if isinstance(partition, bool) or not isinstance(partition, int) or partition < 0:
                raise OffsetJsonError(f"topic {topic!r}: {partition!r} is not a partition number")
            assigned.append(TopicPartition(topic, partition))
    return assigned


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


def plan_ranges(start: Offsets, end: Offsets, min_partitions: int | None = None) -> list[PartitionRange]:
    """One range per partition that has records, split further where `min_partitions` asks for more tasks.

    Splits are even within a partition and in proportion to size over partitions. Ranges come in the order of topic,
    partition, offset.
    """
    whole = [
        PartitionRange(each.topic, each.partition, start[each], end[each])
        for each in sorted(end, key=lambda each: (each.topic, each.partition))
        if end[each] > start[each]
    ]
    if min_partitions is None or len(whole) >= min_partitions:
        return whole
    total = sum(each.end - each.start for each in whole)
    ranges: list[PartitionRange] = []
    for each in whole:
        size = each.end - each.start
        ranges.extend(_split(each, min(size, max(1, -(-min_partitions * size // total)))))
    return ranges


def _split(whole: PartitionRange, parts: int) -> Sequence[PartitionRange]:
    size = whole.end - whole.start
    cuts = [whole.start + size * part // parts for part in range(parts + 1)]
    return [PartitionRange(whole.topic, whole.partition, low, high) for low, high in pairwise(cuts)]
