"""Limits of connections that change while the broker runs: by address, and by how many come in a second."""

from __future__ import annotations

import socket
import time

import pytest

from ottla.client.admin import ConfigResource
from ottla.client.sync import Admin
from ottla.config.broker import ConfigRefusal, parse_broker_config
from ottla.config.listeners import connections_of_hosts
from ottla.net.listener import ConnectionSet
from ottla.testing import Cluster

pytestmark = pytest.mark.spec("R1")


def test_addresses_and_their_limits() -> None:
    assert connections_of_hosts("127.0.0.1:5, [::1]:7,") == {"127.0.0.1": 5, "::1": 7}
    for wrong in ("a", "host:5", "127.0.0.1", "127.0.0.1:x"):
        refused = parse_broker_config({"max.connections.per.ip.overrides": wrong})
        assert isinstance(refused, ConfigRefusal)
        assert "has to name addresses" in refused.problems[0]


def test_connections_come_no_faster_than_allowed() -> None:
    connections = ConnectionSet(1000, 1000)
    assert connections.wait_to_accept_ms(0) == 0
    connections.creation_rate = 10
    now_ms, accepted = 5_000.0, 0
    while now_ms < 15_000:
        wait_ms = connections.wait_to_accept_ms(now_ms)
        if wait_ms:
            now_ms += wait_ms
            continue
        connections.created(now_ms)
        accepted += 1
    # Those of the second before, and ten in each of ten seconds.
    assert accepted == pytest.approx(110, abs=2)


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
