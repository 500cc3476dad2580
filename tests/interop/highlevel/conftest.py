"""Connectors over a real wire: brokers that are registered in a ZooKeeper."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from interop.conftest import SETTINGS
from ottla.client.sync import ConsumerConnector, create_connector
from ottla.zk.layout import ConsumerIdZnode, ConsumerOffsetZnode, PartitionOwnerZnode
from support.apache import ApacheKafka, ApacheZooKeeper
from support.ottla_server import OttlaServer
from support.ottla_zookeeper import OttlaZooKeeper
from support.waiting import wait_until

QUICK = {
    "auto.offset.reset": "smallest",
    "rebalance.backoff.ms": 200,
    "rebalance.max.retries": 100,
    "refresh.leader.backoff.ms": 100,
    "zookeeper.session.timeout.ms": 4000,
}


class Cluster(NamedTuple):
    """A broker and its ZooKeeper."""

    bootstrap: str
    zookeeper: str

    def create(self, topic: str, partitions: int) -> None:
        """Make a topic and wait until all its partitions have leaders."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)
        self.wait_for_leaders(topic, partitions)

    def grow(self, topic: str, partitions: int) -> None:
        """Give the topic more partitions."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(30)
        self.wait_for_leaders(topic, partitions)

    def wait_for_leaders(self, topic: str, partitions: int) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})

        def have_leaders() -> bool:
            found = admin.list_topics(topic, 10).topics[topic].partitions
            return len(found) == partitions and all(each.leader >= 0 for each in found.values())

        wait_until(have_leaders, f"leaders of {topic}")

    def produce(self, topic: str, partitions: int, count: int, first: int = 0) -> None:
        """Records numbered from `first` on, dealt to the partitions in turn."""
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for number in range(first, first + count):
            producer.produce(topic, str(number), partition=number % partitions)
        assert producer.flush(20) == 0


@pytest.fixture
def apache_cluster(apache_kafka: ApacheKafka, apache_zookeeper: ApacheZooKeeper) -> Cluster:
    """Apache Kafka 3.9.1 and Apache ZooKeeper."""
    return Cluster(apache_kafka.bootstrap, apache_zookeeper.connect)


@pytest.fixture(scope="session")
def apache_on_ottla_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Apache Kafka 3.9.1 on `ottla zookeeper`."""
    folder = tmp_path_factory.mktemp("highlevel")
    zookeeper = OttlaZooKeeper(folder / "zookeeper")
    kafka = ApacheKafka(folder, zookeeper=zookeeper)
    try:
        zookeeper.start()
        yield Cluster(kafka.start().bootstrap, zookeeper.connect)
    finally:
        kafka.stop()
        zookeeper.stop()


@pytest.fixture(scope="session")
def ottla_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """`ottla serve` on `ottla zookeeper`."""
    folder = tmp_path_factory.mktemp("highlevel-ottla")
    zookeeper = OttlaZooKeeper(folder / "zookeeper")
    server: OttlaServer | None = None
    try:
        zookeeper.start()
        server = OttlaServer(folder, overrides=SETTINGS, arguments=["--zookeeper", zookeeper.connect])
        yield Cluster(server.start().bootstrap, zookeeper.connect)
    finally:
        if server is not None:
            server.stop()
        zookeeper.stop()


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
            thread.join(10)
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
        """A consumer that reads so many streams of each topic."""
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

    def wait_for_owners(self, topic: str, owners: dict[int, str]) -> None:
        """Until each partition has this owner."""
        wait_until(lambda: self.owners(topic) == owners, lambda: f"owners {owners}, not {self.owners(topic)}")

    def close(self) -> None:
        for consumer in self.consumers:
            consumer.close()


@pytest.fixture
def zk(cluster: Cluster) -> Iterator[KazooClient]:
    """A client of the cluster's ZooKeeper."""
    client = KazooClient(hosts=cluster.zookeeper)
    client.start()
    try:
        yield client
    finally:
        client.stop()
        client.close()


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
