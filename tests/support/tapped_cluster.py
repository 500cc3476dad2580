"""A cluster of brokers of Apache Kafka and ours on one Apache ZooKeeper, with a proxy (tap) before each broker.

Each broker has two listeners: one for clients and tests, and one between brokers, whose advertised port is the tap's.
"""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Literal

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from support.apache import SESSION_TIMEOUT_MS, ApacheKafka, ApacheZooKeeper
from support.controller import wait_until_all_are_known
from support.former_release import former_environment
from support.java import java_tool
from support.ottla_server import OttlaServer
from support.ports import LOOPBACK, free_port
from support.recording_tap import Recording, RecordingTap
from support.waiting import wait_until
from support.zk_trees import open_tree

#: `former` is the release of ottla before this one.
Maker = Literal["apache", "ottla", "former"]

BETWEEN = "BETWEEN"
BROKER_HEAP = "256m"
ZOOKEEPER_HEAP = "128m"
#: More JVMs than these would only compete for the processor.
MOST_APACHE_BROKERS = 3
SETTLE_TIMEOUT_S = 90.0
POLL_S = 0.1

#: What all brokers of a cluster have, whoever made them.
CLUSTER_SETTINGS: Mapping[str, str] = {
    "auto.leader.rebalance.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "log.retention.ms": "-1",
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "3",
    "replica.lag.time.max.ms": "3000",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "2",
    "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS),
}


class ClusterBroker:
    """A broker that keeps its ports over restarts. `bootstrap` is for clients; other brokers come through `tap`."""

    def __init__(
        self,
        maker: Maker,
        broker_id: int,
        folder: Path,
        zookeeper: ApacheZooKeeper,
        recording: Recording,
        settings: Mapping[str, str],
        directories: int = 1,
    ) -> None:
        self.broker_id = broker_id
        self._directories = directories
        self.folder = folder
        self._inner_port = free_port()
        self.tap = RecordingTap(recording, broker_id, self._inner_port)
        self.bootstrap = f"{LOOPBACK}:{free_port()}"
        between = f"{BETWEEN}://{LOOPBACK}"
        self._zookeeper = zookeeper
        self._overrides = {
            **settings,
            "listeners": f"PLAINTEXT://{self.bootstrap},{between}:{self._inner_port}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap},{between}:{self.tap.port}",
            "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,{BETWEEN}:PLAINTEXT",
            "inter.broker.listener.name": BETWEEN,
        }
        self.maker = maker
        self.server = self._made_by(maker)
        self._started = False
        self._paused = False

    def _made_by(self, maker: Maker) -> ApacheKafka | OttlaServer:
        if maker == "apache":
            return ApacheKafka(
                self.folder,
                zookeeper=self._zookeeper,
                broker_id=self.broker_id,
                heap=BROKER_HEAP,
                overrides=self._overrides | {"log.dirs": ",".join(map(str, self.log_dirs))},
            )
        arguments = ["--id", str(self.broker_id), "--zookeeper", self._zookeeper.connect]
        return OttlaServer(
            self.folder,
            data=Path(",".join(map(str, self.log_dirs))),
            overrides=self._overrides,
            arguments=arguments,
            env=_environment(maker),
        )

    @property
    def log_dir(self) -> Path:
        """The directory that holds the partitions, whoever made the broker; the first of several."""
        return self.folder / "data"

    @property
    def log_dirs(self) -> list[Path]:
        """All its log directories."""
        return [self.log_dir, *(self.folder / f"data-{number}" for number in range(2, self._directories + 1))]

    def replace(self, maker: Maker) -> None:
        """Let a broker of another make have its id, its ports and its log directory, while it is down.

        One of ottla is given the `server.properties` that Apache Kafka's has left, as a user would do it.
        """
        self.maker = maker
        properties = self.folder / "server.properties"
        if maker == "apache" or not properties.exists():
            self.server = self._made_by(maker)
        else:
            self.server = OttlaServer(
                self.folder,
                data=self.log_dir,
                overrides={"listeners": self._overrides["listeners"]},
                arguments=["--properties", str(properties)],
                env=_environment(maker),
            )

    def start(self) -> None:
        """Start it, or start it again: the registration of its last life must be gone."""
        self._started = True
        self.server.start()

    def stop(self) -> None:
        """Stop it cleanly, with a controlled shutdown."""
        self.resume()
        self.server.stop()

    def kill9(self) -> None:
        """Kill it without notice."""
        self.server.kill9()
        self._paused = False

    def pause(self) -> None:
        """Stop its process where it stands (SIGSTOP)."""
        self.server.server.signal(signal.SIGSTOP)
        self._paused = True

    def resume(self) -> None:
        """Let a paused process continue."""
        if self._paused:
            self.server.server.signal(signal.SIGCONT)
            self._paused = False

    def wipe(self) -> None:
        """Empty its disk, while it is down."""
        shutil.rmtree(self.log_dir)

    def close(self) -> None:
        """Kill it, whatever state it is in, and end the tap."""
        try:
            if self._started:
                self.server.kill9()
        finally:
            self.tap.close()


def _environment(maker: Maker) -> dict[str, str]:
    return former_environment() if maker == "former" else {}


class TappedCluster:
    """Brokers with ids from 1 on, made by `makers` in turn, each in one of the `racks` if these are given.

    Each has this many log `directories`.
    """

    def __init__(
        self,
        folder: Path,
        makers: Sequence[Maker],
        settings: Mapping[str, str] | None = None,
        racks: Sequence[str] = (),
        directories: int = 1,
    ) -> None:
        if makers.count("apache") > MOST_APACHE_BROKERS:
            raise ValueError(f"{makers.count('apache')} JVMs: at most {MOST_APACHE_BROKERS} brokers of Apache Kafka")
        self.recording = Recording()
        self.zookeeper = ApacheZooKeeper(folder / "zookeeper", heap=ZOOKEEPER_HEAP)
        self.folder = folder
        self._makers = makers
        self._racks = racks
        self._directories = directories
        self._settings = {**CLUSTER_SETTINGS, **(settings or {})}
        self.brokers: dict[int, ClusterBroker] = {}
        self._client: KazooClient | None = None

    @property
    def zk(self) -> KazooClient:
        """A client of the ZooKeeper."""
        assert self._client is not None, "the cluster was not started"
        return self._client

    @property
    def bootstrap(self) -> str:
        """The `bootstrap.servers` address, with all brokers."""
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    @contextmanager
    def prepared(self) -> Iterator[TappedCluster]:
        """The ZooKeeper runs, and the brokers can be started; in the end nothing runs any more."""
        with ExitStack() as stack:
            stack.callback(self.zookeeper.stop)
            self.zookeeper.start()
            self._client = open_tree(self.zookeeper.connect)
            stack.callback(self._client.close)
            stack.callback(self._client.stop)
            for broker_id, maker in enumerate(self._makers, 1):
                rack = {"broker.rack": self._racks[broker_id - 1]} if self._racks else {}
                broker = ClusterBroker(
                    maker,
                    broker_id,
                    self.folder / f"broker-{broker_id}",
                    self.zookeeper,
                    self.recording,
                    {**self._settings, **rack},
                    self._directories,
                )
                stack.callback(broker.close)
                self.brokers[broker_id] = broker
            yield self

    def tool(self, *arguments: str) -> str:
        """The output of one of Apache Kafka's tools with `--bootstrap-server` of the brokers added."""
        return java_tool(*arguments, "--bootstrap-server", self.bootstrap).stdout

    def replace(self, broker_id: int, maker: Maker) -> None:
        """Stop a broker in order, and start one of another make in its place."""
        broker = self.brokers[broker_id]
        broker.stop()
        broker.replace(maker)
        self.start(broker_id)

    def start(self, broker_id: int) -> None:
        """Start a broker once its earlier registration is gone, and wait for the new one."""
        self.wait_until_gone(broker_id)
        self.brokers[broker_id].start()
        wait_until(lambda: broker_id in self.registered(), f"broker {broker_id} in ZooKeeper", SETTLE_TIMEOUT_S)

    def start_all(self) -> None:
        """Start the brokers one after the other, so that the first is the controller."""
        for broker_id in self.brokers:
            self.start(broker_id)
        self._wait_until_all_are_known()

    def start_together(self) -> None:
        """Start all brokers at once, which takes less time; any of them may be the controller."""
        with ThreadPoolExecutor(len(self.brokers)) as threads:
            list(threads.map(self.start, self.brokers))
        self._wait_until_all_are_known()

    def _wait_until_all_are_known(self) -> None:
        wait_until_all_are_known([broker.bootstrap for broker in self.brokers.values()])

    def wait_until_gone(self, broker_id: int) -> None:
        """Until ZooKeeper has no registration of the broker."""
        wait_until(lambda: broker_id not in self.registered(), f"broker {broker_id} out of ZooKeeper", SETTLE_TIMEOUT_S)

    def registered(self) -> set[int]:
        """The ids of the brokers that are registered."""
        try:
            return {int(name) for name in self.zk.get_children("/brokers/ids")}
        except NoNodeError:
            return set()

    def controller(self) -> int:
        """The id of the controller; -1 where there is none."""
        found = self.znode("/controller")
        return -1 if found is None else int(found["brokerid"])

    def wait_for_controller(self, but: int = -1) -> int:
        """The id of the controller, once there is one other than `but`."""
        wait_until(lambda: self.controller() not in (-1, but), "a controller", SETTLE_TIMEOUT_S)
        return self.controller()

    def znode(self, path: str) -> dict[str, Any] | None:
        """The JSON of a znode; None where it does not exist."""
        try:
            data, _ = self.zk.get(path)
        except NoNodeError:
            return None
        found: dict[str, Any] = json.loads(data)
        return found

    def partition(self, topic: str, partition: int) -> dict[str, Any] | None:
        """The state of a partition as the controller wrote it."""
        return self.znode(f"/brokers/topics/{topic}/partitions/{partition}/state")

    def partitions(self, topic: str) -> dict[int, list[int]]:
        """The replicas of each partition of a topic, none where it does not exist."""
        found = self.znode(f"/brokers/topics/{topic}")
        return {} if found is None else {int(number): replicas for number, replicas in found["partitions"].items()}

    def wait_for_isr(self, topic: str, isr: set[int] | None = None, timeout_s: float = SETTLE_TIMEOUT_S) -> None:
        """Until each partition has a leader and this ISR; all its replicas, where none is given."""

        def settled() -> bool:
            partitions = self.partitions(topic)
            states = {number: self.partition(topic, number) for number in partitions}
            return bool(partitions) and all(
                state is not None
                and state["leader"] >= 0
                and set(state["isr"]) == (set(partitions[number]) if isr is None else isr & set(partitions[number]))
                for number, state in states.items()
            )

        def what() -> str:
            states = {number: self.partition(topic, number) for number in self.partitions(topic)}
            return f"the ISR {isr or 'of all replicas'} of {topic}: {states}"

        wait_until(settled, what, timeout_s, POLL_S)
