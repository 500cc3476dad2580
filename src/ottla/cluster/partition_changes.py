"""The controller's partition changes: failover, preferred leaders, ISRs, failed log directories."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.cluster.controller_events import (
    Answer,
    BrokersChanged,
    Effect,
    ElectionAsked,
    IsrAccepted,
    IsrProposed,
    IsrRefused,
    MetadataChange,
    PartitionKey,
    PutState,
    ReassignmentAsked,
    ReplicasOffline,
    SetTimer,
    TimerFired,
    Unapplied,
    WriteFailure,
    Written,
)
from ottla.cluster.controller_state import ControllerState
from ottla.cluster.elections import elect, isr_refusal, prefer
from ottla.cluster.image import NO_LEADER, ImageDelta, PartitionImage, TopicImage, offline_delta
from ottla.wire.errors import ErrorCode

#: Retry interval of elections whose write failed.
RETRY_MS = 1_000
ELECTIONS = "elections"


class PartitionChanges:
    """Decides on the leaders and ISRs of partitions."""

    def __init__(self, state: ControllerState) -> None:
        self._state = state

    def brokers_changed(self, event: BrokersChanged) -> list[Effect]:
        """Handle a change of the live brokers."""
        state = self._state
        state.live = event.brokers
        brokers = {broker_id: broker.image for broker_id, broker in event.brokers.items()}
        return state.notify(ImageDelta(brokers=brokers)) + self.elect_leaders()

    def timer_fired(self, event: TimerFired) -> list[Effect]:
        """Retry failed elections."""
        return self.elect_leaders() if event.name == ELECTIONS else []

    def elect_leaders(self) -> list[Effect]:
        """Elect leaders for partitions without a live one."""
        state = self._state
        changed = []
        is_put_off = False
        for topic in state.image.topics.values():
            led = self.with_live_leaders(topic)
            if led is not topic:
                if topic.name in state.busy:
                    is_put_off = True
                else:
                    changed.append(led)
        again: list[Effect] = [SetTimer(ELECTIONS, state.now_ms + RETRY_MS)] if is_put_off else []
        return again + self._put(changed) if changed else again

    def _put(self, topics: Iterable[TopicImage]) -> list[Effect]:
        """Write the changed states of these topics, then notify the brokers."""
        state = self._state
        delta = ImageDelta(tuple(state.image.delta_of(topic.name, topic) for topic in topics))
        changes = [change for before, after in delta.topics if before and after for change in self._puts(before, after)]

        def written(outcome: Written) -> list[Effect]:
            if outcome.failure is not None:
                return [SetTimer(ELECTIONS, state.now_ms + RETRY_MS)]
            state.note_versions(changes)
            return state.notify(delta)

        return state.write(changes, written) if changes else state.notify(delta)

    def _puts(self, before: TopicImage, after: TopicImage) -> list[MetadataChange]:
        return [
            PutState(after.name, index, new, self._state.version(after.name, index))
            for index, (old, new) in enumerate(zip(before.partitions, after.partitions, strict=True))
            if new is not old and new.leader != NO_LEADER
        ]

    def with_live_leaders(self, topic: TopicImage) -> TopicImage:
        """The topic with live leaders where one can be elected; the same object if nothing changes."""
        state = self._state
        states = [
            old if state.offline_replicas(topic.name, index) else elect(old, state.live)
            for index, old in enumerate(topic.partitions)
        ]
        same = all(new is old for new, old in zip(states, topic.partitions, strict=True))
        return topic if same else topic._replace(partitions=tuple(states))

    def replicas_offline(self, event: ReplicasOffline) -> list[Effect]:
        """Handle the failure of a log directory.

        Nothing is written: the metadata may be on that very disk, and at the next start the broker leads as before.
        """
        state = self._state
        offline = state.offline.setdefault(event.broker_id, set())
        offline.update(event.partitions)
        delta = offline_delta(state.image, event.broker_id, event.partitions)
        return state.notify(delta) if delta.topics else []

    # Requests

    def election_asked(self, event: ElectionAsked) -> list[Effect]:
        """Elect preferred replicas."""
        state = self._state
        reasons: dict[PartitionKey, str] = {}
        after: dict[str, TopicImage] = {}
        for name, index in event.partitions:
            known = self._known(name, index)
            if known is None:
                reasons[name, index] = "it is not there"
                continue
            preferred = prefer(known, state.live)
            if isinstance(preferred, str):
                reasons[name, index] = preferred
                continue
            if preferred is known:
                continue
            topic = after.get(name, state.image.topics[name])
            after[name] = topic._replace(partitions=_replaced(topic.partitions, index, preferred))
        answer = Answer(event.token, Unapplied(reasons))
        return [*(self._put(after.values()) if after else ()), answer]

    def reassignment_asked(self, event: ReassignmentAsked) -> list[Effect]:
        """Refuse every reassignment that would need replication."""
        reasons: dict[PartitionKey, str] = {}
        for (name, index), replicas in event.wanted.items():
            known = self._known(name, index)
            if known is None:
                reasons[name, index] = "it is not there"
            elif replicas != known.replicas:
                brokers = ", ".join(map(str, replicas)) or "(none)"
                reasons[name, index] = f"partitions cannot move to other brokers ({brokers}) yet"
        return [Answer(event.token, Unapplied(reasons))]

    def isr_proposed(self, event: IsrProposed) -> list[Effect]:
        """Accept or refuse a leader's ISR. An ISR change does not bump the leader epoch."""
        state = self._state
        known = self._known(event.topic, event.partition)
        version = state.version(event.topic, event.partition)
        error = isr_refusal(event, known, version, state.live)
        if error is not ErrorCode.NONE or known is None:
            return [Answer(event.token, IsrRefused(error))]
        if set(event.isr) == set(known.isr):
            return [Answer(event.token, IsrAccepted(known, version))]
        after = known._replace(isr=event.isr)
        change = PutState(event.topic, event.partition, after, version)

        def written(outcome: Written) -> list[Effect]:
            if outcome.failure is not None:
                is_unknown = outcome.failure is WriteFailure.UNKNOWN
                refused = ErrorCode.NOT_CONTROLLER if is_unknown else ErrorCode.INVALID_UPDATE_VERSION
                return [Answer(event.token, IsrRefused(refused))]
            state.note_versions([change])
            topic = state.image.topics[event.topic]
            states = _replaced(topic.partitions, event.partition, after)
            notifications = state.notify(state.delta(event.topic, topic._replace(partitions=states)))
            return [Answer(event.token, IsrAccepted(after, version + 1)), *notifications]

        return state.write([change], written)

    def _known(self, name: str, index: int) -> PartitionImage | None:
        topic = self._state.image.topics.get(name)
        return topic.partitions[index] if topic is not None and 0 <= index < len(topic.partitions) else None


def _replaced(states: tuple[PartitionImage, ...], index: int, state: PartitionImage) -> tuple[PartitionImage, ...]:
    return (*states[:index], state, *states[index + 1 :])
