"""OffsetDelete (key 47): forget committed offsets of a group (KIP-496).

Version 0 only, not flexible.
"""

from __future__ import annotations

from ottla.wire.schema import INT16, INT32, STRING, Message, Struct, array, field, message, struct


@struct
class OffsetDeleteRequestPartition(Struct):
    partition_index: int = field(INT32)


@struct
class OffsetDeleteRequestTopic(Struct):
    name: str = field(STRING)
    partitions: list[OffsetDeleteRequestPartition] = field(array(OffsetDeleteRequestPartition))


@message(versions=(0, 0), api_key=47)
class OffsetDeleteRequest(Message):
    group_id: str = field(STRING)
    topics: list[OffsetDeleteRequestTopic] = field(array(OffsetDeleteRequestTopic))


@struct
class OffsetDeleteResponsePartition(Struct):
    partition_index: int = field(INT32)
    error_code: int = field(INT16)


@struct
class OffsetDeleteResponseTopic(Struct):
    name: str = field(STRING)
    partitions: list[OffsetDeleteResponsePartition] = field(array(OffsetDeleteResponsePartition))


@message(versions=(0, 0), api_key=47)
class OffsetDeleteResponse(Message):
    """The results by topic; no topics where the group as a whole was refused."""

    error_code: int = field(INT16)
    throttle_time_ms: int = field(INT32, ignorable=True)
    topics: list[OffsetDeleteResponseTopic] = field(array(OffsetDeleteResponseTopic))
