"""CreatePartitions (key 37): let topics grow.

Versions: 2 flexible; 3 THROTTLING_QUOTA_EXCEEDED.
"""

from __future__ import annotations

from ottla.wire.schema import BOOL, INT16, INT32, STRING, Message, Struct, array, field, message, struct


@struct
class CreatePartitionsAssignment(Struct):
    broker_ids: list[int] = field(array(INT32))


@struct
class CreatePartitionsTopic(Struct):
    name: str = field(STRING)
    count: int = field(INT32)  # The new total.
    assignments: list[CreatePartitionsAssignment] | None = field(array(CreatePartitionsAssignment), nullable_since=0)


@message(versions=(0, 3), flexible_since=2, api_key=37)
class CreatePartitionsRequest(Message):
    topics: list[CreatePartitionsTopic] = field(array(CreatePartitionsTopic))
    timeout_ms: int = field(INT32)
    validate_only: bool = field(BOOL)


@struct
class CreatePartitionsTopicResult(Struct):
    name: str = field(STRING)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable_since=0, default=None)


@message(versions=(0, 3), flexible_since=2, api_key=37)
class CreatePartitionsResponse(Message):
    throttle_time_ms: int = field(INT32)
    results: list[CreatePartitionsTopicResult] = field(array(CreatePartitionsTopicResult))
