"""Limits of connections that change while the broker runs: by address, and by how many come in a second."""

from __future__ import annotations

import socket
import time

import pytest

from ottla.client.admin import ConfigResource
from ottla.client.sync import Admin
from ottla.config.broker import ConfigRefusal, parse_broker_config
from ottla.config.listeners import connections_of_hosts
from ottla.env.network import TcpSocket
from ottla.net.connection import ANONYMOUS
from ottla.net.listener import LOGIN_LIMIT_S, Acceptor, ConnectionSet, CreationRate
from ottla.net.reports import REPORT_PERIOD_S, REPORTS_PER_PERIOD, LimitedReports
from ottla.testing import Broker, Cluster
from support.waiting import wait_until
from support.wired_connection import HandLoop, RecordingService

pytestmark = pytest.mark.spec("R1")


def test_addresses_and_their_limits() -> None:
    assert connections_of_hosts("127.0.0.1:5, [::1]:7,") == {"127.0.0.1": 5, "::1": 7}
    for wrong in ("a", "host:5", "127.0.0.1", "127.0.0.1:x"):
        refused = parse_broker_config({"max.connections.per.ip.overrides": wrong})
        assert isinstance(refused, ConfigRefusal)
        assert "has to name addresses" in refused.problems[0]


@pytest.mark.parametrize("of_one_listener", [False, True])
def test_connections_come_no_faster_than_allowed(of_one_listener: bool) -> None:
    connections = ConnectionSet(1000, 1000)
    assert connections.wait_to_accept_ms(0, "L") == 0
    if of_one_listener:
        connections.creation_rates["L"] = CreationRate()
        connections.creation_rates["L"].limit = 10
    else:
        connections.creation_rate.limit = 10
    now_ms, accepted = 5_000.0, 0
    while now_ms < 15_000:
        wait_ms = connections.wait_to_accept_ms(now_ms, "L")
        if wait_ms:
            now_ms += wait_ms
            continue
        connections.created(now_ms, "L")
        accepted += 1
    # Those of the second before, and ten in each of ten seconds.
    assert accepted == pytest.approx(110, abs=2)
    assert bool(connections.wait_to_accept_ms(now_ms - 1, "another")) is not of_one_listener


@pytest.mark.spec("S4")
def test_a_listener_has_limits_of_its_own_that_change_while_the_broker_runs() -> None:
    settings = {
        "listeners": "A://127.0.0.1:0,B://127.0.0.1:0",
        "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT",
        "inter.broker.listener.name": "A",
        "listener.name.b.max.connections": "1",
    }
    with Broker(settings=settings) as broker, Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        (listening,) = (each for each in broker.server.listening if each.listener_name == "B")
        address, connections = ("127.0.0.1", listening.port), broker.server.connections
        node = ConfigResource.broker(broker.server.config.broker_id)
        changed = {"listener.name.b.max.connections": "2", "listener.name.b.max.connection.creation.rate": "7"}
        with socket.create_connection(address, timeout=30):
            with socket.create_connection(address, timeout=30) as refused:
                assert refused.recv(1) == b""
            admin.incremental_alter_configs({node: changed})
            wait_until(lambda: connections.limits_of_listeners == {"A": 2**31 - 1, "B": 2}, "the limits")
            assert connections.creation_rates["B"].limit == 7
            with socket.create_connection(address, timeout=30):
                wait_until(lambda: [each.listener_name for each in connections.snapshot()].count("B") == 2, "both")
        described = admin.describe_configs([node])[node]
        assert described["listener.name.b.max.connections"].value == "2"
        # As in Kafka, all brokers may have the same limit of a listener; one broker's own counts before it.
        for_all = {"listener.name.b.max.connections": "3", "listener.name.a.max.connections": "50"}
        admin.incremental_alter_configs({ConfigResource.broker(None): for_all})
        wait_until(lambda: connections.limits_of_listeners == {"A": 50, "B": 2}, "the limits of all brokers")


def test_the_limits_are_obeyed_while_the_broker_runs() -> None:
    with Cluster(1) as cluster, Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        zero = ConfigResource.broker(0)
        admin.incremental_alter_configs(
            {ConfigResource.broker(None): {"max.connections.per.ip.overrides": "127.0.0.1:2"}}
        )
        host, _, port = cluster.bootstrap_servers.partition(":")
        refused = [socket.create_connection((host, int(port)), timeout=30) for _ in range(3)]
        assert [each.recv(1) for each in refused[1:]] == [b"", b""], "one more than the admin's, and no others"
        for each in refused:
            each.close()
        changes = {"max.connections.per.ip.overrides": None, "max.connection.creation.rate": "20"}
        admin.incremental_alter_configs({ConfigResource.broker(None): changes})
        begun_s = time.monotonic()
        before = cluster.broker(0).connections.accepted
        opened = [socket.create_connection((host, int(port)), timeout=30) for _ in range(60)]
        cluster.wait_for(lambda: cluster.broker(0).connections.accepted >= before + 60, "all to be accepted")
        assert time.monotonic() - begun_s > 1.5
        for each in opened:
            each.close()
        assert admin.describe_configs([zero])[zero]["max.connection.creation.rate"].value == "20"


class OneClient:
    """A listening socket with one client."""

    def __init__(self) -> None:
        self.fd, self.port = -1, 9092
        accepted, self.client = socket.socketpair()
        self.waiting = [TcpSocket(accepted, "127.0.0.1", 1)]

    def accept(self) -> TcpSocket | None:
        return self.waiting.pop() if self.waiting else None


@pytest.mark.spec("S5")
@pytest.mark.parametrize("logs_in", [False, True])
def test_a_login_has_a_time_limit(logs_in: bool) -> None:
    loop, listening, reports, connections = HandLoop(), OneClient(), list[str](), ConnectionSet(9, 9)
    service = RecordingService()
    acceptor = Acceptor(loop, listening, "SASL", service, connections, reports.append, lambda: 0.0, principal=None)
    acceptor._on_acceptable()
    (connection,) = connections.snapshot()
    ((limit_s, too_slow),) = loop.later
    assert limit_s == LOGIN_LIMIT_S
    if logs_in:
        connection.set_principal(ANONYMOUS)
    else:
        too_slow()
        assert reports == ["closing the connection of 127.0.0.1:1 at listener SASL: it has not logged in within 30 s"]
    assert connection.closed is not logs_in
    assert {delay for delay, _ in loop.later} <= {REPORT_PERIOD_S}, "nothing else is left to wait for"
    connection.close()
    listening.client.close()


@pytest.mark.spec("S4", "S5")
def test_connections_over_a_quota_are_kept_while_there_is_room() -> None:
    loop, connections, listening = HandLoop(), ConnectionSet(3, 3), OneClient()
    connections.wait_of_host_ms = lambda host: 700
    acceptor = Acceptor(loop, listening, "L", RecordingService(), connections, print, lambda: 0.0)
    clients = [listening.client]
    for _ in range(4):
        ours, client = socket.socketpair()
        listening.waiting.append(TcpSocket(ours, "127.0.0.1", 1))
        clients.append(client)
    acceptor._on_acceptable()
    assert [delay for delay, _ in loop.later] == [0.7] * 3, "what they take counts as that of connections"
    for _, close in list(loop.later):
        close()
    assert not acceptor._unserved
    assert all(client.recv(1) == b"" for client in clients)
    for client in clients:
        client.close()


@pytest.mark.spec("S5")
def test_a_flood_of_refused_clients_is_counted_and_not_logged() -> None:
    loop, lines = HandLoop(), list[str]()
    reports = LimitedReports(lines.append, loop.call_later)
    for _ in range(REPORTS_PER_PERIOD + 990):
        reports("listener SSL", "a client is refused")
    reports("listener SASL", "another listener's is, too")
    assert len(lines) == REPORTS_PER_PERIOD + 1
    while loop.later:
        loop.later.pop(0)[1]()
    assert lines[REPORTS_PER_PERIOD + 1 :] == ["990 more lines like the last ones of listener SSL are left out"]
    reports("listener SSL", "the next second")
    assert lines[-1] == "the next second"
