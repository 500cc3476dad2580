"""Apache Kafka's programs of 0.8.2.2: tools that go to ZooKeeper themselves, and members of its high-level consumer."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from support.java import PROJECT, older_client_command
from support.processes import ServerProcess, run_tool

VERSION = "0.8.2.2"
SOURCE = PROJECT / "tests" / "interop" / "zookeeper082" / "HighLevel.java"
START_TIMEOUT_S = 90.0
#: Sessions that end soon, rebalances that are tried often, offsets that are committed at once.
QUICK_SETTINGS: Mapping[str, str] = {
    "auto.commit.interval.ms": "200",
    "auto.offset.reset": "smallest",
    "rebalance.backoff.ms": "500",
    "rebalance.max.retries": "20",
    "refresh.leader.backoff.ms": "200",
    "zookeeper.session.timeout.ms": "4000",
    "zookeeper.sync.time.ms": "200",
}


def old_tool(
    *arguments: str, stdin: str | None = None, timeout_s: float = 120.0, check: bool = True
) -> subprocess.CompletedProcess[str]:
    """Run one of the tools of 0.8.2.2 to its end: `old_tool("kafka.admin.TopicCommand", "--list", …)`."""
    return run_tool(older_client_command(VERSION, *arguments), stdin=stdin, timeout_s=timeout_s, check=check)


@cache
def _compiled() -> tuple[Path, TemporaryDirectory[str]]:
    """The folder of `HighLevel`'s classes, which goes when the process ends."""
    folder = TemporaryDirectory(prefix="old-consumers-")
    compiler = ("-m", "jdk.compiler/com.sun.tools.javac.Main", "-d", folder.name, str(SOURCE))
    run_tool(older_client_command(VERSION, *compiler))
    return Path(folder.name), folder


class Got(NamedTuple):
    """A message as a member of a group tells of it."""

    thread: int
    topic: str
    partition: int
    offset: int
    key: str
    value: str


class OldConsumer:
    """A process with Apache Kafka's high-level consumer of 0.8.2.2; see `HighLevel.java` for `subscription`."""

    def __init__(
        self,
        name: str,
        folder: Path,
        *,
        zookeeper: str,
        group: str,
        subscription: str,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        chosen = {**QUICK_SETTINGS, "consumer.id": name, **(settings or {})}
        arguments = [f"{key}={value}" for key, value in chosen.items()]
        classes, _ = _compiled()
        command = older_client_command(
            VERSION, "HighLevel", zookeeper, group, subscription, *arguments, classes=classes
        )
        #: What the consumer calls itself in ZooKeeper.
        self.id = f"{group}_{name}"
        self.process = ServerProcess(name, command, folder)
        self.process.wait_until_ready(lambda: "started " in self.process.stdout, START_TIMEOUT_S)

    def got(self) -> list[Got]:
        """What it has consumed so far, each thread's in order."""
        complete = self.process.stdout.rpartition("\n")[0].splitlines()
        return [_parsed(line) for line in complete if line.startswith("got ")]

    def close(self) -> None:
        """Let it leave the group, unless it has ended."""
        if self.process.running:
            self.process.terminate()
            # Of the older consumer another thread may say that it is done after that.
            assert "closed\n" in self.process.stdout, self.process.output_tail()


def _parsed(line: str) -> Got:
    _, thread, topic, partition, offset, key, value = line.split(" ", 6)
    return Got(int(thread), topic, int(partition), int(offset), key, value)
