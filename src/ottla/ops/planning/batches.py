"""Divides moves into batches: some partitions at once, brokers used evenly, and none filled beyond its capacity."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ottla.ops.planning.model import PartitionMove, PlannedBroker, ReassignmentPlan

DEFAULT_AT_ONCE = 50
"""Partitions that are moved at once by default."""


class Traffic(NamedTuple):
    """Bytes that a broker sends and gets as moves are carried out."""

    sent: int = 0
    received: int = 0


def batches(
    plan: ReassignmentPlan, brokers: Sequence[PlannedBroker], at_once: int = DEFAULT_AT_ONCE
) -> list[tuple[PartitionMove, ...]]:
    """The moves in batches of at most `at_once` partitions whose records are copied; those without copies come last.

    The space of removed replicas is free only after the batch, and counts until then. A batch takes moves that go
    beyond a broker's capacity meanwhile only where no other is left.
    """
    waiting = [each for each in plan.moves if each.added]
    room = {each.id: math.inf if each.capacity_bytes is None else each.capacity_bytes for each in brokers}
    has = {broker: float(load.size_bytes) for broker, load in plan.before.items()}
    found = []
    while waiting:
        taken = _next(waiting, at_once, has, room)
        chosen = [waiting[at] for at in taken]
        waiting = [each for at, each in enumerate(waiting) if at not in taken]
        for each in chosen:
            for broker in each.added:
                has[broker] += each.size_bytes
            for broker in each.removed:
                has[broker] -= each.size_bytes
        found.append(tuple(chosen))
    others = tuple(each for each in plan.moves if not each.added)
    return [*found, others] if others else found


def _next(
    waiting: Sequence[PartitionMove], at_once: int, has: Mapping[int, float], room: Mapping[int, float]
) -> dict[int, None]:
    """Positions of the next batch's moves: an even share for each broker first, then what else fits."""
    involved = {broker for each in waiting for broker in (*each.added, each.source)}
    fair = max(1, 2 * at_once // max(1, len(involved)))
    taken: dict[int, None] = {}
    busy: Counter[int] = Counter()
    peak = dict(has)
    for most in (fair, len(waiting)):
        for at, each in enumerate(waiting):
            if len(taken) == at_once:
                return taken
            ends = (*each.added, each.source)
            if at in taken or any(busy[broker] >= most for broker in ends):
                continue
            if any(peak[broker] + each.size_bytes > room.get(broker, math.inf) for broker in each.added):
                continue
            taken[at] = None
            busy.update(ends)
            for broker in each.added:
                peak[broker] += each.size_bytes
    return taken or {0: None}


def traffic(moves: Iterable[PartitionMove]) -> dict[int, Traffic]:
    """The traffic of each broker."""
    sent: Counter[int] = Counter()
    received: Counter[int] = Counter()
    for each in moves:
        sent[each.source] += each.moved_bytes
        for broker in each.added:
            received[broker] += each.size_bytes
    return {broker: Traffic(sent[broker], received[broker]) for broker in sorted(sent.keys() | received.keys())}


def seconds_at(moves: Iterable[PartitionMove], bytes_per_second: float) -> float:
    """How long moves take at once where each broker sends and gets no more than that for them (Kafka's throttles)."""
    busiest = max((max(each) for each in traffic(moves).values()), default=0)
    return busiest / bytes_per_second
