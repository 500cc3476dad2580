"""Offsets of a Spark source and their JSON.

The JSON is that of Spark's Kafka source, `{"topic": {"0": 23, "1": -2}}`, so a checkpoint reads the same. Everything
here is a pure function of its arguments. Source of the rules: Spark's Structured Streaming + Kafka integration guide.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from ottla.client.model import TopicPartition

EARLIEST = -2
LATEST = -1

Offsets = dict[TopicPartition, int]
"""The next offset to read, per partition."""

OffsetJson = dict[str, dict[str, int]]
"""The same, as Spark stores it."""


class OffsetJsonError(ValueError):
    """A JSON text that does not describe offsets; the message says what is wrong with it."""


def by_partition(topics: Mapping[str, Mapping[int, int]]) -> Offsets:
    """Offsets that are given by topic and partition number."""
    return {
        TopicPartition(topic, number): offset
        for topic, partitions in topics.items()
        for number, offset in partitions.items()
    }


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
    """Offsets out of a JSON text that names at least one partition; see `from_json`. Raises OffsetJsonError."""
    try:
        document = json.loads(text)
    except ValueError as problem:
        raise OffsetJsonError(f"not JSON ({problem})") from None
    offsets = from_json(document, lowest=lowest)
    if not offsets:
        raise OffsetJsonError(f'{text} names no partition; expected {{"topic": {{"0": 23}}}}')
    return offsets


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
