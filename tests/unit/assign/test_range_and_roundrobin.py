"""What range and round robin say of groups that need no oracle."""

from __future__ import annotations

import pytest

from ottla.assign.assignor import ClusterMetadata, MemberSubscription, PartitionAssignor, SubscribedTopic
from ottla.assign.consumer_protocol import HIGHEST_VERSION, Partitions, Subscription
from ottla.assign.range import RangeAssignor, even_ranges
from ottla.assign.roundrobin import RoundRobinAssignor

BOTH = pytest.mark.parametrize("assignor", [RangeAssignor(), RoundRobinAssignor()], ids=["range", "roundrobin"])


def member(*topics: str, rack: str | None = None, instance: str | None = None) -> MemberSubscription:
    return MemberSubscription(Subscription(HIGHEST_VERSION, topics, None, {}, -1, rack), instance)


def assign(assignor: PartitionAssignor, topics: dict[str, int], **members: MemberSubscription) -> dict[str, Partitions]:
    cluster = ClusterMetadata({name: SubscribedTopic(count) for name, count in topics.items()})
    return {member_id: one.partitions for member_id, one in assignor.assign(cluster, members).items()}


@pytest.mark.spec("A1")
def test_range():
    assert assign(RangeAssignor(), {"p": 4}, c0=member("p"), c1=member("p"), c2=member("p")) == {
        "c0": {"p": (0, 1)},
        "c1": {"p": (2,)},
        "c2": {"p": (3,)},
    }


@pytest.mark.spec("A2")
def test_round_robin_with_unequal_subscriptions():
    topics = {"A": 3, "B": 3, "C": 3}
    assert assign(RoundRobinAssignor(), topics, C0=member("A", "B"), C1=member("B", "C")) == {
        "C0": {"A": (0, 1, 2), "B": (1,)},
        "C1": {"B": (0, 2), "C": (0, 1, 2)},
    }


@BOTH
def test_topics_that_are_not_there_and_members_without_topics(assignor: PartitionAssignor):
    assert assign(assignor, {}, a=member("t"), b=member()) == {"a": {}, "b": {}}
    assert assign(assignor, {"t": 0, "u": 1}, a=member("t", "gone"), b=member("t")) == {"a": {}, "b": {}}
    assert assign(assignor, {"t": 2}, a=member("t", "t"), b=member()) == {"a": {"t": (0, 1)}, "b": {}}


@BOTH
def test_more_members_than_partitions(assignor: PartitionAssignor):
    given = assign(assignor, {"t": 1}, b=member("t"), a=member("t"))
    assert given == {"a": {"t": (0,)}, "b": {}}


@BOTH
def test_static_members_come_first_by_instance_id(assignor: PartitionAssignor):
    members = {"a": member("t"), "x": member("t", instance="2"), "y": member("t", instance="1")}
    assert assign(assignor, {"t": 3}, **members) == {"y": {"t": (0,)}, "x": {"t": (1,)}, "a": {"t": (2,)}}
    again = {"a": member("t"), "x": member("t", instance="2"), "z": member("t", instance="1")}
    assert assign(assignor, {"t": 3}, **again)["z"] == {"t": (0,)}


@pytest.mark.spec("A1")
def test_racks_decide_within_the_shares():
    racks = tuple(frozenset(there) for there in ("b", "b", "a", "a", "c"))
    cluster = ClusterMetadata({"t": SubscribedTopic(5, racks)})
    members = {"c0": member("t", rack="a"), "c1": member("t", rack="b"), "c2": member("t", rack="b")}
    given = {member_id: one.partitions for member_id, one in RangeAssignor().assign(cluster, members).items()}
    assert given == {"c0": {"t": (2, 3)}, "c1": {"t": (0, 1)}, "c2": {"t": (4,)}}


@pytest.mark.spec("A1")
def test_co_partitioned_topics_keep_together():
    """Partition 0 of both goes to the one member that is near both; it would not, if each topic were on its own."""
    t, u = (tuple(map(frozenset, racks)) for racks in (("ab", "b"), ("b", "ab")))
    cluster = ClusterMetadata({"t": SubscribedTopic(2, t), "u": SubscribedTopic(2, u)})
    members = {"c0": member("t", "u", rack="a"), "c1": member("t", "u", rack="b")}
    given = {member_id: one.partitions for member_id, one in RangeAssignor().assign(cluster, members).items()}
    assert given == {"c0": {"t": (1,), "u": (1,)}, "c1": {"t": (0,), "u": (0,)}}


def test_even_ranges():
    assert list(even_ranges(5, 3)) == [range(2), range(2, 4), range(4, 5)]
    assert [len(share) for share in even_ranges(1, 3)] == [1, 0, 0]
