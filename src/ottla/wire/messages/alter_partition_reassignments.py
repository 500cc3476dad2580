"""AlterPartitionReassignments (key 45): place partitions on other brokers, or give that up (KIP-455)."""

from __future__ import annotations

from ottla.wire.schema import INT16, INT32, STRING, Message, Struct, array, field, message, struct


@struct
class ReassignablePartition(Struct):
    """The wanted replicas of a partition; None gives its reassignment up."""

    partition_index: int = field(INT32)
    replicas: list[int] | None = field(array(INT32), nullable_since=0, default=None)


@struct
class ReassignableTopic(Struct):
    name: str = field(STRING)
    partitions: list[ReassignablePartition] = field(array(ReassignablePartition))


@message(versions=(0, 0), flexible_since=0, api_key=45)
class AlterPartitionReassignmentsRequest(Message):
    timeout_ms: int = field(INT32, default=60000)
    topics: list[ReassignableTopic] = field(array(ReassignableTopic))


@struct
class ReassignablePartitionResponse(Struct):
    partition_index: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable_since=0, default=None)


@struct
class ReassignableTopicResponse(Struct):
    name: str = field(STRING)
    partitions: list[ReassignablePartitionResponse] = field(array(ReassignablePartitionResponse))


@message(versions=(0, 0), flexible_since=0, api_key=45)
class AlterPartitionReassignmentsResponse(Message):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable_since=0, default=None)
    responses: list[ReassignableTopicResponse] = field(array(ReassignableTopicResponse))
