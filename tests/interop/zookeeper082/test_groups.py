"""Groups of Apache Kafka's high-level consumer of 0.8.2.2, which share partitions by way of ZooKeeper."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from ottla.zk.layout import ConsumerIdZnode, ConsumerOffsetZnode, PartitionOwnerZnode
from support.old_consumers import OldConsumer
from support.waiting import wait_until
from support.zk_clusters import Cluster

pytestmark = [pytest.mark.needs_kafka, pytest.mark.needs_082, pytest.mark.slow, pytest.mark.spec("Z4", "Z6", "A7")]

StartConsumer = Callable[..., OldConsumer]


def owners(zk: KazooClient, group: str, topic: str) -> dict[int, str]:
    """The thread that owns each partition."""
    try:
        names = zk.get_children(PartitionOwnerZnode.topic_path(group, topic))
        paths = {int(name): PartitionOwnerZnode.path(group, topic, int(name)) for name in names}
        return {number: PartitionOwnerZnode.decode(path, zk.get(path)[0]) for number, path in sorted(paths.items())}
    except NoNodeError:
        # One of them was released meanwhile.
        return {}


def offsets(zk: KazooClient, group: str, topic: str, partitions: int) -> list[int | None]:
    """The positions in ZooKeeper."""
    found: list[int | None] = []
    for partition in range(partitions):
        path = ConsumerOffsetZnode.path(group, topic, partition)
        found.append(ConsumerOffsetZnode.decode(path, zk.get(path)[0]) if zk.exists(path) else None)
    return found


def values(*consumers: OldConsumer) -> list[int]:
    return sorted(int(got.value) for consumer in consumers for got in consumer.got())


def test_two_consumers_share_five_partitions_by_threads(
    cluster: Cluster, zk: KazooClient, unique: str, old_consumer: StartConsumer
) -> None:
    cluster.create(unique, 5)
    cluster.produce(unique, 5, 50)
    group = f"{unique}-group"
    first = old_consumer("c1", group=group, subscription=f"{unique}:2")
    wait_until(lambda: values(first) == list(range(50)), "the first to read all")
    second = old_consumer("c2", group=group, subscription=f"{unique}:2")
    wanted = {0: "c1-0", 1: "c1-0", 2: "c1-1", 3: "c2-0", 4: "c2-1"}
    expected = {number: f"{group}_{thread}" for number, thread in wanted.items()}
    wait_until(lambda: owners(zk, group, unique) == expected, "each partition to have its owner")
    registration = ConsumerIdZnode.decode("", zk.get(ConsumerIdZnode.path(group, first.id))[0])
    assert (dict(registration.subscription), registration.pattern) == ({unique: 2}, "static")
    cluster.produce(unique, 5, 50, first=50)
    wait_until(lambda: set(values(first, second)) == set(range(100)), "both to read all")
    assert {got.partition for got in second.got()} <= {3, 4}
    second.close()
    alone = {number: f"{first.id}-{int(number > 2)}" for number in range(5)}
    wait_until(lambda: owners(zk, group, unique) == alone, "one to have all")
    first.close()
    assert offsets(zk, group, unique, 5) == [20] * 5
    assert owners(zk, group, unique) == {}
    assert zk.get_children(ConsumerIdZnode.group_path(group)) == []


@pytest.mark.long
def test_a_killed_consumer_is_followed_by_the_other(
    cluster: Cluster, zk: KazooClient, unique: str, old_consumer: StartConsumer
) -> None:
    cluster.create(unique, 4)
    group = f"{unique}-group"
    first = old_consumer("c1", group=group, subscription=f"{unique}:1")
    second = old_consumer("c2", group=group, subscription=f"{unique}:1")
    both = {f"{first.id}-0", f"{second.id}-0"}
    wait_until(lambda: (found := owners(zk, group, unique)) and len(found) == 4 and set(found.values()) == both, "both")
    first.process.kill9()
    wait_until(lambda: list(owners(zk, group, unique).values()) == [f"{second.id}-0"] * 4, "one to have all")
    cluster.produce(unique, 4, 20)
    wait_until(lambda: values(second) == list(range(20)), "it to read all")
    second.close()


@pytest.mark.long
@pytest.mark.parametrize("storage", ["kafka", "dual"])
def test_offsets_in_kafka_are_found_again(
    cluster: Cluster, zk: KazooClient, unique: str, old_consumer: StartConsumer, storage: str
) -> None:
    cluster.create(unique, 2)
    cluster.produce(unique, 2, 10)
    group = f"{unique}-group"
    settings = {"offsets.storage": "kafka", "dual.commit.enabled": str(storage == "dual").lower()}
    first = old_consumer("c1", group=group, subscription=f"{unique}:1", settings=settings)
    wait_until(lambda: values(first) == list(range(10)), "all to be read")
    first.close()
    assert offsets(zk, group, unique, 2) == ([5, 5] if storage == "dual" else [None, None])
    second = old_consumer("c2", group=group, subscription=f"{unique}:1", settings=settings)
    cluster.produce(unique, 2, 4, first=10)
    wait_until(lambda: values(second) == list(range(10, 14)), "the rest to be read, and no more")
    second.close()


@pytest.mark.long
@pytest.mark.parametrize("kind", ["white_list", "black_list"])
def test_a_topic_that_a_filter_takes_is_consumed_when_it_is_made(
    cluster: Cluster, zk: KazooClient, unique: str, old_consumer: StartConsumer, kind: str
) -> None:
    mine, other = f"{unique}-mine", f"{unique}-other"
    cluster.create(mine, 1)
    cluster.produce(mine, 1, 3)
    group = f"{unique}-group"
    pattern = f"{unique}-m.*|{unique}-n.*" if kind == "white_list" else f"(?!{unique}-[mn]).*"
    consumer = old_consumer("c1", group=group, subscription=f"{kind}:{pattern}:1")
    wait_until(lambda: values(consumer) == [0, 1, 2], "what is there")
    new = f"{unique}-new"
    for topic in (other, new):
        cluster.create(topic, 1)
        cluster.produce(topic, 1, 2)
    wait_until(lambda: len(values(consumer)) == 5, "what came later")
    assert {got.topic for got in consumer.got()} == {mine, new}
    registration = ConsumerIdZnode.decode("", zk.get(ConsumerIdZnode.path(group, consumer.id))[0])
    assert registration.pattern == kind
    assert dict(registration.subscription) == {pattern: 1}
    consumer.close()
