"""OffsetFetch (key 9): a group's kept positions.

Versions: 0 meant positions in ZooKeeper; 2 all topics by null, error code of the whole; 3 throttle time; 5 leader
epoch; 6 flexible; 7 only stable positions (KIP-447); 8 many groups at once (KIP-709); 9 member id and epoch of the
new group protocol (KIP-848).
"""

from __future__ import annotations

from ottla.wire.schema import BOOL, INT16, INT32, INT64, STRING, Message, Struct, array, field, message, struct


@struct
class OffsetFetchRequestTopics(Struct):
    """Partitions of one topic, from version 8."""

    name: str = field(STRING, since=8)
    partition_indexes: list[int] = field(array(INT32), since=8)


@struct
class OffsetFetchRequestGroup(Struct):
    """A group and its topics, None for all."""

    group_id: str = field(STRING, since=8)
    member_id: str | None = field(STRING, since=9, nullable_since=9, default=None, ignorable=True)
    member_epoch: int = field(INT32, since=9, default=-1, ignorable=True)
    topics: list[OffsetFetchRequestTopics] | None = field(array(OffsetFetchRequestTopics), since=8, nullable_since=8)


@struct
class OffsetFetchRequestTopic(Struct):
    """Partitions of one topic, up to version 7."""

    name: str = field(STRING, until=7)
    partition_indexes: list[int] = field(array(INT32), until=7)


@message(versions=(0, 9), flexible_since=6, api_key=9)
class OffsetFetchRequest(Message):
    """Positions asked for: of one group up to version 7, in `groups` from 8 on."""

    group_id: str = field(STRING, until=7)
    # None (version 2) for all topics.
    topics: list[OffsetFetchRequestTopic] | None = field(array(OffsetFetchRequestTopic), until=7, nullable_since=2)
    groups: list[OffsetFetchRequestGroup] = field(array(OffsetFetchRequestGroup), since=8)
    # UNSTABLE_OFFSET_COMMIT in place of positions that a transaction may change.
    require_stable: bool = field(BOOL, since=7)


@struct
class OffsetFetchResponsePartitions(Struct):
    """Position in one partition, -1 where none is kept."""

    partition_index: int = field(INT32, since=8)
    committed_offset: int = field(INT64, since=8)
    committed_leader_epoch: int = field(INT32, since=8, default=-1, ignorable=True)
    metadata: str | None = field(STRING, since=8, nullable_since=8, default=None)
    error_code: int = field(INT16, since=8)


@struct
class OffsetFetchResponseTopics(Struct):
    """Positions in one topic, from version 8."""

    name: str = field(STRING, since=8)
    partitions: list[OffsetFetchResponsePartitions] = field(array(OffsetFetchResponsePartitions), since=8)


@struct
class OffsetFetchResponseGroup(Struct):
    group_id: str = field(STRING, since=8)
    topics: list[OffsetFetchResponseTopics] = field(array(OffsetFetchResponseTopics), since=8)
    error_code: int = field(INT16, since=8)


@struct
class OffsetFetchResponsePartition(Struct):
    """Position in one partition, -1 where none is kept."""

    partition_index: int = field(INT32, until=7)
    committed_offset: int = field(INT64, until=7)
    committed_leader_epoch: int = field(INT32, since=5, until=7, default=-1, ignorable=True)
    metadata: str | None = field(STRING, until=7, nullable_since=0, default=None)
    error_code: int = field(INT16, until=7)


@struct
class OffsetFetchResponseTopic(Struct):
    """Positions in one topic, up to version 7."""

    name: str = field(STRING, until=7)
    partitions: list[OffsetFetchResponsePartition] = field(array(OffsetFetchResponsePartition), until=7)


@message(versions=(0, 9), flexible_since=6, api_key=9)
class OffsetFetchResponse(Message):
    throttle_time_ms: int = field(INT32, since=3, ignorable=True)
    topics: list[OffsetFetchResponseTopic] = field(array(OffsetFetchResponseTopic), until=7)
    error_code: int = field(INT16, since=2, until=7, ignorable=True)
    groups: list[OffsetFetchResponseGroup] = field(array(OffsetFetchResponseGroup), since=8)
