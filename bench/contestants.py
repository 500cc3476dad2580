"""The two brokers that are compared: starting them, and reading what they cost."""

from __future__ import annotations

import compileall
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from frames import Caller
from kazoo.client import KazooClient

from support.apache import ApacheKafka, ApacheZooKeeper
from support.ottla_server import OttlaServer
from support.processes import ServerProcess
from support.waiting import wait_until

PROJECT = Path(__file__).resolve().parents[1]
APACHE = "Apache Kafka 3.9.1"
OTTLA = "ottla"
NAMES = (APACHE, OTTLA)

#: What `kafka-server-start.sh` and `kafka-run-class.sh` give a broker.
BROKER_HEAP = "1g"
BROKER_JVM = ("-server", "-Xms1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35")
#: Apache Kafka's own defaults, where the harness of the tests has smaller ones; and deleted topics give their room
#: (and the kernel its dirty pages) back at once.
DELETE_DELAY = {"log.segment.delete.delay.ms": "100"}
BROKER_SETTINGS = {"num.io.threads": "8", "num.network.threads": "3"} | DELETE_DELAY
DELETE_TIMEOUT_S = 60.0
#: A broker may have gigabytes to recover, or ten thousand partitions to open.
LAUNCH_TIMEOUT_S = 300.0


@dataclass
class Started:
    """A running broker and what its start cost."""

    name: str
    server: ServerProcess
    port: int
    log_dir: Path
    seconds: float
    cpu_s: float
    memory_bytes: int

    def cpu_seconds(self) -> float:
        """CPU time of all its threads so far."""
        return self.server.cpu_seconds()

    def wait_until_deleted(self, topic: str) -> None:
        """Until nothing is left of a deleted topic's files, so that their removal disturbs no measurement."""
        wait_until(
            lambda: not any(path.name.startswith(f"{topic}-") for path in self.log_dir.iterdir()),
            f"the files of {topic} to be deleted",
            DELETE_TIMEOUT_S,
        )

    def stop(self) -> None:
        """Kill it; its data is thrown away."""
        self.server.kill9()


def compile_package() -> None:
    """Make sure that no start compiles modules, whatever PYTHONDONTWRITEBYTECODE says."""
    compileall.compile_dir(PROJECT / "src" / "ottla", quiet=2, workers=1)


def make(
    name: str,
    folder: Path,
    zookeeper: ApacheZooKeeper,
    overrides: Mapping[str, str] | None = None,
    apache: type[ApacheKafka] = ApacheKafka,
) -> OttlaServer | ApacheKafka:
    """A broker in an empty folder, not started yet; `overrides` are settings by Kafka's names, for either."""
    if name == OTTLA:
        settings = DELETE_DELAY | dict(overrides or {})
        return OttlaServer(folder, overrides=settings, env={"PYTHONDONTWRITEBYTECODE": ""})
    # A part of the tree of its own, which the broker makes.
    chroot = {"zookeeper.connect": f"{zookeeper.connect}/{folder.name}"}
    settings = BROKER_SETTINGS | chroot | dict(overrides or {})
    return apache(folder, zookeeper=zookeeper, heap=BROKER_HEAP, overrides=settings, jvm_options=BROKER_JVM)


def wait_until_forgotten(broker: OttlaServer | ApacheKafka) -> None:
    """Until a killed broker may start again: ZooKeeper keeps its node until its session is over."""
    if isinstance(broker, OttlaServer):
        return
    client = KazooClient(hosts=broker.overrides["zookeeper.connect"])
    client.start()
    try:
        wait_until(lambda: not client.exists(f"/brokers/ids/{broker.broker_id}"), "ZooKeeper to forget the broker")
    finally:
        client.stop()
        client.close()


def launch(name: str, broker: OttlaServer | ApacheKafka) -> Started:
    """Start a broker, also again; ready when it has answered a Metadata request in which it names itself."""
    broker.start(LAUNCH_TIMEOUT_S)
    with Caller(broker.port) as caller:
        while not caller.brokers():
            time.sleep(0.005)
    server = broker.server
    seconds = time.monotonic() - server.started_at
    return Started(name, server, broker.port, broker.log_dir, seconds, server.cpu_seconds(), server.memory_bytes())


def start(name: str, folder: Path, zookeeper: ApacheZooKeeper) -> Started:
    """Start a broker in an empty folder."""
    return launch(name, make(name, folder, zookeeper))
