"""The controller's facts: the cluster as it knows it, and what it decides from these facts alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ottla.cluster.control_batches import EPOCH_DURING_DELETE, PartitionEntry, StopEntry, StopReplicaBatch
from ottla.cluster.controller_events import LiveBroker, MetadataChange, PartitionKey, PutState, ReplicaMove
from ottla.cluster.elections import is_unclean, settle
from ottla.cluster.image import ClusterImage, ImageDelta, PartitionImage, TopicDelta, TopicImage
from ottla.cluster.partition_set import PartitionSet

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig

NO_MOVE = ReplicaMove()
NO_STATE = -1
"""Version of a state znode that is not there yet."""
UNCLEAN = "unclean.leader.election.enable"


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
    """The facts that the parts of the controller share, each of which handles its own kind of events."""

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

    def begin_term(self) -> None:
        """Forget the facts of the former term."""
        self.versions.clear()
        self.shutting_down.clear()
        self.informed.clear()
        self.recovering.clear()
        self.unannounced.clear()
        self.unanswered.clear()
        self.moves.clear()
        self.uncertain.clear()
        self.deletions.clear()

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

    def forget_topic(self, name: str) -> None:
        """Take a topic out of the controller's image; no broker is notified."""
        topic = self.image.topics[name]
        self.forget(topic)
        self.image.apply(ImageDelta((TopicDelta(topic, None),)))

    def forget(self, topic: TopicImage) -> None:
        """Forget what is known of a deleted topic's znodes: a later one of its name starts without it."""
        of_partitions: tuple[dict[PartitionKey, Any], ...] = (self.versions, self.moves, self.uncertain)
        for known in filter(None, of_partitions):
            for index in range(len(topic.partitions)):
                known.pop((topic.name, index), None)
        for waiting in self.unanswered.values():
            waiting.remove_topic(topic.name)
        if self.recovering:
            self.recovering.difference_update((topic.name, index) for index in range(len(topic.partitions)))

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
