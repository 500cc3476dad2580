"""LeaderAndIsr (key 4): the controller's decisions about the replicas that a broker hosts.

Versions: 1 says which replicas are new; 2 broker epoch (KIP-380), partitions by topic; 3 replicas that are added and
removed (KIP-455); 4 flexible; 5 topic ids and the type of the request (KIP-516); 6 recovery state of the leader
(KIP-704); 7 whether the controller is one of KRaft (KIP-866).
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
class LeaderAndIsrPartitionState(Struct):
    """The state of a partition, as it is in its znode."""

    topic_name: str = field(STRING, until=1, ignorable=True)
    partition_index: int = field(INT32)
    controller_epoch: int = field(INT32)  # Of the controller that wrote the state.
    leader: int = field(INT32)  # -1 for none.
    leader_epoch: int = field(INT32)
    isr: list[int] = field(array(INT32))
    partition_epoch: int = field(INT32)  # The data version of the state's znode.
    replicas: list[int] = field(array(INT32))
    adding_replicas: list[int] = field(array(INT32), since=3, ignorable=True)
    removing_replicas: list[int] = field(array(INT32), since=3, ignorable=True)
    is_new: bool = field(BOOL, since=1, default=False, ignorable=True)  # False: the broker should have a log.
    leader_recovery_state: int = field(INT8, since=6, default=0)  # 1 after an unclean election.


@struct
class LeaderAndIsrTopicState(Struct):
    topic_name: str = field(STRING, since=2)
    topic_id: uuid.UUID = field(UUID, since=5, ignorable=True)  # Zero for a topic without an id.
    partition_states: list[LeaderAndIsrPartitionState] = field(array(LeaderAndIsrPartitionState), since=2)


@struct
class LeaderAndIsrLiveLeader(Struct):
    """The address of a leader on the inter-broker listener."""

    broker_id: int = field(INT32)
    host_name: str = field(STRING)
    port: int = field(INT32)


@message(versions=(0, 7), flexible_since=4, api_key=4)
class LeaderAndIsrRequest(Message):
    controller_id: int = field(INT32)
    is_kraft_controller: bool = field(BOOL, since=7, default=False)
    controller_epoch: int = field(INT32)
    broker_epoch: int = field(INT64, since=2, default=-1, ignorable=True)  # The czxid of the broker's registration.
    type: int = field(INT8, since=5)  # 0 unknown, 1 incremental, 2 all topics; ZooKeeper's controllers send 0.
    ungrouped_partition_states: list[LeaderAndIsrPartitionState] = field(array(LeaderAndIsrPartitionState), until=1)
    topic_states: list[LeaderAndIsrTopicState] = field(array(LeaderAndIsrTopicState), since=2)
    live_leaders: list[LeaderAndIsrLiveLeader] = field(array(LeaderAndIsrLiveLeader))


@struct
class LeaderAndIsrPartitionError(Struct):
    topic_name: str = field(STRING, until=4, ignorable=True)
    partition_index: int = field(INT32)
    error_code: int = field(INT16)


@struct
class LeaderAndIsrTopicError(Struct):
    topic_id: uuid.UUID = field(UUID, since=5)
    partition_errors: list[LeaderAndIsrPartitionError] = field(array(LeaderAndIsrPartitionError), since=5)


@message(versions=(0, 7), flexible_since=4, api_key=4)
class LeaderAndIsrResponse(Message):
    error_code: int = field(INT16)
    partition_errors: list[LeaderAndIsrPartitionError] = field(array(LeaderAndIsrPartitionError), until=4)
    topics: list[LeaderAndIsrTopicError] = field(array(LeaderAndIsrTopicError), since=5)
