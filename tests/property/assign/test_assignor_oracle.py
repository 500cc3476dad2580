"""The oracle and the random groups themselves: whoever judges has to be known to judge."""

from __future__ import annotations

import pytest

from ottla.assign.assignor import ClusterMetadata, MemberSubscription, SubscribedTopic
from ottla.assign.consumer_protocol import HIGHEST_VERSION, Assignment, Partitions, Subscription
from property.assign.random_groups import ASSIGNOR_NAMES, RandomGroup
from support.assignor_oracle import AssignorOracle, OracleError

by_java = pytest.mark.needs_kafka

COUNTED = ClusterMetadata({"t": SubscribedTopic(4)})
RACKED = ClusterMetadata({"t": SubscribedTopic(2, (frozenset({"b"}), frozenset({"a"})))})


def member(rack: str | None = None, instance: str | None = None) -> MemberSubscription:
    return MemberSubscription(Subscription(HIGHEST_VERSION, ("t",), None, {}, -1, rack), instance)


def partitions(assignments: dict[str, Assignment]) -> dict[str, Partitions]:
    return {member_id: assignment.partitions for member_id, assignment in assignments.items()}


@by_java
@pytest.mark.slow
@pytest.mark.spec("A1")
def test_the_oracle_gives_what_everybody_knows(assignor_oracle: AssignorOracle):
    told = assignor_oracle.assign("range", COUNTED, {"c0": member(), "c1": member(), "c2": member()})
    assert partitions(told) == {"c0": {"t": (0, 1)}, "c1": {"t": (2,)}, "c2": {"t": (3,)}}


@by_java
def test_the_oracle_takes_racks_and_instance_ids(assignor_oracle: AssignorOracle):
    told = assignor_oracle.assign("range", RACKED, {"c0": member("a"), "c1": member("b")})
    assert partitions(told) == {"c0": {"t": (1,)}, "c1": {"t": (0,)}}
    told = assignor_oracle.assign("range", COUNTED, {"c0": member(instance="z"), "c1": member(instance="y")})
    assert partitions(told) == {"c0": {"t": (2, 3)}, "c1": {"t": (0, 1)}}


@by_java
def test_the_oracle_reports_what_java_threw(assignor_oracle: AssignorOracle):
    with pytest.raises(OracleError, match="no assignor unheard"):
        assignor_oracle.assign("unheard", COUNTED, {"c0": member()})
    assert assignor_oracle.assign("roundrobin", COUNTED, {"c0": member()})


@by_java
@pytest.mark.parametrize("assignor", ASSIGNOR_NAMES)
def test_chains_keep_every_partition_owned_once(assignor: str, assignor_oracle: AssignorOracle):
    """Java's assignors give every subscribed partition to one subscriber; cooperative ones may hold some back."""
    for seed in range(3):
        group = RandomGroup(seed)
        for _ in range(8):
            subscriptions = group.subscriptions(assignor)
            told = assignor_oracle.assign(assignor, group.cluster(), subscriptions)
            given = [(topic, index) for one in told.values() for topic, of in one.partitions.items() for index in of]
            assert len(given) == len(set(given))
            wanted = {topic for one in subscriptions.values() for topic in one.subscription.topics}
            expected = {(t, i) for t in wanted & group.topics.keys() for i in range(group.topics[t].partitions)}
            assert set(given) <= expected
            assert assignor == "cooperative-sticky" or set(given) == expected
            group.assigned(told)
            group.change()


@by_java
@pytest.mark.slow
def test_java_fails_where_topics_come_back_smaller(assignor_oracle: AssignorOracle):
    """Why random groups leave that out unless asked: Java's sticky assignor throws, or gives a partition to two."""
    seen: set[str] = set()
    for seed in range(300):
        group = RandomGroup(seed, shrinking=True)
        for _ in range(8):
            try:
                told = assignor_oracle.assign("sticky", group.cluster(), group.subscriptions("sticky"))
            except OracleError as error:
                seen.add(str(error).partition(": ")[2])
                break
            given = [(topic, index) for one in told.values() for topic, of in one.partitions.items() for index in of]
            if len(given) > len(set(given)):
                seen.add("given twice")
            group.assigned(told)
            group.change()
        if len(seen) == 2:
            break
    assert seen == {"No more unfilled consumers to be assigned.", "given twice"}


def test_a_seed_always_gives_the_same_group():
    assert RandomGroup(7).subscriptions("sticky") == RandomGroup(7).subscriptions("sticky")
    assert RandomGroup(7).subscriptions("sticky") != RandomGroup(8).subscriptions("sticky")
