"""`ottla topic` and `ottla cluster status` against ottla and Apache Kafka; Apache's `kafka-topics` is the judge."""

from __future__ import annotations

import json
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from support.apache import ApacheKafka, ApacheZooKeeper
from support.brokers import RunningBroker
from support.controller import wait_until_all_are_known
from support.java import java_tool
from support.processes import run_tool
from support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.needs_kafka, pytest.mark.spec("U2")]

KAFKA_TOOL = "org.apache.kafka.tools.TopicCommand"


class Tool:
    """`ottla topic`, or another group of commands, as a process."""

    def __init__(self, bootstrap: str, group: str = "topic") -> None:
        self.bootstrap = bootstrap
        self.group = group

    def __call__(self, command: str, *arguments: str, code: int = 0, stderr: str = "") -> str:
        line = [sys.executable, "-m", "ottla", self.group, command, "--bootstrap-server", self.bootstrap, *arguments]
        done = run_tool(line, timeout_s=60, check=False)
        assert "Traceback" not in done.stderr
        assert (done.returncode, stderr in done.stderr) == (code, True), done.stderr
        return done.stdout

    def json(self, command: str, *arguments: str, code: int = 0) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self(command, *arguments, "--json", code=code).splitlines()]


@pytest.fixture(params=["shared_ottla_server", "apache_kafka"], ids=["ottla", "apache"])
def served(request: pytest.FixtureRequest) -> RunningBroker:
    """Both brokers: the tool is for either."""
    found: RunningBroker = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def tool(served: RunningBroker) -> Tool:
    return Tool(served.bootstrap)


def kafka_tool(bootstrap: str, *arguments: str) -> str:
    return java_tool(KAFKA_TOOL, "--bootstrap-server", bootstrap, *arguments).stdout


def kafkas_partitions(description: str) -> dict[int, dict[str, str]]:
    """The partitions that Apache's tool describes."""
    found = {}
    for line in description.splitlines():
        fields = dict(re.findall(r"(\w+): ([^\t]*)", line))
        if "Partition" in fields:
            found[int(fields["Partition"])] = fields
    return found


def same_partitions(ours: list[dict[str, Any]], description: str) -> None:
    """Fail unless both tools show the same partitions, leaders, replicas and ISR."""
    theirs = kafkas_partitions(description)
    assert {each["partition"] for each in ours} == theirs.keys()
    for each in ours:
        row = theirs[each["partition"]]
        leader = "none" if each["leader"] is None else str(each["leader"])
        assert (leader, ",".join(map(str, each["replicas"]))) == (row["Leader"], row["Replicas"])
        assert sorted(each["isr"]) == sorted(int(one) for one in row["Isr"].split(",") if one)


def test_a_topic_from_its_creation_to_its_deletion(tool: Tool, unique: str) -> None:
    tool("create", unique, "-p", "2", "-c", "retention.ms=86400000")
    tool("create", unique, code=1, stderr=f"Topic '{unique}' already exists. (TOPIC_ALREADY_EXISTS)")
    assert tool("create", unique, "--if-not-exists") == f"exists: {unique}\n"
    producer = Producer({"bootstrap.servers": tool.bootstrap})
    for number in range(10):
        producer.produce(unique, b"v", partition=number % 2)
    assert producer.flush(120) == 0
    [topic] = tool.json("describe", unique)
    assert (topic["partition_count"], topic["replication_factor"], topic["configs"]) == (
        2, 1, {"retention.ms": "86400000"},
    )  # fmt: skip
    for each in topic["partitions"]:
        assert (each["log_start_offset"], each["high_watermark"], each["offline"]) == (0, 5, False)
        [replica] = each["replica_states"]
        assert (replica["log_end_offset"], replica["lag"], replica["size_bytes"] > 0) == (5, 0, True)
    theirs = kafka_tool(tool.bootstrap, "--describe", "--topic", unique)
    same_partitions(topic["partitions"], theirs)
    assert f"TopicId: {topic['topic_id']}\t" in theirs
    assert "retention.ms=86400000" in theirs

    assert "partitions  2" in tool("alter", unique, "-p", "3", code=1, stderr="--yes does it")
    tool("alter", unique, "-p", "3", "--delete-config", "retention.ms", "-c", "segment.bytes=1000000", "--yes")
    [topic] = tool.json("describe", unique)
    assert (topic["partition_count"], topic["configs"]) == (3, {"segment.bytes": "1000000"})
    tool("alter", unique, "-p", "2", "-y", code=1, stderr="Topic currently has 3 partitions, which is higher than")
    assert unique in [each["topic"] for each in tool.json("list")]

    shown = tool("delete", unique, code=1, stderr="nothing was changed: --yes does it")
    assert re.search(rf"{unique} +3 +1 +10 ", shown)
    assert tool("delete", unique, "--yes") == f"deleted: {unique}\n"
    wait_until(lambda: not tool.json("list", unique), "the topic is gone")
    tool("describe", unique, code=1, stderr=f"topic {unique} does not exist")
    assert tool("delete", unique, "--if-exists", "--yes") == ""


@pytest.mark.spec("R4")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-r", "4"], "larger than available brokers: 1. (INVALID_REPLICATION_FACTOR); start more brokers"),
        (["-r", "0"], "Replication factor must be larger than 0. (INVALID_REPLICATION_FACTOR)"),
        (["-p", "0"], "Number of partitions must be larger than 0. (INVALID_PARTITIONS)"),
        (["-c", "retention.ms=x"], "Invalid value x for configuration retention.ms"),
        (["-c", "no.such=1"], "Unknown topic config name: no.such (INVALID_CONFIG)"),
    ],
)
def test_refusals_in_kafkas_words(tool: Tool, unique: str, arguments: list[str], message: str) -> None:
    assert tool("create", unique, *arguments, code=1, stderr=message) == ""


def test_the_status_of_one_broker(served: RunningBroker, unique: str) -> None:
    Tool(served.bootstrap)("create", unique)
    whole, broker, *topics = Tool(served.bootstrap, "cluster").json("status")
    assert (whole["brokers"], whole["controller"], whole["absent_brokers"]) == ([1], 1, [])
    assert (broker["is_controller"], broker["problem"]) == (True, None)
    assert broker["leads"] == broker["replicas"] == broker["in_sync"] == whole["partition_count"]
    [topic] = [each for each in topics if each["topic"] == unique]
    assert topic["partitions"][0]["replica_states"][0]["lag"] == 0


def test_manual_assignment(tool: Tool, unique: str, served: RunningBroker) -> None:
    tool("create", unique, "--replica-assignment", "1,1")
    [topic] = tool.json("describe", unique)
    assert [each["replicas"] for each in topic["partitions"]] == [[1], [1]]
    tool("alter", unique, "-p", "3", "--replica-assignment", "1,1,1", "-y")
    assert tool.json("describe", unique)[0]["partition_count"] == 3


@pytest.fixture(scope="module")
def three_apaches(
    tmp_path_factory: pytest.TempPathFactory, apache_zookeeper: ApacheZooKeeper
) -> Iterator[list[ApacheKafka]]:
    """A cluster of three Apache Kafka brokers; the tests may stop some."""
    apart = {"zookeeper.connect": f"{apache_zookeeper.connect}/topic-tool"}
    with ExitStack() as running:
        brokers = []
        for number in (1, 2, 3):
            racks = {"broker.rack": f"rack-{number}"}
            broker = ApacheKafka(
                tmp_path_factory.mktemp(f"apache-{number}"),
                zookeeper=apache_zookeeper,
                broker_id=number,
                heap="256m",
                overrides=apart | racks,
            )
            running.callback(broker.stop)
            brokers.append(broker.start())
        wait_until_all_are_known([each.bootstrap for each in brokers])
        yield brokers


@pytest.mark.timeout(600)
def test_a_reassignment_under_way(three_apaches: list[ApacheKafka], unique: str, tmp_path: Path) -> None:
    bootstrap = ",".join(each.bootstrap for each in three_apaches[:2])
    tool = Tool(bootstrap)
    tool("create", unique, "--replica-assignment", "1:2")
    plan = tmp_path / "plan.json"
    wanted = [{"topic": unique, "partition": 0, "replicas": [3, 1]}]
    plan.write_text(json.dumps({"version": 1, "partitions": wanted}))
    # A paused broker cannot catch up, so that the reassignment continues.
    three_apaches[2].server.signal(signal.SIGSTOP)
    try:
        command = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
        java_tool(command, "--bootstrap-server", bootstrap, "--execute", "--reassignment-json-file", str(plan))
        [topic] = tool.json("describe", unique)
        [partition] = topic["partitions"]
        assert (partition["adding_replicas"], partition["removing_replicas"]) == ([3], [2])
        assert partition["under_replicated"] is False
        assert "adding 3, removing 2" in tool("describe", unique)
        assert kafkas_partitions(kafka_tool(bootstrap, "--describe", "--under-replicated-partitions")) == {}
        assert tool("describe", unique, "--under-replicated") == "no such partitions\n"
    finally:
        three_apaches[2].server.signal(signal.SIGCONT)

    def ended() -> bool:
        [found] = tool.json("describe", unique)[0]["partitions"]
        return bool(found["replicas"] == [3, 1] and sorted(found["isr"]) == [1, 3])

    wait_until(ended, "the reassignment has ended", timeout_s=90)


@pytest.mark.timeout(600)
def test_replicas_of_three_brokers(three_apaches: list[ApacheKafka], unique: str) -> None:
    bootstrap = ",".join(each.bootstrap for each in three_apaches[:2])
    tool = Tool(bootstrap)
    tool("create", unique, "-p", "3", "-r", "3", "-c", "min.insync.replicas=3")
    status = Tool(bootstrap, "cluster")
    whole, *rows = status.json("status")
    assert (whole["brokers"], whole["controller"] in (1, 2, 3), whole["under_replicated_partitions"]) == (
        [1, 2, 3], True, 0,
    )  # fmt: skip
    brokers = {each["broker"]: each for each in rows if each["kind"] == "broker"}
    assert {number: each["rack"] for number, each in brokers.items()} == {1: "rack-1", 2: "rack-2", 3: "rack-3"}
    assert all(each["usable_bytes"] > 0 for one in brokers.values() for each in one["log_dirs"])
    [topic] = tool.json("describe", unique, "--at-min-isr")
    assert len(topic["partitions"]) == 3
    assert tool.json("describe", unique, "--under-replicated") == []
    three_apaches[2].stop()

    def noticed() -> bool:
        [found] = tool.json("describe", unique)
        return all(each["leader"] in (1, 2) and 3 not in each["isr"] for each in found["partitions"])

    wait_until(noticed, "broker 3 has left every ISR", timeout_s=60)
    for ours, theirs in (
        ("--under-replicated", "--under-replicated-partitions"),
        ("--under-min-isr", "--under-min-isr-partitions"),
    ):
        [topic] = tool.json("describe", unique, ours)
        assert len(topic["partitions"]) == 3
        same_partitions(topic["partitions"], kafka_tool(bootstrap, "--describe", "--topic", unique, theirs))
    for each in topic["partitions"]:
        lags = {one["broker"]: one["lag"] for one in each["replica_states"]}
        assert lags == {1: 0, 2: 0, 3: None}
    assert "3 under min ISR" in tool("list", unique)
    whole, *_ = status.json("status", code=1)
    assert (whole["brokers"], whole["absent_brokers"], whole["under_min_isr_partitions"]) == ([1, 2], [3], 3)
    assert "not there" in status("status", code=1)
    assert "below min.insync.replicas=3" in tool("describe", unique)
