"""The requests of the controller to a broker, as a pure state machine: what is accepted, and what is refused.

LeaderAndIsr gives this broker's replicas their roles, StopReplica ends them, UpdateMetadata changes the image. A
request is refused as a whole if a newer controller is known or if it is meant for an earlier registration of this
broker (KIP-380). Each partition is then decided alone, by its leader epoch. In memory that epoch begins at -1 after
each start, so that the first request is accepted whatever epochs there were before.

Source: Apache Kafka 3.9, `ReplicaManager.becomeLeaderOrFollower`, `stopReplicas`, `ZkMetadataCache.updateMetadata`. One
difference is wanted: a broker that lacks the log of a partition that is not new answers KAFKA_STORAGE_ERROR where it is
to lead it, or is in sync and the partition has no leader. Apache Kafka's broker begins with an empty log.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from typing import NamedTuple
from uuid import UUID

from ottla.cluster.control_batches import (
    EPOCH_DURING_DELETE,
    LEADER_DURING_DELETE,
    PartitionEntry,
    StopEntry,
)
from ottla.cluster.image import NO_LEADER, PartitionImage, RoleAction, TopicImage
from ottla.cluster.topics import MOST_PARTITIONS, is_internal_topic
from ottla.wire.errors import ErrorCode

NO_LEADER_EPOCH = -1
"""Leader epoch of a replica that has had none since its broker's start, or in a StopReplica that names none."""
UNKNOWN_BROKER_EPOCH = -1
"""Broker epoch in requests of versions that have none: it is not checked."""
#: Entries of an UpdateMetadata that are looked at in one step.
STEP_ENTRIES = 256
UNHEARD_PARTITION = PartitionImage(NO_LEADER, NO_LEADER_EPOCH, (), ())
"""Stands in the image for a partition of which nothing was said, while later ones of its topic are known."""


class ControlHeader(NamedTuple):
    """The start of all requests of a controller. `broker_epoch` is the receiver's, as the controller knows it."""

    controller_id: int
    controller_epoch: int
    broker_epoch: int = UNKNOWN_BROKER_EPOCH
    is_kraft: bool = False


class HostedReplica(NamedTuple):
    """The state of a partition at a broker.

    `leader_epoch` is that of its role, -1 before any; `topic_id` is the one that its log names. `may_be_lost` says that
    a log directory has failed, which may hold the log that is missing.
    """

    leader_epoch: int = NO_LEADER_EPOCH
    topic_id: UUID | None = None
    has_log: bool = False
    is_offline: bool = False
    may_be_lost: bool = False


class RoleDecision(NamedTuple):
    """The action, and the error in the response."""

    action: RoleAction
    error: ErrorCode = ErrorCode.NONE


class ControlRequests:
    """The controller that a broker obeys, and its decisions about each entry of the controller's requests."""

    def __init__(self, broker_id: int) -> None:
        self._broker_id = broker_id
        #: The highest controller epoch heard of; 0 before any.
        self.controller_epoch = 0

    def admit(self, header: ControlHeader, broker_epoch: int) -> ErrorCode:
        """Check a whole request; `broker_epoch` is the czxid of this broker's registration. NONE: it is accepted.

        A later broker epoch than ours is right: the controller saw this broker register before the broker did.
        """
        if header.is_kraft:
            return ErrorCode.INVALID_REQUEST
        if header.broker_epoch != UNKNOWN_BROKER_EPOCH and header.broker_epoch < broker_epoch:
            return ErrorCode.STALE_BROKER_EPOCH
        if header.controller_epoch < self.controller_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        self.controller_epoch = header.controller_epoch
        return ErrorCode.NONE

    def elected(self, controller_epoch: int) -> None:
        """Note that this broker itself was elected: requests of controllers before it are refused from now on."""
        self.controller_epoch = max(self.controller_epoch, controller_epoch)

    def is_current(self, header: ControlHeader) -> bool:
        """Whether no newer controller was heard of since the request was admitted."""
        return header.controller_epoch >= self.controller_epoch

    def role(self, entry: PartitionEntry, here: HostedReplica, *, leader_is_alive: bool) -> RoleDecision:
        """Decide one entry of a LeaderAndIsr."""
        state = entry.state
        if here.is_offline:
            return RoleDecision(RoleAction.NONE, ErrorCode.KAFKA_STORAGE_ERROR)
        if _is_of_another_topic(entry, here):
            return RoleDecision(RoleAction.NONE, ErrorCode.INCONSISTENT_TOPIC_ID)
        if state.leader_epoch == here.leader_epoch and entry.topic_id.int and here.has_log and here.topic_id is None:
            return RoleDecision(RoleAction.IDENTIFY)
        if state.leader_epoch <= here.leader_epoch:
            return RoleDecision(RoleAction.NONE, ErrorCode.STALE_CONTROLLER_EPOCH)
        if self._broker_id not in state.replicas:
            return RoleDecision(RoleAction.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        leads = state.leader == self._broker_id
        if self.lacks_log(entry, here, leader_is_alive=leader_is_alive):
            return RoleDecision(RoleAction.NONE, ErrorCode.KAFKA_STORAGE_ERROR)
        if leads:
            return RoleDecision(RoleAction.LEAD)
        return RoleDecision(RoleAction.FOLLOW if leader_is_alive else RoleAction.CREATE)

    def lacks_log(self, entry: PartitionEntry, here: HostedReplica, *, leader_is_alive: bool) -> bool:
        """Whether this broker lacks the log of an entry of a LeaderAndIsr, and must not begin with an empty one.

        It is needed to lead, and where this replica is in sync and the leader is not alive, since it may be elected
        next.
        """
        is_needed = entry.state.leader == self._broker_id
        is_needed |= self._broker_id in entry.state.isr and not leader_is_alive
        return lacks_log(here, is_new=entry.is_new, is_needed=is_needed)

    def stop(self, entry: StopEntry, here: HostedReplica) -> RoleDecision:
        """Decide one entry of a StopReplica. The log of a partition that has no role is deleted, too."""
        if here.is_offline:
            return RoleDecision(RoleAction.NONE, ErrorCode.KAFKA_STORAGE_ERROR)
        if EPOCH_DURING_DELETE != entry.leader_epoch != NO_LEADER_EPOCH and entry.leader_epoch < here.leader_epoch:
            return RoleDecision(RoleAction.NONE, ErrorCode.FENCED_LEADER_EPOCH)
        return RoleDecision(RoleAction.DELETE if entry.is_deletion else RoleAction.STOP)


def is_left_behind(entry: PartitionEntry, here: HostedReplica) -> bool:
    """Whether an entry of an UpdateMetadata, deleted or without a replica here, ends a role that this broker still has.

    A topic that is being deleted takes no records from then on, though StopReplica comes later. Or the replica was
    moved away while the broker was not alive: no StopReplica reached it then, nor does a LeaderAndIsr now, and it would
    lead on, or coordinate groups, in a leader epoch that is over.
    """
    if here.leader_epoch == NO_LEADER_EPOCH:
        return False
    if entry.state.leader == LEADER_DURING_DELETE:
        return not _is_of_another_topic(entry, here)
    return _is_of_another_topic(entry, here) or entry.state.leader_epoch > here.leader_epoch


def _is_of_another_topic(entry: PartitionEntry, here: HostedReplica) -> bool:
    """Whether the log here is one of an earlier or later topic of that name; older logs and requests have no id."""
    return bool(entry.topic_id.int) and here.topic_id is not None and entry.topic_id != here.topic_id


def lacks_log(here: HostedReplica, *, is_new: bool, is_needed: bool) -> bool:
    """Whether a replica lacks a log that it should have: one that its role needs, or one on a failed disk."""
    return not is_new and not here.has_log and (is_needed or here.may_be_lost)


def updating_topic(
    known: TopicImage | None, topic_id: UUID, entries: Iterable[PartitionEntry], configs: Mapping[str, str]
) -> Generator[None, None, TopicImage | None]:
    """A topic after an UpdateMetadata, whose entries are about this topic alone, in steps of a millisecond or less.

    It is None if no partition is left. `configs` are the settings of a topic that was not known. A topic with another
    id than before is a new one.
    """
    entries = tuple(entries)
    if known is not None and topic_id.int and known.topic_id != topic_id:
        if all(entry.state.leader == LEADER_DURING_DELETE for entry in entries):
            return known  # the deletion of an earlier topic of this name
        known = None
    states = list(known.partitions) if known is not None else []
    for start in range(0, len(entries), STEP_ENTRIES):
        for entry in entries[start : start + STEP_ENTRIES]:
            _update(states, entry)
        yield
    while states and states[-1] is UNHEARD_PARTITION:
        states.pop()
    if not states:
        return None
    if known is not None:
        return known._replace(partitions=tuple(states))
    name = entries[0].topic
    return TopicImage(name, topic_id, tuple(states), configs, is_internal_topic(name))


def _update(states: list[PartitionImage], entry: PartitionEntry) -> None:
    """Put what an UpdateMetadata says of a partition into the states of its topic."""
    index = entry.partition
    is_gone = entry.state.leader == LEADER_DURING_DELETE
    if not 0 <= index < MOST_PARTITIONS:
        return
    if index >= len(states):
        if is_gone:
            return
        states.extend([UNHEARD_PARTITION] * (index + 1 - len(states)))
    states[index] = UNHEARD_PARTITION if is_gone else entry.state._replace(offline=entry.offline)
