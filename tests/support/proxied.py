"""Brokers that are reached two ways: directly, and through a proxy that the clients behind it never leave."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from support.apache import ApacheKafka, ApacheZooKeeper
from support.ottla_server import OttlaServer
from support.ports import LOOPBACK, free_port
from support.processes import ServerDied
from support.proxy import Proxy

PROXIED = "PROXIED"
#: ZooKeeper keeps the name of a killed broker until its session ends (6 s), and a start before that fails.
START_TIMEOUT_S = 90.0


class ProxiedBroker:
    """ottla, or Apache Kafka where a ZooKeeper is given; it keeps its ports and data over restarts.

    `direct` is the address for whoever prepares and checks, `bootstrap` the one that leads through `proxy`.
    """

    def __init__(
        self, folder: Path, zookeeper: ApacheZooKeeper | None = None, settings: Mapping[str, str] | None = None
    ) -> None:
        self.proxy = Proxy()
        direct_port, inner_port = free_port(), free_port()
        self.proxy.lead_to(inner_port)
        self.direct = f"{LOOPBACK}:{direct_port}"
        overrides = {
            **(settings or {}),
            "listeners": f"PLAINTEXT://{self.direct},{PROXIED}://{LOOPBACK}:{inner_port}",
            "advertised.listeners": f"PLAINTEXT://{self.direct},{PROXIED}://{self.proxy.bootstrap}",
            "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,{PROXIED}:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
        }
        self.server: OttlaServer | ApacheKafka
        if zookeeper is None:
            self.server = OttlaServer(folder, overrides=overrides, arguments=["--id", "1"])
        else:
            overrides["zookeeper.connect"] = f"{zookeeper.connect}/proxied-{direct_port}"
            self.server = ApacheKafka(folder, zookeeper=zookeeper, overrides=overrides)

    @property
    def bootstrap(self) -> str:
        """The address for the clients under test."""
        return self.proxy.bootstrap

    def start(self) -> ProxiedBroker:
        """Start it, or start it again."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                self.server.start()
            except ServerDied:
                if time.monotonic() > deadline or isinstance(self.server, OttlaServer):
                    raise
            else:
                return self

    def stop(self) -> None:
        """Stop the broker; the proxy stays."""
        self.server.stop()

    def kill9(self) -> None:
        """Kill the broker; the proxy stays."""
        self.server.kill9()

    def close(self) -> None:
        """Stop both."""
        try:
            self.server.stop()
        finally:
            self.proxy.close()
