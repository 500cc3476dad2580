"""Applies changes of the cluster image to the partitions that the broker hosts, one by one and in slices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.cluster.image import HostAction, hosted_changes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ottla.broker.replicas.manager import ReplicaManager
    from ottla.broker.slices import LoopSlices
    from ottla.cluster.adoption import AdoptablePartition
    from ottla.cluster.controller_events import FoundTopic, PartitionKey
    from ottla.cluster.image import ImageDelta, TopicImage
    from ottla.config.topic import LogConfig
    from ottla.storage.manager import LogManager


class Hosting:
    """Creates and removes the replicas of one broker. The cost of a change is that of the topics it names.

    `log_config_of` returns the settings of a topic's logs; `on_hosted` is called for a topic that got partitions here.
    """

    def __init__(
        self,
        broker_id: int,
        replicas: ReplicaManager,
        slices: LoopSlices,
        log_config_of: Callable[[TopicImage], LogConfig],
        on_hosted: Callable[[TopicImage], None],
    ) -> None:
        self._broker_id = broker_id
        self._replicas = replicas
        self._slices = slices
        self._log_config_of = log_config_of
        self._on_hosted = on_hosted

    async def begin(self, delta: ImageDelta) -> None:
        """Become leader of new partitions, before clients learn of it. Raises DiskError."""
        for topic_delta in delta.topics:
            topic = topic_delta.after
            if topic is None:
                continue
            config = None
            for change in hosted_changes(topic_delta, self._broker_id):
                if change.action is not HostAction.LEAD:
                    continue
                if config is None:
                    config = self._log_config_of(topic)
                await self._slices.point()
                self._replicas.make_leader(topic, change.partition, change.state, config)
            if config is not None:
                self._on_hosted(topic)

    async def end(self, delta: ImageDelta) -> None:
        """Stop or delete partitions no longer hosted, after clients have learned of it. Raises DiskError."""
        for topic_delta in delta.topics:
            for change in hosted_changes(topic_delta, self._broker_id):
                if change.action is HostAction.LEAD:
                    continue
                await self._slices.point()
                if change.action is HostAction.DELETE:
                    self._replicas.delete(change.topic.name, change.partition)
                else:
                    self._replicas.stop(change.topic.name, change.partition)


class LogsFound:
    """The logs that a broker found at its start (`startup.FoundLogs`)."""

    def __init__(self, logs: LogManager, replicas: ReplicaManager) -> None:
        self._logs = logs
        self._replicas = replicas

    def set_strays_aside(self, strays: Sequence[AdoptablePartition]) -> None:
        """See `FoundLogs.set_strays_aside`."""
        for stray in strays:
            self._logs.set_stray_aside(stray.topic, stray.partition)

    def unservable(self, replicas: Sequence[tuple[FoundTopic, int]]) -> list[PartitionKey]:
        """See `FoundLogs.unservable`."""
        # A log that is in no working log directory must be in one that is out of service.
        any_failed, unreadable = bool(self._logs.failed_log_dirs), self._logs.unreadable
        keys = []
        for topic, index in replicas:
            may_be_missing = any_failed or (topic.name, index) in unreadable
            is_missing = may_be_missing and self._logs.get(topic.name, index) is None
            if is_missing or self._logs.set_aside(topic.name, topic.topic_id or topic.new_id, index):
                keys.append((topic.name, index))
        self._replicas.take_offline(keys)
        return keys
