"""The two clusters that are compared: three brokers and a ZooKeeper each, and what they cost together."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from contestants import APACHE, BROKER_JVM, BROKER_SETTINGS, DELETE_DELAY, LAUNCH_TIMEOUT_S
from frames import HOST, Caller
from kazoo.client import KazooClient

from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.elect_leaders import ElectLeadersRequest
from support.apache import ApacheKafka, ApacheZooKeeper
from support.ottla_server import OttlaServer
from support.ottla_zookeeper import OttlaZooKeeper
from support.ports import free_port
from support.waiting import wait_until

BROKER_IDS = (1, 2, 3)
#: Three JVMs have to share the machine: half of what `kafka-server-start.sh` gives each.
BROKER_HEAP = "512m"
SMALLER_JVM = ("-Xms512m", *(option for option in BROKER_JVM if not option.startswith("-Xms")))
ZOOKEEPER_HEAP = "256m"
ZOOKEEPER_JVM = ("-server", "-XX:+UseG1GC")
SETTINGS = {
    "auto.leader.rebalance.enable": "false",
    "default.replication.factor": "3",
    "offsets.topic.replication.factor": "3",
    "zookeeper.session.timeout.ms": "6000",
}
ELECTION_TIMEOUT_S = 240.0
SETTLE_TIMEOUT_S = 120.0
POLL_S = 0.005
#: ElectionType.PREFERRED of ElectLeaders.
PREFERRED = 0
ELECTED = (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED)
QUIET_ENV = {"PYTHONDONTWRITEBYTECODE": ""}


class Cluster:
    """Three brokers with the ids 1, 2, 3, which keep their ports, and their ZooKeeper."""

    def __init__(self, name: str, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        self.name = name
        self._folder = folder
        self.zookeeper: ApacheZooKeeper | OttlaZooKeeper
        if name == APACHE:
            self.zookeeper = ApacheZooKeeper(folder / "zookeeper", heap=ZOOKEEPER_HEAP, jvm_options=ZOOKEEPER_JVM)
        else:
            self.zookeeper = OttlaZooKeeper(folder / "zookeeper", env=QUIET_ENV)
        self._settings = SETTINGS | dict(settings or {})
        self.ports = {broker_id: free_port() for broker_id in BROKER_IDS}
        self.brokers: dict[int, ApacheKafka | OttlaServer] = {}
        self._client: KazooClient | None = None
        self._started: set[int] = set()
        #: Of processes that have ended.
        self._spent_cpu_s = 0.0

    @property
    def zk(self) -> KazooClient:
        """A client of the cluster's ZooKeeper."""
        assert self._client is not None, "the cluster was not started"
        return self._client

    def start(self) -> None:
        """Start everything, the brokers together, and wait until each knows all of them."""
        self.zookeeper.start()
        self._client = KazooClient(hosts=self.zookeeper.connect)
        self._client.start()
        self.brokers = {broker_id: self._broker(broker_id) for broker_id in BROKER_IDS}
        with ThreadPoolExecutor(len(BROKER_IDS)) as threads:
            list(threads.map(self._start_broker, BROKER_IDS))
        self.wait_until_all_known()

    def _broker(self, broker_id: int) -> ApacheKafka | OttlaServer:
        folder = self._folder / f"broker-{broker_id}"
        settings = self._settings | {"listeners": f"PLAINTEXT://{HOST}:{self.ports[broker_id]}"}
        connect = self.zookeeper.connect
        if self.name == APACHE:
            return ApacheKafka(
                folder,
                zookeeper=self.zookeeper,
                broker_id=broker_id,
                heap=BROKER_HEAP,
                overrides=BROKER_SETTINGS | settings,
                jvm_options=SMALLER_JVM,
            )
        arguments = ["--id", str(broker_id), "--zookeeper", connect]
        return OttlaServer(folder, overrides=DELETE_DELAY | settings, arguments=arguments, env=QUIET_ENV)

    def _start_broker(self, broker_id: int) -> None:
        self._started.add(broker_id)
        self.brokers[broker_id].start(LAUNCH_TIMEOUT_S)

    def restart(self, broker_id: int) -> None:
        """Start a broker that was stopped or killed; its registration must be gone."""
        wait_until(lambda: not self.zk.exists(f"/brokers/ids/{broker_id}"), "its registration to go", SETTLE_TIMEOUT_S)
        self._start_broker(broker_id)
        self.wait_until_all_known()

    def halt(self, broker_id: int, *, in_order: bool) -> float:
        """Stop a broker with a controlled shutdown, or kill it; the moment (monotonic) before that."""
        broker = self.brokers[broker_id]
        self._spent_cpu_s += broker.server.cpu_seconds()
        moment_s = time.monotonic()
        if in_order:
            broker.stop()
        else:
            broker.kill9()
        return moment_s

    def stop(self) -> None:
        """Kill all that runs."""
        for broker_id in self._started:
            self.brokers[broker_id].kill9()
        if self._client is not None:
            self._client.stop()
            self._client.close()
        if self.zookeeper.port:
            self.zookeeper.server.kill9()

    def cpu_seconds(self) -> float:
        """Processor time of all brokers and the ZooKeeper so far."""
        servers = [broker.server for broker in self.brokers.values()]
        spent = sum(server.cpu_seconds() for server in servers if server.running)
        return self._spent_cpu_s + spent + self.zookeeper.server.cpu_seconds()

    def memory_bytes(self) -> int:
        """Resident memory of all brokers and the ZooKeeper."""
        return sum(each.server.memory_bytes() for each in (*self.brokers.values(), self.zookeeper))

    def controller(self) -> int:
        """The id of the controller, -1 if there is none."""
        with Caller(self.ports[self.running()[0]]) as caller:
            return caller.metadata([]).controller_id

    def running(self) -> list[int]:
        """The ids of the brokers whose processes run."""
        return [broker_id for broker_id, broker in self.brokers.items() if broker.server.running]

    def wait_until_all_known(self) -> None:
        """Until each broker's metadata has all brokers."""
        for broker_id in BROKER_IDS:
            with Caller(self.ports[broker_id]) as caller:
                known = lambda caller=caller: caller.brokers() == len(BROKER_IDS)  # noqa: E731
                wait_until(known, f"broker {broker_id} to know the others", SETTLE_TIMEOUT_S, POLL_S)

    def make_topic(self, name: str, assignments: Sequence[Sequence[int]], settings: Mapping[str, str]) -> None:
        """Create a topic with this assignment and wait until it is led everywhere and all replicas are in sync."""
        with Caller(self.ports[self.controller()]) as caller:
            caller.create_topic(name, len(assignments), settings, assignments=assignments)
        self.wait_until_in_sync(name)

    def wait_until_in_sync(self, *topics: str, every_s: float = POLL_S) -> None:
        """Until each broker's metadata has all replicas of these topics in sync."""
        for broker_id in BROKER_IDS:
            with Caller(self.ports[broker_id]) as caller:
                for topic in topics:
                    full = lambda caller=caller, topic=topic: self._is_in_sync(caller, topic)  # noqa: E731
                    wait_until(full, f"{topic} to be in sync", SETTLE_TIMEOUT_S, every_s)

    def wait_until_without(self, topic: str, gone: int) -> None:
        """Until the metadata of all brokers that run has this one in no ISR of the topic."""
        for broker_id in self.running():
            with Caller(self.ports[broker_id]) as caller:
                left = lambda caller=caller: not self.has(caller, topic, gone)  # noqa: E731
                wait_until(left, f"broker {gone} to leave the ISRs", SETTLE_TIMEOUT_S, POLL_S)

    @staticmethod
    def has(caller: Caller, topic: str, broker_id: int) -> bool:
        """Whether the metadata has this broker as a leader or in sync somewhere in the topic, or one without leader."""
        partitions = caller.metadata([topic]).topics[0].partitions
        return any(each.leader_id in (broker_id, -1) or broker_id in each.isr_nodes for each in partitions)

    @staticmethod
    def _is_in_sync(caller: Caller, topic: str) -> bool:
        partitions = caller.metadata([topic]).topics[0].partitions
        return bool(partitions) and all(
            each.leader_id > 0 and len(each.isr_nodes) == len(each.replica_nodes) for each in partitions
        )

    def prefer_leaders(self) -> None:
        """Have the first replica of each partition lead it again: minutes, for 2,000 of them."""
        with Caller(self.ports[self.controller()], ELECTION_TIMEOUT_S + 10) as caller:
            timeout_ms = int(ELECTION_TIMEOUT_S * 1000)
            request = ElectLeadersRequest(election_type=PREFERRED, topic_partitions=None, timeout_ms=timeout_ms)
            answer = caller.call(ApiKey.ELECT_LEADERS, request)
        assert answer.error_code == 0, answer
        for topic in answer.replica_election_results:
            assert all(each.error_code in ELECTED for each in topic.partition_result), topic

    def delete_topic(self, name: str) -> None:
        """Delete a topic, files and all."""
        with Caller(self.ports[self.controller()]) as caller:
            caller.delete_topic(name)
        directories = [broker.log_dir for broker in self.brokers.values()]
        wait_until(
            lambda: not any(path.name.startswith(f"{name}-") for each in directories for path in each.iterdir()),
            f"the files of {name} to be deleted",
            SETTLE_TIMEOUT_S,
        )
