"""TxnOffsetCommit (key 28): a group's positions, in force once the transaction is committed (KIP-98).

Versions: 2 leader epoch; 3 flexible, generation and member (KIP-447); 4 TRANSACTION_ABORTABLE (KIP-890).
"""

from __future__ import annotations

from ottla.wire.schema import INT16, INT32, INT64, STRING, Message, Struct, array, field, message, struct


@struct
class TxnOffsetCommitRequestPartition(Struct):
    partition_index: int = field(INT32)
    committed_offset: int = field(INT64)
    committed_leader_epoch: int = field(INT32, since=2, default=-1, ignorable=True)
    committed_metadata: str | None = field(STRING, nullable_since=0, default=None)


@struct
class TxnOffsetCommitRequestTopic(Struct):
    name: str = field(STRING)
    partitions: list[TxnOffsetCommitRequestPartition] = field(array(TxnOffsetCommitRequestPartition))


@message(versions=(0, 4), flexible_since=3, api_key=28)
class TxnOffsetCommitRequest(Message):
    transactional_id: str = field(STRING)
    group_id: str = field(STRING)
    producer_id: int = field(INT64)
    producer_epoch: int = field(INT16)
    generation_id: int = field(INT32, since=3, default=-1)
    member_id: str = field(STRING, since=3)
    group_instance_id: str | None = field(STRING, since=3, nullable_since=3, default=None)
    topics: list[TxnOffsetCommitRequestTopic] = field(array(TxnOffsetCommitRequestTopic))


@struct
class TxnOffsetCommitResponsePartition(Struct):
    partition_index: int = field(INT32)
    error_code: int = field(INT16)


@struct
class TxnOffsetCommitResponseTopic(Struct):
    name: str = field(STRING)
    partitions: list[TxnOffsetCommitResponsePartition] = field(array(TxnOffsetCommitResponsePartition))


@message(versions=(0, 4), flexible_since=3, api_key=28)
class TxnOffsetCommitResponse(Message):
    throttle_time_ms: int = field(INT32)
    topics: list[TxnOffsetCommitResponseTopic] = field(array(TxnOffsetCommitResponseTopic))
