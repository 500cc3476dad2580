"""`ottla cluster` as a user runs it: started, used, stopped, its processes killed, itself killed."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from ottla.client.sync import Producer
from support.ports import LOOPBACK
from support.processes import ServerProcess, run_tool
from support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.spec("R9")]

START_TIMEOUT_S = 90.0


class RunningCluster:
    """`ottla cluster` as a process, with its data in `folder/data`."""

    def __init__(self, folder: Path, *arguments: str, brokers: int = 1, port: int = 0) -> None:
        command = [sys.executable, "-u", "-m", "ottla", "cluster", "--brokers", str(brokers), "--port", str(port)]
        self.server = ServerProcess("cluster", [*command, "--data", str(folder / "data"), *arguments], folder)
        #: Processes that have been seen, by name.
        self.seen: dict[str, psutil.Process] = {}

    def start(self) -> RunningCluster:
        self.server.wait_until_ready(
            lambda: re.search(r"ready: bootstrap\.servers=\S+;", self.server.stdout), START_TIMEOUT_S
        )
        for name, pid in re.findall(r"  (ZooKeeper|broker \d+) listening on .*? process (\d+)", self.server.stdout):
            self.seen[name] = psutil.Process(int(pid))
        return self

    @property
    def bootstrap(self) -> str:
        return re.findall(r"bootstrap\.servers=(\S+);", self.server.stdout)[-1]

    def tool(self, *arguments: str) -> list[dict[str, Any]]:
        """What a command of ottla's says about it in JSON."""
        command = [sys.executable, "-m", "ottla", *arguments, "-b", self.bootstrap, "--json"]
        return [json.loads(line) for line in run_tool(command).stdout.splitlines()]

    def start_by_hand(self, number: int, folder: Path) -> ServerProcess:
        """Start a broker that has ended with the line that is printed for it, and wait until it is ready."""
        line = re.compile(rf"  (ottla serve --id {number} .*)")
        wait_until(lambda: line.search(self.server.stdout), f"how broker {number} is started by hand")
        words = shlex.split(line.findall(self.server.stdout)[0])[1:]
        server = ServerProcess(f"broker-{number}", [sys.executable, "-u", "-m", "ottla", *words], folder)
        server.wait_until_ready(lambda: " ready in " in server.stdout, START_TIMEOUT_S)
        return server

    def nothing_is_left(self) -> bool:
        return not any(each.is_running() and each.status() != psutil.STATUS_ZOMBIE for each in self.seen.values())

    def end(self) -> None:
        """Kill whatever runs."""
        self.server.kill9()
        for each in self.seen.values():
            if each.is_running():
                each.kill()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., RunningCluster]]:
    """Makes clusters, not waiting until they are ready; all are ended."""
    made: list[RunningCluster] = []

    def make(*arguments: str, **options: Any) -> RunningCluster:
        made.append(RunningCluster(tmp_path, *arguments, **options))
        return made[-1]

    yield make
    for each in made:
        each.end()


def test_started_used_stopped_and_started_again(start: Callable[..., RunningCluster]) -> None:
    cluster = start("-c", "num.partitions=4").start()
    assert sorted(cluster.seen) == ["ZooKeeper", "broker 0"]
    assert cluster.tool("topic", "create", "orders") == [{"topic": "orders", "created": True, "valid": True}]
    whole, *_ = cluster.tool("cluster", "status")
    assert (whole["controller"], whole["brokers"], whole["partition_count"]) == (0, [0], 4)
    wait_until(lambda: "controller 0, 1 topics, 4 partitions: ok" in cluster.server.stdout, "the state is shown")
    cluster.server.signal(signal.SIGINT)
    assert cluster.server.wait() == 0, cluster.server.output_tail()
    assert cluster.nothing_is_left()
    assert "single point of failure" in cluster.server.stdout

    again = start().start()
    assert [each["topic"] for each in again.tool("topic", "list")] == ["orders"]
    assert again.server.terminate() == 0
    assert again.nothing_is_left()


def test_ctrl_c_at_a_terminal_reaches_the_parent_only(start: Callable[..., RunningCluster]) -> None:
    """A terminal sends SIGINT to its foreground process group."""
    cluster = start().start()
    os.killpg(os.getpgid(cluster.server.pid), signal.SIGINT)
    assert cluster.server.wait() == 0
    assert cluster.nothing_is_left()
    assert "killed" not in cluster.server.stdout


def test_a_broker_that_dies_is_reported_and_not_started_again(start: Callable[..., RunningCluster]) -> None:
    cluster = start().start()
    cluster.seen["broker 0"].kill()
    assert cluster.server.wait() == 1
    said = cluster.server.stdout
    assert "broker 0 was killed by SIGKILL" in said
    assert re.search(r"it is not started again; its log is \S+/broker-0\.log", said)
    # Without ZooKeeper the broker alone could not be started.
    assert "ottla serve" not in said
    again = r"  ottla cluster --brokers 1 --host 127\.0\.0\.1 --port 0 --data "
    assert re.search(r"no broker is left\. To start the cluster again:\n.*" + again, said)
    assert cluster.nothing_is_left()


def test_zookeeper_stays_for_brokers_that_are_started_again_by_hand(
    start: Callable[..., RunningCluster], tmp_path: Path
) -> None:
    """A rolling restart with the printed lines; each broker keeps its port."""
    cluster = start(brokers=2).start()
    by_hand: list[ServerProcess] = []
    try:
        for number in range(2):
            cluster.seen[f"broker {number}"].terminate()
            by_hand.append(cluster.start_by_hand(number, tmp_path))
        wait_until(lambda: "ZooKeeper stays for brokers started by hand: 0, 1." in cluster.server.stdout, "it stays")
        wait_until(lambda: len(cluster.tool("broker", "list")) == 2, "both brokers")
        cluster.tool("topic", "create", "orders", "-r", "2")
        cluster.server.signal(signal.SIGTERM)
        assert by_hand[0].terminate() == 0
        wait_until(lambda: "ZooKeeper stays for brokers started by hand: 1." in cluster.server.stdout, "it waits")
        assert by_hand[1].terminate() == 0
        assert cluster.server.wait() == 1
    finally:
        for server in by_hand:
            server.kill9()
    assert cluster.nothing_is_left()


def test_zookeeper_that_dies_is_reported(start: Callable[..., RunningCluster]) -> None:
    cluster = start().start()
    cluster.seen["ZooKeeper"].kill()
    wait_until(lambda: "ZooKeeper was killed by SIGKILL" in cluster.server.stdout, "it is reported")
    assert cluster.server.terminate() == 1
    assert cluster.nothing_is_left()


def test_nothing_is_left_behind_when_it_is_killed(start: Callable[..., RunningCluster]) -> None:
    cluster = start().start()
    cluster.server.kill9()
    wait_until(cluster.nothing_is_left, "all processes have ended", timeout_s=60)


def test_a_broker_that_cannot_start_ends_all(start: Callable[..., RunningCluster]) -> None:
    with socket.socket() as taken:
        taken.bind((LOOPBACK, 0))
        taken.listen()
        cluster = start(port=taken.getsockname()[1])
        assert cluster.server.wait() == 1
    assert "broker 0 did not start: it ended with exit status 1. Its log" in cluster.server.stderr
    assert "in use" in cluster.server.stderr
    assert "stopping ZooKeeper" in cluster.server.stdout


def test_stopped_while_it_starts(start: Callable[..., RunningCluster]) -> None:
    cluster = start()
    cluster.server.wait_until_ready(lambda: "ZooKeeper listening" in cluster.server.stdout, START_TIMEOUT_S)
    assert cluster.server.terminate() == 0
    assert "ready:" not in cluster.server.stdout


@pytest.mark.spec("R5")
def test_three_brokers_survive_the_death_of_one(start: Callable[..., RunningCluster]) -> None:
    cluster = start(brokers=3).start()
    assert sorted(cluster.seen) == ["ZooKeeper", "broker 0", "broker 1", "broker 2"]
    cluster.tool("topic", "create", "orders", "-r", "3", "-c", "min.insync.replicas=2")
    with Producer(bootstrap_servers=cluster.bootstrap, acks="all") as producer:
        producer.send("orders", b"one").result(120)
        [topic] = cluster.tool("topic", "describe", "orders")
        leader = topic["partitions"][0]["leader"]
        before = len(cluster.server.stdout)
        cluster.seen[f"broker {leader}"].kill()
        first = re.compile(r" topics, .* partitions: (.*)")
        wait_until(lambda: first.search(cluster.server.stdout[before:]), "the state after its death")
        assert first.findall(cluster.server.stdout[before:])[0].startswith("1 broker does not answer")
        producer.send("orders", b"two").result(60)
    wait_until(lambda: "1 under-replicated" in cluster.server.stdout, "the state is shown")
    assert f"broker {leader} was killed by SIGKILL" in cluster.server.stdout
    [topic] = cluster.tool("topic", "describe", "orders", "--under-replicated")
    [partition] = topic["partitions"]
    assert partition["leader"] != leader
    assert (leader in partition["isr"], partition["high_watermark"]) == (False, 2)
    assert cluster.server.terminate() == 1
    assert cluster.nothing_is_left()
