"""Changes while the connection to ZooKeeper is cut all the time, and while sessions expire: broker and tree agree."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import NewPartitions, NewTopic
from kazoo.client import KazooClient

from interop.zookeeper.brokers.conftest import SHORT_SESSION
from interop.zookeeper.brokers.test_in_the_tree import admin, read, send
from interop.zookeeper.conftest import Server
from support.ottla_server import OttlaServer
from support.proxy import Proxy
from support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.spec("Z2", "Z3")]

CHANGES = 60
NAMES = 8
MOST_PARTITIONS = 12
EXPIRIES = 2
MADE_ANEW = 12
MOST_LINES = 40
#: On a busy machine, which reads the tree slowly.
SETTLED_S = 60.0


@contextmanager
def background(work: Callable[[threading.Event], None]) -> Iterator[None]:
    stop = threading.Event()
    thread = threading.Thread(target=work, args=(stop,))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


class Changes:
    """Random changes, by requests and in the tree, and what is known of the topics after them."""

    def __init__(self, server: OttlaServer, tree: KazooClient, chance: random.Random) -> None:
        self.asker = admin(server)
        self.server = server
        self.tree = tree
        self.chance = chance
        #: Partitions of each topic, 0 where it is not there, None where that is not known.
        self.known: dict[str, int | None] = {f"t{number}": 0 for number in range(NAMES)}
        #: The changes and what they came to, for failures.
        self.made: list[str] = []

    def shown(self) -> str:
        """What is known, what is in the tree, what is served, the changes, and the log."""
        made = "\n".join(self.made)
        return f"{self.known} {self.in_the_tree()} {self.served()}\n{made}\n{self.told()}"

    def told(self) -> str:
        """The last lines of the broker's log, for failures."""
        return "\n".join(self.server.server.stderr.splitlines()[-MOST_LINES:])

    def make_one(self) -> None:
        name = self.chance.choice(sorted(self.known))
        count = self.known[name]
        kind = self.chance.choice(("request", "request", "tree"))
        outcome = ""
        try:
            if count == 0:
                self._create(name, kind)
            elif count is not None and count < MOST_PARTITIONS and self.chance.random() < 0.5:
                self._grow(name, count + self.chance.randrange(1, 3))
            else:
                self._delete(name, kind)
        except KafkaException as error:
            self.known[name] = None
            outcome = f" ({error})"
        self.made.append(f"{name}: {count} -> {self.known[name]} by {kind}{outcome}")

    def _create(self, name: str, kind: str) -> None:
        count = self.chance.randrange(1, 4)
        if kind == "tree":
            # It may be half deleted by a request whose outcome is not known, and so only where it is.
            data = json.dumps({"version": 1, "partitions": {str(index): [7] for index in range(count)}})
            self.tree.create(f"/brokers/topics/{name}", data.encode())
        else:
            self.asker.create_topics([NewTopic(name, count, 1)], operation_timeout=10, request_timeout=15)[
                name
            ].result()
        self.known[name] = count

    def _grow(self, name: str, count: int) -> None:
        self.asker.create_partitions([NewPartitions(name, count)], request_timeout=15)[name].result()
        self.known[name] = count

    def _delete(self, name: str, kind: str) -> None:
        if kind == "tree":
            if not self.tree.exists(f"/admin/delete_topics/{name}"):
                self.tree.create(f"/admin/delete_topics/{name}")
            mark, node = f"/admin/delete_topics/{name}", f"/brokers/topics/{name}"
            gone = lambda: not self.tree.exists(mark) and not self.tree.exists(node)  # noqa: E731
            wait_until(gone, lambda: f"the deletion of {name}: {self.told()}", SETTLED_S)
        else:
            self.asker.delete_topics([name], operation_timeout=10, request_timeout=15)[name].result()
        self.known[name] = 0

    def served(self) -> dict[str, int]:
        topics = self.asker.list_topics(timeout=60).topics
        return {name: len(topic.partitions) for name, topic in topics.items() if name in self.known}

    def in_the_tree(self) -> dict[str, int]:
        """The topics whose partitions all have their leader's node."""
        found = {}
        for name in self.tree.get_children("/brokers/topics"):
            if name in self.known:
                partitions = json.loads(self.tree.get(f"/brokers/topics/{name}")[0])["partitions"]
                for index in partitions:
                    path = f"/brokers/topics/{name}/partitions/{index}/state"
                    if not self.tree.exists(path) or json.loads(self.tree.get(path)[0])["leader"] != 7:
                        return {}
                found[name] = len(partitions)
        return found

    def agreed(self) -> bool:
        tree, served = self.in_the_tree(), self.served()
        expected = {name: count for name, count in self.known.items() if count is not None}
        return (
            tree == served
            and all(served.get(name, 0) == count for name, count in expected.items())
            and not self.tree.get_children("/admin/delete_topics")
        )


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 8))])
def test_changes_through_cut_connections(
    zookeeper: Server, serve: Callable[..., OttlaServer], address: str, tree: KazooClient, seed: int
) -> None:
    with Proxy(zookeeper.port) as proxy:
        server = serve(zookeeper=f"{proxy.bootstrap}/{address.partition('/')[2]}", overrides={"broker.id": "7"})
        chance = random.Random(seed)
        changes = Changes(server, tree, random.Random(seed + 1000))

        def cut(stop: threading.Event) -> None:
            while not stop.wait(chance.uniform(0.01, 0.4)):
                proxy.cut_all()

        with background(cut):
            for _ in range(CHANGES):
                changes.make_one()
        wait_until(changes.agreed, changes.shown, SETTLED_S)
        assert tree.get_children("/brokers/ids") == ["7"]
        assert "Traceback" not in server.server.stderr


def test_a_topic_made_by_a_tool_right_after_a_deletion_stays(
    zookeeper: Server, serve: Callable[..., OttlaServer], address: str, tree: KazooClient
) -> None:
    """A broker looks at the deletion's mark once more when its connection broke, and continues with a later topic."""
    with Proxy(zookeeper.port) as proxy:
        server = serve(zookeeper=f"{proxy.bootstrap}/{address.partition('/')[2]}", overrides={"broker.id": "7"})
        asker = admin(server)

        def has_two_partitions(name: str) -> bool:
            topic = asker.list_topics(timeout=60).topics.get(name)
            return topic is not None and len(topic.partitions) == 2

        names = [f"t{number}" for number in range(MADE_ANEW)]
        for name in names:
            asker.create_topics([NewTopic(name, 1, 1)])[name].result()
            asker.delete_topics([name])[name].result()
            proxy.cut_all()
            tree.create(f"/brokers/topics/{name}", b'{"version":1,"partitions":{"0":[7],"1":[7]}}')
            wait_until(lambda name=name: has_two_partitions(name), f"topic {name}, made by a tool", SETTLED_S)
        assert all(map(has_two_partitions, names))
        assert sorted(tree.get_children("/brokers/topics")) == sorted(names)


def test_records_and_changes_through_sessions_that_expire(
    zookeeper: Server, serve: Callable[..., OttlaServer], address: str, tree: KazooClient
) -> None:
    with Proxy(zookeeper.port) as proxy:
        server = serve(zookeeper=f"{proxy.bootstrap}/{address.partition('/')[2]}", overrides=SHORT_SESSION)
        asker = admin(server)
        asker.create_topics([NewTopic("t", 2, 1)])["t"].result()
        sent: list[str] = []

        def produce(stop: threading.Event) -> None:
            while not stop.wait(0.01):
                sent.append(f"{len(sent):06}")
                send(server, "t", sent[-1])

        changes = Changes(server, tree, random.Random(3))
        with background(produce):
            for expiry in range(1, EXPIRIES + 1):
                proxy.refuse(3600)
                changes.make_one()  # waits for the connection, and then fails
                wait_until(lambda: not tree.exists("/brokers/ids/7"), "the end of the session", SETTLED_S)
                proxy.heal()
                wait_until(lambda: tree.exists("/brokers/ids/7"), "another registration", SETTLED_S)
                epoch = str(expiry + 1).encode()
                wait_until(lambda epoch=epoch: tree.get("/controller_epoch")[0] == epoch, "another election")
        wait_until(changes.agreed, changes.shown, SETTLED_S)
        assert read(server, "t", len(sent)) == sent
        assert "Traceback" not in server.server.stderr
