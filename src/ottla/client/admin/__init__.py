"""The admin client: topics, configs, offsets, groups, brokers."""

from ottla.client.admin.admin import Admin as Admin
from ottla.client.admin.model import BROKER_DEFAULT as BROKER_DEFAULT
from ottla.client.admin.model import ActiveProducer as ActiveProducer
from ottla.client.admin.model import ClusterDescription as ClusterDescription
from ottla.client.admin.model import ConfigEntry as ConfigEntry
from ottla.client.admin.model import ConfigOperation as ConfigOperation
from ottla.client.admin.model import ConfigResource as ConfigResource
from ottla.client.admin.model import ConfigSynonym as ConfigSynonym
from ottla.client.admin.model import CreatedTopic as CreatedTopic
from ottla.client.admin.model import GroupListing as GroupListing
from ottla.client.admin.model import LogDirDescription as LogDirDescription
from ottla.client.admin.model import MemberToRemove as MemberToRemove
from ottla.client.admin.model import NewPartitions as NewPartitions
from ottla.client.admin.model import NewTopic as NewTopic
from ottla.client.admin.model import PartitionReassignment as PartitionReassignment
from ottla.client.admin.model import ReplicaLogDirs as ReplicaLogDirs
from ottla.client.admin.model import ReplicaSize as ReplicaSize
from ottla.client.admin.model import ResourceType as ResourceType
from ottla.client.admin.model import TopicPartitionReplica as TopicPartitionReplica
