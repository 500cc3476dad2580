"""DescribeProducers (key 61): the producers that a partition's leader knows (KIP-664). Version 0 is flexible."""

from __future__ import annotations

from ottla.wire.schema import INT16, INT32, INT64, STRING, Message, Struct, array, field, message, struct


@struct
class TopicRequest(Struct):
    name: str = field(STRING)
    partition_indexes: list[int] = field(array(INT32))


@message(versions=(0, 0), flexible_since=0, api_key=61)
class DescribeProducersRequest(Message):
    topics: list[TopicRequest] = field(array(TopicRequest))


@struct
class ProducerState(Struct):
    """One producer; -1 stands for no sequence number, timestamp, coordinator or open transaction."""

    producer_id: int = field(INT64)
    producer_epoch: int = field(INT32)
    last_sequence: int = field(INT32, default=-1)
    last_timestamp: int = field(INT64, default=-1)
    coordinator_epoch: int = field(INT32)
    current_txn_start_offset: int = field(INT64, default=-1)


@struct
class PartitionResponse(Struct):
    partition_index: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable_since=0, default=None)
    active_producers: list[ProducerState] = field(array(ProducerState))


@struct
class TopicResponse(Struct):
    name: str = field(STRING)
    partitions: list[PartitionResponse] = field(array(PartitionResponse))


@message(versions=(0, 0), flexible_since=0, api_key=61)
class DescribeProducersResponse(Message):
    throttle_time_ms: int = field(INT32)
    topics: list[TopicResponse] = field(array(TopicResponse))
