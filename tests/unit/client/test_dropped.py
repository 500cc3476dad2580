"""Clients that nobody closes: a ResourceWarning, as asyncio gives for its transports, and nothing goes on running."""

from __future__ import annotations

import asyncio
import gc
import threading

import pytest

import ottla.client
import ottla.client.sync
from ottla.client.sync import Client
from support.waiting import wait_until

SETTINGS = {"auto.offset.reset": "earliest"}


@pytest.fixture
def topic(fake):
    [partition] = fake.topic("t", 0)
    fake.fill(partition, 30)
    return partition


def admin(bootstrap, topic):
    client = ottla.client.sync.Admin(bootstrap_servers=bootstrap)
    client.list_topics()
    return client


def producer(bootstrap, topic):
    client = ottla.client.sync.Producer(bootstrap_servers=bootstrap)
    client.send("t", b"v").result(60)
    return client


def consumer(bootstrap, topic):
    client = ottla.client.sync.Consumer(SETTINGS, bootstrap_servers=bootstrap)
    client.assign([topic])
    assert client.poll(5000)
    return client


def simple_consumer(bootstrap, topic):
    client = ottla.client.sync.SimpleConsumer(bootstrap_servers=bootstrap)
    assert client.fetch("t", 0, 0).records
    return client


def plain_client(bootstrap, topic):
    client = Client(bootstrap)
    client.topics()
    return client


def drop(clients):
    clients.clear()
    gc.collect()


def connections(fake):
    return sum(map(len, fake._connections.values()))


@pytest.mark.parametrize("make", [admin, producer, consumer, simple_consumer, plain_client])
def test_a_blocking_client_that_is_dropped_ends(fake, topic, make):
    before = set(threading.enumerate())
    client = make(fake.bootstrap, topic)
    started = set(threading.enumerate()) - before  # the client's own, and one that resolves names
    assert started
    gone = [client]
    del client
    with pytest.warns(ResourceWarning, match="a client was dropped without close"):
        drop(gone)
    for thread in started:
        thread.join(60)
    assert not any(thread.is_alive() for thread in started)
    wait_until(lambda: connections(fake) == 0, "the connections' end")


@pytest.mark.parametrize("make", [ottla.client.Admin, ottla.client.SimpleConsumer])
def test_a_client_of_a_loop_that_is_dropped_closes_its_connections(fake, topic, make):
    gone = []

    async def work():
        client = make(bootstrap_servers=fake.bootstrap)
        await client._cluster.refresh([])
        gone.append(client)
        del client
        with pytest.warns(ResourceWarning, match=r"a client of 127.* was dropped without close"):
            drop(gone)
        await asyncio.to_thread(wait_until, lambda: connections(fake) == 0, "the connections' end")

    asyncio.run(work())


def test_a_client_that_is_closed_is_not_warned_of(fake, topic, recwarn):
    for make in (admin, producer, consumer, simple_consumer, plain_client):
        make(fake.bootstrap, topic).close()
    gc.collect()
    assert [str(each.message) for each in recwarn] == []
