"""Programs with which people look at clusters of Apache Kafka: topics, records, groups and their lag are seen in each.

kaf is a Go module, kaskade a Python package and Burrow one of Debian's, which `./run test --all` gets. The others
cannot be had from the registry of Go modules everywhere; they are run where they are on the search path. Lags, offsets
and groups must be those of `ottla group describe`: of a group with lag, one that has read all, and one whose only
member died.
"""

from __future__ import annotations

import base64
import json
import re
import shutil
import sys
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from support.command_line import ottla
from support.ottla_server import OttlaServer
from support.ottla_zookeeper import OttlaZooKeeper
from support.ports import LOOPBACK, free_port
from support.processes import ServerProcess, run_tool
from support.programs import built_program, burrow_executable
from support.screen import drawn
from support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.spec("R1")]

TOPIC, GROUP, DONE, DEAD = "seen", "readers", "done", "left"
PARTITIONS, RECORDS, COMMITTED = 3, 30, 4
#: Records behind the committed offset of partition 0; the group has committed nothing of the others.
LAG = RECORDS // PARTITIONS - COMMITTED
TIMEOUT_S = 60.0
#: A member that commits one record of each partition, and dies without leaving its group.
DYING_MEMBER = f"""
import os, sys
from confluent_kafka import Consumer, TopicPartition
member = Consumer({{"bootstrap.servers": sys.argv[1], "group.id": "{DEAD}", "session.timeout.ms": 300_000}})
member.subscribe(["{TOPIC}"])
while not member.assignment():
    member.poll(1.0)
committed = [TopicPartition("{TOPIC}", partition, 1) for partition in range({PARTITIONS})]
member.commit(offsets=committed, asynchronous=False)
os._exit(0)
"""
WHERE = {
    "kafka_exporter": "github.com/danielqsj/kafka_exporter 1.9.0",
    "kminion": "github.com/redpanda-data/kminion 2.3.5",
    "kafkactl": "github.com/deviceinsight/kafkactl 5.20.0",
}


@pytest.fixture(scope="module")
def metrics_port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory, metrics_port: int) -> Iterator[str]:
    """A broker with a topic, records and three groups that have committed."""
    settings = {
        "ottla.metrics.port": str(metrics_port),
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.num.partitions": "2",
    }
    server = OttlaServer(tmp_path_factory.mktemp("programs"), overrides=settings)
    try:
        address = server.start().bootstrap
        admin = AdminClient({"bootstrap.servers": address})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(TIMEOUT_S)
        producer = Producer({"bootstrap.servers": address})
        for number in range(RECORDS):
            producer.produce(TOPIC, f"value {number}", key=f"key {number}", partition=number % PARTITIONS)
        assert producer.flush(TIMEOUT_S) == 0
        ends = dict.fromkeys(range(PARTITIONS), RECORDS // PARTITIONS)
        for group, offsets in ((GROUP, {0: COMMITTED}), (DONE, ends)):
            consumer = Consumer({"bootstrap.servers": address, "group.id": group})
            committed = [TopicPartition(TOPIC, partition, offset) for partition, offset in offsets.items()]
            consumer.commit(offsets=committed, asynchronous=False)
            consumer.close()
        run_tool([sys.executable, "-c", DYING_MEMBER, address], timeout_s=TIMEOUT_S)
        yield address
    finally:
        server.stop()


class Seen(NamedTuple):
    """A group as `ottla group describe` shows it: members, and (committed, end, lag) of each partition."""

    members: int
    partitions: dict[int, tuple[int, int, int]]


@pytest.fixture(scope="module")
def ours(bootstrap: str) -> dict[str, Seen]:
    """Our own figures, which the others must give, too."""
    done = ottla("group", "describe", "--all-groups", "--json", "-b", bootstrap)
    assert done.exit_code == 0, done.output
    found = {}
    for row in map(json.loads, done.stdout.splitlines()):
        committed = [each for each in row["partitions"] if each["committed_offset"] is not None]
        names = ("committed_offset", "log_end_offset", "lag")
        partitions = {each["partition"]: tuple(each[name] for name in names) for each in committed}
        found[row["group"]] = Seen(len(row["members"]), partitions)
    end = RECORDS // PARTITIONS
    assert found == {
        GROUP: Seen(0, {0: (COMMITTED, end, LAG)}),
        DONE: Seen(0, dict.fromkeys(range(PARTITIONS), (end, end, 0))),
        DEAD: Seen(1, dict.fromkeys(range(PARTITIONS), (1, end, end - 1))),
    }
    return found


def rows_of(text: str, pattern: str) -> dict[int, tuple[int, int, int]]:
    """(committed, end, lag) of each partition that a table shows, by named groups of the pattern."""
    return {
        int(row["partition"]): (int(row["committed"]), int(row["end"]), int(row["lag"]))
        for row in re.finditer(pattern, text, re.MULTILINE)
    }


def there(name: str) -> str:
    """The path of a program that is not installed by `./run test`."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"no {name} on the search path: build {WHERE[name]} with Go, and put it there")
    return found


def numbers(text: str, before: str) -> list[int]:
    """The numbers in the line that begins so."""
    line = next(line for line in text.splitlines() if line.strip().startswith(before))
    return [int(number) for number in re.findall(r"(?<![\w.])\d+\b", line)]


@pytest.mark.needs_programs
def test_kaf(bootstrap: str, ours: dict[str, Seen], tmp_path: Path) -> None:
    kaf = [str(built_program("kaf")), "--config", str(tmp_path / "config"), "-b", bootstrap]

    def told(*arguments: str, stdin: str | None = None) -> str:
        return run_tool([*kaf, *arguments], stdin=stdin, timeout_s=TIMEOUT_S).stdout

    assert numbers(told("topics"), TOPIC) == [PARTITIONS, 1]
    for group, seen in ours.items():
        assert numbers(told("groups"), group) == [seen.members]
        table = r"^\s+(?P<partition>\d+)\s+(?P<committed>\d+)\s+(?P<end>\d+)\s+(?P<lag>\d+)\b"
        assert rows_of(told("group", "describe", group), table) == seen.partitions
    assert bootstrap in told("nodes")
    assert "Created topic" in told("topic", "create", "kafs-own", "-p", "2", "-r", "1")
    assert "Sent record to partition 1 at offset 0" in told(
        "produce", "kafs-own", "-k", "key", "--partition", "1", stdin="hello from kaf\n"
    )
    assert "hello from kaf" in told("consume", "kafs-own", "--offset", "oldest", "--limit-messages", "1")
    assert numbers(told("topic", "describe", "kafs-own"), "Summed") == [1]
    told("topic", "delete", "kafs-own")
    wait_until(lambda: "kafs-own" not in told("topics"), "the end of the topic", TIMEOUT_S)


def test_kafkactl(bootstrap: str, ours: dict[str, Seen], tmp_path: Path) -> None:
    config = tmp_path / "config.yml"
    config.write_text(f"contexts:\n  default:\n    brokers: [{bootstrap!r}]\n")
    kafkactl = [there("kafkactl"), "-C", str(config)]
    home = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}

    def told(*arguments: str) -> str:
        return run_tool([*kafkactl, *arguments], env=home, timeout_s=TIMEOUT_S).stdout

    assert numbers(told("get", "topics"), TOPIC) == [PARTITIONS, 1]
    assert ours.keys() <= set(told("get", "consumer-groups").split())
    for name, seen in ours.items():
        table = rf"^{TOPIC}\s+(?P<partition>\d+)\s+(?P<end>\d+)\s+\d+\s+(?P<committed>\d+)\s+\d+\s+(?P<lag>\d+)\s*$"
        assert rows_of(told("describe", "consumer-group", name), table) == seen.partitions
    assert bootstrap in told("get", "brokers")
    told("create", "topic", "kafkactls-own", "--partitions", "1")
    assert "offset=0" in told("produce", "kafkactls-own", "--key=key", "--value=hello")
    assert told("consume", "kafkactls-own", "--from-beginning", "--exit").strip() == "hello"
    told("alter", "topic", "kafkactls-own", "--partitions", "3", "--config", "retention.ms=86400000")
    topic = told("describe", "topic", "kafkactls-own")
    assert "86400000" in topic
    assert len(re.findall(rf"{re.escape(bootstrap)}\s+\d+\s+\d+", topic)) == 3
    told("delete", "topic", "kafkactls-own")
    told("clone", "consumer-group", GROUP, "cloned")
    told("reset", "consumer-group-offset", "cloned", "--topic", TOPIC, "--newest", "--execute")
    assert numbers(told("describe", "consumer-group", "cloned"), TOPIC)[-1] == 0
    told("delete", "consumer-group", "cloned")


def scraped(port: int) -> dict[str, float]:
    """What is served as metrics. OSError where nothing is."""
    with urllib.request.urlopen(f"http://{LOOPBACK}:{port}/metrics", timeout=TIMEOUT_S) as answer:
        lines = answer.read().decode().splitlines()
    pairs = [line.rsplit(" ", 1) for line in lines if line and not line.startswith("#")]
    return {name: float(value) for name, value in pairs}


def check_groups(metrics: Mapping[str, float], ours: Mapping[str, Seen]) -> None:
    """The groups under kafka_exporter's names, whatever the order of the labels."""
    found = {frozenset(re.findall(r"[\w=]+(?:\"[^\"]*\")?", name)): value for name, value in metrics.items()}

    def value(name: str, **labels: object) -> float:
        return found[frozenset((name, *(f'{key}="{each}"' for key, each in labels.items())))]

    for group, seen in ours.items():
        assert value("kafka_consumergroup_members", consumergroup=group) == seen.members
        for partition, (committed, end, lag) in seen.partitions.items():
            where = {"topic": TOPIC, "partition": partition}
            assert value("kafka_consumergroup_current_offset", consumergroup=group, **where) == committed
            assert value("kafka_topic_partition_current_offset", **where) == end
            assert value("kafka_consumergroup_lag", consumergroup=group, **where) == lag


def test_our_metrics(metrics_port: int, ours: dict[str, Seen]) -> None:
    check_groups(scraped(metrics_port), ours)


@contextmanager
def exported(
    command: Sequence[str], folder: Path, port: int, environment: Mapping[str, str], awaited: str
) -> Iterator[dict[str, float]]:
    """The metrics that an exporter serves, once the awaited one is among them."""
    server = ServerProcess(Path(command[0]).name, command, folder, environment)

    def found() -> dict[str, float] | None:
        try:
            metrics = scraped(port)
        except OSError:
            return None
        return metrics if any(name.startswith(awaited) for name in metrics) else None

    try:
        metrics = wait_until(found, lambda: f"the metrics: {server.output_tail()}", TIMEOUT_S)
        assert metrics is not None
        yield metrics
    finally:
        server.kill9()


def test_kafka_exporter(bootstrap: str, ours: dict[str, Seen], tmp_path: Path) -> None:
    port = free_port()
    command = [there("kafka_exporter"), f"--kafka.server={bootstrap}", f"--web.listen-address={LOOPBACK}:{port}"]
    with exported(command, tmp_path, port, {}, "kafka_consumergroup_lag{") as metrics:
        assert metrics["kafka_brokers"] == 1
        assert metrics[f'kafka_topic_partitions{{topic="{TOPIC}"}}'] == PARTITIONS
        for partition in range(PARTITIONS):
            where = f'{{partition="{partition}",topic="{TOPIC}"}}'
            assert metrics[f"kafka_topic_partition_current_offset{where}"] == RECORDS // PARTITIONS
            assert metrics[f"kafka_topic_partition_in_sync_replica{where}"] == 1
        check_groups(metrics, ours)


def test_kminion(bootstrap: str, ours: dict[str, Seen], tmp_path: Path) -> None:
    port = free_port()
    environment = {"KAFKA_BROKERS": bootstrap, "EXPORTER_HOST": LOOPBACK, "EXPORTER_PORT": str(port)}
    name = "kminion_kafka_consumer_group_topic_partition_lag{"
    with exported([there("kminion")], tmp_path, port, environment, name) as metrics:
        for group, seen in ours.items():
            for partition, (_, _, lag) in seen.partitions.items():
                labels = f'group_id="{group}",partition_id="{partition}",topic_name="{TOPIC}"}}'
                assert metrics[name + labels] == lag
        for partition in range(PARTITIONS):
            where = f'{{partition_id="{partition}",topic_name="{TOPIC}"}}'
            assert metrics[f"kminion_kafka_topic_partition_high_water_mark{where}"] == RECORDS // PARTITIONS
        assert metrics[f'kminion_kafka_topic_high_water_mark_sum{{topic_name="{TOPIC}"}}'] == RECORDS
        assert any(name.startswith("kminion_kafka_broker_log_dir_size_total_bytes{") for name in metrics)


#: Burrow's settings: it asks for the ends of partitions each second, and takes commits however close they are.
BURROW = """
[general]
pidfile = "{folder}/burrow.pid"
[zookeeper]
servers = ["{zookeeper}"]
[client-profile.p]
kafka-version = "0.10.2"
[cluster.c]
class-name = "kafka"
servers = ["{bootstrap}"]
client-profile = "p"
offset-refresh = 1
[consumer.c]
class-name = "kafka"
cluster = "c"
servers = ["{bootstrap}"]
client-profile = "p"
[storage.s]
class-name = "inmemory"
min-distance = 0
[httpserver.h]
address = "{address}"
"""


@pytest.mark.needs_burrow
def test_burrow(bootstrap: str, ours: dict[str, Seen], tmp_path: Path) -> None:
    """It reads the records of the offsets topic by itself, with Sarama of 2019, and has its lock in our ZooKeeper."""
    address = f"{LOOPBACK}:{free_port()}"

    def lags(group: str) -> dict[int, tuple[int, int]]:
        """(committed, lag) of the partitions of which it has read a commit."""
        url = f"http://{address}/v3/kafka/c/consumer/{group}/lag"
        try:
            with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:
                partitions = json.load(answer)["status"]["partitions"]
        except OSError:
            return {}
        return {each["partition"]: (each["end"]["offset"], each["current_lag"]) for each in partitions if each["end"]}

    expected = {
        group: {partition: (committed, lag) for partition, (committed, _, lag) in seen.partitions.items()}
        for group, seen in ours.items()
    }
    zookeeper = OttlaZooKeeper(tmp_path).start()
    try:
        settings = BURROW.format(folder=tmp_path, zookeeper=zookeeper.connect, bootstrap=bootstrap, address=address)
        (tmp_path / "burrow.toml").write_text(settings)
        burrow = ServerProcess("burrow", [str(burrow_executable()), "--config-dir", str(tmp_path)], tmp_path)
        try:
            wait_until(lambda: {group: lags(group) for group in ours} == expected, burrow.output_tail, TIMEOUT_S)
            assert "Authenticated" in burrow.stdout + burrow.stderr
        finally:
            burrow.kill9()
    finally:
        zookeeper.stop()


@pytest.mark.needs_programs
def test_kaskade(bootstrap: str, ours: dict[str, Seen]) -> None:
    kaskade = str(built_program("kaskade/bin/kaskade"))
    with drawn(kaskade, "admin", "-b", bootstrap) as screen:
        # Of the topic: partitions, replicas, in sync, groups, members, records, lag.
        members = sum(seen.members for seen in ours.values())
        lag = sum(lag for seen in ours.values() for _, _, lag in seen.partitions.values())
        row = re.compile(rf"{TOPIC} {PARTITIONS} 1 1 {len(ours)} {members} ≈{RECORDS} ≈{lag}\b")
        wait_until(lambda: row.search(screen.text), lambda: screen.text[-3000:], TIMEOUT_S)
    with drawn(kaskade, "consumer", "-b", bootstrap, "-t", TOPIC, "--earliest") as screen:
        # Bytes are shown in Base64, cut to the width of their columns where the machine is busy; behind them are the
        # size, the time, the partition and the offset. Which partition comes first is a matter of chance.
        key, value = (re.escape(base64.b64encode(text).decode()[:2]) for text in (b"key ", b"value "))
        row = re.compile(rf"{key}\S* {value}\S* [\d.]+ KB [-\d]+ [:.\d]+ [0-{PARTITIONS - 1}] \d+ ")
        wait_until(lambda: row.search(screen.text), lambda: screen.text[-3000:], TIMEOUT_S)
