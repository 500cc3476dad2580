"""StopReplica (key 5): replicas that a broker no longer hosts, and whether their logs are deleted.

Versions: 1 broker epoch (KIP-380), partitions by topic; 2 flexible; 3 leader epoch and deletion per partition
(KIP-570); 4 whether the controller is one of KRaft (KIP-866).
"""

from __future__ import annotations

from ottla.wire.schema import BOOL, INT16, INT32, INT64, STRING, Message, Struct, array, field, message, struct


@struct
class StopReplicaPartitionV0(Struct):
    """A partition in version 0."""

    topic_name: str = field(STRING, until=0)
    partition_index: int = field(INT32, until=0)


@struct
class StopReplicaTopicV1(Struct):
    """Partitions of one topic in versions 1 and 2."""

    name: str = field(STRING, since=1, until=2)
    partition_indexes: list[int] = field(array(INT32), since=1, until=2)


@struct
class StopReplicaPartitionState(Struct):
    partition_index: int = field(INT32, since=3)
    leader_epoch: int = field(INT32, since=3, default=-1)  # -1 unknown, -2 the topic is deleted.
    delete_partition: bool = field(BOOL, since=3)


@struct
class StopReplicaTopicState(Struct):
    topic_name: str = field(STRING, since=3)
    partition_states: list[StopReplicaPartitionState] = field(array(StopReplicaPartitionState), since=3)


@message(versions=(0, 4), flexible_since=2, api_key=5)
class StopReplicaRequest(Message):
    controller_id: int = field(INT32)
    is_kraft_controller: bool = field(BOOL, since=4, default=False)
    controller_epoch: int = field(INT32)
    broker_epoch: int = field(INT64, since=1, default=-1, ignorable=True)  # The czxid of the broker's registration.
    delete_partitions: bool = field(BOOL, until=2)
    ungrouped_partitions: list[StopReplicaPartitionV0] = field(array(StopReplicaPartitionV0), until=0)
    topics: list[StopReplicaTopicV1] = field(array(StopReplicaTopicV1), since=1, until=2)
    topic_states: list[StopReplicaTopicState] = field(array(StopReplicaTopicState), since=3)


@struct
class StopReplicaPartitionError(Struct):
    topic_name: str = field(STRING)
    partition_index: int = field(INT32)
    error_code: int = field(INT16)


@message(versions=(0, 4), flexible_since=2, api_key=5)
class StopReplicaResponse(Message):
    error_code: int = field(INT16)
    partition_errors: list[StopReplicaPartitionError] = field(array(StopReplicaPartitionError))
