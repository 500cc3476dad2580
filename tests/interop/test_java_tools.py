"""Apache Kafka's own tools and with them its Java clients."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from ottla.client.sync import Admin
from ottla.testing import Broker
from support.brokers import RunningBroker
from support.java import GROUP_TOOL, java_command, java_tool
from support.processes import ServerProcess
from support.sasl_broker import SETTINGS, login
from support.waiting import wait_until

pytestmark = [pytest.mark.needs_kafka, pytest.mark.slow]

TOPICS = "org.apache.kafka.tools.TopicCommand"
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
CONSOLE_PRODUCER = "kafka.tools.ConsoleProducer"
PRODUCER_PERF = "org.apache.kafka.tools.ProducerPerformance"
CONSUMER_PERF = "org.apache.kafka.tools.ConsumerPerformance"
GET_OFFSETS = "org.apache.kafka.tools.GetOffsetShell"
DELETE_RECORDS = "org.apache.kafka.tools.DeleteRecordsCommand"
CONFIGS = "kafka.admin.ConfigCommand"
API_VERSIONS = "kafka.admin.BrokerApiVersionsCommand"

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


@pytest.fixture
def tool(broker: RunningBroker) -> Callable[..., str]:
    """Runs a tool with `--bootstrap-server` of the broker and gives what it wrote to standard output."""

    def run(*arguments: str, stdin: str | None = None) -> str:
        return java_tool(*arguments, "--bootstrap-server", broker.bootstrap, stdin=stdin).stdout

    return run


def produce(tool: Callable[..., str], topic: str, lines: list[str], *more: str) -> None:
    tool(CONSOLE_PRODUCER, "--topic", topic, *more, stdin="".join(f"{line}\n" for line in lines))


def consume(tool: Callable[..., str], topic: str, count: int, *more: str) -> list[str]:
    told = tool(CONSOLE_CONSUMER, "--topic", topic, "--max-messages", str(count), "--timeout-ms", "20000", *more)
    return told.splitlines()


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.spec("L2", "L7", "P5")
def test_console_producer_and_consumer(tool: Any, unique: str, codec: str) -> None:
    lines = [f"line {number}" for number in range(300)]
    produce(tool, unique, lines, "--compression-codec", codec)
    assert consume(tool, unique, 300, "--from-beginning") == lines


def test_keys_headers_and_timestamps(tool: Any, unique: str) -> None:
    reading = ("parse.key=true", "parse.headers=true", "null.marker=NULL")
    options = [part for one in reading for part in ("--property", one)]
    produce(tool, unique, ["h1:a,h2:b\tkey\tvalue", "h1:c\tNULL\tNULL"], *options)
    printing = ("print.key=true", "print.headers=true", "print.offset=true", "print.partition=true")
    options = [part for one in printing for part in ("--property", one)]
    got = consume(tool, unique, 2, "--from-beginning", *options)
    assert got == [
        "Partition:0\tOffset:0\th1:a,h2:b\tkey\tvalue",
        "Partition:0\tOffset:1\th1:c\tnull\tnull",
    ]


def test_topics_are_administered(tool: Any, unique: str) -> None:
    tool(TOPICS, "--create", "--topic", unique, "--partitions", "3", "--config", "retention.ms=60000")
    assert unique in tool(TOPICS, "--list").splitlines()
    described = tool(TOPICS, "--describe", "--topic", unique)
    assert re.search(r"PartitionCount: 3\s+ReplicationFactor: 1\s+Configs: .*retention.ms=60000", described)
    assert len(re.findall(r"Leader: 1\s+Replicas: 1\s+Isr: 1", described)) == 3
    tool(TOPICS, "--alter", "--topic", unique, "--partitions", "5")
    assert "PartitionCount: 5" in tool(TOPICS, "--describe", "--topic", unique)
    tool(TOPICS, "--delete", "--topic", unique)
    wait_until(lambda: unique not in tool(TOPICS, "--list").splitlines(), "the end of the topic")


def test_refusals_are_reported_in_kafkas_words(broker: RunningBroker, unique: str) -> None:
    def create(*more: str) -> str:
        arguments = ("--bootstrap-server", broker.bootstrap, "--create", "--topic", unique, *more)
        done = java_tool(TOPICS, *arguments, check=False)
        assert done.returncode != 0
        return done.stdout + done.stderr

    assert "Replication factor: 4 larger than available brokers: 1." in create("--replication-factor", "4")
    assert "retention.ms" in create("--config", "retention.ms=soon")


@pytest.mark.spec("C3", "G2")
def test_a_group_is_administered(tool: Any, unique: str) -> None:
    tool(TOPICS, "--create", "--topic", unique, "--partitions", "2")
    produce(tool, unique, [f"{number}" for number in range(50)])
    group = f"{unique}-group"
    assert len(consume(tool, unique, 50, "--from-beginning", "--group", group)) == 50
    assert group in tool(GROUP_TOOL, "--list").splitlines()
    described = tool(GROUP_TOOL, "--describe", "--group", group)
    rows = [line.split() for line in described.splitlines() if line.startswith(group)]
    assert sum(int(row[3]) for row in rows) == 50, described
    assert {row[5] for row in rows} == {"0"}, "the lag"
    assert "Empty" in tool(GROUP_TOOL, "--describe", "--group", group, "--state")
    tool(GROUP_TOOL, "--reset-offsets", "--to-earliest", "--topic", unique, "--execute", "--group", group)
    rows = [line.split() for line in tool(GROUP_TOOL, "--describe", "--group", group).splitlines() if unique in line]
    assert {row[3] for row in rows} == {"0"}
    tool(GROUP_TOOL, "--delete", "--group", group)
    assert group not in tool(GROUP_TOOL, "--list").splitlines()


def test_offsets_and_deleted_records(tool: Any, unique: str, tmp_path: Path) -> None:
    produce(tool, unique, [f"{number}" for number in range(20)])
    assert tool(GET_OFFSETS, "--topic", unique).split() == [f"{unique}:0:20"]
    assert tool(GET_OFFSETS, "--topic", unique, "--time", "earliest").split() == [f"{unique}:0:0"]
    asked = tmp_path / "delete.json"
    asked.write_text(f'{{"partitions": [{{"topic": "{unique}", "partition": 0, "offset": 7}}], "version": 1}}')
    assert "low_watermark: 7" in tool(DELETE_RECORDS, "--offset-json-file", str(asked))
    assert tool(GET_OFFSETS, "--topic", unique, "--time", "earliest").split() == [f"{unique}:0:7"]


def test_configs_are_described(tool: Any, unique: str) -> None:
    tool(TOPICS, "--create", "--topic", unique, "--config", "cleanup.policy=compact")
    told = tool(CONFIGS, "--describe", "--entity-type", "topics", "--entity-name", unique)
    assert "cleanup.policy=compact" in told
    everything = tool(CONFIGS, "--describe", "--all", "--entity-type", "brokers", "--entity-name", "1")
    assert "num.partitions=1" in everything


@pytest.mark.spec("L4")
def test_settings_are_changed(tool: Any, unique: str) -> None:
    tool(TOPICS, "--create", "--topic", unique)
    topic = (CONFIGS, "--entity-type", "topics", "--entity-name", unique)
    tool(*topic, "--alter", "--add-config", "retention.ms=99999,cleanup.policy=[compact,delete]")
    tool(*topic, "--alter", "--delete-config", "retention.ms")
    told = tool(*topic, "--describe")
    assert "cleanup.policy=compact,delete sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:" in told
    assert "retention.ms" not in told
    brokers = (CONFIGS, "--entity-type", "brokers", "--entity-name", "1")
    tool(*brokers, "--alter", "--add-config", "log.retention.ms=7777777")
    # Apache Kafka's broker hears of it from ZooKeeper, some time later.
    wait_until(lambda: "log.retention.ms=7777777" in tool(*brokers, "--describe"), "the setting")
    tool(*brokers, "--alter", "--delete-config", "log.retention.ms")


@pytest.mark.spec("S2")
def test_logins_are_changed() -> None:
    """With ottla alone: Apache Kafka's broker takes them at a restart."""
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    jaas = f'{module} required username="admin" password="b" user_admin="b" user_bob="c, d=e";'
    setting = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
    listeners = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0", "password.encoder.secret": "s"}
    with Broker({"t": 1}, settings=SETTINGS | listeners) as broker:
        address = broker.server.listening[1].address
        tool = (CONFIGS, "--bootstrap-server", address, "--entity-type", "brokers", "--entity-name", "1")
        java_tool(*tool, "--alter", "--add-config", f"{setting}=[{jaas}]")
        with Admin(login(broker, user="bob", password="c, d=e")) as admin:
            assert "t" in admin.list_topics()
        assert f"{setting}=null sensitive=true" in java_tool(*tool, "--describe").stdout


def test_levels_of_loggers_are_changed(tool: Any) -> None:
    loggers = (CONFIGS, "--entity-type", "broker-loggers", "--entity-name", "1")
    names = re.findall(r"^  ([\w.]+)=", tool(*loggers, "--describe"), re.MULTILINE)
    assert "root" in names
    name = next(one for one in names if one != "root")
    tool(*loggers, "--alter", "--add-config", f"{name}=ERROR")
    assert f"{name}=ERROR " in tool(*loggers, "--describe")
    tool(*loggers, "--alter", "--delete-config", name)
    assert f"{name}=ERROR " not in tool(*loggers, "--describe")


def test_versions_are_usable(tool: Any) -> None:
    told = tool(API_VERSIONS)
    assert "Produce(0): 0 to 11 [usable: 11]" in told
    assert re.search(r"Fetch\(1\): \d to 17 \[usable: 17\]", told)


@pytest.mark.spec("P5")
def test_performance_tools(tool: Any, broker: RunningBroker, unique: str) -> None:
    tool(TOPICS, "--create", "--topic", unique, "--partitions", "2")
    told = java_tool(
        PRODUCER_PERF, "--topic", unique, "--num-records", "50000", "--record-size", "100", "--throughput", "-1",
        "--producer-props", f"bootstrap.servers={broker.bootstrap}", "compression.type=lz4",
    ).stdout  # fmt: skip
    assert "50000 records sent" in told
    told = tool(CONSUMER_PERF, "--topic", unique, "--messages", "50000", "--timeout", "20000", "--hide-header")
    assert int(told.splitlines()[-1].split(",")[4]) >= 50_000


@pytest.fixture
def start_member(broker: RunningBroker, unique: str, tmp_path: Path) -> Iterator[Callable[[str], ServerProcess]]:
    """Starts Java consumers of one group that continue until they are stopped."""
    started: list[ServerProcess] = []

    def start(assignor: str) -> ServerProcess:
        arguments = [CONSOLE_CONSUMER, "--bootstrap-server", broker.bootstrap, "--topic", unique, "--from-beginning"]
        arguments += ["--group", f"{unique}-group"]
        for setting in (
            f"partition.assignment.strategy=org.apache.kafka.clients.consumer.{assignor}",
            "heartbeat.interval.ms=300",
        ):
            arguments += ["--consumer-property", setting]
        command = java_command(*arguments)
        started.append(ServerProcess(f"member-{len(started)}", command, tmp_path))
        return started[-1]

    yield start
    for process in started:
        process.terminate()


ASSIGNORS = ["RangeAssignor", "RoundRobinAssignor", "StickyAssignor", "CooperativeStickyAssignor"]


@pytest.mark.parametrize("assignor", ASSIGNORS)
@pytest.mark.timeout(600)
@pytest.mark.spec("C6", "A1", "A2", "A3", "A4")
def test_java_members_come_and_go(
    tool: Any, broker: RunningBroker, start_member: Any, unique: str, assignor: str
) -> None:
    tool(TOPICS, "--create", "--topic", unique, "--partitions", "3")

    admin = AdminClient({"bootstrap.servers": broker.bootstrap})

    def shares() -> list[int]:
        described = admin.describe_consumer_groups([f"{unique}-group"])[f"{unique}-group"].result(60)
        return sorted((len(one.assignment.topic_partitions) for one in described.members), reverse=True)

    members = [start_member(assignor)]
    wait_until(lambda: shares() == [3], lambda: f"one member: {shares()}")
    members += [start_member(assignor), start_member(assignor)]
    wait_until(lambda: shares() == [1, 1, 1], lambda: f"three members: {shares()}")
    produce(tool, unique, [f"{number}" for number in range(60)])
    wait_until(lambda: sum(len(one.stdout.splitlines()) for one in members) == 60, "all records")
    members[0].terminate()
    wait_until(lambda: shares() == [2, 1], lambda: f"two members: {shares()}")
    got = [int(line) for one in members for line in one.stdout.splitlines()]
    assert sorted(got) == list(range(60))
