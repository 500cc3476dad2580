"""The processes of `ottla cluster`: a ZooKeeper server and brokers, each with its command line, port and directory."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass

from ottla.cli.command import CommandError
from ottla.config.internal_topics import settings_of_internal_topics

DEFAULT_BROKERS = 3
DEFAULT_DATA = "ottla-cluster"
LARGEST_PORT = 65535
MOST_BROKERS = 64
ZOOKEEPER = "ZooKeeper"
ZOOKEEPER_OUTLIVES_S = 3.0
"""How much longer the ZooKeeper server lives than the brokers where the parent was killed: they need it to stop."""

PER_BROKER = {
    "broker.id": "brokers get the ids 0, 1, …",
    "listeners": "give --host and --port",
    "advertised.listeners": "give --host and --port",
    "log.dir": "give --data",
    "log.dirs": "give --data",
    "zookeeper.connect": "give --zookeeper",
    "ottla.zookeeper.port": "give --zookeeper-port",
}
"""Settings that cannot be the same for all brokers, or have an option, with what to do instead."""


@dataclass(frozen=True, slots=True)
class ClusterPlanOptions:
    """The command's options. `zookeeper` is the address of an ensemble; None starts a server beside the brokers."""

    brokers: int = DEFAULT_BROKERS
    host: str = "127.0.0.1"
    port: int = 9092
    data: str = DEFAULT_DATA
    settings: tuple[str, ...] = ()
    zookeeper: str | None = None
    zookeeper_port: int = 0


def command_line(options: ClusterPlanOptions) -> str:
    """Return the command line that starts the whole cluster again."""
    arguments = [
        "ottla",
        "cluster",
        "--brokers",
        str(options.brokers),
        "--host",
        options.host,
        "--port",
        str(options.port),
    ]
    arguments += ["--data", options.data]
    for setting in options.settings:
        arguments += ["-c", setting]
    if options.zookeeper is not None:
        arguments += ["--zookeeper", options.zookeeper]
    elif options.zookeeper_port:
        arguments += ["--zookeeper-port", str(options.zookeeper_port)]
    return shlex.join(arguments)


@dataclass(frozen=True, slots=True)
class PlannedProcess:
    """A process: `arguments` are those of `ottla`, `broker` its id, None for the ZooKeeper server."""

    name: str
    arguments: tuple[str, ...]
    log_path: str
    broker: int | None = None
    outlives_s: float = 0.0

    @property
    def command(self) -> list[str]:
        """The command line of the process."""
        return [sys.executable, "-u", "-m", "ottla.cli.cluster.child", str(self.outlives_s), *self.arguments]

    def by_hand(self, address: str | None) -> str:
        """Return the command line that starts it again, on the port of this address, where the others look for it."""
        arguments = list(self.arguments)
        if address is not None:
            arguments[arguments.index("--port") + 1] = address.rpartition(":")[2]
        return shlex.join(("ottla", *arguments))


def check_options(options: ClusterPlanOptions) -> None:
    """Refuse options that cannot be. Raises CommandError."""
    last = options.port + options.brokers - 1
    if options.port and last > LARGEST_PORT:
        raise CommandError(
            f"--port {options.port}: {options.brokers} brokers would listen on ports up to {last}, and the largest is "
            f"{LARGEST_PORT}; give a smaller --port"
        )
    if options.zookeeper is not None and options.zookeeper_port:
        raise CommandError(
            "--zookeeper names a ZooKeeper that is there, --zookeeper-port is of one that is started; give one of them"
        )
    if options.zookeeper is None and options.port and options.port <= options.zookeeper_port <= last:
        raise CommandError(f"--zookeeper-port {options.zookeeper_port} is the port of a broker; give another one")
    for setting in options.settings:
        name, equals, _ = setting.partition("=")
        if not equals or not name.strip():
            raise CommandError(f"-c {setting}: expected key=value, as in -c num.partitions=4")
        if name.strip() in PER_BROKER:
            raise CommandError(f"-c {setting}: each broker has its own; {PER_BROKER[name.strip()]}")


def plan_zookeeper(options: ClusterPlanOptions) -> PlannedProcess | None:
    """The ZooKeeper server, None where an ensemble is named."""
    if options.zookeeper is not None:
        return None
    directory = f"{options.data}/zookeeper"
    arguments = ("zookeeper", "--host", options.host, "--port", str(options.zookeeper_port), "--data", directory)
    return PlannedProcess(ZOOKEEPER, arguments, f"{options.data}/zookeeper.log", outlives_s=ZOOKEEPER_OUTLIVES_S)


def plan_brokers(options: ClusterPlanOptions, zookeeper: str) -> list[PlannedProcess]:
    """The brokers with the ids 0, 1, …, on ports in a row, on this ZooKeeper."""
    own = {setting.partition("=")[0].strip() for setting in options.settings}
    defaults = {name: value for name, value in settings_of_internal_topics(options.brokers).items() if name not in own}
    settings = [f"{name}={value}" for name, value in defaults.items()] + list(options.settings)
    processes = []
    for broker in range(options.brokers):
        arguments = ["serve", "--id", str(broker), "--host", options.host]
        arguments += ["--port", str(options.port + broker if options.port else 0)]
        arguments += ["--data", f"{options.data}/broker-{broker}", "--zookeeper", zookeeper]
        for setting in settings:
            arguments += ["-c", setting]
        log_path = f"{options.data}/broker-{broker}.log"
        processes.append(PlannedProcess(f"broker {broker}", tuple(arguments), log_path, broker))
    return processes
