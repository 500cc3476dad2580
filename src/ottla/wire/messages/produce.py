"""Produce (key 0): append record batches to partitions.

With acks 0 the broker does not respond.

Versions: response 1 throttle time; 2 log append time; 3 transactional id, record batches v2; 5 log start offset in
the response; 7 zstd; 8 errors of single records (KIP-467); 9 flexible; 10 current leader (KIP-951);
11 TRANSACTION_ABORTABLE (KIP-890).
"""

from __future__ import annotations

from ottla.wire.schema import (
    INT16,
    INT32,
    INT64,
    RECORDS,
    STRING,
    Message,
    Records,
    Struct,
    array,
    field,
    message,
    struct,
)


@struct
class PartitionProduceData(Struct):
    index: int = field(INT32)
    records: Records = field(RECORDS, nullable_since=0)


@struct
class TopicProduceData(Struct):
    name: str = field(STRING)
    partition_data: list[PartitionProduceData] = field(array(PartitionProduceData))


@message(versions=(0, 11), flexible_since=9, api_key=0)
class ProduceRequest(Message):
    transactional_id: str | None = field(STRING, since=3, nullable_since=3, default=None)
    acks: int = field(INT16)  # 0 no response, 1 the leader has appended, -1 all in-sync replicas have.
    timeout_ms: int = field(INT32)  # How long to wait for the replicas.
    topic_data: list[TopicProduceData] = field(array(TopicProduceData))


@struct
class NodeEndpoint(Struct):
    """The address of a leader named above."""

    node_id: int = field(INT32, since=10)
    host: str = field(STRING, since=10)
    port: int = field(INT32, since=10)
    rack: str | None = field(STRING, since=10, nullable_since=10, default=None)


@struct
class LeaderIdAndEpoch(Struct):
    """The current leader, for a client that asked the wrong broker."""

    leader_id: int = field(INT32, since=10, default=-1)
    leader_epoch: int = field(INT32, since=10, default=-1)


@struct
class BatchIndexAndErrorMessage(Struct):
    """A record that made the broker refuse its batch."""

    batch_index: int = field(INT32, since=8)
    batch_index_error_message: str | None = field(STRING, since=8, nullable_since=8, default=None)


@struct
class PartitionProduceResponse(Struct):
    index: int = field(INT32)
    error_code: int = field(INT16)
    base_offset: int = field(INT64)
    # -1 where the topic keeps the producer's timestamps.
    log_append_time_ms: int = field(INT64, since=2, default=-1, ignorable=True)
    log_start_offset: int = field(INT64, since=5, default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = field(array(BatchIndexAndErrorMessage), since=8, ignorable=True)
    error_message: str | None = field(STRING, since=8, nullable_since=8, default=None, ignorable=True)
    current_leader: LeaderIdAndEpoch = field(LeaderIdAndEpoch, since=10, tag=0)


@struct
class TopicProduceResponse(Struct):
    name: str = field(STRING)
    partition_responses: list[PartitionProduceResponse] = field(array(PartitionProduceResponse))


@message(versions=(0, 11), flexible_since=9, api_key=0)
class ProduceResponse(Message):
    responses: list[TopicProduceResponse] = field(array(TopicProduceResponse))
    throttle_time_ms: int = field(INT32, since=1, ignorable=True)
    node_endpoints: list[NodeEndpoint] = field(array(NodeEndpoint), since=10, tag=0)
