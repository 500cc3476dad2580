"""Processes of the high-level consumer that come, go and are killed; a broker and a ZooKeeper that go and come back."""

from __future__ import annotations

import random
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from kazoo.client import KazooClient

from interop.conftest import SETTINGS
from interop.zkconsumer.conftest import Cluster, Group
from support.ottla_server import OttlaServer
from support.ottla_zookeeper import OttlaZooKeeper
from support.processes import ServerProcess
from support.waiting import wait_until
from support.zk_trees import open_tree

pytestmark = [pytest.mark.slow, pytest.mark.spec("Z4", "Z6", "Z7")]

MEMBER = Path(__file__).with_name("member.py")
PARTITIONS = 6
THREADS = 2
CHURN_S = 30.0
FROZEN_S = 3.5
QUICK_SETTINGS = (
    "auto.commit.enable=false",
    "auto.offset.reset=smallest",
    "rebalance.backoff.ms=300",
    "rebalance.max.retries=50",
    "refresh.leader.backoff.ms=100",
    "zookeeper.session.timeout.ms=2000",
)


class Member:
    """One such process."""

    def __init__(self, name: str, cluster: Cluster, group: str, topic: str, folder: Path, *settings: str) -> None:
        self.name = name
        command = [sys.executable, str(MEMBER), cluster.zookeeper, group, topic, str(THREADS)]
        self.process = ServerProcess(name, [*command, f"consumer.id={name}", *QUICK_SETTINGS, *settings], folder)

    def values(self) -> set[int]:
        """What it has told of in whole lines."""
        lines = self.process.stdout.rpartition("\n")[0].splitlines()
        return {int(line.split()[4]) for line in lines if line.startswith("got ")}


class Feed:
    """Produces numbers, one after the other, until it is stopped."""

    def __init__(self, bootstrap: str, topic: str, per_second: int = 400) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap})
        self._topic = topic
        self._pause_s = 1 / per_second
        self._stop = threading.Event()
        self.count = 0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(self._pause_s):
            self._producer.produce(self._topic, str(self.count), partition=self.count % PARTITIONS)
            self._producer.poll(0)
            self.count += 1

    def stop(self) -> int:
        """How many it has produced; all are with the broker."""
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(120) == 0
        return self.count


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.needs_kafka
@pytest.mark.parametrize("storage", ["zookeeper", "kafka"])
def test_nothing_is_lost_while_processes_come_and_go(
    cluster: Cluster, zk: KazooClient, unique: str, outputs: Path, storage: str
) -> None:
    cluster.create(unique, PARTITIONS)
    group = Group(cluster, f"{unique}-group", zk)
    chance = random.Random(7)
    members: list[Member] = []
    ended: list[Member] = []

    def start() -> None:
        name = f"c{len(members) + len(ended)}"
        settings = (f"offsets.storage={storage}", "dual.commit.enabled=false")
        members.append(Member(name, cluster, group.name, unique, outputs, *settings))

    feed = Feed(cluster.bootstrap, unique)
    try:
        for _ in range(4):
            start()
        end = time.monotonic() + CHURN_S
        while time.monotonic() < end:
            time.sleep(chance.uniform(0.5, 2.0))  # sleep: lets the group work between two events
            if chance.random() < 0.25:
                frozen = chance.choice(members).process
                frozen.signal(signal.SIGSTOP)
                time.sleep(FROZEN_S)  # sleep: its session expires, and it does not know
                frozen.signal(signal.SIGCONT)
                continue
            gone = members.pop(chance.randrange(len(members)))
            if chance.random() < 0.5 or "started" not in gone.process.stdout:
                gone.process.kill9()
            else:
                gone.process.terminate()
                assert gone.process.stdout.endswith("closed\n"), gone.process.output_tail()
            ended.append(gone)
            start()
        count = feed.stop()
        everybody = [*members, *ended]
        wait_until(
            lambda: not set(range(count)) - set().union(*(each.values() for each in everybody)),
            lambda: f"lost: {sorted(set(range(count)) - set().union(*(each.values() for each in everybody)))[:10]}",
            timeout_s=60,
        )
        # 12 threads want 6 partitions: the first three consumers by name have two each.
        first = sorted(each.name for each in members)[:3]
        expected = {number: f"{first[number // 2]}-{number % 2}" for number in range(PARTITIONS)}
        group.wait_until_owned_by(unique, expected)
    finally:
        feed.stop()
        for each in members:
            each.process.kill9()


@pytest.fixture
def own_cluster(tmp_path: Path) -> Iterator[tuple[OttlaZooKeeper, OttlaServer]]:
    """`ottla serve` on `ottla zookeeper`, for this test to kill."""
    zookeeper = OttlaZooKeeper(tmp_path / "zookeeper")
    server: OttlaServer | None = None
    try:
        zookeeper.start()
        overrides = SETTINGS | {"zookeeper.session.timeout.ms": "2000"}
        server = OttlaServer(tmp_path, overrides=overrides, arguments=["--zookeeper", zookeeper.connect])
        server.start()
        yield zookeeper, server
    finally:
        if server is not None:
            server.stop()
        zookeeper.stop()


def test_brokers_and_zookeeper_go_away_and_come_back(
    own_cluster: tuple[OttlaZooKeeper, OttlaServer], unique: str
) -> None:
    zookeeper, server = own_cluster
    cluster = Cluster(server.bootstrap, zookeeper.connect)
    cluster.create(unique, 3)
    zk = open_tree(zookeeper.connect)
    group = Group(cluster, f"{unique}-group", zk)
    try:
        consumer = group.start({unique: 1}, consumer_id="c1")
        owners = dict.fromkeys(range(3), "c1-0")
        cluster.produce(unique, 3, 30)
        wait_until(lambda: consumer.values == list(range(30)), "the first records")
        server.kill9()
        server.start()
        cluster.wait_for_leaders(unique, 3)
        cluster.produce(unique, 3, 30, first=30)
        wait_until(lambda: consumer.values == list(range(60)), "those after the broker's return")
        zookeeper.kill9()
        cluster.produce(unique, 3, 30, first=60)
        wait_until(lambda: consumer.values == list(range(90)), "those while there is no ZooKeeper")
        zookeeper.start()
        other = group.start({unique: 1}, consumer_id="c2")
        group.wait_until_owned_by(unique, owners | {2: "c2-0"})
        cluster.wait_for_leaders(unique, 3)
        cluster.produce(unique, 3, 30, first=90)
        wait_until(lambda: set(consumer.values) | set(other.values) == set(range(120)), "those after its return")
        assert consumer.values == sorted(set(consumer.values))
    finally:
        group.close()
        zk.stop()
        zk.close()
