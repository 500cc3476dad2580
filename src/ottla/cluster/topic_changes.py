"""The controller's topic changes: creating and extending them; see `topic_deletions` for the end of them.

A change is written to the znodes, then applied by the brokers, then answered. If brokers cannot apply it, it is undone.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.cluster.broker_notifier import BrokerNotifier
from ottla.cluster.configs import oversized, settings_bytes
from ottla.cluster.controller_events import (
    AddPartitions,
    Answer,
    ConfigsChanged,
    CreateTopic,
    DeleteTopic,
    Effect,
    FoundTopic,
    MetadataChange,
    Notified,
    PartitionsRequested,
    ReadBack,
    RemovePartitions,
    Report,
    SetTimer,
    TopicCreated,
    TopicRequested,
    TopicsFound,
    WriteFailure,
    Written,
)
from ottla.cluster.controller_state import UNCLEAN, ControllerState
from ottla.cluster.elections import first_states
from ottla.cluster.image import TopicImage
from ottla.cluster.pending_work import PendingWork, why
from ottla.cluster.reassignments import REASSIGNMENTS, RETRY_MS
from ottla.cluster.refusal import TopicRefusal
from ottla.cluster.topic_loading import LoadedTopics, load_topics
from ottla.cluster.topics import is_internal_topic, plan_partitions, plan_topic
from ottla.wire.errors import ErrorCode


class TopicChanges:
    """Handles events that create or change topics."""

    def __init__(
        self,
        state: ControllerState,
        pending: PendingWork,
        notifier: BrokerNotifier,
        elect_leaders: Callable[[], list[Effect]],
    ) -> None:
        self._state = state
        self._pending = pending
        self._notifier = notifier
        self._elect_leaders = elect_leaders

    # Creation

    def topic_requested(self, event: TopicRequested) -> list[Effect]:
        """Create a topic."""
        state, name = self._state, event.spec.name
        if not state.awaits_deletion(name) and self._pending.must_wait(name, event):
            return []
        if name in state.deleting:
            message = f"Topic '{name}' is marked for deletion."
            return [Answer(event.token, TopicRefusal(ErrorCode.TOPIC_ALREADY_EXISTS, message))]
        plan = plan_topic(event.spec, state.image, state.config, event.chance)
        if isinstance(plan, TopicRefusal):
            return [Answer(event.token, plan)]
        refusal = oversized(plan.configs, settings_bytes(plan.configs))
        if refusal is not None:
            return [Answer(event.token, refusal)]
        partitions = first_states(plan.assignment, state.electable)
        topic = TopicImage(name, event.topic_id, partitions, plan.configs, is_internal_topic(name))
        made = TopicCreated(topic, plan.log_config)
        if event.validate_only:
            return [Answer(event.token, made)]

        def written(outcome: Written) -> list[Effect]:
            if outcome.failure is not None:
                return self._failed(event.token, name, outcome)
            state.note_made(topic)
            return self._notifier.notify_in_slices(name, lambda _: topic, notified, is_undone_on_failure=True)

        def notified(outcome: Notified) -> list[Effect]:
            if outcome.refusal is not None:
                return self._take_back(event.token, DeleteTopic(name, is_marked=False), name, None, outcome.refusal)
            return self._pending.end(name, [Answer(event.token, made)])

        self._pending.begin(name)
        state.unannounced.add_of(name, range(len(partitions)))
        return self._pending.write([CreateTopic(topic)], written)

    def partitions_requested(self, event: PartitionsRequested) -> list[Effect]:
        """Add partitions to a topic."""
        state, name = self._state, event.name
        if not state.awaits_deletion(name) and self._pending.must_wait(name, event):
            return []
        if name in state.deleting:
            message = "The topic is queued for deletion."
            return [Answer(event.token, TopicRefusal(ErrorCode.INVALID_TOPIC_EXCEPTION, message))]
        known = state.image.topics.get(name)
        if known is not None and state.moves_of(known):
            message = f"A partition reassignment is in progress for the topic '{name}'."
            return [Answer(event.token, TopicRefusal(ErrorCode.REASSIGNMENT_IN_PROGRESS, message))]
        planned = plan_partitions(name, event.partitions, event.assignments, state.image)
        if isinstance(planned, TopicRefusal) or event.validate_only:
            return [Answer(event.token, planned if isinstance(planned, TopicRefusal) else None)]
        before = state.image.topics[name]
        added = first_states(planned, state.electable)
        after = before._replace(partitions=before.partitions + added)

        def written(outcome: Written) -> list[Effect]:
            if outcome.failure is not None:
                return self._failed(event.token, name, outcome)
            state.note_made(after, len(before.partitions))
            return self._notifier.notify_in_slices(name, grown, notified, is_undone_on_failure=True)

        def grown(known: TopicImage | None) -> TopicImage | None:
            return known._replace(partitions=known.partitions + added) if known is not None else None

        def notified(outcome: Notified) -> list[Effect]:
            if outcome.refusal is not None:
                undo = RemovePartitions(before, after, state.moves_of(before))
                return self._take_back(event.token, undo, name, before, outcome.refusal)
            return self._pending.end(name, [Answer(event.token, None)])

        self._pending.begin(name)
        state.unannounced.add_of(name, range(len(before.partitions), len(after.partitions)))
        return self._pending.write([AddPartitions(after, len(before.partitions), state.moves_of(before))], written)

    def _take_back(
        self, token: int, undo: MetadataChange, name: str, before: TopicImage | None, refusal: TopicRefusal
    ) -> list[Effect]:
        """Undo a change that brokers could not apply: the znodes first, then the logs already created."""
        state = self._state
        message = f"the change of topic {name} failed and could not be taken back in full"

        def written(outcome: Written) -> list[Effect]:
            if outcome.failure is not None:
                report = Report(f"{message}: {why(outcome)}", True)
                return [report, *self._notifier.notify(state.delta(name, before), notified)]
            return self._notifier.notify(state.delta(name, before), notified)

        def notified(outcome: Notified) -> list[Effect]:
            reports: list[Effect] = []
            if outcome.refusal is not None:
                reports.append(Report(f"{message}: {outcome.refusal.message}", True))
            return self._pending.end(name, [*reports, Answer(token, refusal)])

        return self._pending.write([undo], written)

    def _failed(self, token: int, name: str, outcome: Written) -> list[Effect]:
        """Handle a failed write; if its outcome is unknown, the znodes are read back before anything else."""
        effects: list[Effect] = [Answer(token, outcome.refusal)]
        if outcome.failure in (WriteFailure.UNKNOWN, WriteFailure.EXISTS):
            effects.append(ReadBack(name))
        return self._pending.end(name, effects)

    # Topics found in the znodes

    def topics_found(self, event: TopicsFound) -> list[Effect]:
        """Serve topics and partitions that others have created; decide no more for topics whose znodes others removed.

        As in Apache Kafka, the brokers are not notified of the latter: they keep what they have.
        """
        state = self._state
        effects: list[Effect] = []
        for name in event.missing:
            is_known = name in state.image.topics and name not in state.deleting
            if is_known and not self._pending.must_wait(name, TopicsFound((), (name,))):
                state.forget_topic(name)
        for found in event.topics:
            if found.name in state.deleting or self._pending.must_wait(found.name, TopicsFound((found,))):
                continue
            effects.extend(self._load(found))
        return effects

    def _load(self, found: FoundTopic) -> list[Effect]:
        """Load what is new in a topic; a large one in several slices."""
        state, name = self._state, found.name
        uncertain = len(state.uncertain)
        loaded = LoadedTopics([], [], [])

        def looked() -> list[Effect]:
            effects: list[Effect] = []
            if len(state.uncertain) < uncertain:  # a move that was written after all continues
                effects.append(SetTimer(REASSIGNMENTS, state.now_ms + RETRY_MS))
            effects.extend(Report(problem, True) for problem in loaded.problems)
            if loaded.topics:
                [topic] = loaded.topics
                return effects + self._serve(topic, loaded.changes)
            if loaded.changes:
                return effects + self._pending.write(loaded.changes, lambda _: self._pending.end(name, []))
            return self._pending.end(name, effects)

        self._pending.begin(name)
        return self._pending.in_slices(load_topics((found,), state, loaded), looked)

    def _serve(self, topic: TopicImage, changes: list[MetadataChange]) -> list[Effect]:
        state, name = self._state, topic.name

        def written(outcome: Written) -> list[Effect]:
            if outcome.failure is not None:
                return self._pending.end(
                    name, [Report(f"topic {name} could not be given leaders: {why(outcome)}", True)]
                )
            state.note_versions(changes)
            return self._notifier.notify_in_slices(name, lambda _: topic, notified)

        def notified(outcome: Notified) -> list[Effect]:
            if outcome.refusal is not None:
                return self._pending.end(
                    name, [Report(f"topic {name} cannot be served: {outcome.refusal.message}", True)]
                )
            message = f"topic {name} was made or grown in the metadata: {len(topic.partitions)} partitions"
            return self._pending.end(name, [Report(message)])

        if changes:
            return self._pending.write(changes, written)
        return self._notifier.notify_in_slices(name, lambda _: topic, notified)

    def configs_changed(self, event: ConfigsChanged) -> list[Effect]:
        """Update a topic's settings in the image; other brokers read them from the znodes."""
        state = self._state
        topic = state.image.topics.get(event.name)
        if topic is None:
            return []
        state.image.apply(state.delta(event.name, topic._replace(configs=event.configs)))
        # As in Kafka, a partition without a leader gets one as soon as the topic allows an unclean election.
        return self._elect_leaders() if event.configs.get(UNCLEAN) != topic.configs.get(UNCLEAN) else []
