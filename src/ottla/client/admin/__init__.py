"""The admin client: topics, configs, offsets, groups, brokers."""

from ottla.client.admin.admin import Admin
from ottla.client.admin.model import (
    BROKER_DEFAULT,
    ActiveProducer,
    ClusterDescription,
    ConfigEntry,
    ConfigOperation,
    ConfigResource,
    ConfigSynonym,
    CreatedTopic,
    GroupListing,
    LogDirDescription,
    MemberToRemove,
    NewPartitions,
    NewTopic,
    PartitionReassignment,
    ReplicaSize,
    ResourceType,
)

__all__ = [
    "BROKER_DEFAULT",
    "ActiveProducer",
    "Admin",
    "ClusterDescription",
    "ConfigEntry",
    "ConfigOperation",
    "ConfigResource",
    "ConfigSynonym",
    "CreatedTopic",
    "GroupListing",
    "LogDirDescription",
    "MemberToRemove",
    "NewPartitions",
    "NewTopic",
    "PartitionReassignment",
    "ReplicaSize",
    "ResourceType",
]
