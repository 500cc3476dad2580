"""Kafka Streams, Connect and MirrorMaker 2 on three brokers with factor 3: of ours, and in mixed clusters."""

from __future__ import annotations

import json
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from interop.cluster.mixes import mix
from support.java import GROUP_TOOL, java_command, streams_libs
from support.ottla_server import OttlaServer
from support.ports import LOOPBACK, free_port
from support.processes import ServerProcess
from support.tapped_cluster import TappedCluster
from support.waiting import wait_until

pytestmark = [pytest.mark.needs_streams, pytest.mark.long, pytest.mark.timeout(600), pytest.mark.spec("R4", "R6")]

HERE = Path(__file__).parent
MIXES = [mix("ottla", "ottla", "ottla"), mix("apache", "ottla", "ottla"), mix("ottla", "apache", "apache")]
WAIT_S = 120.0
WORDS = ("one", "two", "three", "four", "five")
PARTITIONS = 3


@pytest.fixture
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TappedCluster]:
    """Three brokers that run."""
    with TappedCluster(tmp_path / "cluster", request.param).prepared() as cluster:
        cluster.start_all()
        yield cluster


@contextmanager
def running(name: str, folder: Path, *arguments: str) -> Iterator[ServerProcess]:
    """A Java program, which is asked to stop in the end."""
    process = ServerProcess(name, java_command(*arguments, beside=streams_libs()), folder)
    try:
        yield process
        process.terminate()
    finally:
        process.kill9()


def create(bootstrap: str, *topics: str, factor: int = 3) -> None:
    wanted = [NewTopic(topic, PARTITIONS, factor) for topic in topics]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics(wanted).values():
        made.result(WAIT_S)


def produce(bootstrap: str, topic: str, values: list[str]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % PARTITIONS)
    assert producer.flush(WAIT_S) == 0


class Reader:
    """Everything in a topic so far: keys and values in the order of each partition."""

    def __init__(self, bootstrap: str, *topics: str) -> None:
        settings = {"group.id": "reader", "auto.offset.reset": "earliest", "enable.auto.commit": False}
        self._consumer = Consumer({"bootstrap.servers": bootstrap, **settings})
        self._consumer.subscribe(list(topics))
        self.found: list[tuple[str | None, str]] = []

    def read(self) -> list[tuple[str | None, str]]:
        for message in self._consumer.consume(1000, 0.5):
            if message.error() is None:
                key, value = message.key(), message.value()
                self.found.append((key.decode() if key else None, value.decode() if value else ""))
        return self.found

    def close(self) -> None:
        self._consumer.close()


def factors(cluster: TappedCluster) -> dict[str, set[int]]:
    """The numbers of replicas of all topics."""
    names = cluster.zk.get_children("/brokers/topics")
    return {name: {len(replicas) for replicas in cluster.partitions(name).values()} for name in names}


@pytest.mark.parametrize("cluster", MIXES, indirect=True)
def test_streams_count_at_least_once(cluster: TappedCluster, tmp_path: Path) -> None:
    """While a broker is killed and comes back; and after a restart the counts continue, from the changelog."""
    create(cluster.bootstrap, "words", "totals")
    produced: Counter[str] = Counter()
    reader = Reader(cluster.bootstrap, "totals")

    def send(count: int) -> None:
        words = [WORDS[number % len(WORDS)] for number in range(count)]
        produce(cluster.bootstrap, "words", words)
        produced.update(words)

    def totals() -> dict[str, int]:
        return {key: int(value) for key, value in reader.read() if key is not None}

    def counted() -> bool:
        found = totals()
        return all(found.get(word, 0) >= count for word, count in produced.items())

    def story() -> str:
        return f"{dict(produced)}, not {totals()}\n{program.output_tail()}"

    arguments = (str(HERE / "Streams.java"), cluster.bootstrap, "words", "totals", str(tmp_path / "state"))
    try:
        with running("streams", tmp_path / "first", *arguments) as program:
            send(1000)
            wait_until(counted, story, WAIT_S)
            assert totals() == dict(produced), "without failures each word counts once"
            cluster.brokers[2].kill9()
            cluster.wait_until_gone(2)
            send(500)
            wait_until(counted, story, WAIT_S)
            cluster.start(2)
        with running("streams", tmp_path / "second", *arguments) as program:
            send(500)
            wait_until(counted, story, WAIT_S)
        internal = {name: found for name, found in factors(cluster).items() if name.startswith("word-counts-")}
        assert len(internal) == 2
        assert all(found == {3} for found in internal.values()), internal
    finally:
        reader.close()


def properties(path: Path, settings: Mapping[str, str]) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return str(path)


def worker(cluster: TappedCluster, port: int) -> dict[str, str]:
    """What both kinds of Connect's workers have."""
    converter = "org.apache.kafka.connect.storage.StringConverter"
    return {
        "bootstrap.servers": cluster.bootstrap,
        "key.converter": converter,
        "value.converter": converter,
        "offset.flush.interval.ms": "500",
        "listeners": f"http://{LOOPBACK}:{port}",
    }


def connectors(folder: Path) -> dict[str, dict[str, str]]:
    """A file goes into a topic, and the topic into another file."""
    return {
        "source": {
            "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
            "tasks.max": "1",
            "file": str(folder / "in.txt"),
            "topic": "lines",
        },
        "sink": {
            "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
            "tasks.max": "2",
            "file": str(folder / "out.txt"),
            "topics": "lines",
        },
    }


def append(folder: Path, *lines: str) -> None:
    with (folder / "in.txt").open("a") as file:
        file.writelines(f"{line}\n" for line in lines)


def holds(folder: Path, wanted: set[str]) -> bool:
    return written(folder) >= wanted


def written(folder: Path) -> set[str]:
    path = folder / "out.txt"
    return set(path.read_text().splitlines()) if path.exists() else set()


@pytest.mark.parametrize("cluster", MIXES[:2], indirect=True)
def test_connect_standalone(cluster: TappedCluster, tmp_path: Path) -> None:
    create(cluster.bootstrap, "lines")
    settings = worker(cluster, free_port()) | {"offset.storage.file.filename": str(tmp_path / "offsets")}
    arguments = [properties(tmp_path / "worker.properties", settings)]
    for name, config in connectors(tmp_path).items():
        arguments.append(properties(tmp_path / f"{name}.properties", {"name": name, **config}))
    lines = [f"line {number}" for number in range(300)]
    for number, part in enumerate((lines[:100], lines[100:])):
        append(tmp_path, *part)
        wanted = set(lines[: 100 + 200 * number])
        with running(
            "standalone", tmp_path / f"run-{number}", "org.apache.kafka.connect.cli.ConnectStandalone", *arguments
        ) as program:
            wait_until(partial(holds, tmp_path, wanted), program.output_tail, WAIT_S)
    # The source continued where it was: each line is in the topic once.
    reader = Reader(cluster.bootstrap, "lines")
    wait_until(lambda: len(reader.read()) >= len(lines), lambda: f"{len(reader.found)} lines", WAIT_S)
    reader.close()
    assert Counter(value for _, value in reader.found) == Counter(lines)


def asked(port: int, path: str, body: Mapping[str, Any] | None = None) -> Any:
    """The answer of a worker to a request; None where it does not answer yet."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://{LOOPBACK}:{port}/{path}", data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
            return json.load(answer)
    except OSError:
        return None


@pytest.mark.parametrize("cluster", MIXES[:2], indirect=True)
def test_connect_distributed(cluster: TappedCluster, tmp_path: Path) -> None:
    """Two workers; one is killed, and the other continues with its tasks."""
    create(cluster.bootstrap, "lines")
    ports = [free_port(), free_port()]
    settings = {"group.id": "workers", "scheduled.rebalance.max.delay.ms": "0", "session.timeout.ms": "6000"}
    settings |= {"heartbeat.interval.ms": "2000"}
    for kind in ("config", "offset", "status"):
        settings |= {f"{kind}.storage.topic": f"connect-{kind}s", f"{kind}.storage.replication.factor": "3"}
    command = "org.apache.kafka.connect.cli.ConnectDistributed"
    files = [properties(tmp_path / f"worker-{port}.properties", worker(cluster, port) | settings) for port in ports]
    append(tmp_path, *(f"line {number}" for number in range(100)))
    with running("first", tmp_path / "first", command, files[0]) as first:
        wait_until(lambda: asked(ports[0], "connectors") is not None, first.output_tail, WAIT_S)
        with running("second", tmp_path / "second", command, files[1]) as second:
            wait_until(lambda: asked(ports[1], "connectors") is not None, second.output_tail, WAIT_S)
            for name, config in connectors(tmp_path).items():
                body = {"name": name, "config": config}
                wait_until(partial(asked, ports[0], "connectors", body), first.output_tail, WAIT_S)
            wait_until(lambda: len(written(tmp_path)) == 100, first.output_tail, WAIT_S)
            second.kill9()
            append(tmp_path, *(f"line {number}" for number in range(100, 200)))
            wait_until(lambda: len(written(tmp_path)) == 200, first.output_tail, WAIT_S)

            def states() -> list[str]:
                found = [asked(ports[0], f"connectors/{name}/status") or {} for name in ("source", "sink")]
                return [task["state"] for each in found for task in each.get("tasks", [])]

            wait_until(lambda: states() == ["RUNNING"] * 3, lambda: str(states()), WAIT_S)
    found = {name: found for name, found in factors(cluster).items() if name.startswith("connect-")}
    assert found == {"connect-configs": {3}, "connect-offsets": {3}, "connect-statuss": {3}}


@pytest.mark.parametrize("cluster", MIXES, indirect=True)
def test_mirror_maker_copies_to_three_brokers(cluster: TappedCluster, tmp_path: Path) -> None:
    """Records and translated offsets of a group come from one broker of ours; its own topics have factor 3."""
    origin = OttlaServer(tmp_path / "origin", overrides={"group.initial.rebalance.delay.ms": "0"})
    try:
        origin.start()
        create(origin.bootstrap, "orders", factor=1)
        values = [f"order {number}" for number in range(600)]
        produce(origin.bootstrap, "orders", values[:300])
        settings = {
            "clusters": "west, east",
            "west.bootstrap.servers": origin.bootstrap,
            "east.bootstrap.servers": cluster.bootstrap,
            "west->east.enabled": "true",
            "east->west.enabled": "false",
            "west->east.topics": "orders",
            "west->east.groups": "shoppers",
            "west->east.sync.group.offsets.enabled": "true",
            "replication.factor": "3",
            "west.offset-syncs.topic.replication.factor": "1",
            "offset-syncs.topic.replication.factor": "1",
            "checkpoints.topic.replication.factor": "3",
            "heartbeats.topic.replication.factor": "3",
            "offset.storage.replication.factor": "3",
            "status.storage.replication.factor": "3",
            "config.storage.replication.factor": "3",
            "emit.checkpoints.interval.seconds": "1",
            "sync.group.offsets.interval.seconds": "1",
            "refresh.topics.interval.seconds": "2",
            "refresh.groups.interval.seconds": "2",
            "offset.flush.interval.ms": "500",
        }
        reading = {"group.id": "shoppers", "auto.offset.reset": "earliest"}
        shopper = Consumer({"bootstrap.servers": origin.bootstrap, **reading})
        shopper.subscribe(["orders"])
        assert len(shopper.consume(300, WAIT_S)) == 300
        shopper.commit(asynchronous=False)
        shopper.close()
        arguments = ("org.apache.kafka.connect.mirror.MirrorMaker", properties(tmp_path / "mm2.properties", settings))
        with running("mirror-maker", tmp_path / "mirror-maker", *arguments) as program:
            wait_until(lambda: "west.orders" in factors(cluster), program.output_tail, WAIT_S)
            produce(origin.bootstrap, "orders", values[300:])
            reader = Reader(cluster.bootstrap, "west.orders")
            wait_until(lambda: len(reader.read()) >= 600, program.output_tail, WAIT_S)
            reader.close()
            assert Counter(value for _, value in reader.found) == Counter(values)

            def committed() -> str:
                return cluster.tool(GROUP_TOOL, "--describe", "--group", "shoppers")

            wait_until(
                lambda: "west.orders" in committed(), lambda: f"{committed()}{program.output_tail()}", WAIT_S, 1.0
            )
        wanted = ("west.orders", "west.checkpoints.internal", "heartbeats")
        assert {name: factors(cluster).get(name) for name in wanted} == {name: {3} for name in wanted}
    finally:
        origin.stop()
