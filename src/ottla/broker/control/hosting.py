"""The replicas that a broker hosts: the one way in which they get and lose roles, one by one and in slices.

Roles come as a delta of this broker's own controller (`delta_host`) or in another controller's requests
(`control_requests`).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol, TypeVar

from ottla.cluster.control_requests import NO_LEADER_EPOCH, HostedReplica
from ottla.cluster.image import NO_LEADER, RoleAction, RoleChange
from ottla.env.disk import DiskError
from ottla.zk.layout import PartitionStateZnode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from ottla.broker.control.membership import ClusterMembership
    from ottla.broker.replicas.manager import ReplicaManager
    from ottla.broker.slices import LoopSlices
    from ottla.cluster.controller_events import PartitionKey
    from ottla.cluster.image import TopicImage
    from ottla.config.topic import LogConfig
    from ottla.storage.manager import LogManager
    from ottla.zk.client import ZkClient

log = logging.getLogger("ottla.controller")

#: A partition as the source of its role names it.
R = TypeVar("R")


class TopicRoles(Protocol[R]):
    """The roles that replicas of one topic are to get, whatever they come from."""

    def topic(self) -> TopicImage:
        """The topic as it is now."""
        ...

    def candidates(self) -> Iterable[R]:
        """The partitions that may have a role to take."""
        ...

    async def decide(self, candidate: R, topic: TopicImage, *, leads: bool) -> RoleChange | None:
        """The role to take: with `leads` that of a leader, otherwise any other; None for none. Raises ZkError."""
        ...

    def failed(self, candidate: R, change: RoleChange) -> None:
        """Note that the disk had no room for the replica."""
        ...


class LostLogs:
    """Tells the replicas of this broker that have lost their logs from those that never had one.

    A broker whose disk was lost must not lead with an empty log what others may have acknowledged: it refuses the role
    (KAFKA_STORAGE_ERROR), and its replica counts as offline. The controller marks new partitions in its first
    LeaderAndIsr; where it died before it could send that, its successor does not know that they are new. The znodes say
    so: a partition whose state was made while this process was registered has lost nothing here, since its log would
    still be there.
    """

    def __init__(self, zk: ZkClient, membership: ClusterMembership, accepts_others: bool) -> None:
        self._zk = zk
        self._membership = membership
        self._accepts_others = accepts_others

    async def is_lost(self, topic: str, partition: int) -> bool:
        """Whether a replica without a log, of a partition not marked as new, had one. Raises `ZkError`.

        If the metadata is this broker's own, no other broker could lead: it begins with an empty log.
        """
        if not self._accepts_others:
            return False
        stat = await self._zk.exists(PartitionStateZnode.path(topic, partition))
        return stat is None or stat.czxid <= self._membership.first_epoch


async def _never(topic: str, partition: int) -> bool:
    return False


class Hosting:
    """Gives replicas of one broker their roles. The cost of a change is that of the topics it names.

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
        self.broker_id = broker_id
        self._replicas = replicas
        self._logs = logs
        self._slices = slices
        self._log_config_of = log_config_of
        self._on_hosted = on_hosted
        self._is_lost = is_lost
        #: Partitions whose roles were refused, since their logs are offline or lost: none is expected any more.
        self.refused: set[PartitionKey] = set()
        #: Called when a disk had no room for a replica: its role must be taken again after a pause.
        self.on_no_room: Callable[[], None] = lambda: None

    async def take_roles(self, topics: Sequence[TopicRoles[R]]) -> None:
        """Take the roles of these topics. Raises ZkError, and DiskError where a change is undone then.

        Where the disk has no room for a replica, the others continue, and its role is taken later.
        """
        # Leaders first, as in Kafka: the other brokers fetch from them while the followers are made.
        for leads in (True, False):
            for roles in topics:
                await self._take_roles_of(roles, leads=leads)

    async def _take_roles_of(self, roles: TopicRoles[R], *, leads: bool) -> None:
        topic = roles.topic()
        config = None
        is_any_taken = False
        await self._slices.point()
        for candidate in roles.candidates():
            await self._slices.point()
            change = await roles.decide(candidate, topic, leads=leads)
            if change is None:
                continue
            # The broker's settings, which a topic without its own has, may change while the loop serves others.
            if config is None or not topic.configs:
                config = self._log_config_of(topic)
            if self._take(change, config):
                is_any_taken = True
            else:
                roles.failed(candidate, change)
        if is_any_taken:
            self._on_hosted(topic)

    def take_role(self, change: RoleChange) -> bool:
        """Take one role; False if the disk has no room. Raises DiskError if the change is undone then."""
        is_taken = self._take(change, self._log_config_of(change.topic))
        if is_taken:
            self._on_hosted(change.topic)
        return is_taken

    def _take(self, change: RoleChange, config: LogConfig) -> bool:
        name, index = change.topic.name, change.partition
        try:
            self._give(change, config)
        except DiskError as failure:
            if change.is_undone_on_failure:
                raise
            log.error("%s-%d cannot be hosted: %s", name, index, failure)
            self.on_no_room()
            return False
        if change.action is RoleAction.CREATE:
            leader = change.state.leader
            why = "it has none" if leader < 0 else f"broker {leader} is not alive"
            log.warning("%s-%d waits for a leader: %s", name, index, why)
        return True

    def _give(self, change: RoleChange, config: LogConfig) -> None:
        action, topic, index, state, partition_epoch, is_recovering, _ = change
        if action is RoleAction.LEAD:
            self._replicas.make_leader(topic, index, state, config, partition_epoch, is_recovering=is_recovering)
        elif action is RoleAction.FOLLOW:
            self._replicas.make_follower(topic, index, state, config)
        else:
            self._replicas.host(topic, index, config)
        self.refused.discard((topic.name, index))

    def end_role(self, topic: str, partition: int, action: RoleAction) -> None:
        """Stop or delete a replica. Raises DiskError."""
        self.refused.discard((topic, partition))
        if action is RoleAction.DELETE:
            self._replicas.delete(topic, partition)
        elif action is RoleAction.STOP:
            self._replicas.stop(topic, partition)

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

    async def is_lost(self, topic: str, partition: int, here: HostedReplica) -> bool:
        """Whether the log that is missing here is lost, rather than never made. Raises `ZkError`."""
        return here.may_be_lost or await self._is_lost(topic, partition)

    def is_hosted(self, topic: str, partition: int) -> bool:
        """Whether the partition has a replica here that is in service."""
        return self._replicas.get(topic, partition) is not None

    def has_roles(self, topic: TopicImage) -> bool:
        """Whether this broker's replicas of the topic have been in the leader epochs that the image says."""
        for index, state in enumerate(topic.partitions):
            if self.broker_id in state.replicas and state.leader != NO_LEADER:
                hosted = self._replicas.get(topic.name, index)
                if hosted is None or hosted.leader_epoch < state.leader_epoch:
                    return False
        return True

    def awaits_role(self, topic: str, partition: int, *, may_be_unhosted: bool, leader_is_alive: bool) -> bool:
        """Whether a replica that is placed here still has to get a role.

        One that is offline or lost gets none. One that waits for a leader needs a log at most: at the controller none
        (`may_be_unhosted`).
        """
        hosted = self._replicas.get(topic, partition)
        if hosted is not None:
            return hosted.leader_id is None and leader_is_alive
        if may_be_unhosted and not leader_is_alive:
            return False
        return (topic, partition) not in self.refused and not self.replica(topic, partition).is_offline

    def has_log_of(self, topic: TopicImage) -> bool:
        """Whether this broker has a log of any partition of the topic."""
        return any(self._logs.get(topic.name, index) is not None for index in range(len(topic.partitions)))

    def unclaimed(self) -> list[PartitionKey]:
        """The partitions with logs that no controller has given to this broker."""
        return list(self._logs.unclaimed)
