"""Whatever the cluster and the goal: a plan keeps the hard goals, is the same each time, and ends when carried out."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.ops.planning.batches import batches
from ottla.ops.planning.model import PlanGoal, PlannedBroker, PlannedPartition, PlanRefusal, ReassignmentPlan
from ottla.ops.planning.planner import plan
from support.plan_judge import KINDS, PlanCase, after, broken, evenness, fewest_bytes, least_bytes, random_case

pytestmark = [pytest.mark.spec("R1"), pytest.mark.slow]


def made_for(cluster: PlanCase) -> ReassignmentPlan:
    made = plan(cluster.brokers, cluster.partitions, cluster.goal)
    assert isinstance(made, ReassignmentPlan)
    return made


@given(st.integers(0, 2**32))
def test_hard_goals_hold_and_least_bytes_are_a_bound(seed: int) -> None:
    cluster = random_case(seed)
    made = made_for(cluster)
    assert broken(cluster, made) == []
    assert made.crowded_after <= made.crowded_before
    assert made.moved_bytes >= least_bytes(cluster, made).evenness
    assert made == made_for(cluster)
    steps = batches(made, cluster.brokers, 7)
    assert sorted(move for step in steps for move in step) == sorted(made.moves)
    assert all(len(step) <= 7 for step in steps if step[0].added)


@given(st.integers(0, 2**32))
def test_a_plan_that_was_carried_out_leaves_nothing_to_move(seed: int) -> None:
    """Planning again after it moves no byte, where brokers could be brought within the tolerance."""
    cluster = random_case(seed)
    made = made_for(cluster)
    replicas = after(cluster, made)
    done = [each._replace(replicas=replicas[each.topic, each.partition], isr=None) for each in cluster.partitions]
    again = plan(cluster.brokers, done, cluster.goal)
    assert isinstance(again, ReassignmentPlan)
    if evenness(cluster, made.after).sizes <= cluster.goal.tolerance or not (cluster.goal.even or cluster.goal.add):
        assert again.moved_bytes <= made.moved_bytes * 0.1, "numbers of replicas may take a little more"


@given(st.integers(0, 2**32))
def test_no_placement_of_a_small_cluster_beats_the_least_bytes(seed: int) -> None:
    cluster = random_case(seed, is_small=True)
    made = plan(cluster.brokers, cluster.partitions, cluster.goal)
    if isinstance(made, PlanRefusal):
        return
    fewest = fewest_bytes(cluster, made)
    assert least_bytes(cluster, made).evenness <= fewest <= made.moved_bytes


@st.composite
def odd_clusters(draw: st.DrawFn) -> PlanCase:
    """What no generator by hand would make: hardly any brokers, racks for some, partitions that may not move."""
    ids = draw(st.lists(st.integers(0, 9), min_size=1, max_size=6, unique=True))
    brokers = [
        PlannedBroker(
            each,
            draw(st.sampled_from(("a", "b", None))),
            draw(st.none() | st.integers(0, 10_000)),
            draw(st.booleans()),
        )
        for each in ids
    ]
    partitions = []
    for number in range(draw(st.integers(0, 12))):
        replicas = tuple(draw(st.lists(st.sampled_from(ids), min_size=1, max_size=4, unique=True)))
        isr = tuple(each for each in replicas if draw(st.booleans()))
        partitions.append(
            PlannedPartition(
                "t",
                number,
                replicas,
                draw(st.integers(0, 1000)),
                draw(st.sampled_from((-1, *replicas))),
                isr,
                may_move=draw(st.booleans()),
                is_moving=draw(st.booleans()),
            )
        )
    goal = PlanGoal(
        even=draw(st.booleans()),
        add=tuple(draw(st.lists(st.sampled_from(ids), max_size=2, unique=True))),
        empty=tuple(draw(st.lists(st.sampled_from(ids), max_size=2, unique=True))),
        replication_factor=draw(st.none() | st.integers(0, 4)),
        fix_racks=draw(st.booleans()),
        tolerance=draw(st.sampled_from((0.0, 0.1, 0.5))),
        by_capacity=draw(st.booleans()),
    )
    return PlanCase("odd", tuple(brokers), tuple(partitions), goal)


@given(odd_clusters())
def test_odd_clusters(cluster: PlanCase) -> None:
    made = plan(cluster.brokers, cluster.partitions, cluster.goal)
    if isinstance(made, PlanRefusal):
        assert ":" in made.message, "cause and cure"
    else:
        assert broken(cluster, made) == []
        assert sum(map(len, batches(made, cluster.brokers, 1))) == len(made.moves)


def test_plans_are_as_good_as_they_were() -> None:
    """Forty clusters by seed: bytes near the least, most brokers within the tolerance, leaders even.

    Each part of the planner shows in one of these: without exchanges 17 are even, without taking replicas back the mean
    is 1.16, without paths of leaders 0.33.
    """
    ratios, found = [], []
    for seed in (each for each in range(180) if KINDS[each % len(KINDS)] in ("even", "dead and even")):
        cluster = random_case(seed)
        made = made_for(cluster)
        ratios.append(made.moved_bytes / least_bytes(cluster, made).evenness)
        found.append(evenness(cluster, made.after))
    assert statistics.mean(ratios) < 1.13
    assert sum(each.sizes <= 0.1 + 1e-6 for each in found) >= 22
    assert statistics.mean(each.leaders for each in found) < 0.2
