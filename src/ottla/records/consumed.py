"""Records as a consumer hands them out, decoded a batch at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, NamedTuple

from ottla.records.batch import BatchHeader, TimestampType
from ottla.records.headers import Headers
from ottla.records.record import batch_records
from ottla.records.type_variables import K, V
from ottla.records.walk import read_records

Deserialize = Callable[[str, Headers, bytes], Any]
"""Makes an object of the bytes of a key or value: `deserialize(topic, headers, data)`. Null stays None, as in Java."""


class ConsumerRecord(NamedTuple, Generic[K, V]):
    """One record read. `timestamp` is in milliseconds; sizes are in bytes, -1 for null.

    `leader_epoch` is that of the leader which appended the record, -1 where it is not known.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: TimestampType
    key: K
    value: V
    headers: Headers
    leader_epoch: int
    serialized_key_size: int
    serialized_value_size: int


def append_timestamp(header: BatchHeader) -> int | None:
    """The timestamp that all records of the batch have, None where each has its own."""
    return header.max_timestamp if header.timestamp_type == TimestampType.LOG_APPEND_TIME else None


def decode_consumed(
    buffer: bytes | bytearray | memoryview,
    header: BatchHeader,
    topic: str,
    partition: int,
    start_offset: int,
    key_deserializer: Deserialize | None = None,
    value_deserializer: Deserialize | None = None,
) -> list[ConsumerRecord[Any, Any]]:
    """The records from `start_offset` on of the batch that `header` describes in `buffer`.

    Raises BatchError where they are malformed, and whatever the deserializers raise.
    """
    return read_records(
        batch_records(buffer, header),
        header.records_count,
        ConsumerRecord,
        topic,
        partition,
        header.base_offset,
        header.base_timestamp,
        header.timestamp_type,
        append_timestamp(header),
        header.partition_leader_epoch,
        start_offset,
        key_deserializer,
        value_deserializer,
    )
