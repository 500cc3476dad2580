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

        InvalidArgumentError for a partition that the topic has not, RecordTooLargeError, and what `Accumulator.append`
        raises.
        """
        size = estimated_size(key, value, headers)
        self._check_size(topic.name, size)
        count = len(topic.partitions)
        if partition is None:
            if key is not None:
                partition = partition_for_key(key, count)
            else:
                available = [each.partition for each in topic.partitions if each.leader >= 0]
                partition = self._sticky.partition(topic.name, available or range(count), size)
        elif not 0 <= partition < count:
            raise _no_partition(topic, partition)
        if timestamp is None:
            timestamp = self._cluster.clock.now_ms()
        record = Record(OFFSET_LATER, timestamp, key, value, headers)
        return self._accumulator.append(TopicPartition(topic.name, partition), record, size)

    def send_batch(self, topic: TopicMetadata, partition: int, records: Sequence[Record]) -> ProducerBatch:
        """Put records into a batch of their own. Raises as `send` does, and InvalidArgumentError for no records."""
        if not records:
            raise InvalidArgumentError("a batch needs at least one record")
        if not 0 <= partition < len(topic.partitions):
            raise _no_partition(topic, partition)
        total = 0
        for record in records:
            size = estimated_size(record.key, record.value, record.headers)
            self._check_size(topic.name, size)
            total += size
        return self._accumulator.append_batch(TopicPartition(topic.name, partition), records, total)

    def _check_size(self, topic: str, size: int) -> None:
        if size + BATCH_OVERHEAD > self._settings.max_request_size:
            limit = f"max_request_size of the producer ({self._settings.max_request_size})"
            raise RecordTooLargeError(topic, size + BATCH_OVERHEAD, limit)


def _no_partition(topic: TopicMetadata, partition: int) -> InvalidArgumentError:
    last = len(topic.partitions) - 1
    return InvalidArgumentError(f"topic {topic.name} has no partition {partition}; it has the partitions 0 to {last}")
