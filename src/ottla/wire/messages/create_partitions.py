"""CreatePartitions (key 37): let topics grow.

Versions: 2 flexible; 3 THROTTLING_QUOTA_EXCEEDED.
"""

from __future__ import annotations

from ottla.wire.schema import BOOL, INT16, INT32, STRING, Message, Struct, array, field, message, struct


@struct
class CreatePartitionsAssignment(Struct):
    """The brokers of one new partition."""

    broker_ids: list[int] = field(array(INT32))


@struct
class CreatePartitionsTopic(Struct):
    """The new total of partitions of a topic."""

    name: str = field(STRING)
    count: int = field(INT32)  # The new total.
    assignments: list[CreatePartitionsAssignment] | None = field(array(CreatePartitionsAssignment), nullable_since=0)


@message(versions=(0, 3), flexible_since=2, api_key=37)
class CreatePartitionsRequest(Message):
    """Topics that shall grow."""

    topics: list[CreatePartitionsTopic] = field(array(CreatePartitionsTopic))
    timeout_ms: int = field(INT32)
    validate_only: bool = field(BOOL)


@struct
class CreatePartitionsTopicResult(Struct):
    """Result of one topic."""

    name: str = field(STRING)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable_since=0, default=None)


@message(versions=(0, 3), flexible_since=2, api_key=37)
class CreatePartitionsResponse(Message):
    """The results by topic."""

    throttle_time_ms: int = field(INT32)
    results: list[CreatePartitionsTopicResult] = field(array(CreatePartitionsTopicResult))
