"""The controller's partition changes: failover, leaders, ISRs, controlled shutdown, failed log directories."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import TypeAlias

from ottla.cluster.broker_notifier import BrokerNotifier
from ottla.cluster.controller_events import (
    Answer,
    BrokersChanged,
    Effect,
    ElectionRequested,
    ElectionResult,
    LeaderAndIsrAnswered,
    LiveBroker,
    LogDirsFailed,
    PartitionKey,
    ReadAll,
    ReadBack,
    ReplicasOffline,
    Report,
    SetChannels,
    SetTimer,
    ShutdownProgress,
    ShutdownRequested,
    StateLost,
    TimerFired,
    Written,
)
from ottla.cluster.controller_state import ControllerState
from ottla.cluster.elections import elect, hand_over, prefer
from ottla.cluster.image import ImageDelta, PartitionImage, offline_delta
from ottla.cluster.leader_balance import LEADER_BALANCE, LeaderBalance
from ottla.cluster.pending_work import MOST_LOOKED_AT, PendingWork, nothing
from ottla.cluster.reassignments import REASSIGNMENTS, Reassignments
from ottla.cluster.refusal import TopicRefusal
from ottla.cluster.topic_deletions import TopicDeletions
from ottla.wire.errors import ErrorCode

#: Partitions whose states are changed in one write and one notice, which bounds the time on the loop.
MOST_AT_ONCE = 500
#: Retry interval of elections whose write failed.
RETRY_MS = 1_000
ELECTIONS = "elections"
#: Timer after which all metadata is read again, since it could not be put in order.
TAKING_OFFICE = "taking office"

ChangedState: TypeAlias = tuple[PartitionKey, PartitionImage]
"""A partition, and the state that it is to have."""


class PartitionChanges:
    """Decides on the leaders and ISRs of partitions."""

    def __init__(
        self, state: ControllerState, pending: PendingWork, notifier: BrokerNotifier, deletions: TopicDeletions
    ) -> None:
        self._state = state
        self._pending = pending
        self._notifier = notifier
        self._deletions = deletions
        #: All that are registered: more than the live ones while the deaths of former registrations are not written.
        self.registered: Mapping[int, LiveBroker] = {}
        self.reassignments = Reassignments(state, pending, self.put)
        self.balance = LeaderBalance(state, pending, self.put_in_slices)
        #: Whether elections of topics with a change under way were put off.
        self._is_put_off = False

    def brokers_changed(self, event: BrokersChanged) -> list[Effect]:
        """Handle a change of the live brokers: deaths first, then births.

        A registration with another epoch is both: what the broker acknowledged before an unclean stop it may lack now.
        """
        state = self._state
        before, registered = state.live, event.brokers
        # Whether deaths before this event are not written yet.
        is_pending = self.registered.keys() != before.keys()
        self.registered = registered
        survivors = {
            broker_id: broker
            for broker_id, broker in registered.items()
            if broker_id == state.broker_id or (broker_id in before and before[broker_id].epoch == broker.epoch)
        }
        gone = before.keys() - survivors.keys()
        state.live = survivors
        state.shutting_down -= gone
        state.informed -= gone
        for broker_id in gone:
            state.offline.pop(broker_id, None)
        effects: list[Effect] = [SetChannels(survivors)] if gone else []
        if registered.keys() == survivors.keys():
            effects += self._notifier.notify(_brokers(state))

        def proceed() -> list[Effect]:
            left = self._deletions.brokers_gone(gone) if gone else []
            if gone or is_pending:
                return left + self.elect_leaders(self._deaths_written)
            is_born = registered.keys() != survivors.keys()
            return left + (self._born() if is_born else self.elect_leaders())

        return effects + self._notifier.refresh(gone, proceed)

    def _deaths_written(self, outcome: Written | None = None) -> list[Effect]:
        """Continue with the new registrations once the deaths are written, so that no broker follows an old leader."""
        if outcome is not None and outcome.failure is not None:
            return []  # repeated by the timer
        return self._born() if self.registered.keys() != self._state.live.keys() else []

    def _born(self) -> list[Effect]:
        """Inform the new brokers, in Kafka's order, then elect leaders for the partitions that waited for them."""
        state, registered = self._state, self.registered
        born = [broker_id for broker_id in registered if broker_id not in state.live]
        state.live = registered

        def informed() -> list[Effect]:
            effects = [effect for broker_id in born for effect in self._deletions.broker_born(broker_id)]
            return effects + self.elect_leaders(lambda _: self.reassignments.resume(born))

        effects: list[Effect] = [SetChannels(registered), *self._notifier.notify(_brokers(state))]
        return effects + self._notifier.refresh(born, lambda: self._notifier.inform(born, informed))

    def timer_fired(self, event: TimerFired) -> list[Effect]:
        """Retry failed elections and reassignments, balance leaders."""
        if event.name == ELECTIONS:
            return self.elect_leaders(self._deaths_written)
        if event.name == REASSIGNMENTS:
            return self.reassignments.timer_fired()
        if event.name == LEADER_BALANCE:
            return self.balance.timer_fired()
        return [ReadAll()] if event.name == TAKING_OFFICE else []

    def elect_leaders(self, then: Callable[[Written | None], list[Effect]] = nothing) -> list[Effect]:
        """Elect leaders for partitions without a live one, and remove dead replicas from ISRs; `then` follows."""
        return self.put_in_slices(self._unsettled(), then)

    def _unsettled(self) -> Iterator[ChangedState | None]:
        """The partitions that need another leader or ISR, with their states then; sets a timer for those put off.

        None stands for as many partitions as are looked at in one slice.
        """
        state = self._state
        live, is_simple = frozenset(state.live), not state.offline
        looked_at = 0
        for name in tuple(state.image.topics):
            topic = state.image.topics.get(name)
            for index, old in enumerate(topic.partitions if topic is not None else ()):
                if is_simple and old.leader in live and live.issuperset(old.isr):
                    continue
                if old.offline and not state.others:
                    continue  # its log directory has failed, and it leads again at the next start
                known = state.image.partition(name, index)  # as it is after the parts before this one
                if topic is None or known is None:
                    continue
                new = state.settled(name, topic.configs, index, known)
                if new is known:
                    continue
                if name in self._pending.busy:
                    self._is_put_off = True
                else:
                    yield (name, index), new
            looked_at += len(topic.partitions) if topic is not None else 0
            if looked_at >= MOST_LOOKED_AT:
                looked_at = 0
                yield None

    def put_in_slices(
        self,
        found: Iterator[ChangedState | None],
        then: Callable[[Written | None], list[Effect]],
        begun: dict[PartitionKey, PartitionImage] | None = None,
    ) -> list[Effect]:
        """Write these states and notify the brokers, some of them after the others, so that other work gets its slices.

        A None that is found ends a slice; `begun` was found in the slices before. `then` follows with the
        outcome of the last write, or of the first that has failed; None: there was nothing.
        """
        changed = begun if begun is not None else {}
        for each in islice(found, MOST_AT_ONCE - len(changed)):
            if each is None:
                return self._pending.later(lambda: self.put_in_slices(found, then, changed))
            changed[each[0]] = each[1]

        def proceed(outcome: Written) -> list[Effect]:
            if outcome.failure is not None or len(changed) < MOST_AT_ONCE:
                return then(outcome)
            return self.put_in_slices(found, then)

        effects: list[Effect] = []
        if self._is_put_off:
            self._is_put_off = False
            effects.append(SetTimer(ELECTIONS, self._state.now_ms + RETRY_MS))
        return effects + (self.put(changed, proceed) if changed else then(None))

    def put(
        self, changed: Mapping[PartitionKey, PartitionImage], then: Callable[[Written], list[Effect]] = nothing
    ) -> list[Effect]:
        """Write these states, then notify the brokers; `then` follows in any case."""
        state = self._state
        before = {key: state.image.topics[key[0]].partitions[key[1]] for key in changed}
        changes = [
            state.put(key, before[key], after, state.version(*key)) for key, after in changed.items() if after.isr
        ]
        effects: list[Effect] = []
        for key, after in changed.items():
            message = state.unclean_election(key, before[key], after)
            if message is not None:
                effects.append(Report(message, True))

        def written(outcome: Written) -> list[Effect]:
            if outcome.failure is not None:
                names = sorted({name for name, _ in changed})
                reads: list[Effect] = [ReadBack(name) for name in names]
                return [*reads, SetTimer(ELECTIONS, state.now_ms + RETRY_MS), *then(outcome)]
            state.note_versions(changes)
            notified = self._notifier.notify(state.image.delta_of_states(changed))
            # An election may leave in sync just the replicas to which a partition moves.
            return notified + self.reassignments.isrs_changed(changed) + then(outcome)

        if not changes:
            return effects + self._notifier.notify(state.image.delta_of_states(changed)) + then(Written(0))
        return effects + self._pending.write(changes, written)

    # Log directories

    def replicas_offline(self, event: ReplicasOffline) -> list[Effect]:
        """Handle the failure of a log directory of this broker or, as its responses say, of another one.

        If no other broker is alive nothing is written: the metadata may be on that very disk, and at the next start the
        broker leads as before.
        """
        state = self._state
        offline = state.offline.setdefault(event.broker_id, set())
        offline.update(event.partitions)
        if not state.epoch:
            return []
        if state.others:
            return self._notifier.stop_followers(event.broker_id, set(event.partitions)) + self.elect_leaders()
        delta = offline_delta(state.image, event.broker_id, event.partitions)
        return self._notifier.notify(delta) if delta.topics else []

    def log_dirs_failed(self, event: LogDirsFailed) -> list[Effect]:
        """Send the brokers the state of all their replicas: their responses say which ones are offline."""
        state = self._state
        return self._notifier.inform(
            [broker_id for broker_id in dict.fromkeys(event.broker_ids) if broker_id in state.informed]
        )

    def state_lost(self, event: StateLost) -> list[Effect]:
        """Send a broker everything again."""
        state, broker_id = self._state, event.broker_id
        broker = state.live.get(broker_id)
        if broker is None or broker.epoch != event.broker_epoch or broker_id not in state.informed:
            return []
        return self._notifier.inform([broker_id], lambda: self._deletions.broker_born(broker_id))

    def leader_and_isr_answered(self, event: LeaderAndIsrAnswered) -> list[Effect]:
        """Handle what a broker answered about its replicas."""
        state = self._state
        broker = state.live.get(event.broker_id)
        if broker is None or broker.epoch != event.broker_epoch:
            return []
        known = state.offline.get(event.broker_id, set())
        back = [] if known.isdisjoint(event.online) else self._notifier.notify(ImageDelta())
        known.difference_update(event.online)
        if event.broker_id in state.unanswered:
            state.unanswered[event.broker_id].discard_all(event.online)
        new = [key for key in event.offline if key not in known]
        if not new:
            return back
        message = f"broker {event.broker_id} has {len(new)} replicas offline, among them {new[0][0]}-{new[0][1]}"
        return [*back, Report(message, True), *self.replicas_offline(ReplicasOffline(event.broker_id, new))]

    # Controlled shutdown

    def shutdown_requested(self, event: ShutdownRequested) -> list[Effect]:
        """Move the leaders of a broker that shuts down to other replicas in sync, and take it out of the ISRs."""
        state, broker_id = self._state, event.broker_id
        broker = state.live.get(broker_id)
        if broker is None:
            error = ErrorCode.BROKER_NOT_AVAILABLE
            return [Answer(event.token, TopicRefusal(error, f"Broker id {broker_id} does not exist."))]
        if -1 < event.broker_epoch < broker.epoch:
            error = ErrorCode.STALE_BROKER_EPOCH
            return [Answer(event.token, TopicRefusal(error, error.message))]
        state.shutting_down.add(broker_id)

        def progress(_: Written | None = None) -> list[Effect]:
            remaining = tuple(
                (topic.name, index)
                for topic in state.image.topics.values()
                for index, known in enumerate(topic.partitions)
                if known.leader == broker_id and len(known.replicas) > 1
            )
            return [Answer(event.token, ShutdownProgress(remaining))]

        effects: list[Effect] = [Report(f"broker {broker_id} shuts down"), *self._notifier.stop_followers(broker_id)]
        return effects + self.put_in_slices(self._handed_over(broker_id), progress)

    def _handed_over(self, broker_id: int) -> Iterator[tuple[PartitionKey, PartitionImage]]:
        """The partitions that continue without a broker that shuts down, with their states then."""
        state = self._state
        for name in tuple(state.image.topics):
            topic = state.image.topics.get(name)
            for index, old in enumerate(topic.partitions if topic is not None else ()):
                if len(old.replicas) > 1 and broker_id in old.isr:
                    _, electable = state.alive(name, index)
                    known = state.image.partition(name, index)
                    new = hand_over(known, state.shutting_down, electable) if known is not None else None
                    if new is not None and new is not known:
                        yield (name, index), new

    # Requests

    def election_requested(self, event: ElectionRequested) -> list[Effect]:
        """Elect preferred replicas, or any live ones where the leader is not alive."""
        state = self._state
        keys = event.partitions
        if keys is None:
            keys = [
                (name, index) for name, topic in state.image.topics.items() for index in range(len(topic.partitions))
            ]
        refusals: dict[PartitionKey, TopicRefusal] = {}
        changed: dict[PartitionKey, PartitionImage] = {}
        for key in keys:
            elected = self._elected(key, is_unclean=event.is_unclean)
            if isinstance(elected, TopicRefusal):
                refusals[key] = elected
            else:
                changed[key] = elected

        def answer(outcome: Written | None = None) -> list[Effect]:
            if outcome is not None and outcome.refusal is not None:
                refusals.update(dict.fromkeys(changed, outcome.refusal))
            return [Answer(event.token, ElectionResult(refusals))]

        return self.put(changed, answer) if changed else answer()

    def _elected(self, key: PartitionKey, *, is_unclean: bool) -> PartitionImage | TopicRefusal:
        state = self._state
        known = self._state.image.partition(*key)
        if known is None:
            return TopicRefusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
        alive, electable = state.alive(*key)
        if is_unclean:
            if known.leader in state.live:
                return TopicRefusal(ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.ELECTION_NOT_NEEDED.message)
            elected = elect(known, alive, electable, unclean=True) or self._elect_with_empty_log(key, known)
            if elected is None:
                return TopicRefusal(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "no replica is alive")
            return elected
        preferred = prefer(known, electable)
        if isinstance(preferred, str):
            return TopicRefusal(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, preferred)
        if preferred is known:
            return TopicRefusal(ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.ELECTION_NOT_NEEDED.message)
        return preferred

    def _elect_with_empty_log(self, key: PartitionKey, known: PartitionImage) -> PartitionImage | None:
        """Elect the first live broker, with an empty log, if all live ones lost theirs; None: none is alive.

        Only an unclean election that was asked for does this. A broker whose log directory has failed refuses again.
        """
        state = self._state
        elected = elect(known._replace(isr=()), state.live, state.electable, unclean=True)
        if elected is not None:
            for keys in state.offline.values():
                keys.discard(key)
            state.unannounced.add(key)
        return elected


def _brokers(state: ControllerState) -> ImageDelta:
    return ImageDelta(brokers={broker_id: broker.image for broker_id, broker in state.live.items()})
