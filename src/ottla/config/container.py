"""Settings of a broker in a container, from the variables that images of Apache Kafka take (KIP-975).

`KAFKA_LOG_RETENTION_HOURS=1` is `log.retention.hours=1`: `_` stands for a dot, `__` for `_`, `___` for `-`. Settings of
KRaft and of the JVM are left out, each with a note: this broker has neither.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

PREFIX: Final = "KAFKA_"
DEFAULT_DATA: Final = "/var/lib/kafka/data"
#: As in Apache Kafka's image: reached at localhost, by a port that is mapped to the same number.
DEFAULT_PORT: Final = 9092
#: Variables that are not settings: they are for the JVM, its logs, and services beside the broker.
NOT_SETTINGS: Final = (
    "KAFKA_CLUSTER_ID",
    "KAFKA_CONFLUENT_",
    "KAFKA_DEBUG",
    "KAFKA_GC_LOG_OPTS",
    "KAFKA_HEAP_OPTS",
    "KAFKA_HOME",
    "KAFKA_JMX_",
    "KAFKA_JVM_",
    "KAFKA_LOG4J_",
    "KAFKA_METRIC_REPORTERS",
    "KAFKA_OPTS",
    "KAFKA_REST_",
    "KAFKA_TOOLS_",
    "KAFKA_VERSION",
)
#: The address that Testcontainers' modules use for a ZooKeeper in the same container.
OWN_HOSTS: Final = ("localhost", "127.0.0.1")


class ContainerSettings(NamedTuple):
    """Settings by Kafka's names, and notes for the user on what was left out or replaced."""

    settings: dict[str, str]
    notes: list[str]


class ContainerRefusal(NamedTuple):
    """Why a broker cannot be made of these variables, with the cure."""

    message: str


def container_settings(environment: Mapping[str, str]) -> ContainerSettings | ContainerRefusal:
    """The settings of the broker, out of the variables of its container."""
    settings: dict[str, str] = {}
    notes: list[str] = []
    for variable in sorted(environment):
        if variable.startswith(PREFIX) and not variable.startswith(NOT_SETTINGS):
            settings[setting_name(variable)] = environment[variable].strip()
    roles = _names(settings.pop("process.roles", "broker"))
    if "BROKER" not in roles:
        return ContainerRefusal(
            f"KAFKA_PROCESS_ROLES={environment['KAFKA_PROCESS_ROLES']}: ottla has no KRaft controllers; start "
            "brokers only, without this variable or with KAFKA_PROCESS_ROLES=broker"
        )
    controllers = _names(settings.pop("controller.listener.names", ""))
    left_out = [name for name in settings if name.startswith("controller.quorum.")]
    for name in left_out:
        del settings[name]
    if "KAFKA_PROCESS_ROLES" in environment or left_out:
        notes.append("settings of KRaft are left out: this broker keeps its coordination metadata itself")
    _drop_listeners(settings, controllers)
    _settle_addresses(settings)
    _settle_zookeeper(settings, notes)
    if "log.dirs" not in settings and "log.dir" not in settings:
        settings["log.dirs"] = DEFAULT_DATA
    if "broker.id" not in settings and "node.id" not in settings:
        settings["broker.id"] = "1"
    return ContainerSettings(settings, notes)


def setting_name(variable: str) -> str:
    """The setting that a variable stands for: `KAFKA_NODE_ID` is `node.id`."""
    name = variable.removeprefix(PREFIX).lower()
    return name.replace("___", "-").replace("__", "\0").replace("_", ".").replace("\0", "_")


def _names(text: str) -> set[str]:
    return {name.strip().upper() for name in text.split(",") if name.strip()}


def _listener_name(entry: str) -> str:
    return entry.partition(":")[0].strip().upper()


def _entries(text: str) -> list[str]:
    return [entry.strip() for entry in text.split(",") if entry.strip()]


def _drop_listeners(settings: dict[str, str], names: set[str]) -> None:
    """Remove the listeners of controllers, wherever they are named."""
    for setting in ("listeners", "advertised.listeners", "listener.security.protocol.map"):
        if setting in settings:
            kept = [entry for entry in _entries(settings[setting]) if _listener_name(entry) not in names]
            settings[setting] = ",".join(kept)
            if not kept:
                del settings[setting]


def _settle_addresses(settings: dict[str, str]) -> None:
    """Set missing `listeners`: all interfaces at the advertised ports, or at the default one, reached at localhost."""
    advertised = settings.get("advertised.listeners")
    if "listeners" in settings:
        return
    if advertised is not None:
        ports = [(_listener_name(entry), entry.rpartition(":")[2]) for entry in _entries(advertised)]
        settings["listeners"] = ",".join(f"{name}://:{port}" for name, port in ports)
        return
    settings["listeners"] = f"PLAINTEXT://:{DEFAULT_PORT}"
    settings["advertised.listeners"] = f"PLAINTEXT://localhost:{DEFAULT_PORT}"


def _settle_zookeeper(settings: dict[str, str], notes: list[str]) -> None:
    """A ZooKeeper in the same container is the broker itself, which serves its znodes at that port."""
    address = settings.get("zookeeper.connect", "")
    host, _, port = address.partition("/")[0].rpartition(":")
    if host in OWN_HOSTS and port.isascii() and port.isdigit():
        del settings["zookeeper.connect"]
        settings["ottla.zookeeper.port"] = port
        notes.append(f"KAFKA_ZOOKEEPER_CONNECT={address}: the broker itself serves its znodes at port {port}")
    elif not address:
        settings.pop("zookeeper.connect", None)
