"""Brokers, topics, partitions and special offsets, as plain data."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

V = TypeVar("V")

EARLIEST = -2
"""In place of a timestamp: the first offset that is kept."""
LATEST = -1
"""In place of a timestamp: the offset after the last record that consumers may see."""
MAX_TIMESTAMP = -3
"""In place of a timestamp: the offset of the record with the largest timestamp (KIP-734)."""
CONSUMER = -1
"""In place of a replica's broker id."""
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
"""Isolation levels of a fetch and of a look-up of offsets (KIP-98)."""
NO_OFFSET = -1
"""Where a question has no offset for an answer: nothing committed, no record as late as the timestamp."""


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def by_topic(values: Mapping[TopicPartition, V]) -> dict[str, list[V]]:
    """The values of each topic's partitions, in their order: the shape that requests have."""
    grouped: dict[str, list[V]] = {}
    for (topic, _), value in values.items():
        grouped.setdefault(topic, []).append(value)
    return grouped


class Node(NamedTuple):
    """A broker and where it is reached."""

    node_id: int
    host: str
    port: int
    rack: str | None = None

    def __str__(self) -> str:
        return f"broker {self.node_id} at {self.host}:{self.port}"


@dataclass(slots=True, frozen=True)
class PartitionMetadata:
    """A partition's replicas; `leader` is -1 while there is none."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...] = ()


@dataclass(slots=True, frozen=True)
class TopicMetadata:
    """A topic and its partitions in the order of their numbers; `topic_id` is None where the broker has none."""

    name: str
    partitions: tuple[PartitionMetadata, ...]
    is_internal: bool
    topic_id: uuid.UUID | None = None
