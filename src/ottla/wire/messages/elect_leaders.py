"""ElectLeaders (key 43): make preferred replicas lead, or elect leaders outside the ISR (KIP-183, KIP-460).

Versions: 1 kind of election, error of the whole request; 2 flexible.
"""

from __future__ import annotations

from ottla.wire.schema import INT8, INT16, INT32, STRING, Message, Struct, array, field, message, struct


@struct
class TopicPartitions(Struct):
    topic: str = field(STRING)
    partitions: list[int] = field(array(INT32))


@message(versions=(0, 2), flexible_since=2, api_key=43)
class ElectLeadersRequest(Message):
    """Partitions whose leaders shall be elected; None for all of them."""

    election_type: int = field(INT8, since=1)  # 0 preferred, 1 unclean.
    topic_partitions: list[TopicPartitions] | None = field(array(TopicPartitions), nullable_since=0)
    timeout_ms: int = field(INT32, default=60000)


@struct
class PartitionResult(Struct):
    partition_id: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable_since=0, default=None)


@struct
class ReplicaElectionResult(Struct):
    topic: str = field(STRING)
    partition_result: list[PartitionResult] = field(array(PartitionResult))


@message(versions=(0, 2), flexible_since=2, api_key=43)
class ElectLeadersResponse(Message):
    """The results by topic; empty if all were asked for and none may be altered."""

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16, since=1)
    replica_election_results: list[ReplicaElectionResult] = field(array(ReplicaElectionResult))
