"""Brokers in each role die under load, in clusters of both makes; and elections that an administrator asks for.

The load is idempotent with acks=all, the group has members on Apache Kafka's client, on librdkafka and on ottla's.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from interop.cluster.mixes import ASSIGNMENT, MIXES, mix
from support.acknowledged_load import AcknowledgedLoad
from support.cluster_load import OFFSETS, check_group, check_replicas, coordinator, members, wait_until_read
from support.tapped_cluster import Maker, TappedCluster
from support.waiting import wait_until

pytestmark = [pytest.mark.needs_kafka, pytest.mark.long, pytest.mark.timeout(1200), pytest.mark.spec("R8")]

ELECTION = "org.apache.kafka.tools.LeaderElectionCommand"
TOPIC = "roles"
RECORDS = 300


def create(cluster: TappedCluster, assignment: Sequence[list[int]], **settings: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    wanted = NewTopic(TOPIC, len(assignment), replica_assignment=list(assignment), config=settings)
    admin.create_topics([wanted])[TOPIC].result(60)
    cluster.wait_for_isr(TOPIC)


def leader(cluster: TappedCluster, partition: int = 0) -> int:
    state = cluster.partition(TOPIC, partition)
    assert state is not None
    found: int = state["leader"]
    return found


def in_role(cluster: TappedCluster, role: str) -> int:
    """The id of a broker that is the group's coordinator, the controller, or leads or only follows partition 0."""
    if role == "coordinator":
        return coordinator(cluster)
    if role == "controller":
        return cluster.controller()
    led_by = leader(cluster)
    return led_by if role == "leader" else min({1, 2, 3} - {led_by, cluster.controller()})


@pytest.mark.parametrize("makers", MIXES)
def test_each_role_dies_under_load_with_a_group(tmp_path: Path, makers: Sequence[Maker]) -> None:
    with TappedCluster(tmp_path / "cluster", makers).prepared() as cluster:
        cluster.start_all()
        create(cluster, ASSIGNMENT, **{"min.insync.replicas": "2"})
        with (
            members(cluster, tmp_path / "members", TOPIC) as group,
            AcknowledgedLoad(cluster.bootstrap, TOPIC, len(ASSIGNMENT)) as load,
        ):
            load.wait_for_more(RECORDS)
            wait_until_read(load, group)
            for role in ("coordinator", "controller", "leader", "follower"):
                chosen = in_role(cluster, role)
                before = cluster.partition(TOPIC, 0)
                cluster.brokers[chosen].kill9()
                cluster.wait_until_gone(chosen)
                for topic in (TOPIC, OFFSETS):
                    cluster.wait_for_isr(topic, {1, 2, 3} - {chosen})
                load.wait_for_more(RECORDS)
                wait_until_read(load, group)
                assert cluster.partition(TOPIC, 0) != before
                cluster.start(chosen)
                for topic in (TOPIC, OFFSETS):
                    cluster.wait_for_isr(topic)
                cluster.tool(ELECTION, "--election-type", "preferred", "--all-topic-partitions")
                wait_until(
                    lambda: [leader(cluster, number) for number in range(len(ASSIGNMENT))] == [1, 2, 3],
                    "the preferred leaders",
                )
                load.wait_for_more(RECORDS)
            wait_until_read(load, group)
            for member in group:
                member.leave()
        load.check()
        with members(cluster, tmp_path / "again", TOPIC) as again:
            wait_until_read(load, [*group, *again])
            for member in again:
                member.leave()
            check_group(load, group, again)
        check_replicas(cluster, TOPIC, OFFSETS)


@pytest.mark.parametrize(
    "makers",
    [
        mix("apache", "apache", "apache"),
        mix("apache", "apache", "ottla"),
        mix("apache", "ottla", "apache"),
        mix("ottla", "ottla", "apache"),
        mix("ottla", "apache", "ottla"),
    ],
)
def test_an_unclean_election_on_request(tmp_path: Path, makers: Sequence[Maker]) -> None:
    """Broker 1 is the controller, 2 has all records, 3 only the first; 2 dies, 3 leads, and 2 gives up what 3 lacks."""
    with TappedCluster(tmp_path / "cluster", makers).prepared() as cluster:
        cluster.start_all()
        create(cluster, [[2, 3]], **{"unclean.leader.election.enable": "false"})
        with AcknowledgedLoad(cluster.bootstrap, TOPIC, 1) as load:
            load.wait_for_more(RECORDS)
            cluster.brokers[3].kill9()
            cluster.wait_for_isr(TOPIC, {2})
            load.wait_for_more(RECORDS)
        cluster.brokers[2].kill9()
        cluster.wait_until_gone(2)
        cluster.start(3)
        state = cluster.partition(TOPIC, 0)
        assert state is not None
        assert (state["leader"], state["isr"]) == (-1, [2]), "nobody who was in sync is alive"
        cluster.tool(ELECTION, "--election-type", "unclean", "--topic", TOPIC, "--partition", "0")
        cluster.wait_for_isr(TOPIC, {3})
        with AcknowledgedLoad(cluster.bootstrap, TOPIC, 1) as later:
            later.wait_for_more(RECORDS)
            first = min(offset for offset, _ in later.acknowledged[0])
            assert 0 < first < load.count, "what broker 3 lacked is lost"
            cluster.start(2)
            cluster.wait_for_isr(TOPIC)
            later.wait_for_more(RECORDS)
        check_replicas(cluster, TOPIC)
