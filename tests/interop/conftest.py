"""Brokers for the clients to judge: ours beside Apache Kafka, both with little to wait for."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator

import pytest

from interop.raw import RawConnection
from interop.twin import Twin
from interop.wire_json import Definitions
from support.apache import ApacheKafka
from support.brokers import RunningBroker
from support.java import kafka_libs
from support.ottla_server import OttlaServer

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

    def make(broker: RunningBroker, timeout_s: float = 20.0) -> RawConnection:
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
def twin(
    connect: Callable[[RunningBroker], RawConnection], shared_ottla_server: Server, apache_kafka: ApacheKafka
) -> Twin:
    """Our broker and Apache Kafka, asked the same questions. Tests that use it are marked needs_kafka."""
    return Twin(connect(shared_ottla_server), connect(apache_kafka))
