"""Apache Kafka 3.9.1, with ZooKeeper or by itself (KRaft), for comparison."""

from __future__ import annotations

import base64
import re
import socket
import uuid
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Protocol

from support.controller import knows_its_controller
from support.java import QUICK_START, TOOL_TIMEOUT_S, java_command, java_tool, older_client_command
from support.ports import LOOPBACK, free_port
from support.processes import ServerDied, ServerProcess

START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 60.0
WORD_TIMEOUT_S = 2.0
#: Of ZooKeeper: a session may last 2 to 20 ticks.
TICK_TIME_MS = 500
#: The longest that this ZooKeeper agrees to: a broker that a busy machine holds up for some seconds keeps its session.
SESSION_TIMEOUT_MS = 20 * TICK_TIME_MS
#: A port found free may be taken by another process before ZooKeeper binds it.
PORT_ATTEMPTS = 3
ZOOKEEPER_SERVER = "org.apache.zookeeper.server.quorum.QuorumPeerMain"

_LISTENING = re.compile(r"Awaiting socket connections on [^\s:]+:(\d+)\.")
_STARTED = re.compile(r"\] (INFO )?\[Kafka(Raft)?Server id=\d+\] started|Kafka Server started")

#: One broker on little memory: internal topics of one copy, few and small helpers, no waiting for group members.
SMALL_BROKER: Mapping[str, str] = {
    "auto.leader.rebalance.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.dedupe.buffer.size": str(4 * 1024 * 1024),
    "log.cleaner.threads": "1",
    # The records of tests are as old as they like.
    "log.retention.ms": "-1",
    "num.io.threads": "4",
    "num.network.threads": "2",
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "1",
}


class ApacheZooKeeper:
    """An Apache ZooKeeper server in a folder of its own; stand-alone, unless the `overrides` name its ensemble."""

    def __init__(
        self,
        folder: Path,
        *,
        heap: str = "256m",
        tick_time_ms: int = TICK_TIME_MS,
        overrides: Mapping[str, str] | None = None,
        jvm_options: tuple[str, ...] = QUICK_START,
    ) -> None:
        self.folder = folder
        self.heap = heap
        self.tick_time_ms = tick_time_ms
        self.overrides = dict(overrides or {})
        self.jvm_options = jvm_options
        self.port = 0
        self._server: ServerProcess | None = None

    @property
    def connect(self) -> str:
        """The `zookeeper.connect` address."""
        return f"{LOOPBACK}:{self.port}"

    @property
    def server(self) -> ServerProcess:
        """The running process."""
        assert self._server is not None, "ZooKeeper was not started"
        return self._server

    def start(self) -> ApacheZooKeeper:
        """Start it and wait until it serves; a second start keeps the port and the data."""
        for attempt in range(1, PORT_ATTEMPTS + 1):
            try:
                return self._start_on(self.port or free_port())
            except ServerDied:
                if self.port or attempt == PORT_ATTEMPTS:
                    raise
        raise AssertionError("unreachable")

    def _start_on(self, port: int) -> ApacheZooKeeper:
        settings = {
            "dataDir": str(self.folder / "zookeeper"),
            "clientPort": str(port),
            "clientPortAddress": LOOPBACK,
            "admin.enableServer": "false",
            "maxClientCnxns": "0",
            "tickTime": str(self.tick_time_ms),
            "4lw.commands.whitelist": "*",
            **self.overrides,
        }
        properties = _write_properties(self.folder / "zookeeper.properties", settings)
        self._server = ServerProcess("zookeeper", self._command(str(properties)), self.folder)
        self._server.wait_until_ready(lambda: _is_serving(port), START_TIMEOUT_S)
        self.port = port
        return self

    def _command(self, properties: str) -> list[str]:
        return _server_command(self.heap, ZOOKEEPER_SERVER, properties, options=self.jvm_options)

    def stop(self) -> None:
        """Kill it: ZooKeeper has no other way to stop, and its log survives."""
        if self._server is not None:
            self._server.kill9()


class OlderZooKeeper(ApacheZooKeeper):
    """Apache ZooKeeper 3.4.6, the one of Apache Kafka 0.8.2; it needs the older clients."""

    def _command(self, properties: str) -> list[str]:
        # It would make a bean of a class that the log4j of today does not have.
        return older_client_command("0.8.2.2", "-Dzookeeper.jmx.log4j.disable=true", ZOOKEEPER_SERVER, properties)


class RunningZooKeeper(Protocol):
    """A ZooKeeper, whoever made it: `ApacheZooKeeper` and `OttlaZooKeeper` alike."""

    @property
    def connect(self) -> str:
        """The `zookeeper.connect` address."""


class ApacheKafka:
    """One Apache Kafka broker in a folder of its own; `zookeeper=None` makes it a KRaft node of one.

    `overrides` are settings by Kafka's names; the port is chosen by the system and known as `bootstrap`.
    """

    def __init__(
        self,
        folder: Path,
        *,
        zookeeper: RunningZooKeeper | None,
        broker_id: int = 1,
        heap: str = "512m",
        overrides: Mapping[str, str] | None = None,
        jvm_options: tuple[str, ...] = QUICK_START,
    ) -> None:
        self.folder = folder
        self.zookeeper = zookeeper
        self.broker_id = broker_id
        self.heap = heap
        self.overrides = dict(overrides or {})
        self.jvm_options = jvm_options
        self.port = 0
        self._server: ServerProcess | None = None

    @property
    def bootstrap(self) -> str:
        """The `bootstrap.servers` address."""
        return f"{LOOPBACK}:{self.port}"

    @property
    def log_dir(self) -> Path:
        """The folder that holds the partitions, unless `log.dirs` is overridden."""
        return self.folder / "kafka-logs"

    @property
    def server(self) -> ServerProcess:
        """The running process."""
        assert self._server is not None, "Apache Kafka was not started"
        return self._server

    def start(self, timeout_s: float = START_TIMEOUT_S) -> ApacheKafka:
        """Start it and wait until it serves; a second start keeps the data, not the port."""
        properties = _write_properties(self.folder / "server.properties", self._settings())
        if self.zookeeper is None and not (self.log_dir / "meta.properties").exists():
            cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
            # One argument: ids are random and may begin with a dash.
            java_tool("kafka.tools.StorageTool", "format", f"--cluster-id={cluster_id}", "-c", str(properties))
        command = _server_command(self.heap, "kafka.Kafka", str(properties), options=self.jvm_options)
        self._server = server = ServerProcess("kafka", command, self.folder)
        self.port = server.wait_until_ready(self._port_when_started, timeout_s)
        return self

    def _settings(self) -> dict[str, str]:
        settings = {**SMALL_BROKER, "log.dirs": str(self.log_dir), "listeners": f"PLAINTEXT://{LOOPBACK}:0"}
        if self.zookeeper is not None:
            settings |= {"broker.id": str(self.broker_id), "zookeeper.connect": self.zookeeper.connect}
            settings |= {"zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS)}
            return settings | self.overrides
        broker_port, controller_port = free_port(), free_port()
        settings |= {
            "process.roles": "broker,controller",
            "node.id": str(self.broker_id),
            "listeners": f"PLAINTEXT://{LOOPBACK}:{broker_port},CONTROLLER://{LOOPBACK}:{controller_port}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"{self.broker_id}@{LOOPBACK}:{controller_port}",
        }
        return settings | self.overrides

    def _port_when_started(self) -> int:
        told = self.server.stdout
        if not _STARTED.search(told):
            return 0
        ports = [int(port) for port in _LISTENING.findall(told)]
        # A KRaft node opens its controller's socket first.
        return ports[-1] if ports and knows_its_controller(LOOPBACK, ports[-1]) else 0

    def tool(
        self, *arguments: str, stdin: str | None = None, timeout_s: float = TOOL_TIMEOUT_S, check: bool = True
    ) -> str:
        """The output of one of Apache Kafka's tools with `--bootstrap-server` of this broker added."""
        return java_tool(
            *arguments, "--bootstrap-server", self.bootstrap, stdin=stdin, timeout_s=timeout_s, check=check
        ).stdout

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Stop it cleanly (SIGTERM), as an administrator does."""
        if self._server is not None and self._server.running:
            self._server.terminate(timeout_s)

    def kill9(self) -> None:
        """Kill it without notice."""
        self.server.kill9()


def _is_serving(port: int) -> bool:
    """Whether ZooKeeper takes sessions: it listens before it does, and says so to who asks then."""
    try:
        return b"Mode: " in four_letter_word(port, b"srvr")
    except OSError:
        return False


def four_letter_word(port: int, word: bytes) -> bytes:
    """What a ZooKeeper server answers to a word like `srvr`. OSError where it does not."""
    with socket.create_connection((LOOPBACK, port), WORD_TIMEOUT_S) as connection:
        connection.sendall(word)
        return b"".join(iter(partial(connection.recv, 4096), b""))


def _server_command(
    heap: str, server_class: str, properties: str, *, options: tuple[str, ...] = QUICK_START
) -> list[str]:
    log4j = Path(__file__).with_name("kafka") / "log4j-server.properties"
    # Of two equal options Java takes the last.
    chosen = (*options, f"-Xmx{heap}")
    command = java_command(server_class, properties, options=chosen)
    position = next(i for i, part in enumerate(command) if part.startswith("-Dlog4j.configuration="))
    command[position] = f"-Dlog4j.configuration=file:{log4j}"
    return command


def _write_properties(path: Path, settings: Mapping[str, str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{name}={value}\n" for name, value in sorted(settings.items())))
    return path
