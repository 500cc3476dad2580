"""AlterPartition (key 56): a leader proposes the in-sync replicas of its partitions to the controller (KIP-497).

Versions: 1 recovery state of the leader (KIP-704); 2 topic ids in place of names (KIP-841); 3 broker epochs of the
proposed replicas (KIP-903).
"""

from __future__ import annotations

import uuid

from ottla.wire.schema import INT8, INT16, INT32, INT64, STRING, UUID, Message, Struct, array, field, message, struct


@struct
class BrokerState(Struct):
    """A proposed replica and the registration under which the leader saw it."""

    broker_id: int = field(INT32, since=3)
    broker_epoch: int = field(INT64, since=3, default=-1)  # -1: not checked, as always with ZooKeeper.


@struct
class AlterPartitionRequestPartitionData(Struct):
    """The proposal for one partition."""

    partition_index: int = field(INT32)
    leader_epoch: int = field(INT32)
    new_isr: list[int] = field(array(INT32), until=2)
    new_isr_with_epochs: list[BrokerState] = field(array(BrokerState), since=3)
    leader_recovery_state: int = field(INT8, since=1, default=0)  # 1 after an unclean election.
    partition_epoch: int = field(INT32)  # The data version of the state's znode that the leader knows.


@struct
class AlterPartitionRequestTopicData(Struct):
    topic_name: str = field(STRING, until=1, ignorable=True)
    topic_id: uuid.UUID = field(UUID, since=2, ignorable=True)
    partitions: list[AlterPartitionRequestPartitionData] = field(array(AlterPartitionRequestPartitionData))


@message(versions=(0, 3), flexible_since=0, api_key=56)
class AlterPartitionRequest(Message):
    broker_id: int = field(INT32)
    broker_epoch: int = field(INT64, default=-1)  # The czxid of the leader's registration.
    topics: list[AlterPartitionRequestTopicData] = field(array(AlterPartitionRequestTopicData))


@struct
class AlterPartitionResponsePartitionData(Struct):
    partition_index: int = field(INT32)
    error_code: int = field(INT16)
    leader_id: int = field(INT32)
    leader_epoch: int = field(INT32)
    isr: list[int] = field(array(INT32))
    leader_recovery_state: int = field(INT8, since=1, default=0, ignorable=True)
    partition_epoch: int = field(INT32)


@struct
class AlterPartitionResponseTopicData(Struct):
    topic_name: str = field(STRING, until=1, ignorable=True)
    topic_id: uuid.UUID = field(UUID, since=2, ignorable=True)
    partitions: list[AlterPartitionResponsePartitionData] = field(array(AlterPartitionResponsePartitionData))


@message(versions=(0, 3), flexible_since=0, api_key=56)
class AlterPartitionResponse(Message):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    topics: list[AlterPartitionResponseTopicData] = field(array(AlterPartitionResponseTopicData))
