"""The controller's requests to the other brokers after a change: LeaderAndIsr, UpdateMetadata, StopReplica. Pure.

`ControllerBrokerRequestBatch` in Apache Kafka. Each broker gets, in this order: LeaderAndIsr with its own replicas
whose leader or leader epoch has changed; UpdateMetadata with all changed partitions; StopReplica with its replicas that
end. An ISR change alone is only UpdateMetadata. The wire messages are made of these by `broker.control.channels`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import NamedTuple, TypeAlias
from uuid import UUID

from ottla.cluster.image import ImageDelta, PartitionImage, TopicImage

#: Partitions that are looked at in one step, some microseconds each.
STEP_PARTITIONS = 500

LEADER_DURING_DELETE = -2
"""Leader in UpdateMetadata of a partition that is being deleted."""
EPOCH_DURING_DELETE = -2
"""Leader epoch in StopReplica of a partition that is being deleted; it overrides any epoch."""


class PartitionEntry(NamedTuple):
    """A partition in LeaderAndIsr or UpdateMetadata. `offline` are the replicas that are dead or without a log dir."""

    topic: str
    topic_id: UUID
    partition: int
    state: PartitionImage
    partition_epoch: int
    offline: tuple[int, ...] = ()
    is_new: bool = False
    is_recovering: bool = False
    #: Replicas that a reassignment under way adds and removes.
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()


class StopEntry(NamedTuple):
    """A partition in StopReplica."""

    topic: str
    partition: int
    leader_epoch: int
    is_deletion: bool


class LeaderAndIsrBatch(NamedTuple):
    """The content of a LeaderAndIsr request."""

    entries: tuple[PartitionEntry, ...]


class UpdateMetadataBatch(NamedTuple):
    """The content of an UpdateMetadata request; the live brokers are always with it."""

    entries: tuple[PartitionEntry, ...] = ()


class StopReplicaBatch(NamedTuple):
    """The content of a StopReplica request."""

    entries: tuple[StopEntry, ...]


ControlRequest: TypeAlias = LeaderAndIsrBatch | UpdateMetadataBatch | StopReplicaBatch
EntryOf: TypeAlias = Callable[[TopicImage, int, PartitionImage], PartitionEntry]
"""Makes the entry of a partition's present state."""


class ControlBatches:
    """Collects the requests of one change, for each of some brokers. `leaving` are those that shut down."""

    def __init__(self, broker_ids: Collection[int], leaving: Collection[int], entry_of: EntryOf) -> None:
        self._leaving = leaving
        self._entry_of = entry_of
        self._roles: dict[int, list[PartitionEntry]] = {broker_id: [] for broker_id in broker_ids}
        self._metadata: list[PartitionEntry] = []
        self._stops: dict[int, list[StopEntry]] = {broker_id: [] for broker_id in broker_ids}
        #: The same without deletions, which come first; those who delete nothing need one of the two.
        self._first_stops: dict[int, list[StopEntry]] = {broker_id: [] for broker_id in broker_ids}
        self._deleting: set[int] = set()

    def add(self, delta: ImageDelta) -> None:
        """Add what a change of the image means for these brokers."""
        for _ in self.adding(delta):
            pass

    def adding(self, delta: ImageDelta) -> Iterator[int]:
        """As `add`, in steps; each gives the number of partitions that it has looked at."""
        if not self._roles:
            return  # no brokers to notify
        for before, after in delta.topics:
            if before is not None and (after is None or after.topic_id != before.topic_id):
                yield from self._remove(before, 0)
            if after is None:
                continue
            known = before.partitions if before is not None and before.topic_id == after.topic_id else ()
            for start in range(0, len(after.partitions), STEP_PARTITIONS):
                step = after.partitions[start : start + STEP_PARTITIONS]
                for index, now in enumerate(step, start):
                    was = known[index] if index < len(known) else None
                    if was is not now:
                        self._change(after, index, was, now)
                yield len(step)
            if before is not None and len(known) > len(after.partitions):
                yield from self._remove(before, len(after.partitions))

    def _change(self, topic: TopicImage, index: int, was: PartitionImage | None, now: PartitionImage) -> None:
        if not now.isr:
            return  # it never had a leader
        if was is not None and not was.isr:
            was = None
        entry = self._entry_of(topic, index, now)
        self._metadata.append(entry)
        is_commanded = was is None or (was.leader, was.leader_epoch) != (now.leader, now.leader_epoch)
        for broker_id in now.replicas:
            if broker_id not in self._roles:
                continue
            if was is None and broker_id in self._leaving:
                continue  # it is shutting down: it is not asked to make new logs
            if was is not None and self._leaves(broker_id, entry, was, now):
                if is_commanded:
                    self._stop((broker_id,), topic.name, index, now.leader_epoch, is_deletion=False)
            elif is_commanded or (was is not None and broker_id not in was.replicas):
                # A replica that is added may be made where others are in a failed log directory. One that was in sync
                # has records, which it may have lost: then it must not lead with an empty log.
                is_added = broker_id in entry.adding and broker_id not in now.isr
                self._roles[broker_id].append(entry._replace(is_new=True) if is_added else entry)
        if was is not None and was.replicas != now.replicas:
            left = [each for each in was.replicas if each in self._roles and each not in now.replicas]
            self._stop(left, topic.name, index, now.leader_epoch, is_deletion=True)

    def _leaves(self, broker_id: int, entry: PartitionEntry, was: PartitionImage, now: PartitionImage) -> bool:
        """Whether the broker's replica goes offline with this change: it shuts down, or its log directory failed."""
        if broker_id not in was.isr or broker_id not in entry.offline:
            return False
        return broker_id not in self._leaving or broker_id not in (was.leader, now.leader)

    def _remove(self, topic: TopicImage, first: int) -> Iterator[int]:
        for index in range(first, len(topic.partitions)):
            if index % STEP_PARTITIONS == 0:
                yield STEP_PARTITIONS
            state = topic.partitions[index]
            self._metadata.append(gone(topic, index, self._entry_of(topic, index, state).offline))
            left = [each for each in state.replicas if each in self._stops and each not in self._leaving]
            self._stop(left, topic.name, index, EPOCH_DURING_DELETE, is_deletion=True)

    def _stop(self, broker_ids: Iterable[int], topic: str, index: int, leader_epoch: int, *, is_deletion: bool) -> None:
        """End these brokers' replicas of a partition."""
        stopped = StopEntry(topic, index, leader_epoch, False)
        ended = stopped._replace(is_deletion=True) if is_deletion else stopped
        for broker_id in broker_ids:
            self._first_stops[broker_id].append(stopped)
            self._stops[broker_id].append(ended)
        if is_deletion:
            self._deleting.update(broker_ids)

    def requests(self, *, with_brokers: bool) -> Iterator[tuple[int, tuple[ControlRequest, ...]]]:
        """The requests of each broker that gets any. `with_brokers` says whether the live brokers have changed."""
        metadata = UpdateMetadataBatch(tuple(self._metadata))
        for broker_id, roles in self._roles.items():
            requests: list[ControlRequest] = []
            if roles:
                requests.append(LeaderAndIsrBatch(tuple(roles)))
            if self._metadata or with_brokers:
                requests.append(metadata)
            stops = self._stops[broker_id]
            if broker_id in self._deleting:
                # As in Kafka: first stopped, so that no follower copies what its leader deletes.
                requests.append(StopReplicaBatch(tuple(self._first_stops[broker_id])))
            if stops:
                requests.append(StopReplicaBatch(tuple(stops)))
            if requests:
                yield broker_id, tuple(requests)


def gone(topic: TopicImage, index: int, offline: tuple[int, ...]) -> PartitionEntry:
    """The entry in UpdateMetadata of a partition that is deleted (`LeaderAndIsr.duringDelete`)."""
    state = topic.partitions[index]._replace(leader=LEADER_DURING_DELETE, leader_epoch=0)
    return PartitionEntry(topic.name, topic.topic_id, index, state, 0, offline)


def roles_of(broker_ids: Collection[int], entries: Iterable[PartitionEntry]) -> dict[int, list[PartitionEntry]]:
    """Of all partitions those of which each of these brokers has a replica."""
    roles: dict[int, list[PartitionEntry]] = {broker_id: [] for broker_id in broker_ids}
    for entry in entries:
        for broker_id in entry.state.replicas:
            if broker_id in roles:
                roles[broker_id].append(entry)
    return roles
