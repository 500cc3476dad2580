"""How a broker joins its cluster: cluster id, registration, adoption, the first image."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from ottla.broker.control.adoption import PartitionDirectories, adoption_warning
from ottla.broker.control.topic_reads import read_topics
from ottla.broker.control.znodes import (
    no_broker_was_registered,
    read_cluster_id,
    write_persistent_paths,
)
from ottla.cluster.adoption import AdoptablePartition, Adoption, plan_adoption, stray_partitions
from ottla.cluster.controller_events import (
    CreateTopic,
    DeletionsMarked,
    FoundPartitionState,
    FoundTopic,
    PartitionKey,
    ReplicasOffline,
    Write,
)
from ottla.cluster.ids import format_uuid
from ottla.cluster.refusal import TopicRefusal
from ottla.wire.errors import ErrorCode
from ottla.zk.client import ConnectionLossError
from ottla.zk.layout import (
    BrokerSequenceZnode,
    ClusterIdZnode,
    DeleteTopicZnode,
    KraftMigrationError,
    TopicZnode,
    ZnodeDataError,
)
from ottla.zk.tree import NodeExistsError

if TYPE_CHECKING:
    from ottla.broker.control.plane import ControlPlane
    from ottla.broker.replicas.manager import ReplicaManager
    from ottla.cluster.image import TopicImage
    from ottla.config.broker import BrokerConfig
    from ottla.storage.manager import LogManager
    from ottla.zk.client import ZkClient

log = logging.getLogger("ottla.topics")


class FoundLogs(Protocol):
    """The logs that the broker found at its start, before they are matched with the metadata."""

    def leave_alone(self) -> None:
        """Keep all logs as they are until a controller gives them roles: their settings are not known yet."""
        ...

    def set_strays_aside(self, strays: Sequence[AdoptablePartition]) -> None:
        """Set aside the logs of partitions not placed on this broker. Raises `DiskError`."""
        ...

    def unservable(self, replicas: Sequence[tuple[FoundTopic, int]]) -> list[PartitionKey]:
        """Take this broker's replicas offline whose log is missing or another topic's; return them.

        Raises `DiskError`.
        """
        ...


class NoLogs:
    """A broker without logs."""

    def leave_alone(self) -> None:
        """See `FoundLogs.leave_alone`."""

    def set_strays_aside(self, strays: Sequence[AdoptablePartition]) -> None:
        """See `FoundLogs.set_strays_aside`."""

    def unservable(self, replicas: Sequence[tuple[FoundTopic, int]]) -> list[PartitionKey]:
        """See `FoundLogs.unservable`."""
        return []


class LogsFound:
    """The logs that a broker found at its start (`FoundLogs`)."""

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


class Startup:
    """Starts a control plane, once. `directories` are the partition directories that may be adopted."""

    def __init__(
        self,
        plane: ControlPlane,
        *,
        stored_cluster_id: str | None = None,
        directories: PartitionDirectories | None = None,
        logs: FoundLogs | None = None,
    ) -> None:
        self._plane = plane
        self._zk = plane.session.zk
        self._stored_cluster_id = stored_cluster_id
        self._directories = directories if directories is not None else PartitionDirectories()
        self._logs: FoundLogs = logs if logs is not None else NoLogs()
        #: Partition directories not placed on this broker; known after `start`.
        self.strays: list[AdoptablePartition] = []

    async def resolve_cluster_id(self) -> str | TopicRefusal:
        """The cluster's id: from the znode, else from meta.properties, else a new one; the znode has it afterwards.

        Refuses, in Kafka's words, a log directory that belongs to another cluster.
        """
        known = await read_cluster_id(self._zk)
        stored = self._stored_cluster_id
        if known is None:
            known = stored if stored is not None else format_uuid(self._plane.new_uuid())
            try:
                await self._zk.create(ClusterIdZnode.PATH, ClusterIdZnode.encode(known), make_parents=True)
            except (NodeExistsError, ConnectionLossError):
                # Another broker was faster, or the answer was lost: the znode says.
                return await self.resolve_cluster_id()
        elif stored is not None and stored != known:
            return TopicRefusal(
                ErrorCode.INCONSISTENT_CLUSTER_ID,
                f"Invalid cluster.id in: {self._plane.config.log_dirs[0]}/meta.properties. Expected {known}, but read "
                f"{stored}. The log directory belongs to another cluster: give this broker another log directory, or "
                "the coordination metadata that belongs to this one.",
            )
        self._plane.image.cluster_id = known
        return known

    async def start(self) -> TopicRefusal | None:
        """Register, stand for election without a controller, adopt topics, host this broker's partitions.

        Raises `DiskError` if the metadata or a log cannot be written, `ZkError`.
        """
        try:
            return await self._start()
        except KraftMigrationError as error:
            return TopicRefusal(ErrorCode.UNSUPPORTED_VERSION, str(error))
        except ZnodeDataError as error:
            return TopicRefusal(ErrorCode.UNKNOWN_SERVER_ERROR, f"The coordination metadata is damaged: {error}")

    async def _start(self) -> TopicRefusal | None:
        plane, zk = self._plane, self._zk
        cluster_id = await self.resolve_cluster_id()
        if isinstance(cluster_id, TopicRefusal):
            return cluster_id
        await write_persistent_paths(zk)
        is_first = not plane.session.is_shared or await no_broker_was_registered(zk)
        refusal = await plane.membership.join()
        if refusal is not None:
            return refusal
        names = await zk.children(TopicZnode.ROOT)
        if not plane.is_controller:
            # All that the broker is to do and to know comes from the controller, now that it is registered.
            self._logs.leave_alone()
            plane.unheard_topics.expect(await zk.children(TopicZnode.ROOT), plane.image.topics)
            await plane.membership.start()
            return None
        marked = await zk.children(DeleteTopicZnode.ROOT)
        names += await self._adopt(cluster_id, names, marked, is_first=is_first)
        topics = await read_topics(zk, names, plane.new_uuid)
        topics += self._ending(names, marked)
        self._look_at_logs(topics)
        plane.controller.post(await plane.elected(topics, marked))
        # Interrupted deletions start again from the beginning, so that no log stays behind.
        plane.controller.post(DeletionsMarked(tuple(marked)))
        await plane.controller.settled()
        plane.controller.check()
        await plane.membership.start()
        return None

    # Partition directories

    async def _adopt(
        self, cluster_id: str, names: Sequence[str], marked: Sequence[str], *, is_first: bool
    ) -> list[str]:
        """Register topics that have partition directories but no znode: copied logs, or lost metadata.

        Only if the metadata has no topics and no other broker was ever registered, or if such an adoption was
        interrupted. Otherwise the directories are stray. Returns the names of the adopted topics.
        """
        directories = self._directories
        unknown = [one for one in directories.found if one.topic not in names and one.topic not in marked]
        if not unknown or not ((is_first and not names) or directories.is_adopting(cluster_id)):
            return []
        directories.begin_adopting(cluster_id)
        adoption = self._plan_adoption(unknown)
        term = self._plane.membership.term
        for topic in adoption.topics:
            await self._plane.writer.write(Write(0, term.epoch, (CreateTopic(topic),)), term)
            if self._plane.writer.error is not None:
                raise self._plane.writer.error
            log.info("adopted topic %s with %d partitions from its directories", topic.name, len(topic.partitions))
        directories.end_adopting()
        if adoption.without_settings:
            log.warning("%s", adoption_warning(adoption.without_settings, self._plane.endpoints))
        return [topic.name for topic in adoption.topics]

    def _ending(self, names: Sequence[str], marked: Sequence[str]) -> list[FoundTopic]:
        """Topics with deleted znodes and remaining logs: they are hosted once more, so that the logs are removed."""
        ending = set(marked).difference(names)
        adoption = self._plan_adoption([one for one in self._directories.found if one.topic in ending])
        return [_as_found(topic) for topic in adoption.topics]

    def _plan_adoption(self, found: Sequence[AdoptablePartition]) -> Adoption:
        plane = self._plane
        return plan_adoption(
            found,
            (),
            broker_id=plane.broker_id,
            config=plane.config,
            settings_of=self._directories.settings_of,
            new_uuid=plane.new_uuid,
        )

    def _look_at_logs(self, topics: Sequence[FoundTopic]) -> None:
        """Set aside the logs not placed on this broker, and take offline the replicas that cannot be served."""
        plane = self._plane
        placed = {topic.name: [state.replicas for state in topic.partitions] for topic in topics}
        self.strays = stray_partitions(self._directories.found, placed, plane.broker_id)
        self._logs.set_strays_aside(self.strays)
        replicas = [
            (topic, index)
            for topic in topics
            for index, state in enumerate(topic.partitions)
            if plane.broker_id in state.replicas
        ]
        unservable = self._logs.unservable(replicas)
        if unservable:
            plane.controller.post(ReplicasOffline(plane.broker_id, unservable))


def _as_found(topic: TopicImage) -> FoundTopic:
    states = tuple(
        FoundPartitionState(state.replicas, state.leader, state.leader_epoch, state.isr, 0)
        for state in topic.partitions
    )
    return FoundTopic(topic.name, topic.topic_id, topic.topic_id, states, topic.configs, topic.is_internal)


async def generate_broker_id(zk: ZkClient, config: BrokerConfig) -> int:
    """An unused broker id: above `reserved.broker.max.id`, counted by a znode's version."""
    with suppress(NodeExistsError):
        await zk.create(BrokerSequenceZnode.PATH, make_parents=True)
    stat = await zk.set(BrokerSequenceZnode.PATH, b"")
    return config.get_int("reserved.broker.max.id") + stat.version
