from __future__ import annotations

import pytest

from ottla.cluster.placement import Assignment, BrokerRack, assign_replicas, rack_alternated
from ottla.cluster.refusal import TopicRefusal
from ottla.wire.errors import ErrorCode

pytestmark = pytest.mark.spec("R4")


def brokers(count: int) -> list[BrokerRack]:
    return [BrokerRack(number) for number in range(count)]


def placed(result: Assignment | TopicRefusal) -> list[tuple[int, ...]]:
    assert not isinstance(result, TopicRefusal), result
    return [result[partition] for partition in sorted(result)]


def test_the_example_of_the_specification() -> None:
    assert placed(assign_replicas(brokers(6), 10, 3, start=4, shift=0)) == [
        (4, 5, 0), (5, 0, 1), (0, 1, 2), (1, 2, 3), (2, 3, 4), (3, 4, 5), (4, 0, 1), (5, 1, 2), (0, 2, 3), (1, 3, 4),
    ]  # fmt: skip


def test_added_partitions_go_on_where_the_topic_ended() -> None:
    whole = assign_replicas(brokers(4), 9, 2, start=1, shift=1)
    added = assign_replicas(brokers(4), 4, 2, start=1, shift=1, first_partition=5)
    assert not isinstance(whole, TopicRefusal)
    assert not isinstance(added, TopicRefusal)
    assert list(added) == [5, 6, 7, 8]


def test_one_broker() -> None:
    assert placed(assign_replicas([BrokerRack(7)], 3, 1, start=0, shift=0)) == [(7,), (7,), (7,)]
    assert placed(assign_replicas([BrokerRack(7, "r")], 2, 1, start=0, shift=0)) == [(7,), (7,)]


def test_racks_alternate() -> None:
    racks = {0: "rack1", 1: "rack3", 2: "rack3", 3: "rack2", 4: "rack2", 5: "rack1"}
    assert rack_alternated(racks) == [0, 3, 1, 5, 4, 2]
    found = [BrokerRack(number, rack) for number, rack in racks.items()]
    for replicas in placed(assign_replicas(found, 12, 3, start=2, shift=5)):
        assert {racks[replica] for replica in replicas} == {"rack1", "rack2", "rack3"}


@pytest.mark.parametrize(
    ("partitions", "factor", "error", "message"),
    [
        (0, 1, ErrorCode.INVALID_PARTITIONS, "Number of partitions must be larger than 0."),
        (-5, 1, ErrorCode.INVALID_PARTITIONS, "Number of partitions must be larger than 0."),
        (1, 0, ErrorCode.INVALID_REPLICATION_FACTOR, "Replication factor must be larger than 0."),
        (1, 4, ErrorCode.INVALID_REPLICATION_FACTOR, "Replication factor: 4 larger than available brokers: 3."),
    ],
)
def test_what_cannot_be_placed(partitions: int, factor: int, error: ErrorCode, message: str) -> None:
    result = assign_replicas(brokers(3), partitions, factor, start=0, shift=0)
    assert result == TopicRefusal(error, message)


def test_brokers_with_and_without_rack() -> None:
    result = assign_replicas([BrokerRack(0, "r"), BrokerRack(1)], 1, 1, start=0, shift=0)
    assert result == TopicRefusal(
        ErrorCode.INVALID_REPLICATION_FACTOR,
        "Not all brokers have rack information for replica rack aware assignment.",
    )


def one_by_one(
    order: list[int], racks: dict[int, str], partitions: range, factor: int, start: int, shift: int
) -> list[tuple[int, ...]]:
    """The placement as Kafka's tools describe it, each partition for itself; in racks if they are known."""
    placed, rounds = [], len(set(racks.values())) if racks else 1
    for partition in partitions:
        if partition > 0 and partition % len(order) == 0:
            shift += 1
        first = (partition + start) % len(order)
        replicas, tried = [order[first]], 0
        while len(replicas) < factor:
            distance = 1 + (shift * rounds + tried) % (len(order) - 1)
            broker = order[(first + distance) % len(order)]
            tried += 1
            used = {racks[replica] for replica in replicas} if racks else set()
            is_fresh = not racks or racks[broker] not in used or len(used) == len(set(racks.values()))
            if broker not in replicas and is_fresh:
                replicas.append(broker)
        placed.append(tuple(replicas))
    return placed


@pytest.mark.parametrize("first", [0, 1, 5, 17])
@pytest.mark.parametrize(("count", "factor"), [(1, 1), (2, 1), (2, 2), (3, 3), (5, 2), (6, 3), (7, 4)])
def test_many_partitions_are_placed_one_by_one(count: int, factor: int, first: int) -> None:
    """Those after the first round of all are placed as those of it, which must not be seen."""
    numbers = range(first, first + 150)
    for start, shift in ((0, 0), (1, count - 1), (count - 1, 3)):
        found = assign_replicas(brokers(count), 150, factor, start=start, shift=shift, first_partition=first)
        assert placed(found) == one_by_one(list(range(count)), {}, numbers, factor, start, shift)
        assert list(found) == list(numbers)
        racks = {broker: f"rack{broker % 3}" for broker in range(count)}
        in_racks = [BrokerRack(broker, rack) for broker, rack in racks.items()]
        found = assign_replicas(in_racks, 150, factor, start=start, shift=shift, first_partition=first)
        assert placed(found) == one_by_one(rack_alternated(racks), racks, numbers, factor, start, shift)
