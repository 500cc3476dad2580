"""Rates of brokers, topics and groups, from looks at fixed times."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from ottla.client.groups import GroupDescription
from ottla.client.model import Node, TopicPartition
from ottla.ops.cluster_status import BrokerStatus, ClusterStatus, PartitionStatus, ReplicaStatus, TopicStatus
from ottla.ops.cluster_view import (
    BrokerPresence,
    ClusterLook,
    ClusterRates,
    DatedOffset,
    GroupLook,
    GroupRates,
    TopicRates,
    compare,
)

pytestmark = pytest.mark.spec("U2")

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)
NODES = {1: Node(1, "one", 9092), 2: Node(2, "two", 9092)}


def status(
    brokers: tuple[int, ...] = (1, 2), leaders: tuple[int, int] = (1, 2), size_bytes: int = 100
) -> ClusterStatus:
    """Two partitions on two brokers; those that are not there have no replica in sync."""
    partitions = tuple(
        PartitionStatus(
            partition,
            leader,
            0,
            tuple(
                ReplicaStatus(each, each in brokers, size_bytes=size_bytes if each in brokers else None)
                for each in (1, 2)
            ),
        )
        for partition, leader in zip((FIRST, SECOND), leaders, strict=True)
    )
    topics = (TopicStatus("t", partitions),)
    return ClusterStatus("c", 1, tuple(BrokerStatus(NODES[each]) for each in brokers), topics, {})


def group(state: str = "Stable") -> GroupDescription:
    return GroupDescription("g", state, "consumer", "range", NODES[1], ())


def look(
    at_s: float,
    ends: Mapping[TopicPartition, int],
    committed: Mapping[TopicPartition, int] | None = None,
    *,
    known: ClusterStatus | None = None,
    state: str = "Stable",
    silent: frozenset[int] = frozenset(),
) -> ClusterLook:
    at_ms = at_s * 1000
    groups = {} if committed is None else {"g": GroupLook(group(state), committed, at_ms)}
    return ClusterLook(
        at_ms=int(at_ms),
        status=known or status(),
        nodes=NODES,
        ends={partition: DatedOffset(end, at_ms) for partition, end in ends.items()},
        groups=groups,
        group_count=len(groups),
        silent=silent,
    )


def topic_of(rates: ClusterRates) -> TopicRates:
    [found] = rates.topics
    return found


def group_of(rates: ClusterRates) -> GroupRates:
    [found] = rates.groups
    return found


def test_one_look_has_no_rates() -> None:
    rates = compare([look(0, {FIRST: 10, SECOND: 20}, {FIRST: 5})])
    assert (topic_of(rates).records_per_s, [each.records_per_s for each in rates.brokers]) == (None, [None, None])
    found = group_of(rates)
    assert (found.lag, found.consumed_per_s, found.lag_per_s, found.catch_up_ms) == (5, None, None, None)
    assert rates.state_changes == []


def test_bytes_in_a_second_leave_out_the_time_in_which_a_log_shrank() -> None:
    sizes = (100, 300, 200, 400)
    looks = [look(at, {}, known=status(size_bytes=size)) for at, size in enumerate(sizes)]
    rates = compare(looks)
    assert (topic_of(rates).bytes_per_s, [each.bytes_per_s for each in rates.brokers]) == (400, [200, 200])
    led_by_another = look(4, {}, known=status(leaders=(2, 2), size_bytes=900))
    assert compare([looks[-1], led_by_another]).topics[0].bytes_per_s == 500
    assert compare(looks[1:3]).topics[0].bytes_per_s is None
    assert compare(looks[:1]).topics[0].bytes_per_s is None


def test_records_in_a_second_of_topics_and_leaders() -> None:
    rates = compare([look(0, {FIRST: 10, SECOND: 20}), look(4, {FIRST: 18, SECOND: 60})])
    assert topic_of(rates).records_per_s == 12
    assert [(each.records_per_s, each.leads, each.is_controller) for each in rates.brokers] == [
        (2, 1, True), (10, 1, False),
    ]  # fmt: skip


def test_a_partition_without_an_end_now_is_left_out() -> None:
    rates = compare([look(0, {FIRST: 10, SECOND: 20}), look(2, {FIRST: 14})])
    assert (topic_of(rates).records_per_s, [each.records_per_s for each in rates.brokers]) == (2, [2, None])


def test_a_partition_counts_from_its_first_look() -> None:
    rates = compare([look(0, {FIRST: 10}), look(2, {FIRST: 10, SECOND: 5}), look(4, {FIRST: 10, SECOND: 25})])
    assert topic_of(rates).records_per_s == 10


def test_an_end_that_goes_back_is_that_of_another_log() -> None:
    assert topic_of(compare([look(0, {FIRST: 10}), look(2, {FIRST: 4})])).records_per_s is None


def test_lag_its_trend_and_the_time_to_catch_up() -> None:
    rates = compare([look(0, {FIRST: 1000}, {FIRST: 0}), look(2, {FIRST: 1100}, {FIRST: 500})])
    found = group_of(rates)
    assert (found.lag, found.consumed_per_s, found.lag_per_s, found.catch_up_ms) == (600, 250, -200, 3000)


@pytest.mark.parametrize(("end", "lag_per_s"), [(1000, 0), (1400, 200)])
def test_a_lag_that_does_not_shrink_has_no_end(end: int, lag_per_s: float) -> None:
    found = group_of(compare([look(0, {FIRST: 1000}, {FIRST: 0}), look(2, {FIRST: end}, {FIRST: 0})]))
    assert (found.lag_per_s, found.catch_up_ms) == (lag_per_s, None)


def test_a_group_that_has_consumed_all() -> None:
    found = group_of(compare([look(0, {FIRST: 10}, {FIRST: 10}), look(2, {FIRST: 30}, {FIRST: 30})]))
    assert (found.lag, found.consumed_per_s, found.lag_per_s, found.catch_up_ms) == (0, 10, 0, 0)


def test_offsets_that_were_reset_are_not_consumed_backwards() -> None:
    before = look(0, {FIRST: 100, SECOND: 100}, {FIRST: 100, SECOND: 0})
    found = group_of(compare([before, look(2, {FIRST: 100, SECOND: 100}, {FIRST: 0, SECOND: 20})]))
    assert (found.lag, found.consumed_per_s) == (180, 10)


def test_partitions_without_an_end_have_no_lag() -> None:
    assert group_of(compare([look(0, {}, {FIRST: 10})])).lag is None
    assert group_of(compare([look(0, {FIRST: 30}, {FIRST: 10, SECOND: 7})])).lag is None  # 20 would hide the second
    assert group_of(compare([look(0, {FIRST: 30}, {FIRST: 99})])).lag == 0


def test_brokers_that_are_gone_or_silent_stay() -> None:
    gone = look(2, {FIRST: 10}, known=status((1,), (1, 1)))
    rates = compare([look(0, {FIRST: 10, SECOND: 20}), gone])
    assert [(each.node, each.state, each.in_sync) for each in rates.brokers] == [
        (NODES[1], BrokerPresence.UP, 2),
        (NODES[2], BrokerPresence.ABSENT, 0),
    ]
    assert (topic_of(rates).under_replicated, topic_of(rates).offline) == (2, 0)
    [_, second] = compare([look(0, {}, silent=frozenset((2,)))]).brokers
    assert second.state is BrokerPresence.SILENT


def test_changes_of_state_since_the_look_before() -> None:
    looks = [look(0, {}), look(2, {}, {}, state="PreparingRebalance"), look(4, {}, {})]
    changes = [[(each.before, each.group.state) for each in compare(looks[:end]).state_changes] for end in (2, 3)]
    assert changes == [[(None, "PreparingRebalance")], [("PreparingRebalance", "Stable")]]
    assert compare([*looks, looks[0]]).state_changes == []
