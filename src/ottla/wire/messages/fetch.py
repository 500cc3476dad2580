"""Fetch (key 1): read record batches, for consumers and followers.

Versions: 3 limit for the whole response; 4 isolation level, record batches v2; 5 log start offset; 7 sessions
(KIP-227); 9 leader epoch checked (KIP-320); 10 zstd; 11 rack, preferred replica (KIP-392); 12 flexible, diverging
epoch; 13 topic ids in place of names (KIP-516); 15 replica state (KIP-903); 16 node endpoints (KIP-951);
17 directory id (KIP-853).
"""

from __future__ import annotations

import uuid

from ottla.wire.schema import (
    INT8,
    INT16,
    INT32,
    INT64,
    RECORDS,
    STRING,
    UUID,
    Message,
    Records,
    Struct,
    array,
    field,
    message,
    struct,
)


@struct
class ForgottenTopic(Struct):
    """Partitions that leave the session."""

    topic: str = field(STRING, since=7, until=12, ignorable=True)
    topic_id: uuid.UUID = field(UUID, since=13, ignorable=True)
    partitions: list[int] = field(array(INT32), since=7)


@struct
class FetchPartition(Struct):
    """A partition to read: the offset, and the bytes at most."""

    partition: int = field(INT32)
    current_leader_epoch: int = field(INT32, since=9, default=-1, ignorable=True)
    fetch_offset: int = field(INT64)
    last_fetched_epoch: int = field(INT32, since=12, default=-1)
    log_start_offset: int = field(INT64, since=5, default=-1, ignorable=True)  # Of the follower; consumers send -1.
    partition_max_bytes: int = field(INT32)  # As `max_bytes`, for this partition.
    replica_directory_id: uuid.UUID = field(UUID, since=17, tag=0, ignorable=True)


@struct
class FetchTopic(Struct):
    topic: str = field(STRING, until=12, ignorable=True)
    topic_id: uuid.UUID = field(UUID, since=13, ignorable=True)
    partitions: list[FetchPartition] = field(array(FetchPartition))


@struct
class ReplicaState(Struct):
    replica_id: int = field(INT32, since=15, default=-1)
    replica_epoch: int = field(INT64, since=15, default=-1)


@message(versions=(0, 17), flexible_since=12, api_key=1)
class FetchRequest(Message):
    """Partitions to read, or what changes in the session."""

    cluster_id: str | None = field(STRING, since=12, nullable_since=12, default=None, tag=0, ignorable=True)
    replica_id: int = field(INT32, until=14, default=-1)  # -1 for consumers.
    replica_state: ReplicaState = field(ReplicaState, since=15, tag=1)
    max_wait_ms: int = field(INT32)
    min_bytes: int = field(INT32)
    # A limit, but a first batch larger than this is sent whole (KIP-74).
    max_bytes: int = field(INT32, since=3, default=0x7FFFFFFF, ignorable=True)
    isolation_level: int = field(INT8, since=4, ignorable=True)  # 0 read uncommitted, 1 read committed.
    session_id: int = field(INT32, since=7, ignorable=True)
    session_epoch: int = field(INT32, since=7, default=-1, ignorable=True)  # -1 no session, 0 a new one.
    topics: list[FetchTopic] = field(array(FetchTopic))
    forgotten_topics_data: list[ForgottenTopic] = field(array(ForgottenTopic), since=7)
    rack_id: str = field(STRING, since=11, ignorable=True)


@struct
class NodeEndpoint(Struct):
    """The address of a leader named above."""

    node_id: int = field(INT32, since=16)
    host: str = field(STRING, since=16)
    port: int = field(INT32, since=16)
    rack: str | None = field(STRING, since=16, nullable_since=16, default=None)


@struct
class AbortedTransaction(Struct):
    """A transaction whose records the reader has to skip."""

    producer_id: int = field(INT64, since=4)
    first_offset: int = field(INT64, since=4)


@struct
class SnapshotId(Struct):
    """A snapshot to fetch in place of the log (KRaft)."""

    end_offset: int = field(INT64, default=-1)
    epoch: int = field(INT32, default=-1)


@struct
class LeaderIdAndEpoch(Struct):
    """The current leader, for a client that asked the wrong broker."""

    leader_id: int = field(INT32, since=12, default=-1)
    leader_epoch: int = field(INT32, since=12, default=-1)


@struct
class EpochEndOffset(Struct):
    epoch: int = field(INT32, since=12, default=-1)
    end_offset: int = field(INT64, since=12, default=-1)


@struct
class PartitionData(Struct):
    partition_index: int = field(INT32)
    error_code: int = field(INT16)
    high_watermark: int = field(INT64)
    last_stable_offset: int = field(INT64, since=4, default=-1, ignorable=True)
    log_start_offset: int = field(INT64, since=5, default=-1, ignorable=True)
    diverging_epoch: EpochEndOffset = field(EpochEndOffset, since=12, tag=0)
    current_leader: LeaderIdAndEpoch = field(LeaderIdAndEpoch, since=12, tag=1)
    snapshot_id: SnapshotId = field(SnapshotId, since=12, tag=2)
    aborted_transactions: list[AbortedTransaction] | None = field(
        array(AbortedTransaction), since=4, nullable_since=4, ignorable=True
    )
    preferred_read_replica: int = field(INT32, since=11, default=-1)
    records: Records = field(RECORDS, nullable_since=0)


@struct
class FetchableTopicResponse(Struct):
    topic: str = field(STRING, until=12, ignorable=True)
    topic_id: uuid.UUID = field(UUID, since=13, ignorable=True)
    partitions: list[PartitionData] = field(array(PartitionData))


@message(versions=(0, 17), flexible_since=12, api_key=1)
class FetchResponse(Message):
    throttle_time_ms: int = field(INT32, since=1, ignorable=True)
    error_code: int = field(INT16, since=7, ignorable=True)
    session_id: int = field(INT32, since=7)
    responses: list[FetchableTopicResponse] = field(array(FetchableTopicResponse))
    node_endpoints: list[NodeEndpoint] = field(array(NodeEndpoint), since=16, tag=0)
