"""Partitions that move to other brokers: begun by a tool, or by a controller that another one follows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from ottla.client.model import TopicPartition
from ottla.client.sync import Admin, Producer
from ottla.testing import Cluster
from ottla.zk.client import LocalClient
from ottla.zk.layout import ControllerZnode, ReassignPartitionsZnode, TopicAssignment, TopicZnode
from support.waiting import wait_until

T = TypeVar("T")
#: Far from the sessions of the brokers.
TOOL_SESSION = 77

pytestmark = pytest.mark.spec("R5", "Z3")


def produce(cluster: Cluster, *sent: str) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap_servers, acks="all") as producer:
        for each in sent:
            producer.send("orders", each.encode())
        producer.flush()


def tool(cluster: Cluster, work: Callable[[LocalClient], Awaitable[T]]) -> T:
    """What a tool does in ZooKeeper, in the cluster's thread."""
    return cluster._running.run(work(LocalClient(cluster._store, TOOL_SESSION)))


def assignment(cluster: Cluster) -> TopicAssignment:
    async def read(zk: LocalClient) -> TopicAssignment:
        data, _ = await zk.get(TopicZnode.path("orders"))
        return TopicZnode.decode("orders", data)

    return tool(cluster, read)


def moved_to(cluster: Cluster, *replicas: int) -> bool:
    """Whether the move is done: in the znodes, for the brokers, and on their disks."""
    found = assignment(cluster)
    others = [each for each in cluster.running if each not in replicas]
    return (
        (found.partitions, found.adding, found.removing) == ({0: replicas}, {}, {})
        and cluster.replicas("orders") == replicas
        and set(cluster.in_sync("orders")) == set(replicas)
        and all(cluster.broker(each).partitions.get("orders", 0) is None for each in others)
        and all(cluster.broker(each).logs.get("orders", 0) is None for each in others)
    )


def two_replicas(cluster: Cluster) -> tuple[int, int, int]:
    """A topic with two replicas and records: those replicas, the leader first, and the third broker."""
    cluster.create_topic("orders", replication_factor=2)
    produce(cluster, "one", "two")
    first, second = cluster.replicas("orders")
    return first, second, 3 - first - second


def copied(cluster: Cluster, broker: int, *values: bytes) -> bool:
    found = cluster.wait_for_records("orders", len(values), broker=broker)
    return [each.value for each in found] == list(values)


def test_a_tool_moves_a_partition() -> None:
    with Cluster(3) as cluster:
        first, second, third = two_replicas(cluster)

        async def ask(zk: LocalClient) -> None:
            wanted = ReassignPartitionsZnode.encode({("orders", 0): (third, second), ("other", 1): (0,)})
            await zk.create(ReassignPartitionsZnode.PATH, wanted)

        tool(cluster, ask)
        wait_until(lambda: moved_to(cluster, third, second), "the move")
        assert cluster.leader("orders") == third
        produce(cluster, "three")
        assert copied(cluster, second, b"one", b"two", b"three")
        assert copied(cluster, third, b"one", b"two", b"three")
        wait_until(lambda: tool(cluster, lambda zk: zk.exists(ReassignPartitionsZnode.PATH)) is None, "no request")
        # What it had is gone: it would copy it anew.
        assert cluster.broker(first).partitions.get("orders", 0) is None


def request(cluster: Cluster, replicas: tuple[int, ...] | None = None) -> dict[tuple[str, int], tuple[int, ...]] | None:
    """Write a tool's request into the znode, over one that is there; without replicas: what it says now."""

    async def work(zk: LocalClient) -> dict[tuple[str, int], tuple[int, ...]] | None:
        path = ReassignPartitionsZnode.PATH
        if await zk.exists(path) is None:
            if replicas is not None:
                await zk.create(path, ReassignPartitionsZnode.encode({("orders", 0): replicas}))
            return None
        if replicas is not None:
            await zk.set(path, ReassignPartitionsZnode.encode({("orders", 0): replicas}))
        data, _ = await zk.get(path)
        return ReassignPartitionsZnode.decode(data)

    return tool(cluster, work)


def test_a_request_in_the_znode_is_replaced_and_gives_way_to_the_api() -> None:
    with Cluster(4) as cluster, Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        cluster.create_topic("orders", replication_factor=1)
        produce(cluster, "one")
        (first,) = cluster.replicas("orders")
        second, third, fourth = (each for each in range(4) if each != first)
        cluster.faults(first).disconnect("Fetch")  # moves begin, and do not end
        orders = TopicPartition("orders", 0)

        def moving() -> tuple[int, ...] | None:
            found = admin.list_partition_reassignments().get(orders)
            return None if found is None else found.adding_replicas

        request(cluster, (second,))
        wait_until(lambda: moving() == (second,), "the first move")
        request(cluster, (third,))
        wait_until(lambda: moving() == (third,), "the second move")
        assert request(cluster) == {("orders", 0): (third,)}, "it stays until the move has ended"
        admin.alter_partition_reassignments({orders: [fourth]})
        assert moving() == (fourth,)
        assert request(cluster) is None
        assert tool(cluster, lambda zk: zk.exists(ReassignPartitionsZnode.PATH)) is None
        cluster.faults(first).clear()
        wait_until(lambda: moved_to(cluster, fourth), "the end of the move")
        assert copied(cluster, fourth, b"one")


def test_a_move_goes_on_under_the_next_controller() -> None:
    with Cluster(3) as cluster, Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        cluster.create_topic("orders", partitions=3, replication_factor=1)
        controller = cluster.controller
        assert controller is not None
        index = next(each for each in range(3) if cluster.replicas("orders", each) != (controller,))
        (first,) = cluster.replicas("orders", index)
        third = 3 - controller - first
        cluster.faults(first).disconnect("Fetch")
        partition = TopicPartition("orders", index)
        admin.alter_partition_reassignments({partition: [third]})
        cluster.kill(controller)
        wait_until(lambda: cluster.controller not in (None, controller), "another controller")
        assert admin.list_partition_reassignments()[partition].adding_replicas == (third,)
        cluster.faults(first).clear()
        wait_until(lambda: cluster.replicas("orders", index) == (third,), "the end of the move")
        assert admin.list_partition_reassignments() == {}


def test_a_new_controller_goes_on_with_a_move() -> None:
    with Cluster(3) as cluster:
        first, second, third = two_replicas(cluster)

        async def begin(zk: LocalClient) -> None:
            """As a controller does that dies then."""
            data, _ = await zk.get(TopicZnode.path("orders"))
            topic_id = TopicZnode.decode("orders", data).topic_id
            under_way = TopicAssignment(topic_id, {0: (third, first, second)}, {0: (third,)}, {0: (first, second)})
            await zk.set(TopicZnode.path("orders"), TopicZnode.encode(under_way))

        tool(cluster, begin)
        assert cluster.replicas("orders") == (first, second), "edits of the znode alone are not followed"
        tool(cluster, lambda zk: zk.delete(ControllerZnode.PATH))
        wait_until(lambda: moved_to(cluster, third), "the end of the move")
        assert copied(cluster, third, b"one", b"two")
