"""Replication in the cluster for tests: what acks=all acknowledged is on every in-sync replica, and survives kills."""

from __future__ import annotations

import pytest

from ottla.client.sync import Producer
from ottla.testing import Cluster
from support.waiting import wait_until

pytestmark = pytest.mark.spec("R5")


def values(cluster: Cluster, topic: str, broker: int) -> list[bytes | None]:
    return [each.value for each in cluster.records(topic, broker=broker)]


def produce(cluster: Cluster, topic: str, *sent: str) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap_servers, acks="all") as producer:
        for each in sent:
            producer.send(topic, each.encode())
        producer.flush()


def test_a_leader_dies_and_comes_back() -> None:
    with Cluster(3) as cluster:
        cluster.create_topic("orders", min_insync_replicas=2)
        produce(cluster, "orders", "one", "two")
        former = cluster.wait_for_leader("orders")
        cluster.kill(former)
        leader = cluster.wait_for_leader("orders", other_than=former)
        assert values(cluster, "orders", leader) == [b"one", b"two"]
        produce(cluster, "orders", "three")
        cluster.restart(former)
        cluster.wait_until_in_sync("orders")
        for broker in range(3):
            assert values(cluster, "orders", broker) == [b"one", b"two", b"three"]


def test_losing_all_replicas_but_one_loses_nothing() -> None:
    with Cluster(3) as cluster:
        cluster.create_topic("orders")
        produce(cluster, "orders", "one", "two")
        for _ in range(2):
            former = cluster.wait_for_leader("orders")
            cluster.kill(former)
            cluster.wait_for_leader("orders", other_than=former)
        last = cluster.wait_for_leader("orders")
        produce(cluster, "orders", "three")
        assert values(cluster, "orders", last) == [b"one", b"two", b"three"]


def test_a_broker_comes_back_with_an_empty_disk() -> None:
    with Cluster(3) as cluster:
        cluster.create_topic("orders")
        produce(cluster, "orders", "one", "two")
        follower = next(each for each in cluster.replicas("orders") if each != cluster.wait_for_leader("orders"))
        cluster.kill(follower)
        cluster.restart(follower, empty_disk=True)
        cluster.wait_until_in_sync("orders")
        assert values(cluster, "orders", follower) == [b"one", b"two"]


def test_a_log_that_only_one_broker_had_is_not_replaced_by_an_empty_one(caplog: pytest.LogCaptureFixture) -> None:
    with Cluster(2, settings={"unclean.leader.election.enable": True}) as cluster:
        cluster.create_topic("orders", partitions=2, replication_factor=1)
        produce(cluster, "orders", *(f"record {number}" for number in range(20)))
        for broker in (0, 1):  # the first is the controller, then the other one is
            check_a_lost_disk(cluster, broker, caplog)


def check_a_lost_disk(cluster: Cluster, broker: int, caplog: pytest.LogCaptureFixture) -> None:
    [partition] = [each for each in (0, 1) if cluster.replicas("orders", each) == (broker,)]
    for disk_is_lost in (True, False):  # restarts of this broker do not help
        cluster.kill(broker)
        caplog.clear()
        cluster.restart(broker, empty_disk=disk_is_lost)
        wait_until(lambda: "this broker has no log of it" in caplog.text, "the broker's refusal")
        wait_until_leaderless(cluster, partition)
        assert cluster.broker(broker).partitions.get("orders", partition) is None
    # This one becomes the controller, and finds it so.
    cluster.kill(1 - broker)
    cluster.restart(1 - broker)
    wait_until(lambda: cluster.controller == broker, "the election of this broker")
    wait_until_leaderless(cluster, partition)
    # Only who asks for an unclean election gets an empty partition.
    wait_until(lambda: elect(cluster, partition), "the election")
    assert cluster.leader("orders", partition) == broker
    wait_until(lambda: cluster.broker(broker).partitions.get("orders", partition), "a log")
    assert cluster.records("orders", partition, broker=broker) == []
    cluster.kill(1 - broker)
    cluster.restart(1 - broker)


def wait_until_leaderless(cluster: Cluster, partition: int) -> None:
    """Until the controller has taken the leadership away: it elects a broker that lives, and then hears of the log."""
    wait_until(lambda: cluster.leader("orders", partition) is None, "the partition to be without a leader")


def elect(cluster: Cluster, partition: int) -> bool:
    """Ask the controller for an unclean election."""
    controller = cluster.controller
    if controller is None:
        return False
    asked = cluster.broker(controller).control.admin.elect_leaders([("orders", partition)], is_unclean=True)
    return not cluster._running.run(asked).refusals
