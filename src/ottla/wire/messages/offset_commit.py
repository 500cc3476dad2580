"""OffsetCommit (key 8): keep a group's positions.

Versions: 1 generation and member, timestamp per partition; 2 retention time, no timestamp; 3 throttle time;
5 no retention time; 6 leader epoch; 7 static members (KIP-345); 8 flexible; 9 member epochs of the new group
protocol (KIP-848), the same bytes as 8.
"""

from __future__ import annotations

from ottla.wire.schema import INT16, INT32, INT64, STRING, Message, Struct, array, field, message, struct


@struct
class OffsetCommitRequestPartition(Struct):
    partition_index: int = field(INT32)
    committed_offset: int = field(INT64)
    committed_leader_epoch: int = field(INT32, since=6, default=-1, ignorable=True)
    commit_timestamp: int = field(INT64, since=1, until=1, default=-1)
    committed_metadata: str | None = field(STRING, nullable_since=0, default=None)


@struct
class OffsetCommitRequestTopic(Struct):
    name: str = field(STRING)
    partitions: list[OffsetCommitRequestPartition] = field(array(OffsetCommitRequestPartition))


@message(versions=(0, 9), flexible_since=8, api_key=8)
class OffsetCommitRequest(Message):
    group_id: str = field(STRING)
    generation_id_or_member_epoch: int = field(INT32, since=1, default=-1, ignorable=True)
    member_id: str = field(STRING, since=1, ignorable=True)
    group_instance_id: str | None = field(STRING, since=7, nullable_since=7, default=None)
    retention_time_ms: int = field(INT64, since=2, until=4, default=-1, ignorable=True)  # -1 for the broker's setting.
    topics: list[OffsetCommitRequestTopic] = field(array(OffsetCommitRequestTopic))


@struct
class OffsetCommitResponsePartition(Struct):
    partition_index: int = field(INT32)
    error_code: int = field(INT16)


@struct
class OffsetCommitResponseTopic(Struct):
    name: str = field(STRING)
    partitions: list[OffsetCommitResponsePartition] = field(array(OffsetCommitResponsePartition))


@message(versions=(0, 9), flexible_since=8, api_key=8)
class OffsetCommitResponse(Message):
    throttle_time_ms: int = field(INT32, since=3, ignorable=True)
    topics: list[OffsetCommitResponseTopic] = field(array(OffsetCommitResponseTopic))
