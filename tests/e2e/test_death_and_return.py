"""Brokers 3, 4 and 5 as processes: their znodes to the byte, the death of one, its return with its disk and without.

The topic has the replicas {"2":[5,4],"1":[4,3],"0":[3,5]}, which Apache Kafka 3.9.1 writes in the order 0, 1, 2.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from support.controller import wait_until_all_are_known
from support.ottla_server import OttlaServer
from support.ottla_zookeeper import OttlaZooKeeper
from support.waiting import wait_until
from support.zk_trees import open_tree

IDS = (3, 4, 5)
TOPIC = "topic1"
REPLICAS = {0: [3, 5], 1: [4, 3], 2: [5, 4]}
#: None but the killed one may be taken for dead, or fall out of the ISR, while a busy machine gives it no processor.
KILLED, KILLED_SESSION_MS = 4, 10_000
SESSION_TIMEOUT_MS = 40_000
TICK_TIME_MS = 2_000
MOST_LAG_MS = 120_000

pytestmark = [pytest.mark.slow, pytest.mark.spec("Z1", "Z3", "R5")]


class Brokers:
    """The brokers, and what ZooKeeper has of them."""

    def __init__(self, folder: Path) -> None:
        self.zookeeper = OttlaZooKeeper(folder / "zookeeper", tick_time_ms=TICK_TIME_MS).start()
        self.zk = open_tree(self.zookeeper.connect)
        self.servers: dict[int, OttlaServer] = {}
        for broker in IDS:
            session_ms = KILLED_SESSION_MS if broker == KILLED else SESSION_TIMEOUT_MS
            server = self.servers[broker] = OttlaServer(
                folder / str(broker),
                overrides={
                    "zookeeper.session.timeout.ms": str(session_ms),
                    "replica.lag.time.max.ms": str(MOST_LAG_MS),
                    "offsets.topic.replication.factor": "3",
                    "offsets.topic.num.partitions": "3",
                },
                arguments=["--id", str(broker), "--zookeeper", self.zookeeper.connect],
            )
            server.start()
        wait_until_all_are_known([server.bootstrap for server in self.servers.values()])

    @property
    def bootstrap(self) -> str:
        return ",".join(server.bootstrap for server in self.servers.values() if server.server.running)

    def stop(self) -> None:
        for server in self.servers.values():
            server.stop()
        self.zk.stop()
        self.zk.close()
        self.zookeeper.stop()

    def data(self, path: str) -> str:
        data, _ = self.zk.get(path)
        return (data or b"").decode()

    def states(self) -> dict[int, str]:
        return {index: self.data(f"/brokers/topics/{TOPIC}/partitions/{index}/state") for index in REPLICAS}

    def wait_for_states(self, states: dict[int, str], what: str) -> None:
        wait_until(lambda: self.states() == states, lambda: f"{what}: {self.states()} in place of {states}")

    def wait_until_in_sync(self) -> None:
        wait_until(
            lambda: all(sorted(json.loads(state)["isr"]) == sorted(REPLICAS[i]) for i, state in self.states().items()),
            lambda: f"all replicas in sync: {self.states()}",
        )

    def kill(self, broker: int) -> None:
        self.servers[broker].kill9()
        wait_until(lambda: self.zk.exists(f"/brokers/ids/{broker}") is None, "the end of its session")

    def logs_are_equal(self) -> bool:
        def log(broker: int, index: int) -> bytes:
            return (self.servers[broker].log_dir / f"{TOPIC}-{index}" / f"{0:020}.log").read_bytes()

        return all(log(one, index) == log(other, index) != b"" for index, (one, other) in REPLICAS.items())


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[Brokers]:
    started = Brokers(tmp_path)
    yield started
    started.stop()


def state(leader: int, leader_epoch: int, isr: list[int], controller_epoch: int = 1) -> str:
    shown = ",".join(map(str, isr))
    return (
        f'{{"controller_epoch":{controller_epoch},"leader":{leader},"version":1,"leader_epoch":{leader_epoch},'
        f'"isr":[{shown}]}}'
    )


class Clients:
    """A producer and a group's consumer, the same ones all the time."""

    def __init__(self, bootstrap: str) -> None:
        self.producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True})
        self.consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": "readers", "auto.offset.reset": "earliest"}
        )
        self.consumer.subscribe([TOPIC])
        self.sent = 0
        self.seen: list[str] = []

    def go_on(self) -> None:
        """Ten more records to each partition, which are acknowledged and read."""
        for number in range(self.sent, self.sent + 10):
            for index in REPLICAS:
                self.producer.produce(TOPIC, f"{index}:{number}", partition=index)
        assert self.producer.flush(60) == 0
        self.sent += 10

        def all_read() -> bool:
            message = self.consumer.poll(0.1)
            if message is not None and not message.error():
                self.seen.append(message.value().decode())
            return len(self.seen) >= len(REPLICAS) * self.sent

        wait_until(all_read, lambda: f"{len(REPLICAS) * self.sent} records: {len(self.seen)} are there", 90, 0)
        for index in REPLICAS:
            of_partition = [each for each in self.seen if each.startswith(f"{index}:")]
            assert of_partition == [f"{index}:{number}" for number in range(self.sent)]


def create(brokers: Brokers) -> None:
    admin = AdminClient({"bootstrap.servers": brokers.bootstrap})
    topic = NewTopic(TOPIC, len(REPLICAS), replica_assignment=[REPLICAS[index] for index in sorted(REPLICAS)])
    admin.create_topics([topic])[TOPIC].result(60)


@pytest.mark.timeout(600)
def test_a_broker_dies_and_a_new_one_with_its_id_takes_its_place(brokers: Brokers) -> None:
    create(brokers)
    znode = brokers.data(f"/brokers/topics/{TOPIC}")
    assert re.fullmatch(
        r'\{"partitions":\{"0":\[3,5\],"1":\[4,3\],"2":\[5,4\]\},"topic_id":"[\w-]{22}","adding_replicas":\{\},'
        r'"removing_replicas":\{\},"version":3\}',
        znode,
    )
    assert brokers.states() == {0: state(3, 0, [3, 5]), 1: state(4, 0, [4, 3]), 2: state(5, 0, [5, 4])}
    port = brokers.servers[KILLED].port
    assert re.fullmatch(
        r'\{"features":\{\},"listener_security_protocol_map":\{"PLAINTEXT":"PLAINTEXT"\},"endpoints":'
        rf'\["PLAINTEXT://127\.0\.0\.1:{port}"\],"jmx_port":-1,"port":{port},"host":"127\.0\.0\.1","version":5,'
        r'"timestamp":"\d{13}"\}',
        brokers.data("/brokers/ids/4"),
    )
    controller = brokers.data("/controller")
    assert re.fullmatch(r'\{"version":2,"brokerid":3,"timestamp":"\d{13}","kraftControllerEpoch":-1\}', controller)
    assert brokers.data("/controller_epoch") == "1"
    clients = Clients(brokers.bootstrap)
    clients.go_on()

    # Broker 4 dies: partition 1 is led by 3, and 5 is alone in sync for partition 2.
    brokers.kill(KILLED)
    dead = {0: state(3, 0, [3, 5]), 1: state(3, 1, [3]), 2: state(5, 1, [5])}
    brokers.wait_for_states(dead, "the states after the death")
    clients.go_on()

    # A new process with its id and its disk, on another port: leaders stay where they are.
    brokers.servers[KILLED].port = 0
    brokers.servers[KILLED].start()
    brokers.wait_until_in_sync()
    clients.go_on()
    assert brokers.data(f"/brokers/topics/{TOPIC}") == znode
    assert brokers.states() == {0: state(3, 0, [3, 5]), 1: state(3, 1, [3, 4]), 2: state(5, 1, [5, 4])}

    # Again, with an empty disk.
    brokers.kill(KILLED)
    brokers.wait_for_states({0: state(3, 0, [3, 5]), 1: state(3, 2, [3]), 2: state(5, 2, [5])}, "the states")
    shutil.rmtree(brokers.servers[KILLED].log_dir)
    brokers.servers[KILLED].start()
    brokers.wait_until_in_sync()
    clients.go_on()
    assert brokers.data(f"/brokers/topics/{TOPIC}") == znode
    wait_until(brokers.logs_are_equal, "the same records on both brokers of each partition")
    clients.consumer.close()
