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

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


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
        return cpu_seconds(self.server.pid)

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
        ottla = OttlaServer(folder, overrides=DELETE_DELAY, env={"PYTHONDONTWRITEBYTECODE": ""}).start()
        server, port, log_dir = ottla.server, ottla.port, ottla.log_dir
    else:
        # A part of the tree of its own, which the broker makes.
        settings = BROKER_SETTINGS | {"zookeeper.connect": f"{zookeeper.connect}/{folder.name}"}
        apache = ApacheKafka(
            folder, zookeeper=zookeeper, heap=BROKER_HEAP, overrides=settings, jvm_options=BROKER_JVM
        ).start()
        server, port, log_dir = apache.server, apache.port, apache.log_dir
    with Caller(port) as caller:
        while not caller.brokers():
            time.sleep(0.005)
    seconds = time.monotonic() - server.started_at
    return Started(name, server, port, log_dir, seconds, cpu_seconds(server.pid), server.memory_bytes())
