"""The two brokers that are compared: starting them, and reading what they cost."""

from __future__ import annotations

import compileall
import os
import time
from dataclasses import dataclass
from pathlib import Path

from frames import Caller

from support.apache import ApacheKafka, ApacheZooKeeper
from support.ottla_server import OttlaServer
from support.processes import ServerProcess

PROJECT = Path(__file__).resolve().parents[1]
APACHE = "Apache Kafka 3.9.1"
OTTLA = "ottla"
NAMES = (APACHE, OTTLA)

#: What `kafka-run-class.sh` gives a broker, with its usual heap limit.
BROKER_HEAP = "1g"
BROKER_JVM = ("-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35")
#: Apache Kafka's own defaults, where the harness of the tests has smaller ones.
BROKER_SETTINGS = {"num.io.threads": "8", "num.network.threads": "3"}

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass
class Started:
    """A running broker and what its start cost."""

    name: str
    server: ServerProcess
    port: int
    seconds: float
    cpu_s: float
    memory_bytes: int

    def cpu_seconds(self) -> float:
        """CPU time of all its threads so far."""
        return cpu_seconds(self.server.pid)

    def stop(self) -> None:
        """Kill it; its data is thrown away."""
        self.server.kill9()


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far, in steps of a clock tick (10 ms)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND


def compile_package() -> None:
    """Make sure that no start compiles modules, whatever PYTHONDONTWRITEBYTECODE says."""
    compileall.compile_dir(PROJECT / "src" / "ottla", quiet=2, workers=1)


def start(name: str, folder: Path, zookeeper: ApacheZooKeeper) -> Started:
    """Start a broker in an empty folder; ready when it has answered a Metadata request in which it names itself."""
    if name == OTTLA:
        ottla = OttlaServer(folder, env={"PYTHONDONTWRITEBYTECODE": ""}).start()
        server, port = ottla.server, ottla.port
    else:
        # A part of the tree of its own, which the broker makes.
        settings = BROKER_SETTINGS | {"zookeeper.connect": f"{zookeeper.connect}/{folder.name}"}
        apache = ApacheKafka(
            folder, zookeeper=zookeeper, heap=BROKER_HEAP, overrides=settings, jvm_options=BROKER_JVM
        ).start()
        server, port = apache.server, apache.port
    with Caller(port) as caller:
        while not caller.brokers():
            time.sleep(0.005)
    seconds = time.monotonic() - server.started_at
    return Started(name, server, port, seconds, cpu_seconds(server.pid), server.memory_bytes())
