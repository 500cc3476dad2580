"""The controller's balancing of leaders: from time to time it has preferred replicas lead again.

A broker of which too large a share of partitions is led by others gets those back for which its replica is in sync.
While any reassignment is under way nothing is changed.

Source: Apache Kafka 3.9, `KafkaController.checkAndTriggerAutoLeaderRebalance`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

from ottla.cluster.controller_events import Effect, PartitionKey, Report, SetTimer, Written
from ottla.cluster.controller_state import ControllerState
from ottla.cluster.elections import prefer
from ottla.cluster.image import PartitionImage
from ottla.cluster.pending_work import PendingWork, nothing

LEADER_BALANCE = "leader balance"
#: Pause between the election of a controller and its first look.
FIRST_LOOK_MS = 5_000

ENABLE = "auto.leader.rebalance.enable"
PERCENTAGE = "leader.imbalance.per.broker.percentage"
INTERVAL = "leader.imbalance.check.interval.seconds"

PutInSlices: TypeAlias = Callable[
    [Iterator[tuple[PartitionKey, PartitionImage]], Callable[[Written | None], list[Effect]]], list[Effect]
]
"""Writes states of partitions, some after the others, and notifies the brokers (`PartitionChanges.put_in_slices`)."""


class LeaderBalance:
    """Looks at the leaders by a timer, which restarts with each term."""

    def __init__(self, state: ControllerState, pending: PendingWork, put_in_slices: PutInSlices) -> None:
        self._state = state
        self._pending = pending
        self._put_in_slices = put_in_slices
        self._is_on = state.config.get_boolean(ENABLE)
        self._most = state.config.get_int(PERCENTAGE) / 100
        self._interval_ms = 1000 * state.config.get_long(INTERVAL)

    def begin(self) -> list[Effect]:
        """Look for the first time soon: the broker has taken office."""
        return [SetTimer(LEADER_BALANCE, self._state.now_ms + FIRST_LOOK_MS)] if self._is_on else []

    def timer_fired(self) -> list[Effect]:
        """Look at the leaders, have preferred ones elected, and set the next timer."""
        state = self._state
        if not state.epoch or not self._is_on:
            return []
        look = self._look() if state.others and not state.moves else []
        return [*look, SetTimer(LEADER_BALANCE, state.now_ms + self._interval_ms)]

    def _look(self) -> list[Effect]:
        """Look at all topics, in several slices, then have leaders elected."""
        state = self._state
        preferred: Counter[int] = Counter()
        elsewhere: dict[int, list[PartitionKey]] = {}

        def counting() -> Iterator[tuple[int, list[Effect]]]:
            for name in tuple(state.image.topics):
                topic = state.image.topics.get(name)
                if topic is None or name in state.deleting:
                    continue
                for index, known in enumerate(topic.partitions):
                    broker = known.replicas[0]
                    preferred[broker] += 1
                    if known.isr and known.leader != broker:
                        elsewhere.setdefault(broker, []).append((name, index))
                yield len(topic.partitions), []

        def looked() -> list[Effect]:
            unbalanced, effects = self._unbalanced(preferred, elsewhere)
            if unbalanced and not state.moves:
                effects.extend(self._put_in_slices(self._elected(unbalanced), nothing))
            return effects

        return self._pending.in_slices(counting(), looked)

    def _unbalanced(
        self, preferred: Mapping[int, int], elsewhere: Mapping[int, list[PartitionKey]]
    ) -> tuple[list[PartitionKey], list[Effect]]:
        """The partitions to be led by their preferred replicas again, and what the log says of them."""
        state = self._state
        found: list[PartitionKey] = []
        reports: list[Effect] = []
        for broker, keys in sorted(elsewhere.items()):
            if len(keys) / preferred[broker] > self._most and broker in state.electable:
                reports.append(
                    Report(
                        f"{len(keys)} of {preferred[broker]} partitions that broker {broker} should lead are led by "
                        "others; it gets those back for which it is in sync"
                    )
                )
                found.extend(keys)
        return found, reports

    def _elected(self, keys: list[PartitionKey]) -> Iterator[tuple[PartitionKey, PartitionImage]]:
        """The partitions whose preferred replica can lead, with their states then."""
        state = self._state
        for key in keys:
            known = state.image.partition(*key)  # as it is after the parts before this one
            if known is None or key in state.moves or key[0] in state.deleting or key[0] in self._pending.busy:
                continue
            _, electable = state.alive(*key)
            after = prefer(known, electable)
            if not isinstance(after, str) and after is not known:
                yield key, after
