"""ZooKeeper servers for the same tests: ours beside Apache's."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest
from kazoo.client import KazooClient

from support.apache import ApacheZooKeeper
from support.ottla_zookeeper import OttlaZooKeeper

Server = OttlaZooKeeper | ApacheZooKeeper
Connect = Callable[..., KazooClient]

CONNECT_TIMEOUT_S = 60.0
#: The longest that the servers agree to.
SESSION_TIMEOUT_S = 10.0
PATIENCE_S = 60.0
#: Of servers that are killed: sessions of 4 to 40 seconds, so that they live until a JVM is back on a busy machine.
LONG_TICK_MS = 2000
LONG_SESSION_S = 40.0
#: kazoo doubles its pauses up to a minute, in which a session expires that could be taken up.
SOON_AGAIN = {"max_tries": -1, "delay": 0.05, "max_delay": 0.5}

_numbers = itertools.count()


@pytest.fixture(scope="session")
def ottla_zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OttlaZooKeeper]:
    """One process of our server for all of these tests: use a chroot of your own, and do not kill it."""
    server = OttlaZooKeeper(tmp_path_factory.mktemp("ottla-zookeeper"))
    try:
        yield server.start()
    finally:
        server.stop()


@pytest.fixture(params=["ottla", pytest.param("apache", marks=pytest.mark.needs_kafka)])
def server(request: pytest.FixtureRequest) -> Server:
    """Both in turn."""
    found: Server = request.getfixturevalue(f"{request.param}_zookeeper")
    return found


@pytest.fixture
def own_server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of the test's own, to be killed; parametrize it indirectly with OttlaZooKeeper or ApacheZooKeeper."""
    found: Server = request.param(tmp_path_factory.mktemp("own-zookeeper"), tick_time_ms=LONG_TICK_MS)
    try:
        yield found.start()
    finally:
        found.stop()


@pytest.fixture
def connect(request: pytest.FixtureRequest) -> Iterator[Connect]:
    """Opens kazoo clients: `connect(hosts)`, in a chroot of the test's own; all are closed at the end."""
    chroot = f"/interop/{next(_numbers)}"
    clients: list[KazooClient] = []

    def opened(hosts: str, timeout_s: float = SESSION_TIMEOUT_S, **options: object) -> KazooClient:
        maker = KazooClient(hosts=hosts, timeout=timeout_s)
        maker.start(CONNECT_TIMEOUT_S)
        maker.ensure_path(chroot)
        maker.stop()
        maker.close()
        client = KazooClient(hosts=hosts + chroot, timeout=timeout_s, connection_retry=SOON_AGAIN, **options)
        clients.append(client)
        client.start(CONNECT_TIMEOUT_S)
        return client

    yield opened
    for client in clients:
        client.stop()
        client.close()
