"""Brokers and a ZooKeeper as processes on a network that can be cut, and somebody who watches the znodes."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import socket
import struct
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from ottla.records.batch import BatchHeader, split_batches
from ottla.records.record import decode_batch
from support import faulty_broker
from support.apache import ApacheZooKeeper
from support.broken_network import ZOOKEEPER, BreakableNetwork
from support.cluster_history import Place, Value, name_of
from support.history_clients import value_of
from support.ottla_server import OttlaServer
from support.ports import free_port
from support.processes import TERMINATE_TIMEOUT_S, ServerProcess
from support.replica_files import batches
from support.waiting import wait_until

#: Short, so that a fault takes seconds, and long enough for a busy machine.
SESSION_MS = 4000
LAG_MS = 2000
TICK_TIME_MS = 500
WATCH_S = 0.1
SETTLE_TIMEOUT_S = 120.0
OFFSETS = "__consumer_offsets"
OFFSETS_PARTITIONS = 3

#: ElectLeaders version 0 for all partitions: header (key, version, correlation id, no client id), no list, timeout.
ELECT_ALL = struct.pack(">hhihii", 43, 0, 0, -1, -1, 3000)
ELECT_TIMEOUT_S = 5.0

SETTINGS = {
    "auto.create.topics.enable": "false",
    "auto.leader.rebalance.enable": "false",
    "controlled.shutdown.max.retries": "1",
    "controller.socket.timeout.ms": "3000",
    "default.replication.factor": "3",
    "group.initial.rebalance.delay.ms": "0",
    "log.retention.ms": "-1",
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": str(OFFSETS_PARTITIONS),
    "offsets.topic.replication.factor": "3",
    "replica.lag.time.max.ms": str(LAG_MS),
    "replica.socket.timeout.ms": "3000",
    "zookeeper.session.timeout.ms": str(SESSION_MS),
}


class FailingBroker(OttlaServer):
    """A broker that obeys orders about its clock and its disk, with an output file for each of its lives."""

    def __init__(self, broker_id: int, folder: Path, network: BreakableNetwork, zookeeper_port: int) -> None:
        self.broker_id = broker_id
        end = str(broker_id)
        self._network = network
        self._home = folder
        self._lives = 0
        clients, between, host = free_port(), free_port(), network.bind(end)
        self.address = network.advertised(end, clients, between=False)
        overrides = {
            **SETTINGS,
            "listeners": f"PLAINTEXT://{host}:{clients},BETWEEN://{host}:{between}",
            "advertised.listeners": f"PLAINTEXT://{self.address},"
            f"BETWEEN://{network.advertised(end, between, between=True)}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,BETWEEN:PLAINTEXT",
            "inter.broker.listener.name": "BETWEEN",
        }
        arguments = ["--id", end, "--zookeeper", network.zookeeper(end, zookeeper_port)]
        super().__init__(
            folder, data=folder / "data", overrides=overrides, arguments=arguments, env={"OTTLA_LOG_LEVEL": "INFO"}
        )

    def command(self) -> list[str]:
        """See `OttlaServer`."""
        whole = super().command()
        ours = [sys.executable, "-u", faulty_broker.__file__, str(self._home / "orders")]
        return [*self._network.prefix(str(self.broker_id)), *ours, *whole[whole.index("serve") :]]

    def start(self, timeout_s: float = SETTLE_TIMEOUT_S) -> FailingBroker:
        """See `OttlaServer`."""
        self._lives += 1
        self.folder = self._home / f"life-{self._lives}"
        port = self.port
        super().start(timeout_s)
        self.port = port
        self._network.started(str(self.broker_id), self.server.pid)
        return self

    def order(self, text: str) -> tuple[int, int]:
        """See `faulty_broker.order`."""
        return faulty_broker.order(self._home / "orders", text)


class FailingZooKeeper:
    """`ottla zookeeper` as a process, or with `apache` that of Apache, which is not in the network."""

    def __init__(self, folder: Path, network: BreakableNetwork, *, apache: bool = False) -> None:
        self.port = free_port()
        self._apache = ApacheZooKeeper(folder, heap="128m") if apache else None
        self.host = network.bind(ZOOKEEPER)
        self._folder = folder
        self._prefix = network.prefix(ZOOKEEPER)
        self._lives = 0
        self.server: ServerProcess

    def start(self) -> None:
        """Start it, or start it again with its data."""
        self._lives += 1
        if self._apache is not None:
            self._apache.port = self.port
            self.server = self._apache.start().server
            return
        command = [*self._prefix, sys.executable, "-u", "-m", "ottla", "zookeeper"]
        command += ["--host", self.host, "--port", str(self.port)]
        command += ["--data", str(self._folder / "data"), "--tick-time-ms", str(TICK_TIME_MS)]
        self.server = server = ServerProcess("zookeeper", command, self._folder / f"life-{self._lives}")
        server.wait_until_ready(lambda: "listening on" in server.stdout, SETTLE_TIMEOUT_S)


@dataclass(frozen=True)
class ClusterSight:
    """What the znodes say at one moment."""

    controller: int
    brokers: tuple[int, ...]
    #: Leader, leader epoch and ISR of each partition.
    states: dict[Place, tuple[int, int, tuple[int, ...]]]
    #: The registrations' creation transactions.
    sessions: dict[int, int]

    def leads(self, broker: int) -> list[Place]:
        """The partitions it leads."""
        return [place for place, (leader, _, _) in self.states.items() if leader == broker]

    def in_isr(self, broker: int) -> list[Place]:
        """The partitions in whose ISR it is."""
        return [place for place, (_, _, isr) in self.states.items() if broker in isr]


class ClusterWatcher(threading.Thread):
    """Reads the znodes again and again, past the network that is cut; `changes` says when what changed."""

    def __init__(self, connect: str, places: Sequence[Place]) -> None:
        super().__init__(name="watcher", daemon=True)
        self._client = KazooClient(hosts=connect, timeout=10.0)
        self._places = tuple(places)
        self._ending = threading.Event()
        self.sight = ClusterSight(-1, (), {}, {})
        self.changes: list[tuple[float, str]] = []
        #: The first replica of each partition.
        self.preferred: dict[str, dict[int, int]] = {}
        #: When it last could read.
        self.seen_s = 0.0

    def begin(self) -> None:
        """Connect, and start to watch."""
        self._client.start(timeout=SETTLE_TIMEOUT_S)
        self.start()

    def end(self) -> None:
        """Stop watching."""
        self._ending.set()
        self.join()
        self._client.stop()
        self._client.close()

    def run(self) -> None:
        """See `threading.Thread`."""
        while not self._ending.wait(WATCH_S):
            with contextlib.suppress(KazooException, KazooTimeoutError):
                sight = self._look()
                now_s = time.monotonic()
                self.changes += [(now_s, text) for text in _differences(self.sight, sight)]
                self.sight, self.seen_s = sight, now_s

    def forget_preferred(self) -> None:
        """Replicas were reassigned: look again which are the first ones, and wait for that."""
        self.preferred = {}
        wanted = {topic for topic, _ in self._places}
        wait_until(lambda: self.preferred.keys() == wanted, "the first replicas", SETTLE_TIMEOUT_S)

    def since(self, began_s: float) -> list[str]:
        """What has changed since."""
        return [text for at_s, text in list(self.changes) if at_s >= began_s]

    def _look(self) -> ClusterSight:
        controller = self._json("/controller")
        brokers = tuple(sorted(map(int, self._client.get_children("/brokers/ids"))))
        for topic in {topic for topic, _ in self._places}:
            if topic not in self.preferred and (found := self._json(f"/brokers/topics/{topic}")) is not None:
                self.preferred[topic] = {int(number): replicas[0] for number, replicas in found["partitions"].items()}
        states = {}
        for place in self._places:
            state = self._json(f"/brokers/topics/{place[0]}/partitions/{place[1]}/state")
            if state is not None:
                states[place] = int(state["leader"]), int(state["leader_epoch"]), tuple(sorted(state["isr"]))
        sessions = {}
        for broker in brokers:
            stat = self._client.exists(f"/brokers/ids/{broker}")
            if stat is not None:
                sessions[broker] = stat.czxid
        return ClusterSight(-1 if controller is None else int(controller["brokerid"]), brokers, states, sessions)

    def _json(self, path: str) -> Any:
        try:
            data, _ = self._client.get(path)
        except NoNodeError:
            return None
        return json.loads(data)


def _differences(before: ClusterSight, now: ClusterSight) -> Iterator[str]:
    if before.controller != now.controller:
        yield f"controller {before.controller} -> {now.controller}"
    for gone in sorted(set(before.brokers) - set(now.brokers)):
        yield f"broker {gone} gone"
    for come in sorted(set(now.brokers) - set(before.brokers)):
        yield f"broker {come} registered"
    for broker in sorted(now.sessions.keys() & before.sessions.keys()):
        if now.sessions[broker] != before.sessions[broker]:
            yield f"broker {broker} registered anew"
    for place, (leader, _, isr) in now.states.items():
        if place in before.states:
            leader_before, _, isr_before = before.states[place]
            if leader != leader_before:
                yield f"{name_of(place)} leader {leader_before} -> {leader}"
            if isr != isr_before:
                yield f"{name_of(place)} ISR {_joined(isr_before)} -> {_joined(isr)}"


def _joined(isr: tuple[int, ...]) -> str:
    return "".join(map(str, isr)) or "none"


class FailingCluster:
    """Brokers with ids from 1 on, one ZooKeeper."""

    def __init__(
        self,
        folder: Path,
        brokers: int,
        network: BreakableNetwork,
        places: Sequence[Place],
        also: Sequence[Place] = (),
        *,
        apache: bool = False,
    ) -> None:
        self.network = network
        self.zookeeper = FailingZooKeeper(folder / "zookeeper", network, apache=apache)
        self.brokers = {
            broker: FailingBroker(broker, folder / f"broker-{broker}", network, self.zookeeper.port)
            for broker in range(1, brokers + 1)
        }
        self.places = tuple(places)
        offsets = [(OFFSETS, number) for number in range(OFFSETS_PARTITIONS)]
        self.watcher = ClusterWatcher(f"{self.zookeeper.host}:{self.zookeeper.port}", [*places, *also, *offsets])
        self._down: set[int] = set(self.brokers)

    @property
    def bootstrap(self) -> str:
        """`bootstrap.servers`, with all brokers."""
        return ",".join(broker.address for broker in self.brokers.values())

    @property
    def sight(self) -> ClusterSight:
        """What the znodes say."""
        return self.watcher.sight

    @contextlib.contextmanager
    def running(self) -> Iterator[FailingCluster]:
        """All run; in the end nothing does."""
        try:
            self.zookeeper.start()
            self.watcher.begin()
            with ThreadPoolExecutor(len(self.brokers)) as threads:
                list(threads.map(self.start, self.brokers))
            yield self
        finally:
            if self.watcher.is_alive():
                self.watcher.end()
            for broker in set(self.brokers) - self._down:
                self.brokers[broker].kill9()
            with contextlib.suppress(AttributeError):
                self.zookeeper.server.kill9()

    def start(self, broker: int) -> None:
        """Start a broker, and wait until it is registered."""
        self._down.discard(broker)
        self.brokers[broker].start()
        wait_until(lambda: broker in self.sight.brokers, f"broker {broker} in ZooKeeper", SETTLE_TIMEOUT_S)

    def kill9(self, broker: int) -> None:
        """Kill it without notice."""
        self.brokers[broker].kill9()
        self._down.add(broker)

    def stop(self, broker: int) -> None:
        """Stop it in order."""
        self.brokers[broker].stop(TERMINATE_TIMEOUT_S)
        self._down.add(broker)

    def wipe(self, broker: int) -> None:
        """Empty its disk, while it is down."""
        shutil.rmtree(self.brokers[broker].data)

    def pause(self, broker: int) -> None:
        """SIGSTOP."""
        self.brokers[broker].server.signal(signal.SIGSTOP)

    def go_on(self, broker: int) -> None:
        """SIGCONT."""
        self.brokers[broker].server.signal(signal.SIGCONT)

    def died(self) -> list[str]:
        """Brokers that ended by themselves."""
        return [
            f"broker {broker} ended with status {self.brokers[broker].server.returncode}"
            for broker in set(self.brokers) - self._down
            if not self.brokers[broker].server.running
        ]

    def is_well(self) -> bool:
        """All are registered, and all replicas of all partitions in sync."""
        sight = self.sight
        wanted = min(3, len(self.brokers))
        return (
            set(sight.brokers) == set(self.brokers)
            and sight.controller in sight.brokers
            and all(place in sight.states for place in self.places)
            and all(leader >= 0 and len(isr) == wanted for leader, _, isr in sight.states.values())
        )

    def wait_until_well(self) -> None:
        """Until it is, as seen from now on."""
        began_s = time.monotonic()
        wait_until(
            lambda: self.watcher.seen_s > began_s and self.is_well(),
            lambda: f"all replicas in sync: {self.sight}, {self.died()}",
            SETTLE_TIMEOUT_S,
        )

    def elect_preferred(self) -> None:
        """Ask the controller to make the first replica of each partition its leader, and wait for the answer."""
        controller = self.brokers.get(self.sight.controller)
        if controller is None:
            return
        host, _, port = controller.address.partition(":")
        with (
            contextlib.suppress(OSError, struct.error),
            socket.create_connection((host, int(port)), ELECT_TIMEOUT_S) as connection,
        ):
            connection.sendall(struct.pack(">i", len(ELECT_ALL)) + ELECT_ALL)
            with connection.makefile("rb") as stream:
                (size,) = struct.unpack(">i", stream.read(4))
                stream.read(size)

    def leaders_are_preferred(self) -> bool:
        """Whether each partition is led by its first replica."""
        states = self.sight.states
        return all(states[topic, number][0] == self.watcher.preferred[topic][number] for topic, number in states)

    def log_on(self, broker: int, place: Place) -> dict[int, Value]:
        """The records that a broker's files hold, by their offsets."""
        found: dict[int, Value] = {}
        for header, data in self._data_batches(broker, place):
            found |= {record.offset: value_of(record.value) for record in decode_batch(data, header)}
        return found

    def writers_on(self, broker: int, place: Place) -> dict[int, tuple[int, int]]:
        """Producer id and epoch of the records that a broker's files hold, by their offsets."""
        return {
            offset: (header.producer_id, header.producer_epoch)
            for header, _ in self._data_batches(broker, place)
            for offset in range(header.base_offset, header.last_offset + 1)
        }

    def _data_batches(self, broker: int, place: Place) -> Iterator[tuple[BatchHeader, bytes]]:
        for data in batches(self.brokers[broker].data / name_of(place)).values():
            [header] = split_batches(data)
            if not header.is_control:
                yield header, data

    def repeated_on(self, broker: int, place: Place, records: Mapping[int, Value]) -> list[str]:
        """The batches of records that a broker's files, which hold `records`, have more than once: who wrote them."""
        counts = Counter(records.values())
        found = []
        for header, _ in self._data_batches(broker, place):
            offsets = range(header.base_offset, header.last_offset + 1)
            if all(counts[records[offset]] == 1 for offset in offsets):
                continue
            found.append(
                f"{name_of(place)} offsets {header.base_offset}-{header.last_offset}, leader epoch "
                f"{header.partition_leader_epoch}: producer {header.producer_id}, epoch {header.producer_epoch}, "
                f"sequence {header.base_sequence}-{header.last_sequence}, written {header.max_timestamp}"
            )
        return found


def hold(condition: Callable[[], bool], what: str, timeout_s: float) -> bool:
    """Whether the condition came about in time."""
    try:
        wait_until(condition, what, timeout_s, 0.05)
    except AssertionError:
        return False
    return True
