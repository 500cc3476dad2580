"""The controller's notices to the brokers: what changes, to this one and the others, and the whole state."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import TypeAlias

from ottla.cluster.control_batches import (
    ControlBatches,
    ControlRequest,
    LeaderAndIsrBatch,
    PartitionEntry,
    StopEntry,
    StopReplicaBatch,
    UpdateMetadataBatch,
    roles_of,
)
from ottla.cluster.controller_events import Effect, Notify, PartitionKey, SendToBroker
from ottla.cluster.controller_state import ControllerState
from ottla.cluster.image import ImageDelta, PartitionImage, TopicImage
from ottla.cluster.partition_set import PartitionSet
from ottla.cluster.pending_work import MOST_LOOKED_AT, OnNotified, PendingWork, Then, nothing

Change: TypeAlias = Callable[[TopicImage | None], TopicImage | None]
"""What becomes of a topic as it is known; None: there is none."""

#: Partitions in one UpdateMetadata with the whole state: more would hold up the loop of either broker.
MOST_SENT = 5_000


class BrokerNotifier:
    """Changes the controller's image, and has the brokers apply what changes."""

    def __init__(self, state: ControllerState, pending: PendingWork) -> None:
        self._state = state
        self._pending = pending

    def notify(
        self,
        delta: ImageDelta,
        then: OnNotified = nothing,
        partition_epochs: Mapping[PartitionKey, int] | None = None,
    ) -> list[Effect]:
        """Change the image, have this broker apply it, and send the other brokers their requests.

        `partition_epochs` has `epochs_in` of all the topics, if they are known already.
        """
        return self._notify(delta, then, partition_epochs, None)

    def notify_in_slices(
        self, name: str, change: Change, then: OnNotified, *, is_undone_on_failure: bool = False
    ) -> list[Effect]:
        """As `notify` of one topic's change; the requests to the others are made in several slices where it is large.

        `change` makes the new topic from the one that is known then. All is sent, and applied, at once.
        `is_undone_on_failure` says that `then` undoes it where it cannot be applied here.
        """

        def made_delta() -> ImageDelta:
            delta = self._state.delta(name, change(self._state.image.topics.get(name)))
            return delta._replace(is_undone_on_failure=is_undone_on_failure)

        delta = made_delta()
        batches = self._batches()
        basis = self._basis(name)

        def made() -> list[Effect]:
            # A safeguard: the shell lets nothing else in between.
            if self._basis(name) != basis:
                return self.notify(made_delta(), then)
            return self._notify(delta, then, None, batches)

        return self._pending.in_slices(((partitions, []) for partitions in batches.adding(delta)), made)

    def _basis(self, name: str) -> tuple[object, ...]:
        """The data that the requests of a topic's change are made of, besides data of single partitions."""
        return self._state.image.topics.get(name), self._state.electable, frozenset(self._state.informed)

    def _batches(self) -> ControlBatches:
        """The requests of a change to the brokers that have had the whole state."""
        return ControlBatches(self._informed(), self._state.shutting_down, self._state.entry)

    def _informed(self) -> list[int]:
        """The live brokers that have had the whole state."""
        return [broker_id for broker_id in self._state.informed if broker_id in self._state.live]

    def _notify(
        self,
        delta: ImageDelta,
        then: OnNotified,
        partition_epochs: Mapping[PartitionKey, int] | None,
        batches: ControlBatches | None,
    ) -> list[Effect]:
        """See `notify`. `batches` are the requests to the others, if they are made already."""
        state = self._state
        notice_id = self._pending.notice_id(then)
        epochs: dict[PartitionKey, int] = dict(partition_epochs or {})
        for topic in delta.topics:
            before, after = topic
            if after is None or (before is not None and before.topic_id != after.topic_id):
                assert before is not None
                state.forget(before)
            if partition_epochs is None:
                epochs.update(state.epochs_in(topic))
        new = self._new_in(delta)
        new_here = new.copy()
        for key, move in state.moves.items():
            if state.broker_id in move.adding and self._lags(key):
                new_here.add(key)
        recovering = frozenset(state.recovering)
        delta = delta._replace(partition_epochs=epochs, new_partitions=new_here, recovering=recovering)
        state.image.apply(delta)
        effects: list[Effect] = [Notify(notice_id, state.broker_id, delta, state.epoch)]
        if batches is None:
            batches = self._batches()
            batches.add(delta)
        for broker_id, requests in batches.requests(with_brokers=delta.brokers is not None):
            if new and isinstance(requests[0], LeaderAndIsrBatch):
                self._await_logs(broker_id, requests[0])
            effects.extend(self.send(broker_id, *requests))
        state.unannounced.remove_all(new)
        return effects

    def _lags(self, key: PartitionKey) -> bool:
        """Whether this broker's replica is not in sync."""
        known = self._state.image.partition(*key)
        return known is not None and self._state.broker_id not in known.isr

    def _await_logs(self, broker_id: int, roles: LeaderAndIsrBatch) -> None:
        """Note the new partitions whose logs the broker is asked to make."""
        waiting = self._state.unanswered.setdefault(broker_id, PartitionSet())
        for topic, entries in groupby(roles.entries, attrgetter("topic")):
            waiting.add_of(topic, [each.partition for each in entries if each.is_new])

    def _new_in(self, delta: ImageDelta) -> PartitionSet:
        """The partitions of this change that are announced with it."""
        new = PartitionSet()
        for _, after in delta.topics:
            if after is not None:
                new.add_of(after.name, self._state.unannounced.of(after.name, len(after.partitions)))
        return new

    def send(self, broker_id: int, *requests: ControlRequest) -> list[Effect]:
        """Send control requests to another broker."""
        brokers = {known: broker.image for known, broker in self._state.live.items()}
        return [SendToBroker(broker_id, self._state.live[broker_id].epoch, self._state.epoch, brokers, requests)]

    def inform(self, broker_ids: Collection[int], then: Then = list) -> list[Effect]:
        """Send the whole state to brokers that have registered, or to all once elected; `then` follows.

        That of a large cluster is found in several slices, and sent in several requests.
        """
        if not broker_ids:
            return then()
        self._state.informed.update(broker_ids)
        entries: list[PartitionEntry] = []

        def found() -> list[Effect]:
            return self._send_whole(broker_ids, entries) + then()

        return self._collect(lambda known: bool(known.isr), entries, found)

    def _send_whole(self, broker_ids: Collection[int], entries: Sequence[PartitionEntry]) -> list[Effect]:
        """All metadata, and then the roles: a broker knows the others' replicas when it gets its own.

        The roles are one request, however many there are: a broker of Apache Kafka writes its checkpoint of high
        watermarks right after the first one, without what it does not know.
        """
        metadata = _in_batches(entries) or [UpdateMetadataBatch(())]
        roles = roles_of(broker_ids, entries)
        effects: list[Effect] = []
        for broker_id in broker_ids:
            own = roles[broker_id]
            batches = [LeaderAndIsrBatch(tuple(own))] if own else []
            for batch in batches if self._state.unannounced else ():
                self._await_logs(broker_id, batch)
            effects += self.send(broker_id, *metadata, *(self._repeated(broker_id, batch) for batch in batches))
        return effects

    def _collect(
        self, is_wanted: Callable[[PartitionImage], bool], entries: list[PartitionEntry], then: Then
    ) -> list[Effect]:
        """Put the entries of these partitions into `entries`, some in each slice; `then` follows."""

        def collecting() -> Iterator[tuple[int, list[Effect]]]:
            for topic, start in self._topics_in_slices():
                part = topic.partitions[start : start + MOST_LOOKED_AT]
                entries.extend(
                    self._state.entry(topic, index, known)
                    for index, known in enumerate(part, start)
                    if is_wanted(known)
                )
                yield len(part), []

        return self._pending.in_slices(collecting(), then, is_apart=True)

    def _topics_in_slices(self) -> Iterator[tuple[TopicImage, int]]:
        """All topics as they are when their slice comes, a large one in parts: each with its first partition."""
        state = self._state
        for name in tuple(state.image.topics):
            start = 0
            while (topic := state.image.topics.get(name)) is not None and start < len(topic.partitions):
                if name in state.deleting:
                    break
                yield topic, start
                start += MOST_LOOKED_AT

    def _repeated(self, broker_id: int, roles: LeaderAndIsrBatch) -> LeaderAndIsrBatch:
        """The roles of a broker, with the mark of new partitions where it has not answered it before."""
        waiting = self._state.unanswered.get(broker_id)
        if not waiting:
            return roles
        return LeaderAndIsrBatch(
            tuple(
                each._replace(is_new=True) if (each.topic, each.partition) in waiting else each
                for each in roles.entries
            )
        )

    def refresh(self, broker_ids: Collection[int], then: Then) -> list[Effect]:
        """Send the other brokers which replicas are offline now, where some of these brokers died or came back.

        Partitions whose ISR they leave are left out: those change anyhow. `then` follows, perhaps in another slice.
        """
        state = self._state
        others = [broker_id for broker_id in self._informed() if broker_id not in broker_ids]
        if not others:
            return then()
        entries: list[PartitionEntry] = []

        def is_wanted(known: PartitionImage) -> bool:
            return bool(known.isr) and any(
                one in known.replicas and (one in state.live or one not in known.isr) for one in broker_ids
            )

        def found() -> list[Effect]:
            batches = _in_batches(entries)
            return [effect for broker_id in others if batches for effect in self.send(broker_id, *batches)] + then()

        return self._collect(is_wanted, entries, found)

    def stop_followers(self, broker_id: int, keys: Collection[PartitionKey] | None = None) -> list[Effect]:
        """End those of the broker's replicas that are not in sync, and say that they are offline.

        It shuts down, or the log directories of these replicas have failed. Those in sync leave the ISR as well.
        """
        state = self._state
        left = [
            (topic, index, known)
            for topic in state.image.topics.values()
            if topic.name not in state.deleting
            for index, known in enumerate(topic.partitions)
            if known.isr and broker_id in known.replicas and broker_id not in known.isr
            if keys is None or (topic.name, index) in keys
        ]
        if not left:
            return []
        stops = tuple(StopEntry(topic.name, index, known.leader_epoch, False) for topic, index, known in left)
        # This broker asks when it makes metadata, but may have some made already.
        metadata = [*self.notify(ImageDelta()), *self.send_metadata([(topic.name, index) for topic, index, _ in left])]
        is_there = broker_id in state.informed and broker_id in state.live
        return metadata + self.send(broker_id, StopReplicaBatch(stops)) if is_there else metadata

    def send_metadata(self, keys: Collection[PartitionKey]) -> list[Effect]:
        """Send the other brokers the metadata of these partitions as it is now."""
        entries = []
        for name, index in keys:
            known = self._state.image.partition(name, index)
            if known is not None:
                entries.append(self._state.entry(self._state.image.topics[name], index, known))
        if not entries:
            return []
        metadata = UpdateMetadataBatch(tuple(entries))
        return [effect for broker_id in self._informed() for effect in self.send(broker_id, metadata)]


def _in_batches(entries: Sequence[PartitionEntry]) -> list[UpdateMetadataBatch]:
    starts = range(0, len(entries), MOST_SENT)
    return [UpdateMetadataBatch(tuple(entries[start : start + MOST_SENT])) for start in starts]
