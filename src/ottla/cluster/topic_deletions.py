"""The controller's deletions of topics. Source: Apache Kafka 3.9, `TopicDeletionManager`.

A deletion is marked in the znodes first, so that an interrupted one is finished later. Then the replicas are deleted,
here and by all other brokers, and when all of them are, the topic's znodes. A broker that is not alive, or shuts down,
or has failed to delete its replicas, delays that until its next registration.
"""

from __future__ import annotations

from collections.abc import Collection

from ottla.cluster.broker_notifier import BrokerNotifier
from ottla.cluster.controller_events import (
    Answer,
    DeleteTopic,
    DeletionAnswered,
    DeletionMarked,
    DeletionRequested,
    DeletionsMarked,
    Effect,
    MarkDeletion,
    Notified,
    ReadBack,
    Report,
    UnmarkDeletion,
    WriteFailure,
    Written,
)
from ottla.cluster.controller_state import ControllerState, Deletion
from ottla.cluster.pending_work import PendingWork
from ottla.cluster.refusal import TopicRefusal
from ottla.wire.errors import ErrorCode


class TopicDeletions:
    """Handles events that delete topics."""

    def __init__(self, state: ControllerState, pending: PendingWork, notifier: BrokerNotifier) -> None:
        self._state = state
        self._pending = pending
        self._notifier = notifier

    def deletion_requested(self, event: DeletionRequested) -> list[Effect]:
        """Delete a topic with its logs."""
        state, name = self._state, event.name
        if not state.awaits_deletion(name) and self._pending.must_wait(name, event):
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
                return self._pending.end(name, [Answer(event.token, outcome.refusal)])
            return self._delete(name, event.token)

        self._pending.begin(name)
        # The mark is written first, so that an interrupted deletion is finished later.
        return self._pending.write([MarkDeletion(name)], marked)

    def deletions_marked(self, event: DeletionsMarked) -> list[Effect]:
        """Delete the marked topics, or remove the marks if deletion is disabled (`delete.topic.enable`)."""
        state = self._state
        # A deletion without its mark has ended; the response was lost.
        ended = {name for name in state.deleting if name not in event.names and not state.has_offline(name)}
        state.deleting -= ended
        for name in ended:
            state.deletions.pop(name, None)
        # Topics made since were passed over when they were found (`topics_found`).
        effects: list[Effect] = [ReadBack(name) for name in sorted(ended)]
        for name in event.names:
            effects.extend(self.deletion_marked(DeletionMarked(name)))
        return effects

    def deletion_marked(self, event: DeletionMarked) -> list[Effect]:
        """Finish the deletion of a marked topic."""
        state, name = self._state, event.name
        if self._pending.must_wait(name, event) or name in state.deletions:
            return []
        if name not in state.image.topics:
            if state.has_offline(name):
                return []
            self._pending.begin(name)
            return self._remove_znodes(name, None)
        self._pending.begin(name)
        if state.config.get_boolean("delete.topic.enable"):
            return self._delete(name, None)

        def unmarked(_: Written) -> list[Effect]:
            return self._pending.end(name, [])

        message = f"topic {name} is marked for deletion, which delete.topic.enable forbids"
        return [Report(message, True), *self._pending.write([UnmarkDeletion(name)], unmarked)]

    def _delete(self, name: str, token: int | None) -> list[Effect]:
        """Delete a marked topic."""
        state = self._state
        state.deleting.add(name)
        deletion = state.deletions[name] = Deletion(state.image.topics[name], token, state.broker_id)

        def notified(outcome: Notified) -> list[Effect]:
            if outcome.refusal is not None:
                del state.deletions[name]
                return self._pending.end(name, _answer(token, outcome.refusal))
            if state.has_offline(name) and not deletion.remaining:
                # Its partition directory would bring it back: the mark stays until the broker starts with all its log
                # directories.
                del state.deletions[name]
                error = ErrorCode.REQUEST_TIMED_OUT
                message = f"topic {name} is deleted when the broker starts with all of its log directories"
                return self._pending.end(
                    name, [Report(message, True), *_answer(token, TopicRefusal(error, error.message))]
                )
            deletion.is_done_here = True
            return self._proceed(deletion)

        return self._notifier.notify_in_slices(name, lambda _: None, notified)

    def _proceed(self, deletion: Deletion) -> list[Effect]:
        """Remove the znodes where all replicas are deleted; put the deletion off where only dead brokers are left."""
        state, name = self._state, deletion.topic.name
        if not deletion.is_done_here or deletion.awaits_any_of(state.electable):
            return []
        if not deletion.remaining:
            del state.deletions[name]
            if name not in self._pending.busy:
                self._pending.begin(name)
            return self._remove_znodes(name, deletion.token)
        if name not in self._pending.busy:
            return []
        # The topic is gone for clients, and its name is not free.
        token, deletion.token = deletion.token, None
        brokers = ", ".join(map(str, sorted(deletion.remaining)))
        report = Report(f"the deletion of topic {name} ends when its replicas on broker {brokers} are deleted")
        return self._pending.end(name, [report, *_answer(token, None)])

    def deletion_answered(self, event: DeletionAnswered) -> list[Effect]:
        """Handle what a broker has deleted. What it could not delete waits until its next registration."""
        state = self._state
        broker = state.live.get(event.broker_id)
        if broker is None or broker.epoch != event.broker_epoch:
            return []
        effects: list[Effect] = []
        deleted: dict[str, list[int]] = {}
        for name, index in event.deleted:
            deleted.setdefault(name, []).append(index)
        failed = dict.fromkeys(name for name, _ in event.failed)
        for name in deleted | failed:
            deletion = state.deletions.get(name)
            if deletion is None:
                continue
            deletion.note(event.broker_id, deleted.get(name, []))
            if name in failed:
                deletion.failed.add(event.broker_id)
                effects.append(Report(f"broker {event.broker_id} could not delete its replicas of topic {name}", True))
            effects.extend(self._proceed(deletion))
        return effects

    def brokers_gone(self, broker_ids: Collection[int]) -> list[Effect]:
        """Put off the deletions that wait for these brokers."""
        effects: list[Effect] = []
        for deletion in list(self._state.deletions.values()):
            deletion.failed.difference_update(broker_ids)
            effects.extend(self._proceed(deletion))
        return effects

    def broker_born(self, broker_id: int) -> list[Effect]:
        """Ask a broker that has registered to delete the replicas whose deletion waits for it."""
        state = self._state
        return [
            effect
            for deletion in state.deletions.values()
            if broker_id in deletion.remaining
            for effect in self._notifier.send(broker_id, deletion.stops(broker_id))
        ]

    def _remove_znodes(self, name: str, token: int | None) -> list[Effect]:
        state = self._state

        def written(outcome: Written) -> list[Effect]:
            effects = _answer(token, outcome.refusal)
            if outcome.failure is None:
                state.deleting.discard(name)
            elif outcome.failure is WriteFailure.UNKNOWN:
                effects.append(ReadBack(name))
            return self._pending.end(name, effects)

        return self._pending.write([DeleteTopic(name)], written)


def _answer(token: int | None, refusal: TopicRefusal | None) -> list[Effect]:
    return [Answer(token, refusal)] if token is not None else []
