"""The controller's topic changes: creating, extending and deleting them.

A change is written to the znodes, then applied by the brokers, then answered. If brokers cannot apply it, it is undone.
"""

from __future__ import annotations

from ottla.cluster.configs import oversized, settings_bytes
from ottla.cluster.controller_events import (
    AddPartitions,
    Answer,
    ConfigsChanged,
    CreateTopic,
    DeleteTopic,
    DeletionAsked,
    DeletionMarked,
    DeletionsMarked,
    Effect,
    MarkDeletion,
    MetadataChange,
    Notified,
    PartitionsAsked,
    ReadBack,
    RemovePartitions,
    Report,
    TopicAsked,
    TopicCreated,
    TopicsFound,
    UnmarkDeletion,
    WriteFailure,
    Written,
)
from ottla.cluster.controller_state import ControllerState, nothing, why
from ottla.cluster.elections import first_states
from ottla.cluster.image import TopicImage
from ottla.cluster.refusal import TopicRefusal
from ottla.cluster.taking_up import take_up
from ottla.cluster.topics import is_internal_topic, plan_partitions, plan_topic, replication_refusal
from ottla.wire.errors import ErrorCode


class TopicChanges:
    """Handles events that create, change or delete topics."""

    def __init__(self, state: ControllerState) -> None:
        self._state = state

    # Creation

    def topic_asked(self, event: TopicAsked) -> list[Effect]:
        """Create a topic."""
        state, name = self._state, event.spec.name
        if state.must_wait(name, event):
            return []
        if name in state.deleting:
            message = f"Topic '{name}' is marked for deletion."
            return [Answer(event.token, TopicRefusal(ErrorCode.TOPIC_ALREADY_EXISTS, message))]
        plan = plan_topic(event.spec, state.image, state.config, event.chance)
        if isinstance(plan, TopicRefusal):
            return [Answer(event.token, plan)]
        refusal = replication_refusal(plan.assignment) or oversized(plan.configs, settings_bytes(plan.configs))
        if refusal is not None:
            return [Answer(event.token, refusal)]
        partitions = first_states(plan.assignment, state.live)
        topic = TopicImage(name, event.topic_id, partitions, plan.configs, is_internal_topic(name))
        made = TopicCreated(topic, plan.log_config)
        if event.validate_only:
            return [Answer(event.token, made)]

        def written(outcome: Written) -> list[Effect]:
            if outcome.failure is not None:
                return self._failed(event.token, name, outcome)
            return state.notify(state.delta(name, topic), notified)

        def notified(outcome: Notified) -> list[Effect]:
            if outcome.refusal is not None:
                return self._take_back(event.token, DeleteTopic(name, is_marked=False), name, None, outcome.refusal)
            return state.end(name, [Answer(event.token, made)])

        state.begin(name)
        return state.write([CreateTopic(topic)], written)

    def partitions_asked(self, event: PartitionsAsked) -> list[Effect]:
        """Add partitions to a topic."""
        state, name = self._state, event.name
        if state.must_wait(name, event):
            return []
        planned = plan_partitions(name, event.partitions, event.assignments, state.image)
        if not isinstance(planned, TopicRefusal):
            planned = replication_refusal(planned) or planned
        if isinstance(planned, TopicRefusal) or event.validate_only:
            return [Answer(event.token, planned if isinstance(planned, TopicRefusal) else None)]
        before = state.image.topics[name]
        added = first_states(planned, state.live)
        after = before._replace(partitions=before.partitions + added)

        def written(outcome: Written) -> list[Effect]:
            if outcome.failure is not None:
                return self._failed(event.token, name, outcome)
            return state.notify(state.delta(name, after), notified)

        def notified(outcome: Notified) -> list[Effect]:
            if outcome.refusal is not None:
                undo = RemovePartitions(before, after)
                return self._take_back(event.token, undo, name, before, outcome.refusal)
            return state.end(name, [Answer(event.token, None)])

        state.begin(name)
        return state.write([AddPartitions(after, len(before.partitions))], written)

    def _take_back(
        self, token: int, undo: MetadataChange, name: str, before: TopicImage | None, refusal: TopicRefusal
    ) -> list[Effect]:
        """Undo a change that brokers could not apply: the znodes first, then the logs already created."""
        state = self._state
        message = f"the change of topic {name} failed and could not be taken back in full"

        def written(outcome: Written) -> list[Effect]:
            if outcome.failure is not None:
                report = Report(f"{message}: {why(outcome)}", True)
                return [report, *state.notify(state.delta(name, before), notified)]
            return state.notify(state.delta(name, before), notified)

        def notified(outcome: Notified) -> list[Effect]:
            reports: list[Effect] = []
            if outcome.refusal is not None:
                reports.append(Report(f"{message}: {outcome.refusal.message}", True))
            return state.end(name, [*reports, Answer(token, refusal)])

        return state.write([undo], written)

    def _failed(self, token: int, name: str, outcome: Written) -> list[Effect]:
        """Handle a failed write; if its outcome is unknown, the znodes are read back before anything else."""
        effects: list[Effect] = [Answer(token, outcome.refusal)]
        if outcome.failure in (WriteFailure.UNKNOWN, WriteFailure.EXISTS):
            effects.append(ReadBack(name))
        return self._state.end(name, effects)

    # Topics found in the znodes

    def topics_found(self, event: TopicsFound) -> list[Effect]:
        """Serve topics and partitions that others have created."""
        state = self._state
        effects: list[Effect] = []
        for found in event.topics:
            if found.name in state.deleting or state.must_wait(found.name, TopicsFound((found,))):
                continue
            taken_up = take_up((found,), state)
            effects.extend(Report(problem, True) for problem in taken_up.problems)
            for topic in taken_up.topics:
                state.begin(topic.name)
                effects.extend(self._serve(topic, taken_up.changes))
            if taken_up.changes and not taken_up.topics:
                effects.extend(state.write(taken_up.changes, nothing))
        return effects

    def _serve(self, topic: TopicImage, changes: list[MetadataChange]) -> list[Effect]:
        state, name = self._state, topic.name

        def written(outcome: Written) -> list[Effect]:
            if outcome.failure is not None:
                return state.end(name, [Report(f"topic {name} could not be given leaders: {why(outcome)}", True)])
            state.note_versions(changes)
            return state.notify(state.delta(name, topic), notified)

        def notified(outcome: Notified) -> list[Effect]:
            if outcome.refusal is not None:
                return state.end(name, [Report(f"topic {name} cannot be served: {outcome.refusal.message}", True)])
            message = f"topic {name} was made or grown in the metadata: {len(topic.partitions)} partitions"
            return state.end(name, [Report(message)])

        if changes:
            return state.write(changes, written)
        return state.notify(state.delta(name, topic), notified)

    def configs_changed(self, event: ConfigsChanged) -> list[Effect]:
        """Update a topic's settings in the image; other brokers read them from the znodes."""
        state = self._state
        topic = state.image.topics.get(event.name)
        if topic is not None:
            state.image.apply(state.delta(event.name, topic._replace(configs=event.configs)))
        return []

    # Deletion

    def deletion_asked(self, event: DeletionAsked) -> list[Effect]:
        """Delete a topic with its logs."""
        state, name = self._state, event.name
        if state.must_wait(name, event):
            return []
        error = None
        known = state.image.topics.get(name)
        if known is None:
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif event.topic_id not in (None, known.topic_id):
            error = ErrorCode.UNKNOWN_TOPIC_ID
        elif not state.config.get_boolean("delete.topic.enable"):
            error = ErrorCode.TOPIC_DELETION_DISABLED
        if error is not None:
            return [Answer(event.token, TopicRefusal(error, error.message))]

        def marked(outcome: Written) -> list[Effect]:
            # An existing mark is as good.
            if outcome.failure not in (None, WriteFailure.EXISTS):
                return state.end(name, [Answer(event.token, outcome.refusal)])
            return self._delete(name, event.token)

        state.begin(name)
        # The mark is written first, so that an interrupted deletion is finished later.
        return state.write([MarkDeletion(name)], marked)

    def deletions_marked(self, event: DeletionsMarked) -> list[Effect]:
        """Delete the marked topics, or remove the marks if deletion is disabled (`delete.topic.enable`)."""
        state = self._state
        # A deletion without its mark has ended; the response was lost.
        ended = {name for name in state.deleting if name not in event.names and not state.has_offline(name)}
        state.deleting -= ended
        # Topics made since were passed over when they were found (`topics_found`).
        effects: list[Effect] = [ReadBack(name) for name in sorted(ended)]
        for name in event.names:
            effects.extend(self.deletion_marked(DeletionMarked(name)))
        return effects

    def deletion_marked(self, event: DeletionMarked) -> list[Effect]:
        """Finish the deletion of a marked topic."""
        state, name = self._state, event.name
        if state.must_wait(name, event):
            return []
        if name not in state.image.topics:
            if state.has_offline(name):
                return []
            state.begin(name)
            return self._remove_znodes(name, None)
        state.begin(name)
        if state.config.get_boolean("delete.topic.enable"):
            return self._delete(name, None)

        def unmarked(_: Written) -> list[Effect]:
            return state.end(name, [])

        message = f"topic {name} is marked for deletion, which delete.topic.enable forbids"
        return [Report(message, True), *state.write([UnmarkDeletion(name)], unmarked)]

    def _delete(self, name: str, token: int | None) -> list[Effect]:
        """Delete a marked topic."""
        state = self._state
        state.deleting.add(name)

        def notified(outcome: Notified) -> list[Effect]:
            if outcome.refusal is not None:
                return state.end(name, _answer(token, outcome.refusal))
            if state.has_offline(name):
                # Its partition directory would bring it back: the mark stays until the broker starts with all its log
                # directories.
                error = ErrorCode.REQUEST_TIMED_OUT
                message = f"topic {name} is deleted when the broker starts with all of its log directories"
                return state.end(name, [Report(message, True), *_answer(token, TopicRefusal(error, error.message))])
            return self._remove_znodes(name, token)

        return state.notify(state.delta(name, None), notified)

    def _remove_znodes(self, name: str, token: int | None) -> list[Effect]:
        state = self._state

        def written(outcome: Written) -> list[Effect]:
            effects = _answer(token, outcome.refusal)
            if outcome.failure is None:
                state.deleting.discard(name)
            elif outcome.failure is WriteFailure.UNKNOWN:
                effects.append(ReadBack(name))
            return state.end(name, effects)

        return state.write([DeleteTopic(name)], written)


def _answer(token: int | None, refusal: TopicRefusal | None) -> list[Effect]:
    return [Answer(token, refusal)] if token is not None else []
