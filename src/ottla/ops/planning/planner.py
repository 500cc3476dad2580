"""Makes the plan: what has to be, then what should be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ottla.ops.planning.bounds import Bounds, even_bounds
from ottla.ops.planning.evenness import MOVE_ORDERS, Evening
from ottla.ops.planning.layout import Layout
from ottla.ops.planning.leaders import LeaderEvening, reordered
from ottla.ops.planning.model import (
    Left,
    PartitionMove,
    PlanGoal,
    PlannedBroker,
    PlannedPartition,
    PlanRefusal,
    ReassignmentPlan,
)
from ottla.ops.planning.required import RequiredChanges, movable


def plan(
    brokers: Sequence[PlannedBroker], partitions: Sequence[PlannedPartition], goal: PlanGoal
) -> ReassignmentPlan | PlanRefusal:
    """Moves that bring the cluster to the goal; equal input gives equal plans.

    Always: as many replicas as before, or as asked for, each on another live broker; racks spread as far as can be,
    never worse than before; no broker filled beyond `FULLEST` of its capacity. Then bytes, replicas and leaders within
    the tolerance, as far as the goal asks for it, with few bytes moved. Partitions that cannot be changed are `left`.
    """
    known = _with_unknown(brokers, partitions)
    targets = [each for each in sorted(known) if known[each].is_alive and each not in goal.empty]
    refusal = _refused(known, targets, goal)
    if refusal is not None:
        return refusal
    ordered = sorted(partitions, key=lambda each: (each.topic, each.partition))
    layout = Layout(known, ordered, targets)
    required = RequiredChanges(layout, goal)
    required.carry_out()
    weights = _weights(known, targets) if goal.by_capacity else None
    free = movable(layout, goal.empty)
    evens = goal.even or bool(goal.add)
    if evens:
        layout = _evened(layout, goal, weights, free)
    changed = [at for at, each in enumerate(layout.replicas) if tuple(each) != layout.origins[at]]
    leader_counts, leader_loads = leader_bounds(layout, goal, weights)
    LeaderEvening(layout, leader_counts, leader_loads, reordered(layout, free if evens else changed)).run()
    return _result(layout, required.left)


def _evened(layout: Layout, goal: PlanGoal, weights: Mapping[int, float] | None, free: Sequence[int]) -> Layout:
    """The layout with bytes and replicas evened out, in the order that does it best."""
    donors = layout.targets if goal.even else [each for each in layout.targets if each not in goal.add]
    gainers = layout.targets if goal.even else sorted(goal.add)
    sizes, counts = size_bounds(layout, goal, weights), count_bounds(layout, goal, weights)
    found: list[tuple[tuple[float, int], Layout]] = []
    for order in MOVE_ORDERS:
        tried = layout.copy()
        evening = Evening(tried, sizes, counts, free, targets=gainers, donors=donors, order=order)
        evening.run()
        found.append((evening.result(), tried))
    return min(found, key=lambda each: each[0])[1]


def size_bounds(layout: Layout, goal: PlanGoal, weights: Mapping[int, float] | None) -> Bounds:
    """The bounds of each broker's part of the bytes that are on `targets`."""
    total = sum(layout.bytes_on[each] for each in layout.targets)
    return even_bounds(total, layout.targets, goal.tolerance, weights=weights, room=layout.room)


def count_bounds(layout: Layout, goal: PlanGoal, weights: Mapping[int, float] | None) -> Bounds:
    """The bounds of each broker's part of the replicas that are on `targets`."""
    total = sum(layout.count_on[each] for each in layout.targets)
    return even_bounds(total, layout.targets, goal.tolerance, weights=weights, is_whole=True)


def leader_bounds(layout: Layout, goal: PlanGoal, weights: Mapping[int, float] | None) -> tuple[Bounds, Bounds]:
    """How many partitions each broker should lead, and with what load."""
    targets = frozenset(layout.targets)
    led = [at for at, replicas in enumerate(layout.replicas) if replicas and replicas[0] in targets]
    counts = even_bounds(len(led), layout.targets, goal.tolerance, weights=weights, is_whole=True)
    loads = even_bounds(sum(map(layout.leader_load, led)), layout.targets, goal.tolerance, weights=weights)
    return counts, loads


def _with_unknown(brokers: Sequence[PlannedBroker], partitions: Sequence[PlannedPartition]) -> dict[int, PlannedBroker]:
    """The brokers by id, with those that only replica lists name: they are not there."""
    known = {each.id: each for each in brokers}
    for partition in partitions:
        for broker in partition.replicas:
            if broker not in known:
                known[broker] = PlannedBroker(broker, is_alive=False)
    return known


def _refused(known: Mapping[int, PlannedBroker], targets: Sequence[int], goal: PlanGoal) -> PlanRefusal | None:
    for broker in goal.add:
        if broker not in targets:
            why = "it would be emptied at the same time" if broker in goal.empty else "it is not registered: start it"
            return PlanRefusal(f"broker {broker} cannot be added: {why}")
    for broker in goal.empty:
        if broker not in known:
            return PlanRefusal(f"there is no broker {broker}: it is neither registered nor has it any replica")
    if not targets:
        return PlanRefusal("no live broker is left that replicas could go to: start one, or empty fewer of them")
    factor = goal.replication_factor
    if factor is not None and not 1 <= factor <= len(targets):
        return PlanRefusal(f"{factor} replicas need as many live brokers, and there are {len(targets)}: start more")
    unknown = [each for each in targets if known[each].capacity_bytes is None] if goal.by_capacity else []
    if unknown:
        return PlanRefusal(f"the capacity of broker {unknown[0]} is not known: leave shares by capacity out")
    return None


def _weights(known: Mapping[int, PlannedBroker], targets: Sequence[int]) -> dict[int, float]:
    return {each: float(known[each].capacity_bytes or 0) for each in targets}


def _result(layout: Layout, left: Mapping[int, Left]) -> ReassignmentPlan:
    moves = []
    for at, each in enumerate(layout.partitions):
        after = tuple(layout.replicas[at])
        if after != each.replicas:
            source = layout.source(at)
            assert source is not None, "only partitions that can be copied are changed"
            moves.append(PartitionMove(each.topic, each.partition, each.replicas, after, each.size_bytes, source))
    return ReassignmentPlan(
        moves=tuple(moves),
        before=layout.loads(layout.origins),
        after=layout.loads(layout.replicas),
        brokers=tuple(layout.targets),
        crowded_before=_crowded(layout, layout.origins),
        crowded_after=_crowded(layout, layout.replicas),
        left={(layout.partitions[at].topic, layout.partitions[at].partition): why for at, why in sorted(left.items())},
    )


def _crowded(layout: Layout, replicas: Sequence[Sequence[int]]) -> int:
    """Partitions that could be spread over more racks."""
    return sum(layout.pairs(at, each) > layout.fewest_pairs(len(each)) for at, each in enumerate(replicas))
