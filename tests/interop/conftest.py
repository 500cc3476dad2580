"""Brokers for the clients to judge: ours beside Apache Kafka, both with little to wait for."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from interop.both_brokers import BrokerPair
from interop.raw import RawConnection
from interop.wire_json import Definitions
from support.apache import ApacheKafka, ApacheZooKeeper
from support.brokers import RunningBroker
from support.java import kafka_libs
from support.old_consumers import OldConsumer
from support.ottla_server import OttlaServer
from support.ottla_zookeeper import OttlaZooKeeper
from support.zk_clusters import Cluster
from support.zk_trees import open_tree

#: What `support.apache` sets for Apache Kafka too, where tests can see a difference. Records are as old as they like.
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "log.retention.ms": "-1",
    "offsets.topic.num.partitions": "4",
}

with warnings.catch_warnings():
    # It reads its message definitions, on import, with functions that Python calls deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.admin  # noqa: F401

Server = OttlaServer | ApacheKafka


@pytest.fixture(scope="session")
def shared_ottla_server(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Server]:
    """One process of our broker for all of these tests: use topics and groups of your own, and do not kill it.

    With OTTLA_INTEROP_SELF_CHECK=1 a second Apache Kafka takes its place: what fails then is a fault of the test.
    """
    server: Server
    if os.environ.get("OTTLA_INTEROP_SELF_CHECK") == "1":
        zookeeper = request.getfixturevalue("apache_zookeeper")
        apart = {"zookeeper.connect": f"{zookeeper.connect}/second"}
        server = ApacheKafka(tmp_path_factory.mktemp("second"), zookeeper=zookeeper, overrides=apart)
    else:
        server = OttlaServer(tmp_path_factory.mktemp("ottla"), overrides=SETTINGS, arguments=["--id", "1"])
    try:
        server.start()
        yield server
    finally:
        server.stop()


@pytest.fixture(params=["ottla", pytest.param("apache", marks=pytest.mark.long)])
def broker(request: pytest.FixtureRequest) -> RunningBroker:
    """Ours; in long runs Apache Kafka too, to see that a failure is not a fault of the test."""
    name = {"ottla": "shared_ottla_server", "apache": "apache_kafka"}[request.param]
    found: RunningBroker = request.getfixturevalue(name)
    return found


@pytest.fixture
def ottla_only(shared_ottla_server: Server) -> OttlaServer:
    """Our broker, for what Apache Kafka does otherwise."""
    if not isinstance(shared_ottla_server, OttlaServer):
        pytest.skip("about ottla only")
    return shared_ottla_server


@pytest.fixture(scope="session")
def definitions() -> Definitions:
    """Apache Kafka's own message definitions. Tests that use them are marked needs_kafka."""
    libs = kafka_libs()
    assert libs is not None
    return Definitions(libs)


@pytest.fixture
def connect(definitions: Definitions) -> Iterator[Callable[[RunningBroker], RawConnection]]:
    """Makes raw connections, all closed in the end."""
    opened: list[RawConnection] = []

    def make(broker: RunningBroker, timeout_s: float = 60.0) -> RawConnection:
        opened.append(RawConnection(broker.bootstrap, definitions, timeout_s))
        return opened[-1]

    yield make
    for connection in opened:
        connection.close()


@pytest.fixture
def raw(connect: Callable[[RunningBroker], RawConnection], broker: RunningBroker) -> RawConnection:
    """A raw connection to the broker under test."""
    return connect(broker)


@pytest.fixture
def pair(
    connect: Callable[[RunningBroker], RawConnection], shared_ottla_server: Server, apache_kafka: ApacheKafka
) -> BrokerPair:
    """Our broker and Apache Kafka, asked the same questions. Tests that use it are marked needs_kafka."""
    return BrokerPair(connect(shared_ottla_server), connect(apache_kafka))


@pytest.fixture
def apache_cluster(apache_kafka: ApacheKafka, apache_zookeeper: ApacheZooKeeper) -> Cluster:
    """Apache Kafka 3.9.1 and Apache ZooKeeper."""
    return Cluster(apache_kafka.bootstrap, apache_zookeeper.connect)


@pytest.fixture(scope="session")
def apache_on_ottla_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Apache Kafka 3.9.1 on `ottla zookeeper`."""
    folder = tmp_path_factory.mktemp("apache-on-ottla")
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
    folder = tmp_path_factory.mktemp("ottla-on-ottla")
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


@pytest.fixture(scope="session")
def ottla_on_apache_cluster(
    tmp_path_factory: pytest.TempPathFactory, apache_zookeeper: ApacheZooKeeper
) -> Iterator[Cluster]:
    """`ottla serve` on Apache ZooKeeper."""
    connect = f"{apache_zookeeper.connect}/ottla-on-apache"
    arguments = ["--id", "1", "--zookeeper", connect]
    server = OttlaServer(tmp_path_factory.mktemp("ottla-on-apache"), overrides=SETTINGS, arguments=arguments)
    try:
        yield Cluster(server.start().bootstrap, connect)
    finally:
        server.stop()


@pytest.fixture(scope="session")
def embedded_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """`ottla serve` with its own tree open to other processes."""
    arguments = ["--id", "1", "--zookeeper-port", "0"]
    server = OttlaServer(tmp_path_factory.mktemp("embedded"), overrides=SETTINGS, arguments=arguments)
    try:
        bootstrap = server.start().bootstrap
        yield Cluster(bootstrap, re.findall(r"ZooKeeper clients on ([^\s,]+)", server.server.stdout)[-1])
    finally:
        server.stop()


@pytest.fixture
def zk(cluster: Cluster) -> Iterator[KazooClient]:
    """A client of the ZooKeeper of the cluster under test, which each folder chooses."""
    client = open_tree(cluster.zookeeper)
    try:
        yield client
    finally:
        client.stop()
        client.close()


@pytest.fixture
def old_consumer(cluster: Cluster, tmp_path: Path) -> Iterator[Callable[..., OldConsumer]]:
    """Starts members of a group on the high-level consumer of 0.8.2.2. Tests that use it are marked needs_082."""
    started: list[OldConsumer] = []

    def start(name: str, **wanted: Any) -> OldConsumer:
        consumer = OldConsumer(name, tmp_path, zookeeper=cluster.zookeeper, **wanted)
        started.append(consumer)
        return consumer

    yield start
    for consumer in started:
        consumer.process.kill9()
