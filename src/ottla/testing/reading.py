"""The records in a test broker's topics, read without a client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.records.batch import MAGIC, MAGIC_AT, NO_LEADER_EPOCH, parse_batch_header
from ottla.records.consumed import ConsumerRecord, decode_consumed
from ottla.records.message_set import parse_message_header
from ottla.storage.bounded import decode_message_bounded
from ottla.testing.seeds import partition_of

if TYPE_CHECKING:
    from ottla.broker.server import Broker

Found = ConsumerRecord[bytes | None, bytes | None]
#: The size of a key or value that is null.
NULL_SIZE: Final = -1


def read_records(broker: Broker, topic: str, partition: int | None = None) -> list[Found]:
    """All records of a topic up to the high watermark, partition by partition in the order of their offsets.

    Records of aborted transactions are included. Raises `TestBrokerError` for a missing topic or partition.
    """
    indexes = broker.partitions.indexes(topic) if partition is None else [partition]
    if not indexes:
        partition_of(broker, topic, 0)
    found: list[Found] = []
    for index in indexes:
        log = partition_of(broker, topic, index).log
        start = log.log_start_offset
        for data in log.read_batches(start):
            if data[MAGIC_AT] != MAGIC:
                found += _of_old_format(data, topic, index, start)
                continue
            header = parse_batch_header(data)
            if not header.is_control:
                found += decode_consumed(data, header, topic, index, start)
    return found


def _of_old_format(data: memoryview, topic: str, index: int, start: int) -> list[Found]:
    """The records of a message of format 0 or 1, as in directories of old brokers."""
    header = parse_message_header(data)
    return [
        ConsumerRecord(
            topic,
            index,
            record.offset,
            record.timestamp,
            header.timestamp_type,
            record.key,
            record.value,
            (),
            NO_LEADER_EPOCH,
            NULL_SIZE if record.key is None else len(record.key),
            NULL_SIZE if record.value is None else len(record.value),
        )
        for record in decode_message_bounded(data, header)
        if record.offset >= start
    ]


def count_records(broker: Broker, topic: str) -> int:
    """How many offsets of the topic hold, or held, a record that can be read; 0 for a missing topic."""
    logs = [broker.partitions.get(topic, index) for index in broker.partitions.indexes(topic)]
    return sum(each.log.high_watermark - each.log.log_start_offset for each in logs if each is not None)


def end_offsets(broker: Broker, topic: str) -> dict[int, int]:
    """The high watermark of each partition of a topic. Raises `TestBrokerError` for a missing topic."""
    indexes = broker.partitions.indexes(topic)
    if not indexes:
        partition_of(broker, topic, 0)
    return {index: partition_of(broker, topic, index).log.high_watermark for index in indexes}
