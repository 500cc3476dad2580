"""OffsetForLeaderEpoch (key 23): where a leader epoch ended, to find where logs diverge (KIP-101, KIP-320).

Versions: 1 the epoch in the response; 2 the requester's leader epoch, throttle time; 3 replica id; 4 flexible.
"""

from __future__ import annotations

from ottla.wire.schema import INT16, INT32, INT64, STRING, Message, Struct, array, field, message, struct


@struct
class OffsetForLeaderPartition(Struct):
    partition: int = field(INT32)
    current_leader_epoch: int = field(INT32, since=2, default=-1, ignorable=True)
    leader_epoch: int = field(INT32)


@struct
class OffsetForLeaderTopic(Struct):
    topic: str = field(STRING)
    partitions: list[OffsetForLeaderPartition] = field(array(OffsetForLeaderPartition))


@message(versions=(0, 4), flexible_since=4, api_key=23)
class OffsetForLeaderEpochRequest(Message):
    # -1 for consumers; -2 a consumer that may see beyond the high watermark.
    replica_id: int = field(INT32, since=3, default=-2, ignorable=True)
    topics: list[OffsetForLeaderTopic] = field(array(OffsetForLeaderTopic))


@struct
class EpochEndOffset(Struct):
    error_code: int = field(INT16)
    partition: int = field(INT32)
    leader_epoch: int = field(INT32, since=1, default=-1, ignorable=True)
    end_offset: int = field(INT64, default=-1)  # -1 when unknown.


@struct
class OffsetForLeaderTopicResult(Struct):
    topic: str = field(STRING)
    partitions: list[EpochEndOffset] = field(array(EpochEndOffset))


@message(versions=(0, 4), flexible_since=4, api_key=23)
class OffsetForLeaderEpochResponse(Message):
    throttle_time_ms: int = field(INT32, since=2, ignorable=True)
    topics: list[OffsetForLeaderTopicResult] = field(array(OffsetForLeaderTopicResult))
