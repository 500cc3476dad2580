"""Applies changes to the partitions that the broker hosts, one by one and in slices.

They come as deltas of the image from this broker's own controller, or as entries of another controller's requests.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from ottla.cluster.control_requests import NO_LEADER_EPOCH, HostedReplica, RoleAction, StopAction, lacks_log
from ottla.cluster.image import NO_LEADER, HostAction, HostChange, hosted_changes
from ottla.env.disk import DiskError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from ottla.broker.replicas.manager import ReplicaManager
    from ottla.broker.slices import LoopSlices
    from ottla.cluster.adoption import AdoptablePartition
    from ottla.cluster.control_batches import PartitionEntry
    from ottla.cluster.controller_events import FoundTopic, PartitionKey
    from ottla.cluster.image import ClusterImage, ImageDelta, TopicDelta, TopicImage
    from ottla.config.topic import LogConfig
    from ottla.storage.manager import LogManager


log = logging.getLogger("ottla.controller")


class _Untaken(NamedTuple):
    """A role that the disk kept from being taken, with what its leader has to know beside the image."""

    change: HostChange
    partition_epoch: int
    is_recovering: bool


async def _never(topic: str, partition: int) -> bool:
    return False


class Hosting:
    """Creates and removes the replicas of one broker. The cost of a change is that of the topics it names.

    `log_config_of` returns the settings of a topic's logs; `on_hosted` is called for a topic that got partitions here;
    `is_lost` says whether a partition that has no log here, and is not new, had one.
    """

    def __init__(
        self,
        broker_id: int,
        replicas: ReplicaManager,
        slices: LoopSlices,
        log_config_of: Callable[[TopicImage], LogConfig],
        on_hosted: Callable[[TopicImage], None],
        logs: LogManager,
        is_lost: Callable[[str, int], Awaitable[bool]] = _never,
    ) -> None:
        self._broker_id = broker_id
        self._replicas = replicas
        self._logs = logs
        self._slices = slices
        self._log_config_of = log_config_of
        self._on_hosted = on_hosted
        self._is_lost = is_lost
        #: Partitions that this broker refused to lead, since it has lost their logs.
        self._refused: set[PartitionKey] = set()
        #: Roles that this broker's own controller gave, and that a full disk kept from being taken.
        self._untaken: dict[PartitionKey, _Untaken] = {}
        #: Called when there are such: `take_again` must follow after a pause.
        self.on_untaken: Callable[[], None] = lambda: None
        #: Called with the partitions whose roles were refused so far and are taken now, and with those refused now.
        self.on_roles: Callable[[Sequence[PartitionKey], Sequence[PartitionKey]], None] = lambda taken, refused: None

    async def begin(self, delta: ImageDelta) -> None:
        """Become leader or follower of partitions, before clients learn of it. Raises DiskError, ZkError.

        Roles that need a log which is lost are refused. Where the disk has no room for a replica, the others continue,
        as at an election, and it is made later (`take_again`); a new one of a change that is then undone fails.
        """
        taken: list[PartitionKey] = []
        refused: list[PartitionKey] = []
        # Leaders first, as in Kafka: the other brokers fetch from them while the followers are made.
        for action in (HostAction.LEAD, HostAction.FOLLOW):
            for topic_delta in delta.topics:
                await self._begin_topic(topic_delta, action, delta, taken, refused)
        if taken or refused:
            self._refused.difference_update(taken)
            self._refused.update(refused)
            self.on_roles(taken, refused)

    async def _begin_topic(
        self,
        topic_delta: TopicDelta,
        action: HostAction,
        delta: ImageDelta,
        taken: list[PartitionKey],
        refused: list[PartitionKey],
    ) -> None:
        """Take the roles of one kind in a topic; note those that were refused before, and those refused now."""
        topic = topic_delta.after
        if topic is None:
            return
        config = None
        await self._slices.point()
        for change in hosted_changes(topic_delta, self._broker_id):
            await self._slices.point()
            if change.action is not action:
                continue
            key = (topic.name, change.partition)
            if await self._must_refuse(key, action, is_new=key in delta.new_partitions):
                refused.append(key)
                continue
            if key in self._refused:
                taken.append(key)
            if config is None:
                config = self._log_config_of(topic)
            role = _Untaken(change, delta.partition_epochs.get(key, 0), key in delta.recovering)
            is_undone = delta.is_undone_on_failure and not _is_known(topic_delta, change.partition)
            self._take(role, topic, config, is_undone_on_failure=is_undone)
        if config is not None:
            self._on_hosted(topic)

    def _take(
        self, role: _Untaken, topic: TopicImage, config: LogConfig, *, is_undone_on_failure: bool = False
    ) -> None:
        """Lead or follow; put off where the disk has no room. Raises DiskError if the change is undone then."""
        change = role.change
        key = (topic.name, change.partition)
        self._untaken.pop(key, None)
        try:
            if change.action is HostAction.FOLLOW:
                self._replicas.make_follower(topic, change.partition, change.state, config)
                return
            self._replicas.make_leader(
                topic, change.partition, change.state, config, role.partition_epoch, is_recovering=role.is_recovering
            )
        except DiskError as failure:
            if is_undone_on_failure:
                raise
            log.error("%s-%d cannot be hosted: %s", topic.name, change.partition, failure)
            self._untaken[key] = role
            self.on_untaken()

    async def take_again(self, image: ClusterImage) -> None:
        """Take the roles that the disk kept from being taken, as far as they are those of the image."""
        untaken, self._untaken = self._untaken, {}
        for (name, index), role in untaken.items():
            topic, known = image.topics.get(name), image.partition(name, index)
            if topic is None or known is None or self._broker_id not in known.replicas:
                continue
            now = role.change.state
            if (known.leader, known.leader_epoch) != (now.leader, now.leader_epoch):
                continue
            await self._slices.point()
            self._take(role._replace(change=role.change._replace(state=known)), topic, self._log_config_of(topic))
            self._on_hosted(topic)

    async def _must_refuse(self, key: PartitionKey, action: HostAction, *, is_new: bool) -> bool:
        """Whether a role cannot be taken: the log is in a failed log directory, or lost and needed."""
        if self._replicas.get(*key) is not None:
            return False
        here = self.replica(*key)
        if here.is_offline:
            return True
        return lacks_log(here, is_new=is_new, is_needed=action is HostAction.LEAD) and await self.is_lost(*key, here)

    async def is_lost(self, topic: str, partition: int, here: HostedReplica) -> bool:
        """Whether the log that is missing here is lost, rather than never made. Raises `ZkError`."""
        return here.may_be_lost or await self._is_lost(topic, partition)

    async def end(self, delta: ImageDelta) -> None:
        """Stop or delete partitions no longer hosted, after clients have learned of it. Raises DiskError."""
        for topic_delta in delta.topics:
            await self._slices.point()
            for change in hosted_changes(topic_delta, self._broker_id):
                await self._slices.point()
                if change.action in (HostAction.LEAD, HostAction.FOLLOW):
                    continue
                self._untaken.pop((change.topic.name, change.partition), None)
                if change.action is HostAction.DELETE:
                    self._replicas.delete(change.topic.name, change.partition)
                else:
                    self._replicas.stop(change.topic.name, change.partition)

    def has_roles(self, topic: TopicImage) -> bool:
        """Whether this broker's replicas of the topic have been in the leader epochs that the image says."""
        for index, state in enumerate(topic.partitions):
            if self._broker_id in state.replicas and state.leader != NO_LEADER:
                hosted = self._replicas.get(topic.name, index)
                if hosted is None or hosted.leader_epoch < state.leader_epoch:
                    return False
        return True

    def has_log_of(self, topic: TopicImage) -> bool:
        """Whether this broker has a log of any partition of the topic."""
        return any(self._logs.get(topic.name, index) is not None for index in range(len(topic.partitions)))

    # Entries of control requests

    def replica(self, topic: str, partition: int) -> HostedReplica:
        """The state of a partition at this broker."""
        hosted, log = self._replicas.get(topic, partition), self._logs.get(topic, partition)
        is_offline = self._replicas.is_offline(topic, partition) or (topic, partition) in self._logs.unreadable
        return HostedReplica(
            hosted.leader_epoch if hosted is not None else NO_LEADER_EPOCH,
            log.topic_id if log is not None else None,
            log is not None,
            hosted is None and is_offline,
            bool(self._logs.failed_log_dirs),
        )

    def take_role(self, topic: TopicImage, entry: PartitionEntry, action: RoleAction) -> None:
        """Do what was decided about an entry of a LeaderAndIsr. Raises DiskError."""
        config = self._log_config_of(topic)
        if action is RoleAction.LEAD:
            self._replicas.make_leader(
                topic,
                entry.partition,
                entry.state,
                config,
                entry.partition_epoch,
                is_recovering=entry.is_recovering,
            )
        elif action is RoleAction.FOLLOW:
            self._replicas.make_follower(topic, entry.partition, entry.state, config)
        elif action is not RoleAction.NONE:
            self._replicas.host(topic, entry.partition, config)

    def end_role(self, topic: str, partition: int, action: StopAction) -> None:
        """Do what was decided about an entry of a StopReplica. Raises DiskError."""
        if action is StopAction.DELETE:
            self._replicas.delete(topic, partition)
        elif action is StopAction.STOP:
            self._replicas.stop(topic, partition)

    def hosted(self, topic: TopicImage) -> None:
        """Note that partitions of this topic were given roles."""
        self._on_hosted(topic)

    def unclaimed(self) -> list[PartitionKey]:
        """The partitions with logs that no controller has given to this broker."""
        return list(self._logs.unclaimed)


def _is_known(delta: TopicDelta, partition: int) -> bool:
    """Whether the partition was there before the change."""
    return delta.before is not None and partition < len(delta.before.partitions)


class LogsFound:
    """The logs that a broker found at its start (`startup.FoundLogs`)."""

    def __init__(self, logs: LogManager, replicas: ReplicaManager) -> None:
        self._logs = logs
        self._replicas = replicas

    def leave_alone(self) -> None:
        """See `FoundLogs.leave_alone`."""
        self._logs.unclaim_all()

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
