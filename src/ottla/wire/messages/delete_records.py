"""DeleteRecords (key 21): move the start of partitions forward (KIP-107).

Versions: 2 flexible.
"""

from __future__ import annotations

from ottla.wire.schema import INT16, INT32, INT64, STRING, Message, Struct, array, field, message, struct


@struct
class DeleteRecordsPartition(Struct):
    """All records below `offset`; -1 stands for the high watermark."""

    partition_index: int = field(INT32)
    offset: int = field(INT64)


@struct
class DeleteRecordsTopic(Struct):
    name: str = field(STRING)
    partitions: list[DeleteRecordsPartition] = field(array(DeleteRecordsPartition))


@message(versions=(0, 2), flexible_since=2, api_key=21)
class DeleteRecordsRequest(Message):
    topics: list[DeleteRecordsTopic] = field(array(DeleteRecordsTopic))
    timeout_ms: int = field(INT32)


@struct
class DeleteRecordsPartitionResult(Struct):
    partition_index: int = field(INT32)
    low_watermark: int = field(INT64)
    error_code: int = field(INT16)


@struct
class DeleteRecordsTopicResult(Struct):
    name: str = field(STRING)
    partitions: list[DeleteRecordsPartitionResult] = field(array(DeleteRecordsPartitionResult))


@message(versions=(0, 2), flexible_since=2, api_key=21)
class DeleteRecordsResponse(Message):
    throttle_time_ms: int = field(INT32)
    topics: list[DeleteRecordsTopicResult] = field(array(DeleteRecordsTopicResult))
