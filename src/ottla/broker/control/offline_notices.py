"""Replicas of this broker that are offline, and those that came back, as the controller learns of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from ottla.broker.control.refusals import METADATA_ERRORS
from ottla.cluster.controller_events import LeaderAndIsrAnswered, PartitionKey, ReplicasOffline
from ottla.zk.layout import LogDirEventNotificationZnode

if TYPE_CHECKING:
    from ottla.broker.control.controller_shell import ControllerShell
    from ottla.broker.control.membership import ClusterMembership
    from ottla.broker.control.metadata_publisher import MetadataPublisher
    from ottla.zk.client import ZkClient

log = logging.getLogger("ottla.topics")

#: Pause before the controller is asked for the roles again where a disk was full when a replica was to be made.
HOST_AGAIN_S = 15.0
#: Pause before a failed log directory is reported to the controller again.
NOTIFY_AGAIN_S = 1.0


class OfflineNotices:
    """Notifies the controller. `spawn` runs work that nothing waits for."""

    def __init__(
        self,
        zk: ZkClient,
        publisher: MetadataPublisher,
        membership: ClusterMembership,
        controller: ControllerShell,
        spawn: Callable[[Awaitable[None]], None],
    ) -> None:
        self._zk = zk
        self._publisher = publisher
        self._membership = membership
        self._controller = controller
        self._spawn = spawn
        self._is_hosting_again = False

    def take_offline(self, keys: Iterable[PartitionKey]) -> None:
        """Take the replicas of a failed log directory offline; they have no leader until a restart with it."""
        partitions = list(keys)
        if self._membership.is_controller:
            self._controller.post(ReplicasOffline(self._membership.broker_id, partitions))
        else:
            self._spawn(self._notify_log_dir_failure())

    def note_roles(self, taken: Sequence[PartitionKey], refused: Sequence[PartitionKey]) -> None:
        """As controller, count replicas of this broker as offline whose logs are lost, and those that have a log now.

        It is what another broker answers to LeaderAndIsr.
        """
        for topic, partition in refused:
            log.error(
                "%s-%d is not served: this broker has no log of it, and should have one. Bring its log directory back, "
                "or have another replica elected",
                topic,
                partition,
            )
        self._controller.post(
            LeaderAndIsrAnswered(self._membership.broker_id, self._membership.broker_epoch, taken, refused)
        )

    def host_again(self) -> None:
        """Take roles again after a pause, those of another controller when it sends them: a disk had no room."""
        if not self._is_hosting_again:
            self._is_hosting_again = True
            self._spawn(self._host_again())

    async def _host_again(self) -> None:
        await asyncio.sleep(HOST_AGAIN_S)
        self._is_hosting_again = False
        if not self._membership.is_controller:
            await self._notify_log_dir_failure()
            return
        async with self._publisher.applying:
            await self._publisher.host.take_again(self._publisher.image)

    async def _notify_log_dir_failure(self) -> None:
        """Have the controller ask which replicas are offline now; they are when LeaderAndIsr answers so."""
        znode = LogDirEventNotificationZnode
        while True:
            try:
                await self._zk.create(znode.PREFIX, znode.encode(self._membership.broker_id), sequential=True)
                return
            except METADATA_ERRORS as error:
                log.warning("the controller is notified of the failed log directory later: %s", error)
                await asyncio.sleep(NOTIFY_AGAIN_S)
