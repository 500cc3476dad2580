"""Plans of reassignments, one demand at a time."""

from __future__ import annotations

import pytest

from ottla.ops.planning.batches import Traffic, batches, seconds_at, traffic
from ottla.ops.planning.model import (
    BrokerLoad,
    Left,
    PlanGoal,
    PlannedBroker,
    PlannedPartition,
    PlanRefusal,
    ReassignmentPlan,
)
from ottla.ops.planning.planner import plan

pytestmark = pytest.mark.spec("R1")


def brokers(count: int, racks: str = "") -> list[PlannedBroker]:
    return [PlannedBroker(each, racks[each % len(racks)] if racks else None) for each in range(count)]


def partitions(*replicas: tuple[int, ...], size: int = 100) -> list[PlannedPartition]:
    return [PlannedPartition("t", at, each, size, each[0]) for at, each in enumerate(replicas)]


def made(
    known: list[PlannedBroker], placed: list[PlannedPartition], goal: PlanGoal
) -> tuple[ReassignmentPlan, dict[int, tuple[int, ...]]]:
    found = plan(known, placed, goal)
    assert isinstance(found, ReassignmentPlan)
    return found, {each.partition: each.after for each in found.moves}


def test_nothing_is_moved_where_all_is_even() -> None:
    found, moves = made(brokers(3), partitions((0, 1), (1, 2), (2, 0)), PlanGoal(even=True))
    assert moves == {}
    assert found.moved_bytes == 0


def test_leaders_are_evened_out_without_moving_a_byte() -> None:
    found, moves = made(brokers(3), partitions((0, 1, 2), (0, 1, 2), (0, 1, 2)), PlanGoal(even=True))
    assert len(moves) == 2
    assert found.moved_bytes == 0
    assert [found.after[each].leaders for each in range(3)] == [1, 1, 1]
    assert all(each.added == each.removed == () for each in found.moves)


def test_leaders_are_handed_on_along_a_path() -> None:
    """Broker 0 leads too much, and only by way of broker 1 can broker 2 get something to lead."""
    placed = partitions((0, 1), (0, 1), (0, 1), (0, 1), (1, 2), (1, 2))
    found, _ = made(brokers(3), placed, PlanGoal(even=True, tolerance=0))
    assert found.moved_bytes == 0 or [found.after[each].leaders for each in range(3)] == [2, 2, 2]
    assert [found.after[each].leaders for each in range(3)] == [2, 2, 2]


def test_an_added_broker_takes_its_share_and_nobody_else_gets_anything() -> None:
    placed = partitions((0, 1), (1, 2), (2, 0), (0, 1), (1, 2), (2, 0))
    found, moves = made(brokers(4), placed, PlanGoal(add=(3,)))
    assert found.after[3].replicas == 3
    assert all(each.added in ((), (3,)) for each in found.moves)
    assert found.moved_bytes == 300
    assert len(moves) >= 3


def test_an_emptied_broker_has_nothing_in_the_end() -> None:
    placed = partitions((0, 1), (1, 2), (2, 0), (0, 3))
    found, moves = made(brokers(4), placed, PlanGoal(empty=(0,)))
    assert found.after[0] == BrokerLoad()
    assert found.moved_bytes == 300, "each of its replicas is copied once"
    assert set(moves) == {0, 2, 3}


def test_a_broker_is_replaced_by_one_that_is_added() -> None:
    placed = partitions((0, 1), (1, 2), (2, 0))
    found, moves = made(brokers(4), placed, PlanGoal(empty=(0,), add=(3,)))
    assert found.after[3].replicas == found.before[0].replicas
    assert {frozenset(each) for each in moves.values()} == {frozenset((3, 1)), frozenset((3, 2))}


def test_a_replica_that_leaves_goes_to_its_own_rack() -> None:
    found, moves = made(brokers(6, "abc"), partitions((0, 1, 2)), PlanGoal(empty=(0,)))
    assert moves == {0: (3, 1, 2)}
    assert (found.crowded_before, found.crowded_after) == (0, 0)


def test_racks_are_fixed_with_one_copy_for_each_crowded_replica() -> None:
    found, moves = made(brokers(6, "abc"), partitions((0, 3, 1), (0, 1, 2)), PlanGoal(fix_racks=True))
    assert list(moves) == [0]
    assert {each % 3 for each in moves[0]} == {0, 1, 2}
    assert found.moved_bytes == 100
    assert (found.crowded_before, found.crowded_after) == (1, 0)


def test_more_replicas_go_to_racks_without_one() -> None:
    found, moves = made(brokers(6, "abc"), partitions((0,), (4, 1)), PlanGoal(replication_factor=3))
    assert {each % 3 for each in moves[0]} == {0, 1, 2}
    assert {*moves[1]} >= {4, 1}
    assert {each % 3 for each in moves[1]} == {1, 0} | {each % 3 for each in moves[1]}
    assert found.moved_bytes == 300


def test_fewer_replicas_leave_the_leader_and_the_racks() -> None:
    placed = [PlannedPartition("t", 0, (0, 3, 1), 100, leader=3)]
    _, moves = made(brokers(6, "abc"), placed, PlanGoal(replication_factor=2))
    assert moves == {0: (3, 1)}


def test_replicas_on_a_dead_broker_are_replaced_where_a_partition_changes() -> None:
    known = [*brokers(4)[:3], PlannedBroker(3, is_alive=False), PlannedBroker(4)]
    placed = [
        PlannedPartition("t", 0, (0, 3), 100, 0, (0,)),
        PlannedPartition("t", 1, (3,), 100, -1, (3,)),
        PlannedPartition("t", 2, (1, 2), 100, 1, is_moving=True),
    ]
    found, moves = made(known, placed, PlanGoal(empty=(3, 1)))
    assert set(moves) == {0}
    assert 3 not in moves[0]
    assert found.left == {("t", 1): Left.OFFLINE, ("t", 2): Left.MOVING}
    untouched, _ = made(known, placed, PlanGoal(even=True))
    assert ("t", 0) not in {(each.topic, each.partition) for each in untouched.moves}


def test_no_broker_is_filled_beyond_its_capacity() -> None:
    known = [PlannedBroker(0), PlannedBroker(1, None, 150), PlannedBroker(2, None, 1000)]
    found, _ = made(known, partitions((0,), (0,), (0,), (0,)), PlanGoal(empty=(0,)))
    assert found.after[1].size_bytes == 100
    assert found.after[2].size_bytes == 300


def test_a_partition_without_a_place_is_left() -> None:
    found, moves = made(brokers(2), partitions((0, 1)), PlanGoal(empty=(1,)))
    assert moves == {}
    assert found.left == {("t", 0): Left.NO_ROOM}


@pytest.mark.parametrize(
    ("goal", "message"),
    [
        (PlanGoal(add=(7,)), "broker 7 cannot be added: it is not registered: start it"),
        (PlanGoal(empty=(7,)), "there is no broker 7: it is neither registered nor has it any replica"),
        (PlanGoal(empty=(0, 1)), "no live broker is left that replicas could go to: start one, or empty fewer of them"),
        (PlanGoal(replication_factor=3), "3 replicas need as many live brokers, and there are 2: start more"),
        (
            PlanGoal(even=True, by_capacity=True),
            "the capacity of broker 0 is not known: leave shares by capacity out",
        ),
    ],
)
def test_refusals(goal: PlanGoal, message: str) -> None:
    assert plan(brokers(2), partitions((0, 1)), goal) == PlanRefusal(message)


def test_shares_by_capacity() -> None:
    known = [PlannedBroker(0, None, 1000), PlannedBroker(1, None, 3000)]
    placed = partitions(*[(0,)] * 8, size=10)
    found, _ = made(known, placed, PlanGoal(even=True, by_capacity=True))
    assert [found.after[each].replicas for each in (0, 1)] == [2, 6]


def test_rates_decide_over_leaders_where_they_are_known() -> None:
    placed = [PlannedPartition("t", at, (0, 1), 100, 0, rate=rate) for at, rate in enumerate((90.0, 10.0, 80.0, 20.0))]
    found, _ = made(brokers(2), placed, PlanGoal(even=True))
    assert [found.after[each].leader_load for each in range(2)] == pytest.approx([100, 100], rel=0.1)


# Batches


def test_batches_use_brokers_evenly_and_keep_to_the_limit() -> None:
    placed = partitions(*[(0,)] * 4, *[(1,)] * 4)
    found, _ = made(brokers(4), placed, PlanGoal(empty=(0, 1)))
    steps = batches(found, brokers(4), at_once=2)
    assert [len(each) for each in steps] == [2, 2, 2, 2]
    assert all({move.source for move in each} == {0, 1} for each in steps)


def test_orders_come_last_and_a_batch_waits_for_room() -> None:
    placed = [*partitions((0, 1), size=60), PlannedPartition("t", 1, (1, 2), 60, 1), PlannedPartition("u", 0, (0, 2))]
    found, _ = made(brokers(3), placed, PlanGoal(even=True))
    assert all(each.added for step in batches(found, brokers(3))[:-1] for each in step)


def test_times_at_a_throttle_are_of_the_busiest_broker() -> None:
    found, _ = made(brokers(3), partitions((0,), (0,)), PlanGoal(empty=(0,)))
    assert traffic(found.moves) == {0: Traffic(200, 0), 1: Traffic(0, 100), 2: Traffic(0, 100)}
    assert seconds_at(found.moves, 50) == 4
    assert seconds_at((), 50) == 0
