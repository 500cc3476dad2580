"""Partitions that are moved, and leaders that are elected, by the admin client: begun, listed, replaced, cancelled."""

from __future__ import annotations

import pytest

from ottla.client.admin import PartitionReassignment
from ottla.client.errors import BrokerError, PartlyFailedError
from ottla.client.model import TopicPartition
from ottla.client.sync import Admin, Producer
from ottla.testing import Cluster
from ottla.wire.apis import ApiKey
from support.waiting import wait_until

pytestmark = [pytest.mark.spec("R1", "R5"), pytest.mark.slow]

ORDERS = TopicPartition("orders", 0)


def produce(cluster: Cluster, *sent: str) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap_servers, acks="all") as producer:
        for each in sent:
            producer.send("orders", each.encode())
        producer.flush()


def admin_of(cluster: Cluster) -> Admin:
    return Admin(bootstrap_servers=cluster.bootstrap_servers)


def placed(cluster: Cluster) -> tuple[int, int, int]:
    """A topic with two replicas and records: those replicas, the leader first, and the third broker."""
    cluster.create_topic("orders", replication_factor=2)
    produce(cluster, "one", "two")
    first, second = cluster.replicas("orders")
    return first, second, 3 - first - second


def is_on(cluster: Cluster, *replicas: int) -> bool:
    others = [each for each in cluster.running if each not in replicas]
    return (
        cluster.replicas("orders") == replicas
        and set(cluster.in_sync("orders")) == set(replicas)
        and all(cluster.broker(each).logs.get("orders", 0) is None for each in others)
    )


def test_a_partition_is_moved_and_moved_back() -> None:
    with Cluster(3) as cluster, admin_of(cluster) as admin:
        first, second, third = placed(cluster)
        admin.alter_partition_reassignments({ORDERS: [third, second]})
        wait_until(lambda: is_on(cluster, third, second), "the move")
        assert cluster.leader("orders") == third
        assert admin.list_partition_reassignments() == {}
        admin.alter_partition_reassignments({ORDERS: [first, second]})
        wait_until(lambda: is_on(cluster, first, second), "the way back")
        produce(cluster, "three")
        found = cluster.wait_for_records("orders", 3, broker=first)
        assert [each.value for each in found] == [b"one", b"two", b"three"]


def test_a_move_is_listed_replaced_and_cancelled() -> None:
    with Cluster(4) as cluster, admin_of(cluster) as admin:
        cluster.create_topic("orders", replication_factor=1)
        produce(cluster, "one")
        (first,) = cluster.replicas("orders")
        second, third = [each for each in range(4) if each != first][:2]
        cluster.faults(first).disconnect(ApiKey.FETCH)  # the move begins, and does not end
        admin.alter_partition_reassignments({ORDERS: [second]})
        listed = {ORDERS: PartitionReassignment((second, first), (second,), (first,))}
        assert admin.list_partition_reassignments() == listed
        assert admin.list_partition_reassignments([ORDERS, TopicPartition("orders", 7)]) == listed
        assert admin.list_partition_reassignments([TopicPartition("other", 0)]) == {}
        admin.alter_partition_reassignments({ORDERS: [third]})
        replaced = PartitionReassignment((third, first), (third,), (first,))
        assert admin.list_partition_reassignments() == {ORDERS: replaced}
        assert replaced.target == (third,)
        admin.alter_partition_reassignments({ORDERS: None})
        assert admin.list_partition_reassignments() == {}
        wait_until(lambda: is_on(cluster, first), "the replicas to be as they were")
        with pytest.raises(BrokerError, match="NO_REASSIGNMENT_IN_PROGRESS"):
            admin.alter_partition_reassignments({ORDERS: None})


def test_what_cannot_be_moved_has_kafkas_errors() -> None:
    with Cluster(2) as cluster, admin_of(cluster) as admin:
        cluster.create_topic("orders", partitions=2, replication_factor=1)
        (first,) = cluster.replicas("orders")
        with pytest.raises(PartlyFailedError) as caught:
            admin.alter_partition_reassignments(
                {
                    ORDERS: [1 - first],
                    TopicPartition("orders", 1): [9],
                    TopicPartition("orders", 2): [0],
                    TopicPartition("none", 0): [0, 0],
                    TopicPartition("none", 1): [],
                    TopicPartition("none", 2): [-5],
                    TopicPartition("none", 3): None,
                }
            )
        names = {str(key): error.name for key, error in caught.value.errors.items() if isinstance(error, BrokerError)}
        assert names == {
            "orders-1": "INVALID_REPLICA_ASSIGNMENT",
            "orders-2": "UNKNOWN_TOPIC_OR_PARTITION",
            "none-0": "INVALID_REPLICA_ASSIGNMENT",
            "none-1": "INVALID_REPLICA_ASSIGNMENT",
            "none-2": "INVALID_REPLICA_ASSIGNMENT",
            "none-3": "NO_REASSIGNMENT_IN_PROGRESS",
        }
        assert list(caught.value.values) == [ORDERS]
        wait_until(lambda: is_on(cluster, 1 - first), "what can be moved")


def test_leaders_are_elected() -> None:
    with Cluster(2) as cluster, admin_of(cluster) as admin:
        cluster.create_topic("orders", partitions=2, replication_factor=2)
        first, _ = cluster.replicas("orders")
        cluster.shut_down(first)
        wait_until(lambda: cluster.leader("orders") == 1 - first, "the other one to lead")
        with pytest.raises(BrokerError, match="PREFERRED_LEADER_NOT_AVAILABLE"):
            admin.elect_leaders("preferred", [ORDERS])
        assert admin.elect_leaders("unclean", [ORDERS]) == {ORDERS: False}
        cluster.restart(first)
        cluster.wait_until_in_sync()
        assert admin.elect_leaders() == {ORDERS: True}
        assert admin.elect_leaders("preferred", [ORDERS]) == {ORDERS: False}
        wait_until(lambda: cluster.leader("orders") == first, "the preferred one to lead")


def test_the_controller_balances_leaders() -> None:
    settings = {"auto.leader.rebalance.enable": True, "leader.imbalance.check.interval.seconds": 1}
    with Cluster(2, settings=settings) as cluster:
        cluster.create_topic("orders", partitions=2, replication_factor=2)
        first, _ = cluster.replicas("orders")
        cluster.kill(first)
        wait_until(lambda: cluster.leader("orders") == 1 - first, "the other one to lead")
        cluster.restart(first)
        wait_until(lambda: cluster.leader("orders") == first, "the preferred one to lead again", 60)
