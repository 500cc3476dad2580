"""Replication in the cluster for tests: what acks=all acknowledged is on every in-sync replica, and survives kills."""

from __future__ import annotations

import pytest

from ottla.client.sync import Producer
from ottla.testing import Cluster

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
