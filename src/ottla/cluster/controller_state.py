"""State shared by the parts of the controller, and the outcomes it waits for."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeAlias

from ottla.cluster.control_batches import (
    EPOCH_DURING_DELETE,
    ControlBatches,
    ControlRequest,
    LeaderAndIsrBatch,
    PartitionEntry,
    StopEntry,
    StopReplicaBatch,
    UpdateMetadataBatch,
    roles_of,
)
from ottla.cluster.controller_events import (
    Effect,
    Event,
    GoOn,
    LiveBroker,
    MetadataChange,
    Notified,
    Notify,
    PartitionKey,
    PutState,
    ReplicaMove,
    SendToBroker,
    Write,
    Written,
)
from ottla.cluster.elections import is_unclean, settle
from ottla.cluster.image import ClusterImage, ImageDelta, PartitionImage, TopicDelta, TopicImage
from ottla.cluster.partition_set import PartitionSet

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig

OnWritten: TypeAlias = Callable[[Written], list[Effect]]
OnNotified: TypeAlias = Callable[[Notified], list[Effect]]
Then: TypeAlias = Callable[[], list[Effect]]
Change: TypeAlias = Callable[[TopicImage | None], TopicImage | None]
"""What becomes of a topic as it is known; None: there is none."""


#: Partitions that are looked at in one turn of the loop, some microseconds each.
MOST_LOOKED_AT = 2_000
#: Partitions in one UpdateMetadata with the whole state: more would hold up the loop of either broker.
MOST_SENT = 5_000
NO_MOVE = ReplicaMove()
NO_STATE = -1
"""Version of a state znode that is not there yet."""
UNCLEAN = "unclean.leader.election.enable"


def nothing(_: object) -> list[Effect]:
    """Ignore an outcome."""
    return []


class Deletion:
    """A topic's deletion under way: the replicas that are not deleted yet, by broker, and the request to be answered.

    A broker that is not alive, or has failed to delete its replicas, does it after its next registration.
    """

    def __init__(self, topic: TopicImage, token: int | None, own_broker: int) -> None:
        self.topic = topic
        self.token = token
        #: Whether this broker's own replicas are deleted.
        self.is_done_here = False
        #: Brokers that could not delete a replica since they registered.
        self.failed: set[int] = set()
        remaining: defaultdict[int, set[int]] = defaultdict(set)
        for index, state in enumerate(topic.partitions):
            for broker_id in state.replicas:
                if broker_id != own_broker:
                    remaining[broker_id].add(index)
        self.remaining = dict(remaining)

    def awaits_any_of(self, live: Collection[int]) -> bool:
        """Whether any of these brokers is still to answer."""
        return any(broker_id in live and broker_id not in self.failed for broker_id in self.remaining)

    def note(self, broker_id: int, indexes: Iterable[int]) -> None:
        """Note that the broker has deleted its replicas of these partitions."""
        left = self.remaining.get(broker_id, set()).difference(indexes)
        if left:
            self.remaining[broker_id] = left
        else:
            self.remaining.pop(broker_id, None)

    def stops(self, broker_id: int) -> StopReplicaBatch:
        """The replicas that the broker still has to delete."""
        indexes = sorted(self.remaining.get(broker_id, ()))
        return StopReplicaBatch(
            tuple(StopEntry(self.topic.name, index, EPOCH_DURING_DELETE, True) for index in indexes)
        )


class ControllerState:
    """State shared by the parts of the controller, each of which handles its own kind of events."""

    def __init__(self, broker_id: int, config: BrokerConfig) -> None:
        self.broker_id = broker_id
        self.config = config
        #: The controller's epoch while elected, else 0.
        self.epoch = 0
        self.now_ms = 0
        #: The cluster as this controller last published it to its broker.
        self.image = ClusterImage()
        self.live: Mapping[int, LiveBroker] = {}
        #: Brokers that shut down, until they are gone; they lead nothing new.
        self.shutting_down: set[int] = set()
        #: The brokers that have had the whole state since they registered.
        self.informed: set[int] = set()
        #: Partitions whose leader was elected uncleanly and has not recovered yet.
        self.recovering: set[PartitionKey] = set()
        #: Partitions made in this term of which no broker knows yet.
        self.unannounced = PartitionSet()
        #: By broker, the partitions made in this term whose first LeaderAndIsr it has not answered: it may have died
        #: before it made their logs, and hears once more that they are new.
        self.unanswered: dict[int, PartitionSet] = {}
        #: Reassignments under way.
        self.moves: dict[PartitionKey, ReplicaMove] = {}
        #: Moves of which it is not known whether they are in the topic's znode: all replicas, and the move.
        self.uncertain: dict[PartitionKey, tuple[tuple[int, ...], ReplicaMove]] = {}
        #: Unclean elections since the broker started.
        self.unclean_elections = 0
        #: Deletions of topics that wait for brokers to delete their replicas.
        self.deletions: dict[str, Deletion] = {}
        #: Versions of the state znodes written more than once.
        self.versions: dict[PartitionKey, int] = {}
        #: Topics whose deletion is under way.
        self.deleting: set[str] = set()
        #: Replicas in failed log directories, by broker.
        self.offline: dict[int, set[PartitionKey]] = {}
        self._electable: tuple[Mapping[int, LiveBroker], frozenset[int], frozenset[int]] | None = None
        self._last_id = 0
        self.writes: dict[int, OnWritten] = {}
        self.notices: dict[int, OnNotified] = {}
        #: How long decisions continue, in turns to come.
        self.going_on: dict[int, Callable[[], list[Effect]]] = {}
        #: Topics with a change under way, and the events queued behind it.
        self.busy: dict[str, deque[Event]] = {}
        #: Handles an event that was queued.
        self.resume: Callable[[Event], list[Effect]] = nothing

    def write(self, changes: Iterable[MetadataChange], then: OnWritten) -> list[Effect]:
        """Change znodes; `then` handles the outcome."""
        self._last_id += 1
        self.writes[self._last_id] = then
        return [Write(self._last_id, self.epoch, tuple(changes))]

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

    def notify_in_turns(
        self, name: str, change: Change, then: OnNotified, *, is_undone_on_failure: bool = False
    ) -> list[Effect]:
        """As `notify` of one topic's change; the requests to the others are made in several turns where it is large.

        `change` makes the new topic from the one that is known then. All is sent, and applied, at once.
        `is_undone_on_failure` says that `then` undoes it where it cannot be applied here.
        """

        def made_delta() -> ImageDelta:
            delta = self.delta(name, change(self.image.topics.get(name)))
            return delta._replace(is_undone_on_failure=is_undone_on_failure)

        delta = made_delta()
        batches = self._batches()
        basis = self._basis(name)

        def made() -> list[Effect]:
            # A safeguard: the shell lets nothing else in between.
            if self._basis(name) != basis:
                return self.notify(made_delta(), then)
            return self._notify(delta, then, None, batches)

        return self.in_turns(((partitions, []) for partitions in batches.adding(delta)), made)

    def _basis(self, name: str) -> tuple[object, ...]:
        """The data that the requests of a topic's change are made of, besides data of single partitions."""
        return self.image.topics.get(name), self.electable, frozenset(self.informed)

    def _batches(self) -> ControlBatches:
        """The requests of a change to the brokers that have had the whole state."""
        others = [broker_id for broker_id in self.informed if broker_id in self.live]
        return ControlBatches(others, self.shutting_down, self.entry)

    def _notify(
        self,
        delta: ImageDelta,
        then: OnNotified,
        partition_epochs: Mapping[PartitionKey, int] | None,
        batches: ControlBatches | None,
    ) -> list[Effect]:
        """See `notify`. `batches` are the requests to the others, if they are made already."""
        self._last_id += 1
        self.notices[self._last_id] = then
        epochs: dict[PartitionKey, int] = dict(partition_epochs or {})
        for topic in delta.topics:
            before, after = topic
            if after is None or (before is not None and before.topic_id != after.topic_id):
                assert before is not None
                self._forget(before)
            if partition_epochs is None:
                epochs.update(self.epochs_in(topic))
        new = self._new_in(delta)
        new_here = new.copy()
        for key, move in self.moves.items():
            if self.broker_id in move.adding and self._lags(key):
                new_here.add(key)
        recovering = frozenset(self.recovering)
        delta = delta._replace(partition_epochs=epochs, new_partitions=new_here, recovering=recovering)
        self.image.apply(delta)
        effects: list[Effect] = [Notify(self._last_id, self.broker_id, delta, self.epoch)]
        if batches is None:
            batches = self._batches()
            batches.add(delta)
        for broker_id, requests in batches.requests(with_brokers=delta.brokers is not None):
            if new and isinstance(requests[0], LeaderAndIsrBatch):
                self._await_logs(broker_id, requests[0])
            effects.extend(self.send(broker_id, *requests))
        self.unannounced.remove_all(new)
        return effects

    def epochs_in(self, delta: TopicDelta) -> dict[PartitionKey, int]:
        """The partition epochs of what changes in a topic, without those of 0."""
        before, after = delta
        if after is None:
            return {}
        known = before.partitions if before is not None else ()
        epochs = {}
        indexes: Iterable[int] = range(len(after.partitions))
        if len(self.versions) < len(after.partitions):
            indexes = [index for name, index in self.versions if name == after.name and index < len(after.partitions)]
        for index in indexes:
            if index >= len(known) or known[index] is not after.partitions[index]:
                version = self.versions.get((after.name, index), 0)
                if version:
                    epochs[after.name, index] = version
        return epochs

    def _lags(self, key: PartitionKey) -> bool:
        """Whether this broker's replica is not in sync."""
        known = self.image.partition(*key)
        return known is not None and self.broker_id not in known.isr

    def _await_logs(self, broker_id: int, roles: LeaderAndIsrBatch) -> None:
        """Note the new partitions whose logs the broker is asked to make."""
        waiting = self.unanswered.setdefault(broker_id, PartitionSet())
        for topic, entries in groupby(roles.entries, attrgetter("topic")):
            waiting.add_of(topic, [each.partition for each in entries if each.is_new])

    def _new_in(self, delta: ImageDelta) -> PartitionSet:
        """The partitions of this change that are announced with it."""
        new = PartitionSet()
        for _, after in delta.topics:
            if after is not None:
                new.add_of(after.name, self.unannounced.of(after.name, len(after.partitions)))
        return new

    def forget_topic(self, name: str) -> None:
        """Take a topic out of the controller's image; no broker is notified."""
        topic = self.image.topics[name]
        self._forget(topic)
        self.image.apply(ImageDelta((TopicDelta(topic, None),)))

    def _forget(self, topic: TopicImage) -> None:
        """Forget what is known of a deleted topic's znodes: a later one of its name starts without it."""
        of_partitions: tuple[dict[PartitionKey, Any], ...] = (self.versions, self.moves, self.uncertain)
        for known in filter(None, of_partitions):
            for index in range(len(topic.partitions)):
                known.pop((topic.name, index), None)
        for waiting in self.unanswered.values():
            waiting.remove_topic(topic.name)
        if self.recovering:
            self.recovering.difference_update((topic.name, index) for index in range(len(topic.partitions)))

    def send(self, broker_id: int, *requests: ControlRequest) -> list[Effect]:
        """Send control requests to another broker."""
        brokers = {known: broker.image for known, broker in self.live.items()}
        return [SendToBroker(broker_id, self.live[broker_id].epoch, self.epoch, brokers, requests)]

    def later(self, then: Callable[[], list[Effect]]) -> list[Effect]:
        """Continue with `then` in another turn of the loop."""
        self._last_id += 1
        self.going_on[self._last_id] = then
        return [GoOn(self._last_id)]

    def in_turns(
        self,
        parts: Iterator[tuple[int, list[Effect]]],
        then: Then = list,
        *,
        is_apart: bool = False,
        is_cut: bool = False,
    ) -> list[Effect]:
        """The effects of all these parts, in as many turns of the loop as it takes; `then` follows.

        Each part comes with the number of partitions that were looked at for it. With `is_apart` what follows, which is
        about all of them again, has a turn of its own where the parts have had several (`is_cut`).
        """
        effects: list[Effect] = []
        looked_at = 0
        for size, found in parts:
            effects.extend(found)
            looked_at += size
            if looked_at >= MOST_LOOKED_AT:
                go_on = partial(self.in_turns, parts, then, is_apart=is_apart, is_cut=True)
                return effects + self.later(go_on)
        return effects + (self.later(then) if is_apart and is_cut else then())

    def inform(self, broker_ids: Collection[int], then: Then = list) -> list[Effect]:
        """Send the whole state to brokers that have registered, or to all once elected; `then` follows.

        That of a large cluster is found in several turns of the loop, and sent in several requests.
        """
        if not broker_ids:
            return then()
        self.informed.update(broker_ids)
        entries: list[PartitionEntry] = []

        def found() -> list[Effect]:
            return self._send_whole(broker_ids, entries) + then()

        return self._collect(lambda state: bool(state.isr), entries, found)

    def _send_whole(self, broker_ids: Collection[int], entries: Sequence[PartitionEntry]) -> list[Effect]:
        """All metadata, and then the roles: a broker knows the others' replicas when it hears of its own.

        The roles are one request, however many there are: a broker of Apache Kafka writes its checkpoint of high
        watermarks right after the first one, without what it has not heard of.
        """
        parts = [entries[start : start + MOST_SENT] for start in range(0, len(entries), MOST_SENT)] or [()]
        metadata = [UpdateMetadataBatch(tuple(part)) for part in parts]
        roles = roles_of(broker_ids, entries)
        effects: list[Effect] = []
        for broker_id in broker_ids:
            own = roles[broker_id]
            batches = [LeaderAndIsrBatch(tuple(own))] if own else []
            for batch in batches if self.unannounced else ():
                self._await_logs(broker_id, batch)
            effects += self.send(broker_id, *metadata, *(self._repeated(broker_id, batch) for batch in batches))
        return effects

    def _collect(
        self, is_wanted: Callable[[PartitionImage], bool], entries: list[PartitionEntry], then: Then
    ) -> list[Effect]:
        """Put the entries of these partitions into `entries`, some in each turn; `then` follows."""

        def parts() -> Iterator[tuple[int, list[Effect]]]:
            for topic, start in self._parts():
                part = topic.partitions[start : start + MOST_LOOKED_AT]
                entries.extend(
                    self.entry(topic, index, state) for index, state in enumerate(part, start) if is_wanted(state)
                )
                yield len(part), []

        return self.in_turns(parts(), then, is_apart=True)

    def _parts(self) -> Iterator[tuple[TopicImage, int]]:
        """All topics as they are when their turn comes, a large one in parts: each with its first partition."""
        for name in tuple(self.image.topics):
            start = 0
            while (topic := self.image.topics.get(name)) is not None and start < len(topic.partitions):
                if name in self.deleting:
                    break
                yield topic, start
                start += MOST_LOOKED_AT

    def _repeated(self, broker_id: int, roles: LeaderAndIsrBatch) -> LeaderAndIsrBatch:
        """The roles of a broker, with the mark of new partitions where it has not answered it before."""
        waiting = self.unanswered.get(broker_id)
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

        Partitions whose ISR they leave are left out: those change anyhow. `then` follows, perhaps in another turn.
        """
        others = [broker_id for broker_id in self.informed if broker_id in self.live and broker_id not in broker_ids]
        if not others:
            return then()
        entries: list[PartitionEntry] = []

        def is_wanted(state: PartitionImage) -> bool:
            return bool(state.isr) and any(
                one in state.replicas and (one in self.live or one not in state.isr) for one in broker_ids
            )

        def found() -> list[Effect]:
            starts = range(0, len(entries), MOST_SENT)
            parts = [UpdateMetadataBatch(tuple(entries[start : start + MOST_SENT])) for start in starts]
            return [effect for broker_id in others if parts for effect in self.send(broker_id, *parts)] + then()

        return self._collect(is_wanted, entries, found)

    def stop_followers(self, broker_id: int, keys: Collection[PartitionKey] | None = None) -> list[Effect]:
        """End those of the broker's replicas that are not in sync, and say that they are offline.

        It shuts down, or the log directories of these replicas have failed. Those in sync leave the ISR as well.
        """
        left = [
            (topic, index, known)
            for topic in self.image.topics.values()
            if topic.name not in self.deleting
            for index, known in enumerate(topic.partitions)
            if known.isr and broker_id in known.replicas and broker_id not in known.isr
            if keys is None or (topic.name, index) in keys
        ]
        if not left:
            return []
        stops = tuple(StopEntry(topic.name, index, known.leader_epoch, False) for topic, index, known in left)
        # This broker asks when it makes metadata, but may have some made already.
        told = [*self.notify(ImageDelta()), *self.tell([(topic.name, index) for topic, index, _ in left])]
        is_there = broker_id in self.informed and broker_id in self.live
        return told + self.send(broker_id, StopReplicaBatch(stops)) if is_there else told

    def tell(self, keys: Collection[PartitionKey]) -> list[Effect]:
        """Send the other brokers the metadata of these partitions as it is now."""
        entries = []
        for name, index in keys:
            known = self.image.partition(name, index)
            if known is not None:
                entries.append(self.entry(self.image.topics[name], index, known))
        if not entries:
            return []
        metadata = UpdateMetadataBatch(tuple(entries))
        others = [broker_id for broker_id in self.informed if broker_id in self.live]
        return [effect for broker_id in others for effect in self.send(broker_id, metadata)]

    def entry(self, topic: TopicImage, index: int, state: PartitionImage) -> PartitionEntry:
        """A partition's present state in a control request."""
        key = (topic.name, index)
        offline = self.not_online(topic.name, index, state.replicas)
        is_new, is_recovering = key in self.unannounced, key in self.recovering
        version = self.versions.get(key, 0)
        adding, removing = self.moves.get(key, NO_MOVE) if self.moves else NO_MOVE
        return PartitionEntry(
            topic.name, topic.topic_id, index, state, version, offline, is_new, is_recovering, adding, removing
        )

    def not_online(self, topic: str, index: int, replicas: tuple[int, ...]) -> tuple[int, ...]:
        """The replicas of a partition whose broker is dead or shuts down, or whose log directory has failed."""
        failed = self.offline_replicas(topic, index) if self.offline else ()
        electable = self.electable
        if not failed and electable.issuperset(replicas):
            return ()
        return tuple(broker for broker in replicas if broker not in electable or broker in failed)

    @property
    def others(self) -> list[int]:
        """The live brokers beside this one."""
        return [broker_id for broker_id in self.live if broker_id != self.broker_id]

    @property
    def electable(self) -> frozenset[int]:
        """The live brokers that do not shut down."""
        known = self._electable
        if known is None or known[0] is not self.live or known[1] != self.shutting_down:
            leaving = frozenset(self.shutting_down)
            known = self._electable = (self.live, leaving, frozenset(self.live).difference(leaving))
        return known[2]

    def settled(
        self,
        name: str,
        configs: Mapping[str, str],
        index: int,
        state: PartitionImage,
        not_in_sync: frozenset[int] = frozenset(),
    ) -> PartitionImage:
        """A partition's state with a live leader and a live ISR, as far as can be; the same object if it has them.

        Whether a leader may be elected that was not in sync is up to the topic's settings. `not_in_sync` are live
        brokers that must leave the ISR.
        """
        is_alive = state.leader in self.live and all(broker in self.live for broker in state.isr)
        if is_alive and not self.offline and not not_in_sync:
            return state  # the common case, without the sets below
        alive, electable = self.alive(name, index)
        if not_in_sync:
            alive, electable = set(alive).difference(not_in_sync), set(electable).difference(not_in_sync)
        setting = configs.get(UNCLEAN)
        unclean = self.config.get_boolean(UNCLEAN) if setting is None else setting.strip().lower() == "true"
        return settle(state, alive, electable, unclean=unclean)

    def alive(self, topic: str, index: int) -> tuple[Collection[int], Collection[int]]:
        """The brokers whose replica of the partition is online, and those of them that may become its leader."""
        electable = self.electable
        failed = self.offline_replicas(topic, index) if self.offline else ()
        if not failed:
            return self.live, electable
        return set(self.live).difference(failed), electable.difference(failed)

    def put(self, key: PartitionKey, before: PartitionImage | None, after: PartitionImage, version: int) -> PutState:
        """The change of a state znode with this version; an unclean election begins a recovery (KIP-704)."""
        if before is None or not before.isr:
            self.unannounced.add(key)
        is_recovering = key in self.recovering or (before is not None and is_unclean(before, after))
        return PutState(*key, after, version, is_recovering)

    def unclean_election(self, key: PartitionKey, before: PartitionImage, after: PartitionImage) -> str | None:
        """The report of a new leader that was not in sync, which is counted; None for any other change."""
        if not is_unclean(before, after):
            return None
        self.unclean_elections += 1
        return (
            f"unclean election of partition {key[0]}-{key[1]}: broker {after.leader} leads, and no replica in sync "
            f"({', '.join(map(str, before.isr))}) is alive. Records that it lacks are lost"
        )

    def delta(self, name: str, after: TopicImage | None) -> ImageDelta:
        """The change of one topic."""
        return ImageDelta((self.image.delta_of(name, after),))

    def begin(self, name: str) -> None:
        """Mark a change of the topic as under way."""
        self.busy[name] = deque()

    def end(self, name: str, effects: list[Effect]) -> list[Effect]:
        """End the change of a topic and handle the events queued behind it."""
        waiting = self.busy.pop(name, None)
        while waiting:
            effects.extend(self.resume(waiting.popleft()))
            if name in self.busy:
                self.busy[name].extend(waiting)
                break
        return effects

    def must_wait(self, name: str, event: Event) -> bool:
        """Queue the event and return True if a change of its topic is under way."""
        waiting = self.busy.get(name)
        if waiting is not None:
            waiting.append(event)
        return waiting is not None

    def forget_outcomes(self) -> None:
        """Ignore the outcomes of the former term's writes: a new term begins."""
        self.writes.clear()
        self.notices.clear()
        self.going_on.clear()
        self.busy.clear()
        self.versions.clear()
        self.shutting_down.clear()
        self.informed.clear()
        self.recovering.clear()
        self.unannounced.clear()
        self.unanswered.clear()
        self.moves.clear()
        self.uncertain.clear()
        self.deletions.clear()

    def awaits_deletion(self, name: str) -> bool:
        """Whether the topic is gone, but for replicas that other brokers have not deleted yet."""
        deletion = self.deletions.get(name)
        return deletion is not None and deletion.is_done_here

    def note_made(self, topic: TopicImage, first: int = 0) -> None:
        """Note that these partitions are written: those of which no replica is alive have no state yet."""
        for index in range(first, len(topic.partitions)):
            if not topic.partitions[index].isr:
                self.versions[topic.name, index] = NO_STATE

    def note_move(self, key: PartitionKey, move: ReplicaMove) -> None:
        """Note the reassignment that the topic's znode has for a partition."""
        self.uncertain.pop(key, None)
        if any(move):
            self.moves[key] = move
        else:
            self.moves.pop(key, None)

    def note_versions(self, changes: Iterable[MetadataChange]) -> None:
        """Update the versions of written state znodes."""
        for change in changes:
            if isinstance(change, PutState):
                key = (change.topic, change.partition)
                self.versions[key] = change.version + 1
                if change.is_recovering:
                    self.recovering.add(key)
                else:
                    self.recovering.discard(key)

    def moves_of(self, topic: TopicImage) -> dict[int, ReplicaMove]:
        """The reassignments under way of a topic, by partition."""
        # Not by a look at all moves: many topics may move at once.
        keys = ((topic.name, index) for index in range(len(topic.partitions)))
        return {key[1]: self.moves[key] for key in keys if key in self.moves}

    def version(self, topic: str, partition: int) -> int:
        """The partition epoch: the data version of the state znode."""
        return self.versions.get((topic, partition), 0)

    def offline_replicas(self, topic: str, partition: int) -> tuple[int, ...]:
        """The brokers whose replica of the partition is in a failed log directory."""
        return tuple(broker_id for broker_id, keys in self.offline.items() if (topic, partition) in keys)

    def has_offline(self, name: str) -> bool:
        """Whether any replica of the topic is in a failed log directory."""
        return any(topic == name for keys in self.offline.values() for topic, _ in keys)


def why(outcome: Written) -> str:
    """The reason why a write failed."""
    return outcome.refusal.message if outcome.refusal is not None else "the metadata could not be written"
