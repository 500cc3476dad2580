"""Records in: choose the partition and fill its batch, in the caller's thread, without a hop per record."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.client.accumulator import Accumulator, ProducerBatch, estimated_size
from ottla.client.cluster import Cluster
from ottla.client.errors import InvalidArgumentError, RecordTooLargeError
from ottla.client.model import TopicMetadata, TopicPartition
from ottla.client.partitioner import StickyPartitioner, partition_for_key
from ottla.client.settings import ProducerSettings
from ottla.records.batch import BATCH_OVERHEAD
from ottla.records.record import Headers, Record

MAX_TIMESTAMP = 2**62
"""Milliseconds; far enough from the end of 64 bits that differences fit, too."""
OFFSET_LATER = 0
"""Offsets of a batch on its way count from here; the broker gives the real ones."""


class RecordRouter:
    """Chooses partitions and fills the accumulator; `send` may be called from any one thread at a time."""

    def __init__(self, cluster: Cluster, settings: ProducerSettings, accumulator: Accumulator) -> None:
        self._cluster = cluster
        self._settings = settings
        self._accumulator = accumulator
        self._sticky = StickyPartitioner(settings.batch_size)

    def known(self, topic: str) -> TopicMetadata | None:
        """The topic, None where it has to be asked for before a record can be routed."""
        metadata = self._cluster.metadata
        return metadata.topics.get(topic)

    def send(
        self,
        topic: TopicMetadata,
        key: bytes | None,
        value: bytes | None,
        timestamp: int | None,
        headers: Headers,
        partition: int | None,
    ) -> bool:
        """Put a record into its batch; True where the sender has to be woken.

        InvalidArgumentError for a partition that the topic has not and for wrong types, RecordTooLargeError, and what
        `Accumulator.append` raises.
        """
        if timestamp is None:
            timestamp = self._cluster.clock.now_ms()
        record = Record(OFFSET_LATER, timestamp, key, value, headers)
        size = self._checked_size(topic.name, record)
        count = len(topic.partitions)
        if partition is None:
            if key is not None:
                partition = partition_for_key(key, count)
            else:
                available = [each.partition for each in topic.partitions if each.leader >= 0]
                partition = self._sticky.partition(topic.name, available or range(count), size)
        elif not 0 <= partition < count:
            raise _no_partition(topic, partition)
        return self._accumulator.append(TopicPartition(topic.name, partition), record, size)

    def send_batch(self, topic: TopicMetadata, partition: int, records: Sequence[Record]) -> ProducerBatch:
        """Put records into a batch of their own. Raises as `send` does, and InvalidArgumentError for no records."""
        if not records:
            raise InvalidArgumentError("a batch needs at least one record")
        if not 0 <= partition < len(topic.partitions):
            raise _no_partition(topic, partition)
        total = sum(self._checked_size(topic.name, record) for record in records)
        return self._accumulator.append_batch(TopicPartition(topic.name, partition), records, total)

    def _checked_size(self, topic: str, record: Record) -> int:
        """The estimated size of a record that can be encoded and is not too large."""
        _check_types(record.key, record.value, record.timestamp)
        for header in record.headers:
            _check_header(header)
        size = estimated_size(record.key, record.value, record.headers)
        if size + BATCH_OVERHEAD > self._settings.max_request_size:
            limit = f"max_request_size of the producer ({self._settings.max_request_size})"
            raise RecordTooLargeError(topic, size + BATCH_OVERHEAD, limit)
        return size


def _check_types(key: object, value: object, timestamp: object) -> None:
    """What callers without a type checker get wrong would otherwise fail far from here, while it is sent."""
    if not (key is None or isinstance(key, bytes)) or not (value is None or isinstance(value, bytes)):
        raise InvalidArgumentError(f"key and value are bytes or None, not {_type(key)} and {_type(value)}")
    if not isinstance(timestamp, int) or not -MAX_TIMESTAMP <= timestamp <= MAX_TIMESTAMP:
        raise InvalidArgumentError(f"a timestamp is a number of milliseconds, not {timestamp!r}")


def _check_header(header: object) -> None:
    match header:
        case (str(), bytes() | None):
            return
    raise InvalidArgumentError(f"a header is a pair of a name (str) and bytes or None, not {header!r}")


def _type(value: object) -> str:
    return type(value).__name__


def _no_partition(topic: TopicMetadata, partition: int) -> InvalidArgumentError:
    last = len(topic.partitions) - 1
    return InvalidArgumentError(f"topic {topic.name} has no partition {partition}; it has the partitions 0 to {last}")
