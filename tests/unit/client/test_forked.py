"""A client belongs to the process that made it: a forked child is told so, and what it does leaves the parent alone."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import traceback
from pathlib import Path

import pytest

import ottla.client
import ottla.client.sync
from ottla.client.errors import ForkedError
from ottla.client.model import TopicPartition

SETTINGS = {"auto.offset.reset": "earliest"}


def sockets():
    """The sockets of this process, by their numbers in the kernel."""
    links = (os.readlink(each) for each in Path("/proc/self/fd").iterdir() if os.path.lexists(each))
    return sorted(link for link in links if re.match("socket:", link))


def in_child(work):
    """Run `work` in a forked child that then ends as programs do; gives its exit code."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
        os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def check_refused(*calls):
    for call in calls:
        with pytest.raises(ForkedError, match=r"opened in another process, before a fork; open one in each process"):
            call()


@pytest.fixture
def topic(fake):
    [partition] = fake.topic("t", 0)
    fake.fill(partition, 30)
    return partition


def test_blocking_clients(fake, topic):
    servers = {"bootstrap.servers": fake.bootstrap}
    with (
        ottla.client.sync.Admin(servers) as admin,
        ottla.client.sync.Producer(servers) as producer,
        ottla.client.sync.Consumer({**servers, **SETTINGS}) as consumer,
        ottla.client.sync.SimpleConsumer(servers) as simple,
    ):

        def use():
            assert admin.list_topics() == ["t"]
            assert producer.send("t", b"v").result(60).topic == "t"
            consumer.assign([topic])
            assert consumer.poll(5000)
            assert simple.fetch("t", 0, 0).records

        def refused():
            check_refused(
                admin.list_topics,
                lambda: producer.send("t", b"v"),
                producer.flush,
                lambda: consumer.poll(100),
                lambda: consumer.assign([topic]),
                lambda: simple.fetch("t", 0, 0),
            )
            for client in (admin, producer, consumer, simple):
                client.close()

        use()
        before = sockets()
        assert in_child(refused) == 0
        use()
        assert sockets() == before, "the parent's connections stand"


def test_clients_of_a_loop(fake, topic):
    servers = {"bootstrap.servers": fake.bootstrap}

    async def work():
        async with (
            ottla.client.Admin(servers) as admin,
            ottla.client.Producer(servers) as producer,
            ottla.client.Consumer({**servers, **SETTINGS}) as consumer,
            ottla.client.SimpleConsumer(servers) as simple,
        ):

            async def use():
                assert await admin.list_topics() == ["t"]
                assert (await (await producer.send("t", b"v"))).topic == "t"
                await consumer.assign([TopicPartition("t", 0)])
                assert await consumer.poll(5000)
                assert (await simple.fetch("t", 0, 0)).records

            def refused():
                check_refused(
                    lambda: admin.list_topics().send(None),
                    lambda: producer.send("t", b"v").send(None),
                    lambda: consumer.poll(100).send(None),
                    lambda: simple.fetch("t", 0, 0).send(None),
                )
                for client in (admin, producer, consumer, simple):
                    with pytest.raises(StopIteration):
                        client.close().send(None)

            await use()
            before = sockets()
            assert in_child(refused) == 0
            await use()
            assert sockets() == before, "the parent's connections stand"

    asyncio.run(work())


def test_a_child_has_clients_of_its_own(fake, topic):
    servers = {"bootstrap.servers": fake.bootstrap}

    def list_topics():
        with ottla.client.sync.Admin(servers) as own:
            assert own.list_topics() == ["t"]

    with ottla.client.sync.Admin(servers) as admin:
        admin.list_topics()
        assert in_child(list_topics) == 0
        assert admin.list_topics() == ["t"]
