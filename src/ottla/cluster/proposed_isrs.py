"""The ISRs that leaders propose to the controller (AlterPartition, KIP-497)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain

from ottla.cluster.broker_notifier import BrokerNotifier
from ottla.cluster.controller_events import (
    Answer,
    Effect,
    IsrAccepted,
    IsrProposed,
    IsrRefused,
    IsrsProposed,
    PartitionKey,
    PutState,
    ReadBack,
    Report,
    WriteFailure,
    Written,
)
from ottla.cluster.controller_state import ControllerState
from ottla.cluster.elections import isr_refusal
from ottla.cluster.pending_work import PendingWork, why
from ottla.wire.errors import ErrorCode

#: ISRs in one write, so that it is one transaction: known to be made or not, as a whole.
ISRS_PER_WRITE = 400


class ProposedIsrs:
    """Accepts or refuses them. `isrs_changed` gives what follows from the changes of some."""

    def __init__(
        self,
        state: ControllerState,
        pending: PendingWork,
        notifier: BrokerNotifier,
        isrs_changed: Callable[[Iterable[PartitionKey]], list[Effect]],
    ) -> None:
        self._state = state
        self._pending = pending
        self._notifier = notifier
        self._isrs_changed = isrs_changed

    def isr_proposed(self, event: IsrProposed) -> list[Effect]:
        """Accept or refuse a leader's ISR. An ISR change does not bump the leader epoch."""
        return self._propose((event,), lambda results: Answer(event.token, results[0]))

    def isrs_proposed(self, event: IsrsProposed) -> list[Effect]:
        """Accept or refuse the ISRs of several partitions, all that are accepted in one write."""
        return self._propose(event.proposals, lambda results: Answer(event.token, tuple(results)))

    def _propose(
        self, proposals: Sequence[IsrProposed], answer: Callable[[list[IsrAccepted | IsrRefused]], Answer]
    ) -> list[Effect]:
        results: list[IsrAccepted | IsrRefused] = []
        changes: dict[PartitionKey, PutState] = {}
        #: Where the result of each change stands among the results.
        places: dict[PartitionKey, int] = {}
        for event in proposals:
            decided = self._decide(event)
            key = (event.topic, event.partition)
            if isinstance(decided, PutState) and key not in changes:
                places[key] = len(results)
                changes[key] = decided
            if isinstance(decided, PutState):
                # Replaced when it is written; a second proposal for the partition is not.
                decided = IsrRefused(ErrorCode.INVALID_UPDATE_VERSION)
            results.append(decided)
        # As in Kafka, UpdateMetadata goes out for unchanged ISRs, too: their offline replicas may differ.
        known = [
            (event.topic, event.partition)
            for event, result in zip(proposals, results, strict=True)
            if isinstance(result, IsrAccepted)
        ]
        if not changes:
            return [answer(results), *self._notifier.send_metadata(known)]

        def take(key: PartitionKey, result: IsrAccepted | IsrRefused) -> None:
            results[places[key]] = result

        return self._write_isrs(_batches(changes, ISRS_PER_WRITE), take, lambda: answer(results), known)

    def _write_isrs(
        self,
        batches: Sequence[Mapping[PartitionKey, PutState]],
        take: Callable[[PartitionKey, IsrAccepted | IsrRefused], None],
        answer: Callable[[], Answer],
        known: Sequence[PartitionKey],
    ) -> list[Effect]:
        """Write ISRs, each batch in one write, then answer; `known` are in force, and sent with the last one."""
        if not batches:
            return [answer()]
        state = self._state
        changes, *others = batches

        def written(outcome: Written) -> list[Effect]:
            effects: list[Effect]
            if outcome.failure is None:
                state.note_versions(changes.values())
                for key, change in changes.items():
                    take(key, IsrAccepted(change.state, change.version + 1, change.is_recovering))
                effects = self._notifier.notify(
                    state.image.delta_of_states({key: put.state for key, put in changes.items()})
                )
                effects += self._notifier.send_metadata(() if others else known)
                effects += self._isrs_changed(changes)
                further = self._write_isrs(others, take, answer, known)
                return effects + further if others else further + effects
            if _may_be_tried_again(outcome):
                for key in chain.from_iterable(batches):
                    take(key, IsrRefused(ErrorCode.NOT_CONTROLLER))
                return [answer(), *map(ReadBack, dict.fromkeys(name for name, _ in changes))]
            if len(changes) > 1:
                # One BADVERSION fails the whole transaction, and must not hold up the others.
                halves = _batches(changes, (len(changes) + 1) // 2)
                return self._write_isrs([*halves, *others], take, answer, known)
            [key] = changes
            # The znode may have this very ISR, from a write whose answer was lost: the leader asks again meanwhile.
            take(key, IsrRefused(ErrorCode.NOT_CONTROLLER))
            effects = [ReadBack(key[0]), Report(f"the ISR of {key[0]}-{key[1]} is not written: {why(outcome)}", False)]
            return self._write_isrs(others, take, answer, known) + effects

        return self._pending.write(changes.values(), written)

    def _decide(self, event: IsrProposed) -> PutState | IsrAccepted | IsrRefused:
        """The write for a proposal, or the answer if no write is needed."""
        state = self._state
        known = state.image.partition(event.topic, event.partition)
        version = state.version(event.topic, event.partition)
        key = (event.topic, event.partition)
        was_recovering = key in state.recovering
        failed = state.offline_replicas(*key) if state.offline else ()
        ineligible = state.shutting_down.union(failed)
        error = isr_refusal(event, known, version, state.live, ineligible, is_recovering=was_recovering)
        if error is not ErrorCode.NONE or known is None:
            return IsrRefused(error)
        if set(event.isr) == set(known.isr) and event.is_recovering == was_recovering:
            return IsrAccepted(known, version, was_recovering)
        return PutState(event.topic, event.partition, known._replace(isr=event.isr), version, event.is_recovering)


def _batches(changes: Mapping[PartitionKey, PutState], most: int) -> list[dict[PartitionKey, PutState]]:
    """The changes in batches of at most `most`."""
    items = list(changes.items())
    return [dict(items[start : start + most]) for start in range(0, len(items), most)]


def _may_be_tried_again(outcome: Written) -> bool:
    """Whether ZooKeeper was away, or the write was fenced: nothing else can be written now."""
    return outcome.failure is WriteFailure.UNKNOWN or (
        outcome.refusal is not None and outcome.refusal.error is ErrorCode.NOT_CONTROLLER
    )
