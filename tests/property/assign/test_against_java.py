"""Range and round robin give random groups what Java's own classes give them, to the byte."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from ottla.assign.assignor import PartitionAssignor, SubscribedTopic
from ottla.assign.consumer_protocol import encode_assignment
from ottla.assign.range import RangeAssignor
from ottla.assign.roundrobin import RoundRobinAssignor
from property.assign.random_groups import RandomGroup
from support.assignor_oracle import AssignorOracle

pytestmark = [pytest.mark.needs_kafka, pytest.mark.slow]

ASSIGNORS = [
    pytest.param(RangeAssignor(), id="range", marks=pytest.mark.spec("A1")),
    pytest.param(RoundRobinAssignor(), id="roundrobin", marks=pytest.mark.spec("A2")),
]
STEPS = 10
EVERYDAY_CHAINS, LONG_CHAINS = 200, 5000


def bytes_by_member(assignments) -> dict[str, bytes]:
    return {member_id: encode_assignment(one.partitions, one.user_data) for member_id, one in assignments.items()}


def check_alike(
    assignor: PartitionAssignor, oracle: AssignorOracle, group: RandomGroup, steps: int = STEPS
) -> Counter[str]:
    """Walk a chain; gives how many cases had what."""
    seen: Counter[str] = Counter()
    for _ in range(steps):
        cluster, subscriptions = group.cluster(), group.subscriptions(assignor.name)
        ours = assignor.assign(cluster, subscriptions)
        javas = oracle.assign(assignor.name, cluster, subscriptions)
        assert bytes_by_member(ours) == bytes_by_member(javas)
        counts = [topic.partitions for topic in cluster.topics.values()]
        seen["cases"] += 1
        seen["with racks"] += group.racks
        seen["with racks and co-partitioned topics"] += group.racks and len(set(counts)) < len(counts)
        seen["with static members"] += any(one.group_instance_id for one in subscriptions.values())
        seen["with several topics for a member"] += any(len(one.partitions) > 2 for one in ours.values())
        group.assigned(ours)
        group.change()
    return seen


@pytest.mark.parametrize("chains", [EVERYDAY_CHAINS, pytest.param(LONG_CHAINS, marks=pytest.mark.long)])
@pytest.mark.parametrize("assignor", ASSIGNORS)
@pytest.mark.timeout(600)
def test_random_groups(assignor: PartitionAssignor, chains: int, assignor_oracle: AssignorOracle):
    seen = sum((check_alike(assignor, assignor_oracle, RandomGroup(seed)) for seed in range(chains)), Counter())
    assert seen["cases"] == chains * STEPS
    assert min(seen.values()) >= chains, seen


@pytest.mark.spec("A1")
def test_racks_of_co_partitioned_topics(assignor_oracle: AssignorOracle):
    """Where racks matter most: equal subscriptions, topics of one size, replicas here and there, or without a rack."""
    for seed in range(100):
        chance = random.Random(seed)
        group = RandomGroup(seed, equal_subscriptions=True, racks=True)
        size = chance.randint(1, 12)
        for name in group.topics:
            racks = tuple(
                frozenset(chance.choices(["rack-a", "rack-b", "rack-c"], k=chance.randint(0, 2))) for _ in range(size)
            )
            group.topics[name] = SubscribedTopic(size, racks)
        check_alike(RangeAssignor(), assignor_oracle, group, steps=1)


def test_names_in_java_s_order(assignor_oracle: AssignorOracle):
    """Enough topics for larger hash tables, with names that share slots."""
    chance = random.Random(5)
    for count in (11, 12, 13, 24, 25, 100):
        group = RandomGroup(count, equal_subscriptions=True, racks=False)
        names = ["".join(chance.choices("AaBb", k=6)) for _ in range(count)]
        group.topics = {name: SubscribedTopic(chance.randint(1, 3)) for name in names}
        for member in group.members.values():
            chance.shuffle(names)
            member.topics = tuple(dict.fromkeys(names[: chance.randint(1, count)]))
        for assignor in (RangeAssignor(), RoundRobinAssignor()):
            check_alike(assignor, assignor_oracle, group, steps=1)
