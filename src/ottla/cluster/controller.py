"""The controller as a state machine: `handle(event, now_ms) -> effects`. It holds no socket, no znode client, no clock.

The znodes are authoritative. A `Write` changes them and fails if another controller was elected; its outcome comes back
as an event. Only after a successful write are brokers notified (`Notify`), and only after they have applied the change
is the request answered, so that a topic is usable when CreateTopics returns. Changes of one topic are serialized; those
of different topics do not wait for each other.

Source: Apache Kafka 3.9, `KafkaController`, `TopicDeletionManager`, `ZkPartitionStateMachine`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from ottla.cluster.controller_events import (
    Answer,
    BrokersChanged,
    ConfigsChanged,
    DeletionAsked,
    DeletionMarked,
    DeletionsMarked,
    Effect,
    Elected,
    ElectionAsked,
    Event,
    IsrProposed,
    IsrRefused,
    Notified,
    PartitionsAsked,
    ReassignmentAsked,
    ReplicasOffline,
    Report,
    Resigned,
    TimerFired,
    TopicAsked,
    TopicsFound,
    Written,
)
from ottla.cluster.controller_state import ControllerState, nothing, why
from ottla.cluster.image import NO_LEADER, ClusterImage, ImageDelta
from ottla.cluster.partition_changes import PartitionChanges
from ottla.cluster.refusal import TopicRefusal
from ottla.cluster.taking_up import take_up
from ottla.cluster.topic_changes import TopicChanges
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig

_ASKED = (TopicAsked, PartitionsAsked, DeletionAsked, ElectionAsked, ReassignmentAsked, IsrProposed)
Asked: TypeAlias = TopicAsked | PartitionsAsked | DeletionAsked | ElectionAsked | ReassignmentAsked | IsrProposed


class Controller:
    """Decides for the cluster while its broker is the elected controller; otherwise refuses all requests."""

    def __init__(self, broker_id: int, config: BrokerConfig) -> None:
        self._state = state = ControllerState(broker_id, config)
        state.resume = self._handle
        topics = TopicChanges(state)
        self._partitions = partitions = PartitionChanges(state)
        #: Unanswered requests by token.
        self._asked: dict[int, Asked] = {}
        self._handlers: dict[type, Callable[..., list[Effect]]] = {
            Elected: self._elected,
            Resigned: self._resigned,
            BrokersChanged: partitions.brokers_changed,
            TopicsFound: topics.topics_found,
            DeletionsMarked: topics.deletions_marked,
            DeletionMarked: topics.deletion_marked,
            ConfigsChanged: topics.configs_changed,
            ReplicasOffline: partitions.replicas_offline,
            TopicAsked: topics.topic_asked,
            PartitionsAsked: topics.partitions_asked,
            DeletionAsked: topics.deletion_asked,
            ElectionAsked: partitions.election_asked,
            ReassignmentAsked: partitions.reassignment_asked,
            IsrProposed: partitions.isr_proposed,
            TimerFired: partitions.timer_fired,
        }

    @property
    def epoch(self) -> int:
        """The controller's epoch while elected, else 0."""
        return self._state.epoch

    @property
    def image(self) -> ClusterImage:
        """The cluster as this controller last published it to its broker."""
        return self._state.image

    @property
    def deleting(self) -> frozenset[str]:
        """Topics whose deletion is under way."""
        return frozenset(self._state.deleting)

    @property
    def is_idle(self) -> bool:
        """Whether no effect is outstanding."""
        return not self._state.writes and not self._state.notices

    def handle(self, event: Event, now_ms: int) -> list[Effect]:
        """Handle an event and return its effects, to be carried out in order."""
        self._state.now_ms = now_ms
        effects: list[Effect] = []
        if isinstance(event, Elected | Resigned):
            # Refuse the pending requests of the former term; clients retry them at the new controller.
            for asked in self._asked.values():
                effects.extend(_not_controller(asked))
        elif isinstance(event, _ASKED):
            self._asked[event.token] = event
        effects.extend(self._handle(event))
        for effect in effects:
            if isinstance(effect, Answer):
                self._asked.pop(effect.token, None)
        return effects

    def _handle(self, event: Event) -> list[Effect]:
        state = self._state
        if isinstance(event, Written):
            return state.writes.pop(event.write_id, nothing)(event)
        if isinstance(event, Notified):
            return state.notices.pop(event.notify_id, nothing)(event)
        if not state.epoch and not isinstance(event, Elected | ReplicasOffline):
            return _not_controller(event)
        return self._handlers[type(event)](event)

    def _elected(self, event: Elected) -> list[Effect]:
        """Bring the metadata into order, then publish the whole image to the broker."""
        state = self._state
        state.epoch = event.epoch
        state.forget_outcomes()
        state.live = event.brokers
        state.image = ClusterImage("", state.broker_id, {}, event.applied.topics)
        taken_up = take_up(event.topics, state)
        brokers = {broker_id: broker.image for broker_id, broker in event.brokers.items()}
        new = tuple(state.image.delta_of(topic.name, topic) for topic in taken_up.topics)
        delta = ImageDelta(new, brokers, state.broker_id)
        reports: list[Effect] = [Report(problem, True) for problem in taken_up.problems]

        def written(outcome: Written) -> list[Effect]:
            if outcome.failure is not None:
                state.epoch = 0
                return [Report(f"the metadata of the cluster could not be put in order: {why(outcome)}", True)]
            state.note_versions(taken_up.changes)
            return state.notify(delta) + self._partitions.elect_leaders()

        if taken_up.changes:
            return reports + state.write(taken_up.changes, written)
        return reports + state.notify(delta) + self._partitions.elect_leaders()

    def _resigned(self, event: Resigned) -> list[Effect]:
        self._state.epoch = 0
        self._state.forget_outcomes()
        return []

    def check_invariants(self) -> None:
        """Raise AssertionError if the state contradicts itself."""
        state = self._state
        for name, topic in state.image.topics.items():
            assert state.image.topic_names[topic.topic_id] == name, f"{name} is not found by its id"
            for known in topic.partitions:
                assert known.leader == NO_LEADER or known.leader in known.replicas, f"{name}: leader without replica"
        assert not state.busy or not self.is_idle, f"{list(state.busy)} wait for an outcome that nobody will report"


def _not_controller(event: Event) -> list[Effect]:
    error = ErrorCode.NOT_CONTROLLER
    if isinstance(event, IsrProposed):
        return [Answer(event.token, IsrRefused(error))]
    if isinstance(event, _ASKED):
        return [Answer(event.token, TopicRefusal(error, error.message))]
    return []
