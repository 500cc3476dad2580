"""Applies the requests of a controller that is another broker: LeaderAndIsr, StopReplica, UpdateMetadata.

The shell of `cluster.control_requests`. Requests are applied one at a time, on whatever connection they come, and in
slices; before each entry the controller epoch is checked again, since a newer controller may have sent a request.
LeaderAndIsr and StopReplica change the partitions hosted here, UpdateMetadata the image, as in Apache Kafka; it also
ends the roles of topics that are being deleted, and those that were moved away while this broker was not alive.
Settings of topics are not in these requests: they are read from the znodes when a topic is first named.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from ottla.broker.control.topic_reads import read_topic_configs
from ottla.cluster.control_batches import LEADER_DURING_DELETE
from ottla.cluster.control_requests import (
    ControlHeader,
    ControlRequests,
    RoleDecision,
    is_left_behind,
    updating_topic,
)
from ottla.cluster.image import ImageDelta, RoleAction, RoleChange, TopicDelta, TopicImage
from ottla.cluster.topics import is_internal_topic
from ottla.env.disk import DiskError
from ottla.net.reports import LimitedReports, call_later
from ottla.wire.errors import ErrorCode
from ottla.wire.schema import ZERO_UUID

if TYPE_CHECKING:
    from ottla.broker.control.hosting import Hosting
    from ottla.broker.control.plane import ControlPlane
    from ottla.broker.slices import LoopSlices
    from ottla.cluster.control_batches import PartitionEntry, StopEntry
    from ottla.cluster.controller_events import PartitionKey
    from ottla.cluster.image import BrokerImage
    from ottla.wire.messages.leader_and_isr import LeaderAndIsrRequest
    from ottla.wire.messages.stop_replica import StopReplicaRequest
    from ottla.wire.messages.update_metadata import UpdateMetadataRequest

log = logging.getLogger("ottla.controller")

#: Names in one line of the log.
NAMES_SHOWN = 10
#: Topics whose settings are read together.
SETTINGS_IN_A_READ = 50


class TopicEntries(NamedTuple):
    """The entries of one topic in a request; the zero id stands for none."""

    name: str
    topic_id: UUID
    entries: Sequence[PartitionEntry]


def header_of(request: LeaderAndIsrRequest | StopReplicaRequest | UpdateMetadataRequest) -> ControlHeader:
    """Which controller sends a request, and to which registration of this broker."""
    return ControlHeader(
        request.controller_id, request.controller_epoch, request.broker_epoch, request.is_kraft_controller
    )


async def entries_by_topic(
    request: LeaderAndIsrRequest | UpdateMetadataRequest,
    slices: LoopSlices,
    entry_of: Callable[[str, UUID, Any], PartitionEntry],
) -> list[TopicEntries]:
    """The partitions of a request by topic: older versions have them in one list, and without topic ids.

    `entry_of` makes an entry of a topic's name, its id and the state of a partition.
    """
    topics: dict[str, tuple[UUID, list[PartitionEntry]]] = {}
    ungrouped: Iterable[Any] = request.ungrouped_partition_states
    async for part in slices.chunks(ungrouped):
        for state in part:
            _, entries = topics.setdefault(state.topic_name, (ZERO_UUID, []))
            entries.append(entry_of(state.topic_name, ZERO_UUID, state))
    for topic in request.topic_states:
        _, entries = topics.setdefault(topic.topic_name, (topic.topic_id, []))
        states: Iterable[Any] = topic.partition_states
        async for part in slices.chunks(states):
            entries.extend(entry_of(topic.topic_name, topic.topic_id, state) for state in part)
    return [TopicEntries(name, topic_id, entries) for name, (topic_id, entries) in topics.items()]


class ControlRequestShell:
    """Applies the requests of another broker as controller to this broker."""

    def __init__(self, control: ControlPlane, hosting: Hosting, slices: LoopSlices) -> None:
        self.broker_id = control.broker_id
        self._control = control
        self.hosting = hosting
        self._slices = slices
        self.machine = ControlRequests(control.broker_id)
        #: Whether a LeaderAndIsr was applied: with the first one, or the metadata before it, all replicas are known.
        self._has_roles = False
        #: The registration of this broker in which an UpdateMetadata came last.
        self._heard_epoch: int | None = None
        self._report = partial(LimitedReports(log.warning, call_later), "controllers")

    @property
    def has_heard(self) -> bool:
        """Whether a controller has sent this registration the metadata."""
        return self._heard_epoch is not None and self._heard_epoch >= self._control.membership.broker_epoch

    async def lead_or_follow(
        self, header: ControlHeader, topics: Sequence[TopicEntries]
    ) -> ErrorCode | list[tuple[TopicEntries, list[ErrorCode]]]:
        """Apply a LeaderAndIsr: the error of the whole, or one for each entry. Raises `ZkError`."""
        refused = self._refused(header)
        if refused is not ErrorCode.NONE:
            return refused
        async with self._control.publisher.applying:
            await self._read_settings(topic.name for topic in topics)
            roles = [_RequestedRoles(self, header, topic) for topic in topics]
            await self.hosting.take_roles(roles)
            if not self._has_roles:
                self._has_roles = True
                _report_strays(
                    [f"{topic}-{index}" for topic, index in sorted(filter(self._is_stray, self.hosting.unclaimed()))]
                )
            return [(each.entries, each.errors) for each in roles]

    def _is_stray(self, key: PartitionKey) -> bool:
        """Whether the metadata place no such partition here; its role may come with a later request."""
        known = self._control.image.partition(*key)
        return known is None or self.broker_id not in known.replicas

    async def role(self, header: ControlHeader, entry: PartitionEntry) -> RoleDecision:
        """Decide an entry of a LeaderAndIsr. Raises `ZkError`."""
        entry = await self._marked(entry)
        if not self._is_current(header):
            return RoleDecision(RoleAction.NONE, ErrorCode.STALE_CONTROLLER_EPOCH)
        here = self.hosting.replica(entry.topic, entry.partition)
        is_alive = entry.state.leader in self._control.image.brokers
        decision = self.machine.role(entry, here, leader_is_alive=is_alive)
        if decision.error in (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.INCONSISTENT_TOPIC_ID):
            self.hosting.refused.add((entry.topic, entry.partition))
        if decision.error is ErrorCode.KAFKA_STORAGE_ERROR and not here.is_offline:
            log.error(
                "%s-%d is refused to the controller: this broker has no log of it, and should have one. Bring its log "
                "directory back, or have another replica elected",
                entry.topic,
                entry.partition,
            )
        return decision

    async def _marked(self, entry: PartitionEntry) -> PartitionEntry:
        """The entry, marked as new where the log it needs is missing because it was never made. Raises `ZkError`."""
        here = self.hosting.replica(entry.topic, entry.partition)
        is_alive = entry.state.leader in self._control.image.brokers
        if not self.machine.lacks_log(entry, here, leader_is_alive=is_alive):
            return entry
        return entry._replace(is_new=not await self.hosting.is_lost(entry.topic, entry.partition, here))

    async def stop(self, header: ControlHeader, entries: Iterable[StopEntry]) -> ErrorCode | list[ErrorCode]:
        """Apply a StopReplica: the error of the whole, or one for each entry."""
        refused = self._refused(header)
        if refused is not ErrorCode.NONE:
            return refused
        async with self._control.publisher.applying:
            errors = []
            for entry in entries:
                await self._slices.point()
                errors.append(self._end_role(header, entry))
            return errors

    def _end_role(self, header: ControlHeader, entry: StopEntry) -> ErrorCode:
        if not self._is_current(header):
            return ErrorCode.STALE_CONTROLLER_EPOCH
        action, error = self.machine.stop(entry, self.hosting.replica(entry.topic, entry.partition))
        try:
            self.hosting.end_role(entry.topic, entry.partition, action)
        except DiskError as failure:
            log.error("%s-%d cannot be deleted: %s", entry.topic, entry.partition, failure)
            return ErrorCode.KAFKA_STORAGE_ERROR
        return error

    async def update_metadata(
        self, header: ControlHeader, brokers: Mapping[int, BrokerImage], topics: Sequence[TopicEntries]
    ) -> ErrorCode:
        """Apply an UpdateMetadata to the image, whole or not at all. Raises `ZkError`."""
        refused = self._refused(header)
        if refused is not ErrorCode.NONE:
            return refused
        control = self._control
        async with control.publisher.applying:
            await self._read_settings(topic.name for topic in topics)
            deltas = []
            for topic in topics:
                await self._slices.point()
                known = control.image.topics.get(topic.name)
                configs = control.topic_configs.unheard.get(topic.name, {})
                after = await self._slices.through(updating_topic(known, topic.topic_id, topic.entries, configs))
                if after is not known:
                    deltas.append(TopicDelta(known, after))
            if not self._is_current(header):
                return ErrorCode.STALE_CONTROLLER_EPOCH
            controller_id = header.controller_id if header.controller_id >= 0 else None
            control.publisher.publish(ImageDelta(tuple(deltas), brokers, controller_id))
            await self._end_roles_left_behind(topics)
            for before, after in deltas:
                if before is None and after is not None:
                    await self._slices.point()
                    control.topic_configs.note(after.name)
            # The registration of the request may be known here only later.
            self._heard_epoch = max(header.broker_epoch, control.membership.broker_epoch)
        return ErrorCode.NONE

    async def _end_roles_left_behind(self, topics: Sequence[TopicEntries]) -> None:
        """Stop the replicas that are being deleted or were moved away; their logs stay until a StopReplica comes."""
        for topic in topics:
            async for entries in self._slices.chunks(topic.entries):
                for entry in entries:
                    # Most entries have a replica here: looking for a role costs more than that.
                    if self.broker_id in entry.state.replicas and entry.state.leader != LEADER_DURING_DELETE:
                        continue
                    if is_left_behind(entry, self.hosting.replica(entry.topic, entry.partition)):
                        self.hosting.end_role(entry.topic, entry.partition, RoleAction.STOP)

    def _refused(self, header: ControlHeader) -> ErrorCode:
        control = self._control
        if not control.session.accepts_others:
            return ErrorCode.STALE_CONTROLLER_EPOCH  # private metadata has no other controller
        self._note_own_term()
        refused = self.machine.admit(header, control.membership.broker_epoch)
        if refused is ErrorCode.NONE:
            return refused
        if header.is_kraft:
            self._report(
                f"controller {header.controller_id} is one of KRaft: a cluster that is being moved to KRaft is not "
                "supported. Move it back to ZooKeeper mode, or take this broker out of it"
            )
        else:
            self._report(
                f"a request of controller {header.controller_id} in epoch {header.controller_epoch} for registration "
                f"{header.broker_epoch} is refused: {refused.name}. The newest controller epoch is "
                f"{self.machine.controller_epoch}, this registration {control.membership.broker_epoch}"
            )
        return refused

    def _is_current(self, header: ControlHeader) -> bool:
        self._note_own_term()
        return self.machine.is_current(header)

    def _note_own_term(self) -> None:
        if self._control.membership.is_controller:
            self.machine.elected(self._control.membership.term.epoch)

    def topic_of(self, topic: TopicEntries) -> TopicImage:
        """The topic as its logs need it: without partitions where the image does not have it."""
        known = self._control.image.topics.get(topic.name)
        if known is not None and (not topic.topic_id.int or known.topic_id == topic.topic_id):
            return known
        configs = self._control.topic_configs.unheard.get(topic.name, {})
        return TopicImage(topic.name, topic.topic_id, (), configs, is_internal_topic(topic.name))

    async def _read_settings(self, names: Iterable[str]) -> None:
        """Read the settings of topics that are not in the image."""
        control = self._control
        unheard = [
            name
            for name in dict.fromkeys(names)
            if name not in control.image.topics and name not in control.topic_configs.unheard
        ]
        for start in range(0, len(unheard), SETTINGS_IN_A_READ):
            part = unheard[start : start + SETTINGS_IN_A_READ]
            control.topic_configs.unheard.update(await read_topic_configs(control.session.zk, part))


class _RequestedRoles:
    """The roles of one topic in a LeaderAndIsr (`hosting.TopicRoles`), and the error of each entry."""

    def __init__(self, shell: ControlRequestShell, header: ControlHeader, entries: TopicEntries) -> None:
        self._shell = shell
        self._header = header
        self.entries = entries
        self.errors = [ErrorCode.NONE] * len(entries.entries)

    def topic(self) -> TopicImage:
        return self._shell.topic_of(self.entries)

    def candidates(self) -> Iterable[int]:
        return range(len(self.errors))

    async def decide(self, candidate: int, topic: TopicImage, *, leads: bool) -> RoleChange | None:
        entry = self.entries.entries[candidate]
        if (entry.state.leader == self._shell.broker_id) is not leads:
            return None
        action, self.errors[candidate] = await self._shell.role(self._header, entry)
        if action is RoleAction.NONE:
            return None
        return RoleChange(
            action, topic, entry.partition, entry.state, entry.partition_epoch, is_recovering=entry.is_recovering
        )

    def failed(self, candidate: int, change: RoleChange) -> None:
        self.errors[candidate] = ErrorCode.KAFKA_STORAGE_ERROR


def _report_strays(names: Sequence[str]) -> None:
    if names:
        shown = ", ".join(names[:NAMES_SHOWN]) + (", …" if len(names) > NAMES_SHOWN else "")
        log.warning(
            "%d partition directories are stray, and kept but not served: the controller places no such partitions on "
            "this broker: %s. Remove the directories while the broker is stopped, unless you need their records",
            len(names),
            shown,
        )
