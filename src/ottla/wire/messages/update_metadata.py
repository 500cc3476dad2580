"""UpdateMetadata (key 6): what the controller makes known to every broker: live brokers, partitions, their leaders.

Versions: 1 several endpoints of a broker; 2 rack; 3 name of the listener; 4 offline replicas; 5 broker epoch
(KIP-380), partitions by topic; 6 flexible; 7 topic ids (KIP-516); 8 KRaft's controllers, type of the request (KIP-866).
"""

from __future__ import annotations

import uuid

from ottla.wire.schema import (
    BOOL,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    UUID,
    Message,
    Struct,
    array,
    field,
    message,
    struct,
)


@struct
class UpdateMetadataPartitionState(Struct):
    topic_name: str = field(STRING, until=4, ignorable=True)
    partition_index: int = field(INT32)
    controller_epoch: int = field(INT32)  # Of the controller that wrote the state.
    leader: int = field(INT32)  # -1 for none, -2 when the topic is deleted.
    leader_epoch: int = field(INT32)
    isr: list[int] = field(array(INT32))
    zk_version: int = field(INT32)  # The data version of the state's znode.
    replicas: list[int] = field(array(INT32))
    offline_replicas: list[int] = field(array(INT32), since=4, ignorable=True)


@struct
class UpdateMetadataTopicState(Struct):
    topic_name: str = field(STRING, since=5)
    topic_id: uuid.UUID = field(UUID, since=7, ignorable=True)
    partition_states: list[UpdateMetadataPartitionState] = field(array(UpdateMetadataPartitionState), since=5)


@struct
class UpdateMetadataEndpoint(Struct):
    """The address of a broker's listener."""

    port: int = field(INT32, since=1)
    host: str = field(STRING, since=1)
    listener: str = field(STRING, since=3, ignorable=True)
    security_protocol: int = field(INT16, since=1)  # 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL.


@struct
class UpdateMetadataBroker(Struct):
    """A live broker."""

    id: int = field(INT32)
    v0_host: str = field(STRING, until=0, ignorable=True)
    v0_port: int = field(INT32, until=0, ignorable=True)
    endpoints: list[UpdateMetadataEndpoint] = field(array(UpdateMetadataEndpoint), since=1, ignorable=True)
    rack: str | None = field(STRING, since=2, nullable_since=2, default=None, ignorable=True)


@message(versions=(0, 8), flexible_since=6, api_key=6)
class UpdateMetadataRequest(Message):
    """All live brokers, and the partitions that changed."""

    controller_id: int = field(INT32)
    is_kraft_controller: bool = field(BOOL, since=8, default=False)
    type: int = field(INT8, since=8, default=0, tag=0)  # 0 unknown, 1 incremental, 2 all; ZooKeeper's send 0.
    controller_epoch: int = field(INT32)
    broker_epoch: int = field(INT64, since=5, default=-1, ignorable=True)  # The czxid of the broker's registration.
    ungrouped_partition_states: list[UpdateMetadataPartitionState] = field(array(UpdateMetadataPartitionState), until=4)
    topic_states: list[UpdateMetadataTopicState] = field(array(UpdateMetadataTopicState), since=5)
    live_brokers: list[UpdateMetadataBroker] = field(array(UpdateMetadataBroker))


@message(versions=(0, 8), flexible_since=6, api_key=6)
class UpdateMetadataResponse(Message):
    error_code: int = field(INT16)
