"""All of Kafka's znodes: path, encoding and decoding.

Paths and JSON are those of Apache Kafka 3.9 in ZooKeeper mode, and of the consumer of 0.8.2, down to the order of the
keys; other software reads them. Each class describes one znode (or one family of znodes) and is never instantiated.
"""

from __future__ import annotations

from ottla.zk.layout.admin import (
    DeleteTopicZnode,
    IsrChangeNotificationZnode,
    LogDirEventNotificationZnode,
    PreferredReplicaElectionZnode,
    ReassignPartitionsZnode,
)
from ottla.zk.layout.brokers import (
    RECOVERING,
    BrokerIdZnode,
    BrokerRegistration,
    BrokerSequenceZnode,
    LeaderAndIsr,
    PartitionStateZnode,
    TopicAssignment,
    TopicZnode,
)
from ottla.zk.layout.cluster import (
    PERSISTENT_PATHS,
    ClusterIdZnode,
    ControllerEpochZnode,
    ControllerZnode,
    FeatureZnode,
    ProducerIdBlock,
    ProducerIdBlockZnode,
)
from ottla.zk.layout.codec import KraftMigrationError, ZnodeDataError
from ottla.zk.layout.configs import (
    DEFAULT_ENTITY,
    BrokerConfigZnode,
    ClientConfigZnode,
    ConfigChangeZnode,
    IpConfigZnode,
    TopicConfigZnode,
    UserConfigZnode,
    entity_name,
    named_entity,
)
from ottla.zk.layout.consumers import (
    ConsumerGroupZnode,
    ConsumerIdZnode,
    ConsumerOffsetZnode,
    ConsumerRegistration,
    PartitionOwnerZnode,
    SubscriptionPattern,
)

__all__ = [
    "DEFAULT_ENTITY",
    "PERSISTENT_PATHS",
    "RECOVERING",
    "BrokerConfigZnode",
    "BrokerIdZnode",
    "BrokerRegistration",
    "BrokerSequenceZnode",
    "ClientConfigZnode",
    "ClusterIdZnode",
    "ConfigChangeZnode",
    "ConsumerGroupZnode",
    "ConsumerIdZnode",
    "ConsumerOffsetZnode",
    "ConsumerRegistration",
    "ControllerEpochZnode",
    "ControllerZnode",
    "DeleteTopicZnode",
    "FeatureZnode",
    "IpConfigZnode",
    "IsrChangeNotificationZnode",
    "KraftMigrationError",
    "LeaderAndIsr",
    "LogDirEventNotificationZnode",
    "PartitionOwnerZnode",
    "PartitionStateZnode",
    "PreferredReplicaElectionZnode",
    "ProducerIdBlock",
    "ProducerIdBlockZnode",
    "ReassignPartitionsZnode",
    "SubscriptionPattern",
    "TopicAssignment",
    "TopicConfigZnode",
    "TopicZnode",
    "UserConfigZnode",
    "ZnodeDataError",
    "entity_name",
    "named_entity",
]
