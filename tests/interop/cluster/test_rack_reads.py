"""Reads from the follower in the consumer's rack (KIP-392): consumers of every make, our brokers and mixed clusters."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from ottla.client.sync import Producer
from ottla.config.refusals import RACK_AWARE
from ottla.testing import Cluster
from support.rack_readers import READERS, OttlaReader, RackReader, java_reads
from support.tapped_cluster import Maker, TappedCluster
from support.waiting import wait_until

pytestmark = [pytest.mark.spec("R2"), pytest.mark.slow]

TOPIC = "t"
RACKS = ("a", "b", "c")
SOME = 200
SETTINGS = {"replica.selector.class": RACK_AWARE, "replica.lag.time.max.ms": "3000"}


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Three brokers in three racks."""
    with Cluster(3, racks=RACKS, settings=SETTINGS, topics={TOPIC: 1}) as cluster:
        yield cluster


def write(bootstrap: str, count: int) -> None:
    with Producer(bootstrap_servers=bootstrap, acks="all", linger_ms=0) as producer:
        sent = [producer.send(TOPIC, b"%d" % number, partition=0) for number in range(count)]
        for each in sent:
            each.result(60)


def rack_of_a_follower(cluster: Cluster) -> tuple[int, str]:
    """A broker that does not lead the topic, and its rack."""
    leader = cluster.leader(TOPIC)
    follower = next(broker_id for broker_id in cluster.running if broker_id != leader)
    return follower, RACKS[follower]


def bytes_read(cluster: Cluster, broker_id: int) -> int:
    return cluster.broker(broker_id).rack_reads.bytes_read


@pytest.mark.parametrize("make", READERS)
def test_a_consumer_reads_in_its_rack_and_from_the_leader_when_nobody_is_there(cluster: Cluster, make: str) -> None:
    follower, rack = rack_of_a_follower(cluster)
    write(cluster.bootstrap_servers, SOME)
    reader: RackReader = READERS[make](cluster.bootstrap_servers, TOPIC, rack)
    try:
        reader.read_up_to(SOME)
        before = bytes_read(cluster, follower)
        assert before > 0, "nothing was read in the rack"
        write(cluster.bootstrap_servers, SOME)
        reader.read_up_to(2 * SOME)
        assert bytes_read(cluster, follower) > before
        cluster.kill(follower)
        write(cluster.bootstrap_servers, SOME)
        reader.read_up_to(3 * SOME)
        cluster.restart(follower)
        cluster.wait_until_in_sync(TOPIC)
        end = 3 * SOME
        while bytes_read(cluster, follower) == 0:  # once the consumer has asked its leader again
            write(cluster.bootstrap_servers, SOME)
            end += SOME
            reader.read_up_to(end)
        reader.check(end)
    finally:
        reader.close()


@pytest.mark.parametrize("make", READERS)
def test_the_follower_becomes_leader_and_the_leader_follower(cluster: Cluster, make: str) -> None:
    _, rack = rack_of_a_follower(cluster)
    reader: RackReader = READERS[make](cluster.bootstrap_servers, TOPIC, rack)
    end = 0
    try:
        for _ in range(3):
            write(cluster.bootstrap_servers, SOME)
            end += SOME
            reader.read_up_to(end)
            leader = cluster.leader(TOPIC)
            assert leader is not None
            cluster.shut_down(leader)
            cluster.wait_for_leader(TOPIC, other_than=leader)
            write(cluster.bootstrap_servers, SOME)
            end += SOME
            reader.read_up_to(end)
            cluster.restart(leader)
            cluster.wait_until_in_sync(TOPIC)
        reader.check(end)
    finally:
        reader.close()


@pytest.mark.needs_kafka
def test_javas_consumer_reads_in_its_rack(cluster: Cluster) -> None:
    follower, rack = rack_of_a_follower(cluster)
    write(cluster.bootstrap_servers, SOME)
    assert java_reads(cluster.bootstrap_servers, TOPIC, rack, SOME) == [str(number) for number in range(SOME)]
    assert bytes_read(cluster, follower) > 0


@pytest.mark.needs_kafka
@pytest.mark.timeout(300)
@pytest.mark.parametrize("leader", ["apache", "ottla"])
def test_the_leader_of_one_make_names_a_follower_of_the_other(tmp_path: Path, leader: Maker) -> None:
    makers: tuple[Maker, ...] = ("apache", "ottla") if leader == "apache" else ("ottla", "apache")
    internal = {"offsets.topic.replication.factor": "1"}
    with TappedCluster(tmp_path, makers, {**SETTINGS, **internal}, racks=RACKS).prepared() as cluster:
        cluster.start_together()
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 1, replica_assignment=[[1, 2]])])[TOPIC].result(60)
        cluster.wait_for_isr(TOPIC)
        write(cluster.bootstrap, SOME)
        ours = OttlaReader(cluster.bootstrap, TOPIC, RACKS[1])
        others = [READERS["confluent-kafka"](cluster.bootstrap, TOPIC, RACKS[1])]
        try:
            for reader in (ours, *others):
                reader.read_up_to(SOME)
            wait_until(lambda: not ours.poll() and ours.replica == 2, "a read from broker 2")
            write(cluster.bootstrap, SOME)
            for reader in (ours, *others):
                reader.read_up_to(2 * SOME)
            # At times it asks the leader again, and reads from it while the follower lags.
            wait_until(lambda: not ours.poll() and ours.replica == 2, "a read from broker 2 again")
            cluster.brokers[2].kill9()
            write(cluster.bootstrap, SOME)
            ours.read_up_to(3 * SOME)
            others[0].read_up_to(3 * SOME)
            for reader in (ours, *others):
                reader.check(3 * SOME)
        finally:
            ours.close()
            others[0].close()
        if leader == "ottla":
            # Java's consumer and Apache's follower, named by our leader.
            cluster.start(2)
            cluster.wait_for_isr(TOPIC)
            assert len(java_reads(cluster.bootstrap, TOPIC, RACKS[1], 3 * SOME)) == 3 * SOME
