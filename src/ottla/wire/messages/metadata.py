"""Metadata (key 3): brokers, topics, partitions and their leaders.

Versions: 1 rack, controller, internal topics, null for all topics (in version 0 an empty list); 2 cluster id;
3 throttle time; 4 auto-creation asked for; 5 offline replicas; 7 leader epoch; 8 authorized operations; 9 flexible;
10 topic ids in the response; 11 cluster's authorized operations leave (DescribeCluster has them); 12 topics by id.
"""

from __future__ import annotations

import uuid

from ottla.wire.schema import BOOL, INT16, INT32, STRING, UUID, Message, Struct, array, field, message, struct


@struct
class MetadataRequestTopic(Struct):
    """A topic by name, or by id with a null name."""

    topic_id: uuid.UUID = field(UUID, since=10, ignorable=True)
    name: str | None = field(STRING, nullable_since=10)


@message(versions=(0, 12), flexible_since=9, api_key=3)
class MetadataRequest(Message):
    """Asks about topics; None for all of them."""

    topics: list[MetadataRequestTopic] | None = field(array(MetadataRequestTopic), nullable_since=1)
    allow_auto_topic_creation: bool = field(BOOL, since=4, default=True)
    include_cluster_authorized_operations: bool = field(BOOL, since=8, until=10)
    include_topic_authorized_operations: bool = field(BOOL, since=8)


@struct
class MetadataResponsePartition(Struct):
    error_code: int = field(INT16)
    partition_index: int = field(INT32)
    leader_id: int = field(INT32)
    leader_epoch: int = field(INT32, since=7, default=-1, ignorable=True)
    replica_nodes: list[int] = field(array(INT32))
    isr_nodes: list[int] = field(array(INT32))
    offline_replicas: list[int] = field(array(INT32), since=5, ignorable=True)


@struct
class MetadataResponseTopic(Struct):
    """A topic, or why there is none."""

    error_code: int = field(INT16)
    name: str | None = field(STRING, nullable_since=12)
    topic_id: uuid.UUID = field(UUID, since=10, ignorable=True)
    is_internal: bool = field(BOOL, since=1, ignorable=True)
    partitions: list[MetadataResponsePartition] = field(array(MetadataResponsePartition))
    # A bit field; the smallest int32 when not asked for.
    topic_authorized_operations: int = field(INT32, since=8, default=-0x80000000)


@struct
class MetadataResponseBroker(Struct):
    """A broker, with its endpoint on the listener that was asked."""

    node_id: int = field(INT32)
    host: str = field(STRING)
    port: int = field(INT32)
    rack: str | None = field(STRING, since=1, nullable_since=1, default=None, ignorable=True)


@message(versions=(0, 12), flexible_since=9, api_key=3)
class MetadataResponse(Message):
    throttle_time_ms: int = field(INT32, since=3, ignorable=True)
    brokers: list[MetadataResponseBroker] = field(array(MetadataResponseBroker))
    cluster_id: str | None = field(STRING, since=2, nullable_since=2, default=None, ignorable=True)
    controller_id: int = field(INT32, since=1, default=-1, ignorable=True)
    topics: list[MetadataResponseTopic] = field(array(MetadataResponseTopic))
    # A bit field; the smallest int32 when not asked for.
    cluster_authorized_operations: int = field(INT32, since=8, until=10, default=-0x80000000)
