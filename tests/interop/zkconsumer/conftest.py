"""Connectors over a real wire: brokers that are registered in a ZooKeeper."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from ottla.zk.layout import ConsumerIdZnode, ConsumerOffsetZnode, PartitionOwnerZnode
from ottla.zkconsumer import ConsumerConnector, create_connector
from support.waiting import wait_until
from support.zk_clusters import Cluster

QUICK = {
    "auto.offset.reset": "smallest",
    "rebalance.backoff.ms": 200,
    "rebalance.max.retries": 100,
    "refresh.leader.backoff.ms": 100,
    "zookeeper.session.timeout.ms": 4000,
}


@pytest.fixture(params=["ottla", "apache", pytest.param("apache_on_ottla", marks=pytest.mark.long)])
def cluster(request: pytest.FixtureRequest) -> Cluster:
    """Each of them in turn."""
    found: Cluster = request.getfixturevalue(f"{request.param}_cluster")
    return found


class Consumer:
    """A connector whose streams are read in threads."""

    def __init__(self, connector: ConsumerConnector) -> None:
        self.connector = connector
        self.got: list[tuple[int, int, int]] = []
        """Partition, offset, value, as they came."""
        self.owned: set[int] = set()
        self.calls: list[str] = []
        self.threads: list[threading.Thread] = []
        connector.set_rebalance_listener(self)

    @property
    def id(self) -> str:
        return self.connector.consumer_id

    @property
    def values(self) -> list[int]:
        return sorted(value for _, _, value in list(self.got))

    def before_releasing_partitions(self, owned: dict[str, set[int]]) -> None:
        self.calls.append("releasing")

    def before_starting_fetchers(self, consumer: str, assignment: dict[str, dict[int, str]]) -> None:
        self.calls.append("starting")

    def read(self, streams: list[Any]) -> None:
        """Read each in a thread."""
        for stream in streams:
            thread = threading.Thread(target=self._read, args=(stream,), daemon=True)
            self.threads.append(thread)
            thread.start()

    def _read(self, stream: Any) -> None:
        for message in stream:
            self.got.append((message.partition, message.offset, int(message.value)))

    def close(self) -> None:
        """Leave the group; the threads end by themselves."""
        self.connector.shutdown()
        for thread in self.threads:
            thread.join(60)
            assert not thread.is_alive()


class Group:
    """A group of such consumers, and its nodes in ZooKeeper."""

    def __init__(self, cluster: Cluster, name: str, zk: KazooClient) -> None:
        self.cluster = cluster
        self.name = name
        self.zk = zk
        self.consumers: list[Consumer] = []

    def connect(self, **settings: Any) -> Consumer:
        """A connector whose streams are still to be made; `name` is its consumer.id."""
        named = {key.replace("_", "."): value for key, value in settings.items()}
        needed = {"zookeeper.connect": self.cluster.zookeeper, "group.id": self.name}
        consumer = Consumer(create_connector(QUICK | needed | named))
        self.consumers.append(consumer)
        return consumer

    def start(self, streams: dict[str, int], **settings: Any) -> Consumer:
        """A consumer that reads this many streams of each topic."""
        consumer = self.connect(**settings)
        made = consumer.connector.create_message_streams(streams)
        consumer.read([stream for of_topic in made.values() for stream in of_topic])
        return consumer

    def owners(self, topic: str) -> dict[int, str]:
        """The thread that owns each partition, without the group's name before it."""
        try:
            names = self.zk.get_children(PartitionOwnerZnode.topic_path(self.name, topic))
            found = {int(each): self.zk.get(PartitionOwnerZnode.path(self.name, topic, int(each)))[0] for each in names}
        except NoNodeError:
            return {}  # one of them was released meanwhile
        return {number: found[number].decode().removeprefix(f"{self.name}_") for number in sorted(found)}

    def members(self) -> list[str]:
        """The consumers that are registered."""
        try:
            return sorted(self.zk.get_children(ConsumerIdZnode.group_path(self.name)))
        except NoNodeError:
            return []

    def offsets(self, topic: str, partitions: int) -> list[int | None]:
        """The offsets in ZooKeeper."""
        found: list[int | None] = []
        for partition in range(partitions):
            path = ConsumerOffsetZnode.path(self.name, topic, partition)
            found.append(ConsumerOffsetZnode.decode(path, self.zk.get(path)[0]) if self.zk.exists(path) else None)
        return found

    def wait_until_owned_by(self, topic: str, owners: dict[int, str]) -> None:
        """Until each partition has this owner."""
        wait_until(lambda: self.owners(topic) == owners, lambda: f"owners {owners}, not {self.owners(topic)}")

    def close(self) -> None:
        for consumer in self.consumers:
            consumer.close()


@pytest.fixture
def groups(cluster: Cluster, zk: KazooClient) -> Iterator[Callable[[str], Group]]:
    """Makes groups by name."""
    made: list[Group] = []

    def group(name: str) -> Group:
        made.append(Group(cluster, name, zk))
        return made[-1]

    yield group
    for each in made:
        each.close()


@pytest.fixture
def group(groups: Callable[[str], Group], unique: str) -> Group:
    """A group of the test's own."""
    return groups(f"{unique}-group")


@pytest.fixture
def outputs(tmp_path: Path) -> Path:
    """Where processes write."""
    return tmp_path
