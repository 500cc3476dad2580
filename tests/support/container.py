"""A broker started as Testcontainers' modules start one in a container: the mapped port is known only afterwards.

The container runs a shell that waits for a script; the module looks up the port that the container's port was mapped
to, writes the script with the advertised listeners, and waits for a line of the log. Here a proxy is the mapped port.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from support.ports import LOOPBACK, free_port
from support.processes import ServerProcess
from support.proxy import Proxy

START_TIMEOUT_S: Final = 90.0
KRAFT: Final = {
    "CLUSTER_ID": "4L6g3nShT-eMCtK--X86sw",
    "KAFKA_NODE_ID": "1",
    "KAFKA_PROCESS_ROLES": "broker,controller",
    "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
    "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9094",
}


@dataclass(frozen=True, slots=True)
class Module:
    """What one of Testcontainers' modules does.

    `script` is the path of the start script, `lines` its lines with `{advertised}` in them, `shell` what runs it where
    it is not run by itself, and `awaited` a regular expression for the line that it waits for.
    """

    script: str
    lines: tuple[str, ...]
    awaited: str
    shell: str = ""
    kraft: bool = True


MODULES: Final[Mapping[str, Module]] = {
    "java": Module(
        "/tmp/testcontainers_start.sh",
        ("#!/bin/bash", "export KAFKA_ADVERTISED_LISTENERS={advertised}", "/etc/kafka/docker/run "),
        ".*Transitioning from RECOVERY to RUNNING.*",
    ),
    "go": Module(
        "/usr/sbin/testcontainers_start.sh",
        (
            "#!/bin/bash",
            "source /etc/confluent/docker/bash-config",
            'export KAFKA_ADVERTISED_LISTENERS="{advertised}"',
            "sed -i '/KAFKA_ZOOKEEPER_CONNECT/d' /etc/confluent/docker/configure",
            'echo \'kafka-storage format --ignore-formatted -t "$(kafka-storage random-uuid)" '
            "-c /etc/kafka/kafka.properties' >> /etc/confluent/docker/configure",
            "echo '' > /etc/confluent/docker/ensure",
            "/etc/confluent/docker/configure",
            "/etc/confluent/docker/launch",
        ),
        ".*Transitioning from RECOVERY to RUNNING.*",
        shell="bash ",
    ),
    "python": Module(
        "/tc-start.sh",
        (
            "#!/bin/bash",
            "echo 'clientPort=2181' > zookeeper.properties",
            "zookeeper-server-start zookeeper.properties &",
            "export KAFKA_ZOOKEEPER_CONNECT='localhost:{zookeeper_port}'",
            "export KAFKA_ADVERTISED_LISTENERS={advertised}",
            ". /etc/confluent/docker/bash-config",
            "/etc/confluent/docker/configure",
            "/etc/confluent/docker/launch",
        ),
        r".*\[KafkaServer id=\d+\] started.*",
        shell="sh ",
        kraft=False,
    ),
    "node": Module(
        "/testcontainers_start.sh",
        ("#!/bin/bash", "export KAFKA_ADVERTISED_LISTENERS={advertised}", "/etc/confluent/docker/run "),
        "ready in",
    ),
}


@dataclass(frozen=True, slots=True)
class StartedContainer:
    """A broker that is ready: the address that the module gives to tests, and its process."""

    bootstrap: str
    process: ServerProcess


@contextmanager
def started_container(
    module: Module,
    directory: Path,
    *,
    enter: Sequence[str] = (),
    root: Path | None = None,
    replaced: tuple[str, str] = ("", ""),
    env: Mapping[str, str] | None = None,
) -> Iterator[StartedContainer]:
    """Start a broker as the module does.

    Args:
        module: which one.
        directory: where the outputs of the process go.
        enter: the command that enters the container; none runs it as it is.
        root: the container's root; without, the script is in `directory`.
        replaced: a path in the script and what stands in its place, where there is no container.
        env: further variables.
    """
    script = directory / "start.sh" if root is None else root / module.script.lstrip("/")
    seen = str(script) if root is None else module.script
    inner, internal = free_port(), free_port()
    variables = {
        "KAFKA_LISTENERS": f"PLAINTEXT://{LOOPBACK}:{inner},BROKER://{LOOPBACK}:{internal}",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "BROKER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "KAFKA_INTER_BROKER_LISTENER_NAME": "BROKER",
        "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
        "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
        **(KRAFT if module.kraft else {"KAFKA_BROKER_ID": "1"}),
        **(env or {}),
    }
    if module.kraft:
        variables["KAFKA_LISTENERS"] += f",CONTROLLER://{LOOPBACK}:9094"
        variables["KAFKA_LISTENER_SECURITY_PROTOCOL_MAP"] += ",CONTROLLER:PLAINTEXT"
    waiting = f"while [ ! -f {seen} ]; do sleep 0.1; done; {module.shell}{seen}"
    process = ServerProcess("container", [*enter, "sh", "-c", waiting], directory, variables)
    try:
        with Proxy(inner) as mapped:
            text = "\n".join(module.lines).replace(
                "{advertised}", f"PLAINTEXT://{mapped.bootstrap},BROKER://{LOOPBACK}:{internal}"
            )
            text = text.replace("{zookeeper_port}", str(free_port())).replace(*replaced)
            written = script.with_suffix(".new")
            written.write_text(text + "\n")
            written.chmod(0o777)
            written.rename(script)
            process.wait_until_ready(lambda: re.search(module.awaited, process.stdout), START_TIMEOUT_S)
            yield StartedContainer(mapped.bootstrap, process)
    finally:
        process.terminate_group()
