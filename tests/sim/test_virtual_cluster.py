"""Shipped brokers and shipped clients in one process on virtual time: they serve, and a seed tells all of it.

Three brokers with sessions in the process register, elect a controller, serve their own partitions to a client, and go
on when the controller stops. Nothing of it uses a thread, a socket, a clock or randomness of the machine.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ottla.client import Admin, Consumer, NewTopic, Producer
from support.virtual_cluster import VirtualCluster

Read = list[tuple[str, int, bytes | None]]
Told = tuple[Read, list[tuple[Any, ...]]]
BROKERS = (1, 2, 3)
TOPICS = {"a": 6, "b": 3}
RECORDS = 600
MOST_POLLS = 60


def settings(cluster: VirtualCluster) -> dict[str, Any]:
    """Of each client."""
    return {"bootstrap_servers": cluster.bootstrap_servers(), "environment": cluster.environment(), "client_id": "c"}


async def produce(cluster: VirtualCluster, topics: dict[str, int], count: int) -> None:
    """Make the topics, and send numbered records to all of them."""
    async with Admin(**settings(cluster)) as admin:
        await admin.create_topics([NewTopic(name, partitions) for name, partitions in topics.items()])
    producer: Producer[bytes, bytes] = Producer(**settings(cluster))
    async with producer:
        for number in range(count):
            await producer.send(list(topics)[number % len(topics)], b"%d" % number, key=b"%d" % number)


async def consume(cluster: VirtualCluster, group_id: str, topics: dict[str, int], count: int) -> Read:
    """So many records of the topics, read by a group of one."""
    read: Read = []
    consumer: Consumer[bytes, bytes] = Consumer(**settings(cluster), group_id=group_id, auto_offset_reset="earliest")
    async with consumer:
        await consumer.subscribe(list(topics))
        for _ in range(MOST_POLLS):
            read += [(each.topic, each.partition, each.value) for each in await consumer.poll(1000)]
            if len(read) >= count:
                break
    return read


def numbers(read: Read) -> list[int]:
    return sorted(int(value or b"") for _, _, value in read)


def one_broker(seed: int) -> Told:
    async def story(cluster: VirtualCluster) -> Read:
        await cluster.start(1)
        await produce(cluster, {"a": 2, "b": 1}, 200)
        return await consume(cluster, "g", {"a": 2, "b": 1}, 200)

    cluster = VirtualCluster(seed)
    return cluster.run(story), cluster.history()


@pytest.mark.usefixtures("sealed")
def test_one_broker_and_its_clients() -> None:
    read, history = one_broker(1)
    assert numbers(read) == list(range(200))
    assert one_broker(1) == (read, history)
    assert one_broker(2)[1] != history


def three_brokers(seed: int) -> Told:
    async def story(cluster: VirtualCluster) -> Read:
        await asyncio.gather(*map(cluster.start, BROKERS))
        await cluster.until(
            lambda: all(set(broker.image.brokers) == set(BROKERS) for broker in cluster.brokers.values()),
            "word of the controller to all brokers",
        )
        first = cluster.controller()
        await produce(cluster, TOPICS, RECORDS)
        led = cluster.led(TOPICS)
        assert sorted(led) == [(topic, index) for topic, count in TOPICS.items() for index in range(count)]
        assert set(led.values()) == set(BROKERS), "each serves some"
        read = await consume(cluster, "g", TOPICS, RECORDS)
        await cluster.stop(first)
        await cluster.until(lambda: cluster.controller() != -1, "another controller")
        assert cluster.controller() != first
        await cluster.start(first)
        await cluster.until(cluster.all_partitions_have_leaders, "the partitions of the first controller")
        return read + await consume(cluster, "another", TOPICS, RECORDS)

    cluster = VirtualCluster(seed)
    return cluster.run(story), cluster.history()


@pytest.mark.slow
@pytest.mark.usefixtures("sealed")
@pytest.mark.parametrize("seed", range(2))
def test_three_brokers_elect_a_controller_and_serve_their_own_partitions(seed: int) -> None:
    read, history = three_brokers(seed)
    assert numbers(read[:RECORDS]) == list(range(RECORDS))
    assert numbers(read[RECORDS:]) == list(range(RECORDS)), "with another controller, after a restart"
    assert three_brokers(seed) == (read, history)
