"""ListOffsets (key 2): the offset of a timestamp, of the start or of the end of partitions.

Timestamps below zero have meanings: -1 latest, -2 earliest, -3 that of the largest timestamp (version 7),
-4 earliest local (8), -5 latest tiered (9).

Versions: 1 a single offset with its timestamp; 2 isolation level, throttle time; 4 leader epoch;
5 OFFSET_NOT_AVAILABLE; 6 flexible.
"""

from __future__ import annotations

from ottla.wire.schema import INT8, INT16, INT32, INT64, STRING, Message, Struct, array, field, message, struct


@struct
class ListOffsetsPartition(Struct):
    partition_index: int = field(INT32)
    current_leader_epoch: int = field(INT32, since=4, default=-1, ignorable=True)
    timestamp: int = field(INT64)
    max_num_offsets: int = field(INT32, until=0, default=1)


@struct
class ListOffsetsTopic(Struct):
    name: str = field(STRING)
    partitions: list[ListOffsetsPartition] = field(array(ListOffsetsPartition))


@message(versions=(0, 9), flexible_since=6, api_key=2)
class ListOffsetsRequest(Message):
    replica_id: int = field(INT32)  # -1 for consumers, who have to set it.
    isolation_level: int = field(INT8, since=2)  # 0 read uncommitted, 1 read committed.
    topics: list[ListOffsetsTopic] = field(array(ListOffsetsTopic))


@struct
class ListOffsetsPartitionResponse(Struct):
    """Offset of one partition, -1 where there is none."""

    partition_index: int = field(INT32)
    error_code: int = field(INT16)
    old_style_offsets: list[int] = field(array(INT64), until=0)
    timestamp: int = field(INT64, since=1, default=-1)
    offset: int = field(INT64, since=1, default=-1)
    leader_epoch: int = field(INT32, since=4, default=-1)


@struct
class ListOffsetsTopicResponse(Struct):
    name: str = field(STRING)
    partitions: list[ListOffsetsPartitionResponse] = field(array(ListOffsetsPartitionResponse))


@message(versions=(0, 9), flexible_since=6, api_key=2)
class ListOffsetsResponse(Message):
    throttle_time_ms: int = field(INT32, since=2, ignorable=True)
    topics: list[ListOffsetsTopicResponse] = field(array(ListOffsetsTopicResponse))
