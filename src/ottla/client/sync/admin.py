"""The sync admin client: that of `ottla.client`, run in a thread."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from ottla.client.admin.admin import Admin as AsyncAdmin
from ottla.client.admin.configs import Changes
from ottla.client.admin.model import (
    BROKER_DEFAULT,
    ActiveProducer,
    ClusterDescription,
    ConfigEntry,
    ConfigResource,
    CreatedTopic,
    GroupListing,
    LogDirDescription,
    MemberToRemove,
    NewPartitions,
    NewTopic,
    PartitionReassignment,
    ReplicaLogDirs,
    TopicPartitionReplica,
)
from ottla.client.foreign_methods import ADMIN_METHODS, MethodHints, explains_arguments
from ottla.client.groups import GroupDescription
from ottla.client.loop_thread import LoopThread
from ottla.client.model import OffsetAndMetadata, OffsetAndTimestamp, TopicMetadata, TopicPartition


@explains_arguments
class Admin(MethodHints):
    """Administers a cluster; may be used by any number of threads concurrently.

    Settings, methods and errors are those of `ottla.client.Admin`.
    """

    _instead_of = ADMIN_METHODS

    def __init__(self, config: Mapping[str, Any] | None = None, /, **settings: Any) -> None:
        self._async = AsyncAdmin(config, **settings)
        self._thread = LoopThread(f"{self._async.config.client_id}-admin", self._async.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections. Closing twice is allowed."""
        self._thread.finish()

    def create_topics(
        self, topics: Iterable[NewTopic], *, validate_only: bool = False, timeout_ms: int | None = None
    ) -> dict[str, CreatedTopic]:
        """As `ottla.client.Admin.create_topics`."""
        return self._thread.run(self._async.create_topics, topics, validate_only=validate_only, timeout_ms=timeout_ms)

    def create_topic(
        self,
        name: str,
        partitions: int = BROKER_DEFAULT,
        replication_factor: int = BROKER_DEFAULT,
        config: Mapping[str, str] | None = None,
    ) -> None:
        """As `ottla.client.Admin.create_topic`."""
        self._thread.run(self._async.create_topic, name, partitions, replication_factor, config)

    def delete_topics(
        self, names: Iterable[str] = (), *, topic_ids: Iterable[uuid.UUID] = (), timeout_ms: int | None = None
    ) -> None:
        """As `ottla.client.Admin.delete_topics`."""
        self._thread.run(self._async.delete_topics, names, topic_ids=topic_ids, timeout_ms=timeout_ms)

    def delete_topic(self, name: str) -> None:
        """As `ottla.client.Admin.delete_topic`."""
        self._thread.run(self._async.delete_topic, name)

    def create_partitions(
        self,
        partitions: Mapping[str, NewPartitions | int],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> None:
        """As `ottla.client.Admin.create_partitions`."""
        self._thread.run(self._async.create_partitions, partitions, validate_only=validate_only, timeout_ms=timeout_ms)

    def list_topics(
        self, pattern: str | None = None, *, list_internal: bool = False, timeout_ms: int | None = None
    ) -> list[str]:
        """As `ottla.client.Admin.list_topics`."""
        return self._thread.run(self._async.list_topics, pattern, list_internal=list_internal, timeout_ms=timeout_ms)

    def describe_topics(self, names: Iterable[str], *, timeout_ms: int | None = None) -> dict[str, TopicMetadata]:
        """As `ottla.client.Admin.describe_topics`."""
        return self._thread.run(self._async.describe_topics, names, timeout_ms=timeout_ms)

    def describe_configs(
        self,
        resources: Iterable[ConfigResource],
        *,
        include_synonyms: bool = False,
        include_documentation: bool = False,
        timeout_ms: int | None = None,
    ) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        """As `ottla.client.Admin.describe_configs`."""
        return self._thread.run(
            self._async.describe_configs,
            resources,
            include_synonyms=include_synonyms,
            include_documentation=include_documentation,
            timeout_ms=timeout_ms,
        )

    def incremental_alter_configs(
        self, configs: Mapping[ConfigResource, Changes], *, validate_only: bool = False, timeout_ms: int | None = None
    ) -> None:
        """As `ottla.client.Admin.incremental_alter_configs`."""
        self._thread.run(
            self._async.incremental_alter_configs, configs, validate_only=validate_only, timeout_ms=timeout_ms
        )

    def alter_configs(
        self,
        configs: Mapping[ConfigResource, Mapping[str, str]],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> None:
        """As `ottla.client.Admin.alter_configs`."""
        self._thread.run(self._async.alter_configs, configs, validate_only=validate_only, timeout_ms=timeout_ms)

    def delete_records(
        self, offsets: Mapping[TopicPartition, int], *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """As `ottla.client.Admin.delete_records`."""
        return self._thread.run(self._async.delete_records, offsets, timeout_ms=timeout_ms)

    def list_offsets(
        self,
        timestamps: Mapping[TopicPartition, int],
        *,
        isolation_level: str = "read_uncommitted",
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """As `ottla.client.Admin.list_offsets`."""
        return self._thread.run(
            self._async.list_offsets, timestamps, isolation_level=isolation_level, timeout_ms=timeout_ms
        )

    def list_groups(
        self, *, states: Sequence[str] = (), types: Sequence[str] = (), timeout_ms: int | None = None
    ) -> list[GroupListing]:
        """As `ottla.client.Admin.list_groups`."""
        return self._thread.run(self._async.list_groups, states=states, types=types, timeout_ms=timeout_ms)

    def describe_groups(
        self, group_ids: Iterable[str], *, timeout_ms: int | None = None
    ) -> dict[str, GroupDescription]:
        """As `ottla.client.Admin.describe_groups`."""
        return self._thread.run(self._async.describe_groups, group_ids, timeout_ms=timeout_ms)

    def delete_groups(self, group_ids: Iterable[str], *, timeout_ms: int | None = None) -> None:
        """As `ottla.client.Admin.delete_groups`."""
        self._thread.run(self._async.delete_groups, group_ids, timeout_ms=timeout_ms)

    def list_group_offsets(
        self, group_id: str, partitions: Sequence[TopicPartition] | None = None, *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """As `ottla.client.Admin.list_group_offsets`."""
        return self._thread.run(self._async.list_group_offsets, group_id, partitions, timeout_ms=timeout_ms)

    def alter_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int | OffsetAndMetadata], *, timeout_ms: int | None = None
    ) -> None:
        """As `ottla.client.Admin.alter_group_offsets`."""
        self._thread.run(self._async.alter_group_offsets, group_id, offsets, timeout_ms=timeout_ms)

    def delete_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition], *, timeout_ms: int | None = None
    ) -> None:
        """As `ottla.client.Admin.delete_group_offsets`."""
        self._thread.run(self._async.delete_group_offsets, group_id, partitions, timeout_ms=timeout_ms)

    def remove_members_from_group(
        self,
        group_id: str,
        members: Iterable[MemberToRemove | str] | None = None,
        *,
        reason: str = "",
        timeout_ms: int | None = None,
    ) -> None:
        """As `ottla.client.Admin.remove_members_from_group`."""
        self._thread.run(self._async.remove_members_from_group, group_id, members, reason=reason, timeout_ms=timeout_ms)

    def describe_cluster(self, *, timeout_ms: int | None = None) -> ClusterDescription:
        """As `ottla.client.Admin.describe_cluster`."""
        return self._thread.run(self._async.describe_cluster, timeout_ms=timeout_ms)

    def describe_log_dirs(
        self, brokers: Iterable[int] | None = None, *, timeout_ms: int | None = None
    ) -> dict[int, dict[str, LogDirDescription]]:
        """As `ottla.client.Admin.describe_log_dirs`."""
        return self._thread.run(self._async.describe_log_dirs, brokers, timeout_ms=timeout_ms)

    def alter_replica_log_dirs(
        self, log_dirs: Mapping[TopicPartitionReplica, str], *, timeout_ms: int | None = None
    ) -> None:
        """As `ottla.client.Admin.alter_replica_log_dirs`."""
        self._thread.run(self._async.alter_replica_log_dirs, log_dirs, timeout_ms=timeout_ms)

    def describe_replica_log_dirs(
        self, replicas: Iterable[TopicPartitionReplica], *, timeout_ms: int | None = None
    ) -> dict[TopicPartitionReplica, ReplicaLogDirs]:
        """As `ottla.client.Admin.describe_replica_log_dirs`."""
        return self._thread.run(self._async.describe_replica_log_dirs, replicas, timeout_ms=timeout_ms)

    def unregister_broker(self, broker_id: int, *, timeout_ms: int | None = None) -> None:
        """As `ottla.client.Admin.unregister_broker`."""
        self._thread.run(self._async.unregister_broker, broker_id, timeout_ms=timeout_ms)

    def describe_producers(
        self, partitions: Iterable[TopicPartition], *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, list[ActiveProducer]]:
        """As `ottla.client.Admin.describe_producers`."""
        return self._thread.run(self._async.describe_producers, partitions, timeout_ms=timeout_ms)

    def alter_partition_reassignments(
        self, reassignments: Mapping[TopicPartition, Sequence[int] | None], *, timeout_ms: int | None = None
    ) -> None:
        """As `ottla.client.Admin.alter_partition_reassignments`."""
        self._thread.run(self._async.alter_partition_reassignments, reassignments, timeout_ms=timeout_ms)

    def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None, *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, PartitionReassignment]:
        """As `ottla.client.Admin.list_partition_reassignments`."""
        return self._thread.run(self._async.list_partition_reassignments, partitions, timeout_ms=timeout_ms)

    def elect_leaders(
        self,
        election_type: str = "preferred",
        partitions: Iterable[TopicPartition] | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, bool]:
        """As `ottla.client.Admin.elect_leaders`."""
        return self._thread.run(self._async.elect_leaders, election_type, partitions, timeout_ms=timeout_ms)
