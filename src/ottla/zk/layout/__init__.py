"""All of Kafka's znodes: path, encoding and decoding.

Paths and JSON are those of Apache Kafka 3.9 in ZooKeeper mode, and of the consumer of 0.8.2, down to the order of the
keys; other software reads them. Each class describes one znode (or one family of znodes) and is never instantiated.
"""

from __future__ import annotations

from ottla.zk.layout.acls import AclChangeZnode as AclChangeZnode
from ottla.zk.layout.acls import AclZnode as AclZnode
from ottla.zk.layout.admin import DeleteTopicZnode as DeleteTopicZnode
from ottla.zk.layout.admin import IsrChangeNotificationZnode as IsrChangeNotificationZnode
from ottla.zk.layout.admin import LogDirEventNotificationZnode as LogDirEventNotificationZnode
from ottla.zk.layout.admin import PreferredReplicaElectionZnode as PreferredReplicaElectionZnode
from ottla.zk.layout.admin import ReassignPartitionsZnode as ReassignPartitionsZnode
from ottla.zk.layout.brokers import RECOVERING as RECOVERING
from ottla.zk.layout.brokers import BrokerIdZnode as BrokerIdZnode
from ottla.zk.layout.brokers import BrokerRegistration as BrokerRegistration
from ottla.zk.layout.brokers import BrokerSequenceZnode as BrokerSequenceZnode
from ottla.zk.layout.brokers import LeaderAndIsr as LeaderAndIsr
from ottla.zk.layout.brokers import PartitionStateZnode as PartitionStateZnode
from ottla.zk.layout.brokers import TopicAssignment as TopicAssignment
from ottla.zk.layout.brokers import TopicZnode as TopicZnode
from ottla.zk.layout.cluster import PERSISTENT_PATHS as PERSISTENT_PATHS
from ottla.zk.layout.cluster import ClusterIdZnode as ClusterIdZnode
from ottla.zk.layout.cluster import ControllerEpochZnode as ControllerEpochZnode
from ottla.zk.layout.cluster import ControllerZnode as ControllerZnode
from ottla.zk.layout.cluster import FeatureZnode as FeatureZnode
from ottla.zk.layout.cluster import ProducerIdBlock as ProducerIdBlock
from ottla.zk.layout.cluster import ProducerIdBlockZnode as ProducerIdBlockZnode
from ottla.zk.layout.codec import KraftMigrationError as KraftMigrationError
from ottla.zk.layout.codec import ZnodeDataError as ZnodeDataError
from ottla.zk.layout.configs import DEFAULT_ENTITY as DEFAULT_ENTITY
from ottla.zk.layout.configs import SALT_SECRET_PATH as SALT_SECRET_PATH
from ottla.zk.layout.configs import BrokerConfigZnode as BrokerConfigZnode
from ottla.zk.layout.configs import ClientConfigZnode as ClientConfigZnode
from ottla.zk.layout.configs import ConfigChangeZnode as ConfigChangeZnode
from ottla.zk.layout.configs import IpConfigZnode as IpConfigZnode
from ottla.zk.layout.configs import TopicConfigZnode as TopicConfigZnode
from ottla.zk.layout.configs import UserConfigZnode as UserConfigZnode
from ottla.zk.layout.configs import entity_name as entity_name
from ottla.zk.layout.configs import named_entity as named_entity
from ottla.zk.layout.consumers import ConsumerGroupZnode as ConsumerGroupZnode
from ottla.zk.layout.consumers import ConsumerIdZnode as ConsumerIdZnode
from ottla.zk.layout.consumers import ConsumerOffsetZnode as ConsumerOffsetZnode
from ottla.zk.layout.consumers import ConsumerRegistration as ConsumerRegistration
from ottla.zk.layout.consumers import PartitionOwnerZnode as PartitionOwnerZnode
from ottla.zk.layout.consumers import SubscriptionPattern as SubscriptionPattern
from ottla.zk.layout.delegation_tokens import DelegationTokenChangeZnode as DelegationTokenChangeZnode
from ottla.zk.layout.delegation_tokens import DelegationTokenZnode as DelegationTokenZnode
