"""The controller as a state machine: `handle(event, now_ms) -> effects`. It holds no socket, no znode client, no clock.

The znodes are authoritative. A `Write` changes them and fails if another controller was elected; its outcome comes back
as an event. Only after a successful write are brokers notified (`Notify`), and only after they have applied the change
is the request answered, so that a topic is usable when CreateTopics returns. Changes of one topic are serialized; those
of different topics do not wait for each other.

Source: Apache Kafka 3.9, `KafkaController`, `TopicDeletionManager`, `ZkPartitionStateMachine`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeAlias

from ottla.cluster.broker_notifier import BrokerNotifier
from ottla.cluster.control_batches import UpdateMetadataBatch
from ottla.cluster.controller_events import (
    Answer,
    BrokersChanged,
    ConfigsChanged,
    Continue,
    Continued,
    DeletionAnswered,
    DeletionMarked,
    DeletionRequested,
    DeletionsMarked,
    Effect,
    Elected,
    ElectionRequested,
    Event,
    IsrProposed,
    IsrRefused,
    IsrsProposed,
    LeaderAndIsrAnswered,
    LogDirsFailed,
    Notified,
    PartitionKey,
    PartitionsRequested,
    ReassignmentRequested,
    ReplicaMove,
    ReplicasOffline,
    Report,
    Resigned,
    SetChannels,
    SetTimer,
    ShutdownRequested,
    StateLost,
    TimerFired,
    TopicRequested,
    TopicsFound,
    UncleanElectionsChanged,
    Written,
)
from ottla.cluster.controller_state import ControllerState
from ottla.cluster.image import NO_LEADER, ClusterImage, ImageDelta, PartitionImage, TopicDelta
from ottla.cluster.partition_changes import RETRY_MS, TAKING_OFFICE, PartitionChanges
from ottla.cluster.pending_work import MOST_LOOKED_AT, PendingWork, why
from ottla.cluster.proposed_isrs import ProposedIsrs
from ottla.cluster.refusal import TopicRefusal
from ottla.cluster.topic_changes import TopicChanges
from ottla.cluster.topic_deletions import TopicDeletions
from ottla.cluster.topic_loading import LoadedTopics, load_topics
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig

_REQUESTS = (
    TopicRequested,
    PartitionsRequested,
    DeletionRequested,
    ElectionRequested,
    ReassignmentRequested,
    IsrProposed,
    IsrsProposed,
    ShutdownRequested,
)
Request: TypeAlias = (
    TopicRequested
    | PartitionsRequested
    | DeletionRequested
    | ElectionRequested
    | ReassignmentRequested
    | IsrProposed
    | IsrsProposed
    | ShutdownRequested
)


class Controller:
    """Decides for the cluster while its broker is the elected controller; otherwise refuses all requests."""

    def __init__(self, broker_id: int, config: BrokerConfig) -> None:
        self._state = state = ControllerState(broker_id, config)
        self._pending = pending = PendingWork(state, self._handle)
        self._notifier = notifier = BrokerNotifier(state, pending)
        deletions = TopicDeletions(state, pending, notifier)
        self._partitions = partitions = PartitionChanges(state, pending, notifier, deletions)
        isrs = ProposedIsrs(state, pending, notifier, partitions.reassignments.isrs_changed)
        topics = TopicChanges(state, pending, notifier, partitions.elect_leaders)
        #: Unanswered requests by token.
        self._requests: dict[int, Request] = {}
        self._handlers: dict[type, Callable[..., list[Effect]]] = {
            Elected: self._elected,
            Resigned: self._resigned,
            BrokersChanged: partitions.brokers_changed,
            TopicsFound: topics.topics_found,
            DeletionsMarked: deletions.deletions_marked,
            DeletionMarked: deletions.deletion_marked,
            ConfigsChanged: topics.configs_changed,
            # As in Kafka, partitions without a leader get one as soon as an unclean election is allowed.
            UncleanElectionsChanged: lambda _: partitions.elect_leaders(),
            ReplicasOffline: partitions.replicas_offline,
            TopicRequested: topics.topic_requested,
            PartitionsRequested: topics.partitions_requested,
            DeletionRequested: deletions.deletion_requested,
            ElectionRequested: partitions.election_requested,
            ReassignmentRequested: partitions.reassignments.requested,
            IsrProposed: isrs.isr_proposed,
            IsrsProposed: isrs.isrs_proposed,
            ShutdownRequested: partitions.shutdown_requested,
            LogDirsFailed: partitions.log_dirs_failed,
            LeaderAndIsrAnswered: partitions.leader_and_isr_answered,
            StateLost: partitions.state_lost,
            DeletionAnswered: deletions.deletion_answered,
            TimerFired: partitions.timer_fired,
        }

    @property
    def epoch(self) -> int:
        """The controller's epoch while elected, else 0."""
        return self._state.epoch

    @property
    def unclean_elections(self) -> int:
        """Leaders elected that were not in sync, since the broker started."""
        return self._state.unclean_elections

    @property
    def image(self) -> ClusterImage:
        """The cluster as this controller last published it to its broker."""
        return self._state.image

    @property
    def deleting(self) -> frozenset[str]:
        """Topics whose deletion is under way."""
        return frozenset(self._state.deleting)

    @property
    def reassigning(self) -> int:
        """Partitions that reassignments move."""
        return len(self._state.moves)

    @property
    def waiting_deletions(self) -> list[str]:
        """Topics whose deletion waits for a broker that is not there, or whose log directory has failed."""
        state = self._state
        return [
            name
            for name, deletion in state.deletions.items()
            if state.has_offline(name) or (deletion.remaining and not deletion.awaits_any_of(state.live))
        ]

    def reassignments(
        self, keys: Iterable[PartitionKey] | None = None
    ) -> dict[PartitionKey, tuple[PartitionImage, ReplicaMove]]:
        """The reassignments under way, of these partitions or of all: all replicas, those added and removed."""
        state, found = self._state, {}
        for key in state.moves if keys is None else keys:
            known, move = state.image.partition(*key), state.moves.get(key)
            if known is not None and move is not None:
                found[key] = (known, move)
        return found

    def offline_replicas(self, topic: str, index: int, state: PartitionImage) -> tuple[int, ...]:
        """The offline replicas of a partition in this state, as it is sent to the other brokers.

        They hear nothing of a leader that shuts down, and that no replica can replace: it leads on until it stops.
        """
        offline = self._state.not_online(topic, index, state.replicas)
        return tuple(broker for broker in offline if broker != state.leader) if offline else offline

    @property
    def all_shut_down(self) -> bool:
        """Whether every live broker has asked for a controlled shutdown, so that none can take over from another."""
        return self._state.live.keys() <= self._state.shutting_down

    @property
    def is_idle(self) -> bool:
        """Whether no effect is outstanding."""
        return self._pending.is_idle

    def handle(self, event: Event, now_ms: int) -> list[Effect]:
        """Handle an event and return its effects, to be carried out in order, however long that takes."""
        effects: list[Effect] = []
        for effect in self.handle_in_slices(event, now_ms):
            if isinstance(effect, Continue):
                effects.extend(self.handle(Continued(effect.continuation_id), now_ms))
            else:
                effects.append(effect)
        return effects

    def handle_in_slices(self, event: Event, now_ms: int) -> list[Effect]:
        """As `handle`, but after some milliseconds the last effect is a `Continue`: the rest comes with `Continued`."""
        self._state.now_ms = now_ms
        effects: list[Effect] = []
        if isinstance(event, Elected | Resigned):
            # Refuse the pending requests of the former term; clients retry them at the new controller.
            for request in self._requests.values():
                effects.extend(_not_controller(request))
        elif isinstance(event, _REQUESTS):
            self._requests[event.token] = event
        effects.extend(self._handle(event))
        for effect in effects:
            if isinstance(effect, Answer):
                self._requests.pop(effect.token, None)
        return effects

    def _handle(self, event: Event) -> list[Effect]:
        state = self._state
        if isinstance(event, Written | Notified | Continued):
            return self._pending.proceed(event)
        if not state.epoch and not isinstance(event, Elected | ReplicasOffline | TimerFired):
            return _not_controller(event)
        return self._handlers[type(event)](event)

    def _elected(self, event: Elected) -> list[Effect]:
        """Bring the metadata into order, then publish the whole image to the broker."""
        state = self._state
        # What waits for other brokers in a former epoch would be refused.
        former: list[Effect] = [SetChannels({})] if state.epoch and state.others else []
        state.epoch = event.epoch
        self._pending.forget()
        state.begin_term()
        # The other brokers report their failed log directories again to a new controller: some may work by now.
        state.offline = {own: keys for own, keys in state.offline.items() if own == state.broker_id}
        self._partitions.reassignments.forget()
        state.live = self._partitions.registered = event.brokers
        if state.config.get_boolean("delete.topic.enable"):
            state.deleting = set(event.marked)
        state.image = ClusterImage("", state.broker_id, {}, event.applied.topics)
        if event.gone:
            # Deleted under the controller before, of which this broker has not heard. Others may have their names now.
            former.extend(self._notifier.notify(ImageDelta(tuple(TopicDelta(topic, None) for topic in event.gone))))
        loaded = LoadedTopics([], [], [])
        steps = load_topics(event.topics, state, loaded, is_election=True)
        return former + self._pending.in_slices(steps, lambda: self._take_office(event, loaded), is_apart=True)

    def _take_office(self, event: Elected, loaded: LoadedTopics) -> list[Effect]:
        """Write what is not in order, then publish."""
        state = self._state
        brokers = {broker_id: broker.image for broker_id, broker in event.brokers.items()}
        new = tuple(state.image.delta_of(topic.name, topic) for topic in loaded.topics)
        delta = ImageDelta(new, brokers, state.broker_id)
        effects: list[Effect] = [Report(problem, True) for problem in loaded.problems]
        if state.others:
            effects.append(SetChannels(event.brokers))
        for broker_id in state.others:
            # Brokers know each other before they are asked to follow one another.
            effects.extend(self._notifier.send(broker_id, UpdateMetadataBatch()))

        def written(outcome: Written) -> list[Effect]:
            if outcome.failure is not None:
                message = f"the metadata of the cluster could not be put in order: {why(outcome)}"
                state.epoch = 0
                return [Report(message, True), SetTimer(TAKING_OFFICE, state.now_ms + RETRY_MS)]
            return self._pending.in_slices(noted(), lambda: self._publish(delta))

        def noted() -> Iterator[tuple[int, list[Effect]]]:
            changes = loaded.changes
            for start in range(0, len(changes), MOST_LOOKED_AT):
                state.note_versions(changes[start : start + MOST_LOOKED_AT])
                yield MOST_LOOKED_AT, []

        if loaded.changes:
            return effects + self._pending.write(loaded.changes, written)
        return effects + self._publish(delta)

    def _publish(self, delta: ImageDelta) -> list[Effect]:
        """Publish the whole image: as a change to this broker, in full to the others."""
        epochs: dict[PartitionKey, int] = {}

        def found() -> Iterator[tuple[int, list[Effect]]]:
            for topic in delta.topics:
                epochs.update(self._state.epochs_in(topic))
                yield len(topic.after.partitions) if topic.after is not None else 0, []

        return self._pending.in_slices(found(), lambda: self._publish_to_all(delta, epochs))

    def _publish_to_all(self, delta: ImageDelta, partition_epochs: Mapping[PartitionKey, int]) -> list[Effect]:
        """Send the image to the others first: they and this broker, which has as much to do, work at the same time."""
        state = self._state
        new = state.unannounced.copy()
        to_own = self._notifier.notify(delta, partition_epochs=partition_epochs)
        state.unannounced = new  # the others hear of them only now
        partitions = self._partitions

        def informed() -> list[Effect]:
            state.unannounced.clear()
            elections = partitions.elect_leaders(partitions.reassignments.resume_after)
            return to_own + elections + partitions.balance.begin()

        return self._notifier.inform(state.others, informed)

    def _resigned(self, event: Resigned) -> list[Effect]:
        state = self._state
        state.epoch = 0
        self._pending.forget()
        state.begin_term()
        return [SetChannels({})] if state.others else []

    def check_invariants(self) -> None:
        """Raise AssertionError if the state contradicts itself."""
        state = self._state
        for name, topic in state.image.topics.items():
            assert state.image.topic_names[topic.topic_id] == name, f"{name} is not found by its id"
            for known in topic.partitions:
                assert known.leader == NO_LEADER or known.leader in known.replicas, f"{name}: leader without replica"
        waiting = self._pending.busy.keys() - state.deletions.keys()  # deletions wait for other brokers
        assert not waiting or not self.is_idle, f"{waiting} wait for an outcome that will not be reported"


def _not_controller(event: Event) -> list[Effect]:
    error = ErrorCode.NOT_CONTROLLER
    if isinstance(event, IsrProposed):
        return [Answer(event.token, IsrRefused(error))]
    if isinstance(event, IsrsProposed):
        return [Answer(event.token, tuple(IsrRefused(error) for _ in event.proposals))]
    if isinstance(event, _REQUESTS):
        return [Answer(event.token, TopicRefusal(error, error.message))]
    return []
