"""ListPartitionReassignments (key 46): reassignments that are under way (KIP-455)."""

from __future__ import annotations

from ottla.wire.schema import INT16, INT32, STRING, Message, Struct, array, field, message, struct


@struct
class ListPartitionReassignmentsTopics(Struct):
    name: str = field(STRING)
    partition_indexes: list[int] = field(array(INT32))


@message(versions=(0, 0), flexible_since=0, api_key=46)
class ListPartitionReassignmentsRequest(Message):
    """Partitions that are asked about; None for all."""

    timeout_ms: int = field(INT32, default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = field(
        array(ListPartitionReassignmentsTopics), nullable_since=0, default=None
    )


@struct
class OngoingPartitionReassignment(Struct):
    partition_index: int = field(INT32)
    replicas: list[int] = field(array(INT32))  # All of them: old, added and removed ones.
    adding_replicas: list[int] = field(array(INT32))
    removing_replicas: list[int] = field(array(INT32))


@struct
class OngoingTopicReassignment(Struct):
    name: str = field(STRING)
    partitions: list[OngoingPartitionReassignment] = field(array(OngoingPartitionReassignment))


@message(versions=(0, 0), flexible_since=0, api_key=46)
class ListPartitionReassignmentsResponse(Message):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable_since=0, default=None)
    topics: list[OngoingTopicReassignment] = field(array(OngoingTopicReassignment))
