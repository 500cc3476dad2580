"""Clusters of brokers of Apache Kafka 3.9.1 and of ours on one Apache ZooKeeper: either side judges the other.

The first broker of a mix starts first and is the controller. Clusters of Apache Kafka alone play the same, so that what
fails there is a fault of the test.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from interop.cluster.mixes import ASSIGNMENT, MIXES, mix
from support.acknowledged_load import AcknowledgedLoad
from support.cluster_load import check_replicas, wait_until_agreed
from support.tapped_cluster import Maker, TappedCluster
from support.waiting import wait_until

pytestmark = [pytest.mark.needs_kafka, pytest.mark.long, pytest.mark.timeout(600)]

TOPIC = "mixed"


@pytest.fixture
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TappedCluster]:
    """Three brokers, none of them started yet."""
    makers: Sequence[Maker] = request.param
    with TappedCluster(tmp_path, makers).prepared() as cluster:
        yield cluster


def create(cluster: TappedCluster, topic: str = TOPIC) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    wanted = NewTopic(topic, 3, replica_assignment=ASSIGNMENT, config={"min.insync.replicas": "2"})
    admin.create_topics([wanted])[topic].result(60)
    cluster.wait_for_isr(topic)


@pytest.mark.parametrize("cluster", MIXES, indirect=True)
def test_all_brokers_know_each_other(cluster: TappedCluster) -> None:
    cluster.start_all()
    wait_until_agreed(cluster)


@pytest.mark.parametrize("cluster", MIXES, indirect=True)
def test_a_topic_is_replicated(cluster: TappedCluster) -> None:
    cluster.start_all()
    create(cluster)
    with AcknowledgedLoad(cluster.bootstrap, TOPIC, 3) as load:
        load.wait_for_more(1000)
    load.check()
    check_replicas(cluster, TOPIC)


@pytest.mark.parametrize("cluster", MIXES, indirect=True)
def test_a_topic_is_deleted(cluster: TappedCluster) -> None:
    cluster.start_all()
    create(cluster)
    directories = [broker.log_dir / f"{TOPIC}-{number}" for broker in cluster.brokers.values() for number in range(3)]
    wait_until(lambda: all(directory.is_dir() for directory in directories), "directories on all brokers")
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.delete_topics([TOPIC])[TOPIC].result(60)
    wait_until(lambda: not cluster.partitions(TOPIC), "the end of the topic")
    wait_until(lambda: not any(directory.exists() for directory in directories), "the end of its directories")


@pytest.mark.parametrize("cluster", [mix("apache", "apache", "ottla"), mix("ottla", "apache", "apache")], indirect=True)
def test_our_broker_goes_and_returns_under_load(cluster: TappedCluster) -> None:
    """By a kill, by a controlled shutdown, and without its disk. Apache Kafka's brokers take over from a controller."""
    (ours,) = [broker.broker_id for broker in cluster.brokers.values() if broker.maker == "ottla"]
    cluster.start_all()
    create(cluster)
    with AcknowledgedLoad(cluster.bootstrap, TOPIC, 3) as load:
        for end in ("kill", "stop", "wipe"):
            load.wait_for_more()
            broker = cluster.brokers[ours]
            if end == "stop":
                broker.stop()
            else:
                broker.kill9()
            cluster.wait_until_gone(ours)
            cluster.wait_for_isr(TOPIC, {1, 2, 3} - {ours})
            load.wait_for_more()
            if end == "wipe":
                broker.wipe()
            cluster.start(ours)
            cluster.wait_for_isr(TOPIC)
        load.wait_for_more()
    load.check()
    check_replicas(cluster, TOPIC)


@pytest.mark.parametrize("cluster", MIXES, indirect=True)
def test_each_broker_dies_and_returns_under_load(cluster: TappedCluster) -> None:
    cluster.start_all()
    create(cluster)
    with AcknowledgedLoad(cluster.bootstrap, TOPIC, 3) as load:
        for broker_id in (3, 2, 1):
            load.wait_for_more()
            cluster.brokers[broker_id].kill9()
            cluster.wait_until_gone(broker_id)
            cluster.wait_for_isr(TOPIC, {1, 2, 3} - {broker_id})
            load.wait_for_more()
            cluster.start(broker_id)
            cluster.wait_for_isr(TOPIC)
    load.check()
    check_replicas(cluster, TOPIC)


@pytest.mark.parametrize("cluster", MIXES, indirect=True)
def test_each_broker_is_shut_down_under_load(cluster: TappedCluster) -> None:
    cluster.start_all()
    create(cluster)
    with AcknowledgedLoad(cluster.bootstrap, TOPIC, 3) as load:
        for broker_id in (3, 2, 1):
            load.wait_for_more()
            cluster.brokers[broker_id].stop()
            cluster.wait_until_gone(broker_id)
            load.wait_for_more()
            cluster.start(broker_id)
            cluster.wait_for_isr(TOPIC)
    load.check()
    check_replicas(cluster, TOPIC)


@pytest.mark.parametrize("cluster", MIXES, indirect=True)
def test_a_broker_returns_with_an_empty_disk(cluster: TappedCluster) -> None:
    cluster.start_all()
    create(cluster)
    with AcknowledgedLoad(cluster.bootstrap, TOPIC, 3) as load:
        for broker_id in (1, 2, 3):
            load.wait_for_more()
            cluster.brokers[broker_id].kill9()
            cluster.wait_until_gone(broker_id)
            cluster.wait_for_isr(TOPIC, {1, 2, 3} - {broker_id})
            cluster.brokers[broker_id].wipe()
            cluster.start(broker_id)
            cluster.wait_for_isr(TOPIC)
    load.check()
    check_replicas(cluster, TOPIC)
