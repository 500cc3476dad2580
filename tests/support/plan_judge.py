"""Judges plans of reassignments: what must hold, how even brokers are, and the least that had to be moved."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

from ottla.ops.planning.bounds import Bounds
from ottla.ops.planning.layout import Layout
from ottla.ops.planning.model import (
    FULLEST,
    PlanGoal,
    PlannedBroker,
    PlannedPartition,
    ReassignmentPlan,
)
from ottla.ops.planning.planner import count_bounds, size_bounds

Replicas = dict[tuple[str, int], tuple[int, ...]]


class PlanCase(NamedTuple):
    """A cluster and what is wanted of it; `what` names the kind of goal."""

    what: str
    brokers: tuple[PlannedBroker, ...]
    partitions: tuple[PlannedPartition, ...]
    goal: PlanGoal

    @property
    def targets(self) -> list[int]:
        """Brokers that replicas may go to."""
        return [each.id for each in self.brokers if each.is_alive and each.id not in self.goal.empty]


def after(case: PlanCase, made: ReassignmentPlan) -> Replicas:
    """The replicas of all partitions when the plan is carried out."""
    found = {(each.topic, each.partition): each.replicas for each in case.partitions}
    for move in made.moves:
        assert found[move.topic, move.partition] == move.before
        found[move.topic, move.partition] = move.after
    return found


def broken(case: PlanCase, made: ReassignmentPlan) -> list[str]:
    """Which hard goals the plan breaks; nothing if none."""
    replicas, targets = after(case, made), frozenset(case.targets)
    layout = Layout({each.id: each for each in case.brokers}, case.partitions, targets)
    wrong = []
    for at, each in enumerate(case.partitions):
        now, name = replicas[each.topic, each.partition], f"{each.topic}-{each.partition}"
        is_left = (each.topic, each.partition) in made.left
        if len(set(now)) != len(now):
            wrong.append(f"{name} has two replicas on one broker: {now}")
        if len(now) != _factor(case.goal, each) and not is_left:
            wrong.append(f"{name} has {len(now)} replicas")
        if not set(now) - set(each.replicas) <= targets:
            wrong.append(f"{name} goes to a broker that is dead or emptied: {now}")
        if now != each.replicas:
            wrong += [f"{name} {why}" for why in _broken_by_change(case, made, layout, at, now)]
        if not each.may_move and now != each.replicas:
            wrong.append(f"{name} was not to be moved")
        if set(now) & set(case.goal.empty) and each.may_move and not is_left:
            wrong.append(f"{name} stays on a broker that is to be empty: {now}")
        if (
            case.goal.fix_racks
            and not is_left
            and each.may_move
            and layout.pairs(at, now) > layout.fewest_pairs(len(now))
        ):
            wrong.append(f"{name} could be spread over more racks: {now}")
    return wrong + _overfull(case, made)


def _broken_by_change(
    case: PlanCase, made: ReassignmentPlan, layout: Layout, at: int, now: tuple[int, ...]
) -> list[str]:
    each = case.partitions[at]
    with_room = [
        broker
        for broker in case.targets
        if broker in now or made.after[broker].size_bytes + each.size_bytes <= layout.room[broker]
    ]
    possible = Layout(layout.brokers, (), with_room)
    wrong = []
    if not all(layout.is_alive(broker) for broker in now):
        wrong.append(f"waits for a dead broker: {now}")
    if layout.pairs(at, now) > max(layout.pairs(at, each.replicas), possible.fewest_pairs(len(now))):
        wrong.append(f"is spread over fewer racks: {each.replicas} to {now}")
    if each.is_moving:
        wrong.append("is moved while it moves")
    return wrong


def _factor(goal: PlanGoal, each: PlannedPartition) -> int:
    is_asked = goal.replication_factor is not None and each.may_move
    return goal.replication_factor if is_asked and goal.replication_factor else len(each.replicas)


def _overfull(case: PlanCase, made: ReassignmentPlan) -> list[str]:
    return [
        f"broker {each.id} is filled beyond its capacity"
        for each in case.brokers
        if each.capacity_bytes is not None
        and made.after[each.id].size_bytes > max(each.capacity_bytes * FULLEST, made.before[each.id].size_bytes)
    ]


class Evenness(NamedTuple):
    """The largest distance of a live broker from its even share, as a part of it: 0.1 is a tenth."""

    sizes: float
    replicas: float
    leaders: float
    leader_load: float


def evenness(case: PlanCase, loads: Mapping[int, tuple[float, ...]]) -> Evenness:
    """How even the brokers that stay are."""
    found = []
    for column in range(4):
        values = [loads[broker][column] for broker in case.targets]
        mean = sum(values) / len(values)
        found.append(max(abs(value - mean) for value in values) / mean if mean else 0.0)
    return Evenness(*found)


# The least that has to be moved


class LeastMoves(NamedTuple):
    """Bytes that any plan has to copy: for what is required, and for brokers as even as the plan made them."""

    required: int
    evenness: int


def least_bytes(case: PlanCase, made: ReassignmentPlan) -> LeastMoves:
    """A bound that no plan with this evenness can go below.

    Required: each replica on a broker that is emptied is copied once, unless fewer replicas are wanted; each that a
    higher replication factor adds is copied once. Beyond that, let L be a broker's bytes without the replicas that
    leave it, and [low, high] its bounds, widened to what the plan reached, so that a plan is compared with those that
    are as even. All that is copied arrives somewhere. It is at least sum(low - L) over the brokers that lack, and at
    least what is required and has to arrive, plus sum(L - high) over those that have too much and have to give. The
    same holds for numbers of replicas: as many arrivals take at least the bytes of the smallest replicas.
    """
    replicas = after(case, made)
    remaining: Counter[int] = Counter()
    remaining_count: Counter[int] = Counter()
    required, required_count = 0, 0
    layout = Layout({each.id: each for each in case.brokers}, case.partitions, case.targets)
    for each in case.partitions:
        new = _least_new(case, each, replicas[each.topic, each.partition])
        required += new * each.size_bytes
        required_count += new
        for broker in each.replicas:
            if broker in layout.targets:
                remaining[broker] += each.size_bytes
                remaining_count[broker] += 1
    if not (case.goal.even or case.goal.add) or case.goal.replication_factor is not None:
        return LeastMoves(required, required)
    finished = Layout(
        {each.id: each for each in case.brokers},
        [each._replace(replicas=replicas[each.topic, each.partition]) for each in case.partitions],
        case.targets,
    )
    arriving = [0.0, 0.0]
    for column, (bounds, has, reached, needed) in enumerate(
        (
            (size_bounds(finished, case.goal, None), remaining, finished.bytes_on, required),
            (count_bounds(finished, case.goal, None), remaining_count, finished.count_on, required_count),
        )
    ):
        limits = {each: _widened(bounds, each, reached[each]) for each in case.targets}
        lacking = sum(max(0.0, low - has[each]) for each, (low, _) in limits.items())
        giving = sum(max(0.0, has[each] - high) for each, (_, high) in limits.items())
        arriving[column] = max(lacking, needed + giving)
    smallest = sorted(each.size_bytes for each in case.partitions for _ in each.replicas)
    return LeastMoves(required, max(required, round(arriving[0]), sum(smallest[: round(arriving[1])])))


def _widened(bounds: Bounds, broker: int, reached: float) -> tuple[float, float]:
    """The bounds of a broker, with what it has in the end."""
    return min(bounds.low[broker], reached), max(bounds.high[broker], reached)


def _least_new(case: PlanCase, each: PlannedPartition, now: tuple[int, ...]) -> int:
    """Replicas that have to be made of a partition: where it changes, those on dead brokers are given up, too."""
    if now == each.replicas:
        return 0
    if case.goal.fix_racks:
        return _least_exchanges(case, each)
    staying = [broker for broker in each.replicas if broker in case.targets]
    factor = _factor(case.goal, each)
    is_needed = set(each.replicas) & set(case.goal.empty) or factor != len(each.replicas)
    return max(0, factor - len(staying)) if is_needed else 0


def _least_exchanges(case: PlanCase, each: PlannedPartition) -> int:
    """Replicas that have to leave crowded racks. The best spread is dealt to the racks with most replicas first."""
    racks = {broker.id: broker.rack for broker in case.brokers}
    alive = [broker for broker in each.replicas if broker in case.targets]
    has = Counter(racks[broker] for broker in alive)
    room = Counter(racks[broker] for broker in case.targets)
    best: Counter[str | None] = Counter()
    while best.total() < len(each.replicas):
        level = min(best[rack] for rack in room if best[rack] < room[rack])
        open_ones = [rack for rack in room if best[rack] == level and level < room[rack]]
        best[max(open_ones, key=lambda rack: has[rack])] += 1
    dead = len(each.replicas) - len(alive)
    return dead + sum(max(0, has[rack] - best[rack]) for rack in has)


def fewest_bytes(case: PlanCase, made: ReassignmentPlan) -> int:
    """The exact minimum, by trying every placement of every partition: for a handful of them without dead brokers.

    Of all placements that keep the hard goals and have each broker within its bounds, or as near as the plan has it.
    """
    layout = Layout({each.id: each for each in case.brokers}, case.partitions, case.targets)
    finished = Layout(
        layout.brokers,
        [each._replace(replicas=after(case, made)[each.topic, each.partition]) for each in case.partitions],
        case.targets,
    )
    sizes, counts = size_bounds(finished, case.goal, None), count_bounds(finished, case.goal, None)

    limits = [
        (each, *_widened(sizes, each, finished.bytes_on[each]), *_widened(counts, each, finished.count_on[each]))
        for each in case.targets
    ]

    def is_even() -> bool:
        return all(a <= has[each] <= b and c <= numbers[each] <= d for each, a, b, c, d in limits)

    choices = [_choices(case, layout, at) for at in range(len(case.partitions))]
    best = made.moved_bytes
    has, numbers = dict.fromkeys(case.targets, 0), dict.fromkeys(case.targets, 0)

    def place(at: int, moved: int) -> None:
        nonlocal best
        if moved >= best:
            return
        if at == len(choices):
            if is_even():
                best = moved
            return
        size = case.partitions[at].size_bytes
        for cost, brokers in choices[at]:
            for broker in brokers:
                has[broker] += size
                numbers[broker] += 1
            place(at + 1, moved + cost)
            for broker in brokers:
                has[broker] -= size
                numbers[broker] -= 1

    place(0, 0)
    return best


def _choices(case: PlanCase, layout: Layout, at: int) -> list[tuple[int, tuple[int, ...]]]:
    """Each placement of a partition with the bytes that it copies, the cheapest first."""
    each = case.partitions[at]
    factor = _factor(case.goal, each)
    most = max(layout.pairs(at, each.replicas), layout.fewest_pairs(factor))
    if case.goal.fix_racks:
        most = layout.fewest_pairs(factor)
    return sorted(
        (each.size_bytes * len(set(brokers) - set(each.replicas)), brokers)
        for brokers in combinations(case.targets, factor)
        if layout.pairs(at, brokers) <= most
    )


# Random clusters

KINDS = ("even", "add", "empty", "replace", "factor up", "factor down", "racks", "dead and empty", "dead and even")


def random_case(seed: int, *, is_small: bool = False) -> PlanCase:
    """A cluster by seed: sizes skewed, racks, dead brokers, some just added or to be emptied, uneven placement."""
    chance = random.Random(seed)
    kind = KINDS[seed % len(KINDS)]
    if is_small:
        kind = chance.choice(("even", "add", "empty"))
    count = chance.randint(3, 4) if is_small else chance.randint(4, 30)
    racks = chance.choice((0, 0, 2)) if is_small else chance.choice((0, 2, 3, 3, 5))
    if kind == "racks":
        racks = max(racks, 2)
    ids = sorted(chance.sample(range(1, 200), count))
    dead = set(chance.sample(ids, 1)) if kind.startswith("dead") else set[int]()
    alive = [each for each in ids if each not in dead]
    added = tuple(chance.sample(alive, max(1, len(alive) // 6))) if kind in ("add", "replace") else ()
    others = [each for each in alive if each not in added]
    emptied = tuple(dead) if kind == "dead and empty" else ()
    if kind in ("empty", "replace"):
        emptied = tuple(chance.sample(others, max(1, len(added)) if kind == "replace" else max(1, len(others) // 8)))
    brokers = tuple(
        PlannedBroker(each, f"rack{at % racks}" if racks else None, None, each not in dead)
        for at, each in enumerate(ids)
    )
    holders = [each for each in ids if each not in added]
    partitions = _random_partitions(chance, holders, len(alive) - len(emptied), is_small)
    partitions = [
        each._replace(
            isr=tuple(broker for broker in each.replicas if broker not in dead),
            leader=next((broker for broker in each.replicas if broker not in dead), -1),
        )
        for each in partitions
    ]
    factor = {"factor up": 3, "factor down": 2}.get(kind)
    if factor is not None:
        factor = min(factor, len(alive))
    goal = PlanGoal(
        even=kind in ("even", "dead and even"),
        add=added,
        empty=emptied,
        replication_factor=factor,
        fix_racks=kind == "racks",
    )
    return PlanCase(kind, brokers, tuple(partitions), goal)


def _random_partitions(
    chance: random.Random, holders: Sequence[int], most_replicas: int, is_small: bool
) -> list[PlannedPartition]:
    """Topics whose partitions differ in size by orders of magnitude, on brokers that are not equally popular."""
    found: list[PlannedPartition] = []
    skew = chance.choice((0.0, 0.5, 1.0, 1.5))
    popularity = {each: chance.uniform(0.2, 1.0) for each in holders}
    wanted = chance.randint(4, 6) if is_small else chance.randint(5, 60) * len(holders)
    topic = 0
    while len(found) < wanted:
        factor = min(chance.choice((1, 2) if is_small else (1, 2, 3, 3, 3)), len(holders), most_replicas)
        typical = 10 ** chance.uniform(3, 9)
        for partition in range(min(wanted - len(found), chance.choice((1, 6, 12, 50)))):
            order = sorted(holders, key=lambda each: chance.random() ** (1 / popularity[each]), reverse=True)
            size = int(typical * chance.lognormvariate(0, skew))
            found.append(PlannedPartition(f"topic{topic}", partition, tuple(order[:factor]), size))
        topic += 1
    return found
