"""Brokers with a ZooKeeper that the programs of 0.8.2.2 can go to themselves."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from kazoo.client import KazooClient

from support.apache import ApacheKafka, ApacheZooKeeper
from support.old_consumers import OldConsumer
from support.ottla_server import OttlaServer
from support.ottla_zookeeper import OttlaZooKeeper

SETTINGS = {"log.retention.ms": "-1", "offsets.topic.num.partitions": "4", "zookeeper.session.timeout.ms": "6000"}


class Cluster(NamedTuple):
    """A broker and its ZooKeeper, whoever made them."""

    bootstrap: str
    #: As `zookeeper.connect` has it.
    zookeeper: str


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
def ottla_on_apache_cluster(
    tmp_path_factory: pytest.TempPathFactory, apache_zookeeper: ApacheZooKeeper
) -> Iterator[Cluster]:
    """Our broker on Apache ZooKeeper."""
    connect = f"{apache_zookeeper.connect}/ottla-082"
    server = OttlaServer(
        tmp_path_factory.mktemp("ottla-on-apache"),
        overrides=SETTINGS,
        arguments=["--id", "1", "--zookeeper", connect],
    )
    try:
        yield Cluster(server.start().bootstrap, connect)
    finally:
        server.stop()


@pytest.fixture(scope="session")
def ottla_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Our broker with its own tree, open to other processes."""
    server = OttlaServer(
        tmp_path_factory.mktemp("ottla"), overrides=SETTINGS, arguments=["--id", "1", "--zookeeper-port", "0"]
    )
    try:
        bootstrap = server.start().bootstrap
        yield Cluster(bootstrap, re.findall(r"ZooKeeper clients on ([^\s,]+)", server.server.stdout)[-1])
    finally:
        server.stop()


@pytest.fixture(
    params=[
        "ottla",
        pytest.param("ottla_on_apache", marks=pytest.mark.long),
        pytest.param("apache_on_ottla", marks=pytest.mark.long),
        pytest.param("apache", marks=pytest.mark.long),
    ]
)
def cluster(request: pytest.FixtureRequest) -> Cluster:
    """Each of them in turn; those with Apache Kafka in long runs, to see what is right."""
    found: Cluster = request.getfixturevalue(f"{request.param}_cluster")
    return found


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
def old_consumer(cluster: Cluster, tmp_path: Path) -> Iterator[Callable[..., OldConsumer]]:
    """Starts members of a group on the consumer of 0.8.2.2; all are closed in the end."""
    started: list[OldConsumer] = []

    def start(name: str, **wanted: object) -> OldConsumer:
        consumer = OldConsumer(name, tmp_path, zookeeper=cluster.zookeeper, **wanted)  # type: ignore[arg-type]
        started.append(consumer)
        return consumer

    yield start
    for consumer in started:
        consumer.process.kill9()
