"""`ottla group` against ottla and Apache Kafka, with Apache's `kafka-consumer-groups` as the judge of its numbers."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from support.brokers import RunningBroker
from support.java import GROUP_TOOL, java_tool
from support.ottla_server import OttlaServer
from support.processes import ServerProcess, run_tool
from support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.spec("G2", "U2")]

RECORDS = 30


class Tool:
    """`ottla group` as a process."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def line(self, command: str, *arguments: str) -> list[str]:
        """The command line."""
        return [sys.executable, "-m", "ottla", "group", command, "--bootstrap-server", self._bootstrap, *arguments]

    def __call__(self, command: str, *arguments: str, code: int = 0, stderr: str = "") -> str:
        done = run_tool(self.line(command, *arguments), check=False)
        assert "Traceback" not in done.stderr
        assert (done.returncode, stderr in done.stderr) == (code, True), done.stderr
        return done.stdout

    def json(self, command: str, *arguments: str, code: int = 0) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self(command, *arguments, "--json", code=code).splitlines()]


@pytest.fixture
def tool(broker: RunningBroker) -> Tool:
    return Tool(broker.bootstrap)


@pytest.fixture
def kafka_tool(broker: RunningBroker) -> Callable[..., str]:
    def run(*arguments: str) -> str:
        return java_tool(GROUP_TOOL, "--bootstrap-server", broker.bootstrap, "--timeout", "30000", *arguments).stdout

    return run


@pytest.fixture
def topic(broker: RunningBroker, unique: str) -> str:
    """Three partitions of 30, 20 and 10 records, their times a second apart from 1,000,000 on."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(unique, 3)])[unique].result(60)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for partition in range(3):
        for number in range(RECORDS - 10 * partition):
            producer.produce(unique, b"v", partition=partition, timestamp=1_000_000 + 1000 * number)
    assert producer.flush(120) == 0
    return unique


@pytest.fixture
def consume(broker: RunningBroker, topic: str) -> Iterator[Callable[..., Consumer]]:
    """Makes a member of the group that is called as the topic; it is closed at the end."""
    with ExitStack() as members:

        def start(client_id: str, **settings: str) -> Consumer:
            config = {
                "bootstrap.servers": broker.bootstrap,
                "group.id": topic,
                "client.id": client_id,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": "false",
            }
            member = Consumer(config | {name.replace("_", "."): value for name, value in settings.items()})
            members.callback(member.close)
            member.subscribe([topic])
            return member

        yield start


def settle(*members: Consumer, partitions: int = 3) -> None:
    """Poll all in turn until every partition is somebody's."""

    def owned() -> bool:
        for member in members:
            member.poll(0.05)
        sizes = [len(member.assignment()) for member in members]
        return sum(sizes) == partitions and all(sizes)

    wait_until(owned, "every member has partitions")


def commit(broker: RunningBroker, group: str, offsets: dict[tuple[str, int], int]) -> None:
    from ottla.client.model import TopicPartition
    from ottla.client.sync import Client

    with Client(broker.bootstrap) as client:
        client.commit(group, {TopicPartition(*each): offset for each, offset in offsets.items()})


def rows_of(table: str) -> list[dict[str, str]]:
    """The rows of Apache's table by heading."""
    lines = [line.split() for line in table.splitlines() if line.strip()]
    start = next(at for at, words in enumerate(lines) if words[0] == "GROUP")
    return [dict(zip(lines[start], words, strict=False)) for words in lines[start + 1 :]]


@pytest.mark.needs_kafka
def test_describe_reports_the_same_as_apaches_tool(
    tool: Tool, kafka_tool: Any, consume: Any, topic: str, broker: RunningBroker
) -> None:
    commit(broker, topic, {(topic, 0): 12, (topic, 2): 10})
    settle(consume("anna"), consume("ben"))
    theirs = {row["PARTITION"]: row for row in rows_of(kafka_tool("--describe", "--group", topic))}
    [group] = tool.json("describe", topic)
    assert len(theirs) == len(group["partitions"]) == 3
    for each in group["partitions"]:
        row = theirs[str(each["partition"])]
        told = [each[name] for name in ("committed_offset", "log_end_offset", "lag", "member_id", "client_id")]
        columns = ("CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "CLIENT-ID")
        assert ["-" if value is None else str(value) for value in told] == [row[name] for name in columns]
        assert row["HOST"].removeprefix("/") == each["client_host"]
    state = kafka_tool("--describe", "--group", topic, "--state")
    assert group["state"] == "Stable"
    assert {"Stable", group["assignor"], "2"} <= set(state.split())
    members = rows_of(kafka_tool("--describe", "--group", topic, "--members"))
    sizes = {row["CONSUMER-ID"]: int(row["#PARTITIONS"]) for row in members}
    assert sizes == {each["member_id"]: len(each["partitions"]) for each in group["members"]}


@pytest.mark.needs_kafka
def test_list_reports_the_same_as_apaches_tool(tool: Tool, kafka_tool: Any, topic: str, broker: RunningBroker) -> None:
    commit(broker, topic, {(topic, 0): 12})

    def ours() -> dict[str, str]:
        """Apache's tool leaves out groups that are none of consumers."""
        return {
            each["group"]: each["state"]
            for each in tool.json("list")
            if each["group"] and each["protocol_type"] in ("", "consumer")
        }

    def agree() -> bool:
        before = ours()
        # Names may have spaces; another test's group without a name has a row without its first word.
        heading, *lines = kafka_tool("--list", "--state").strip().splitlines()
        assert heading.split() == ["GROUP", "STATE"]
        rows = [line.rsplit(None, 1) for line in lines]
        if before != ours():  # members that other tests killed time out meanwhile
            return False
        assert {row[0].strip(): row[1] for row in rows if len(row) == 2} == before
        return True

    wait_until(agree, "the groups to stay as they are while they are listed", timeout_s=50)
    [mine] = [each for each in tool.json("list", "--lag", "--state", "empty") if each["group"] == topic]
    assert mine["lag"] == 18


def test_a_description_for_people(tool: Tool, consume: Any, topic: str, broker: RunningBroker) -> None:
    commit(broker, topic, {(topic, 0): 12, (topic, 1): 20})
    settle(consume("anna"))
    lines = tool("describe", topic).splitlines()
    assert "Stable" in lines[0]
    assert "1 member" in lines[0]
    assert lines[1].startswith("  lag 18 records in 2 partitions, ")
    assert lines[1].endswith(" behind; nothing is committed in 1 more")
    assert lines[3].split()[:3] == ["MEMBER", "HOST", "PARTITIONS"]
    rows = [line.split() for line in lines if line.startswith(f"  {topic} ")]
    assert [row[1:5] for row in rows] == [["0", "12", "30", "18"], ["1", "20", "20", "0"], ["2", "-", "10", "-"]]
    assert {row[-1] for row in rows} == {"anna"}


def test_lag_in_time(tool: Tool, topic: str, broker: RunningBroker) -> None:
    commit(broker, topic, {(topic, 0): 12, (topic, 1): 20})
    [group] = tool.json("describe", topic)
    behind, done = group["partitions"]
    assert behind["first_unread_timestamp_ms"] == 1_012_000
    assert behind["lag_ms"] == group["lag_ms"] == group["ended_at_ms"] - 1_012_000
    assert (done["lag"], done["lag_ms"]) == (0, 0)


def test_why_and_watch(tool: Tool, consume: Any, topic: str, broker: RunningBroker, tmp_path: Path) -> None:
    if not isinstance(broker, OttlaServer):
        assert tool("why", topic, code=1, stderr="Apache Kafka keeps no evidence") == ""
        return
    settle(anna := consume("anna"))
    # The first evidence of a broker makes its topic, and comes late. It is none of what is watched from here on.
    wait_until(lambda: not run_tool(tool.line("why", topic), check=False).returncode, "the evidence of generation 1")
    watch = ServerProcess("watch", tool.line("watch", topic, "--json", "--count", "1"), tmp_path)
    watch.wait_until_ready(lambda: "Stable" in watch.stdout, 60)
    settle(anna, consume("ben"))
    assert watch.wait(60) == 0
    events = [json.loads(line) for line in watch.stdout.splitlines()]
    assert (events[0]["event"], events[0]["before"], events[0]["state"]) == ("state", None, "Stable")
    told = events[-1]
    assert (told.pop("event"), told["generation"]) == ("rebalance", 2)
    assert tool.json("why", topic)[-1] == told
    [second] = tool.json("why", topic, "--generation", "2")
    assert second["causes"][0]["client_id"] == "ben"
    text = tool("why", topic, "--last", "1")
    assert f"{topic}  generation 1 → 2  stable" in text
    assert "  why    ben (127.0.0.1) joined\n" in text
    assert "led by anna" in text
    assert tool("why", f"{topic}-2", code=1, stderr="no rebalance of group") == ""
    assert tool("why", topic, "--generation", "77", code=1, stderr="that led to generation 77 is recorded") == ""


def test_watching_without_evidence(tool: Tool, consume: Any, topic: str, broker: RunningBroker, tmp_path: Path) -> None:
    """Changes of state are told of any Kafka cluster's groups, until Ctrl-C."""
    watch = ServerProcess("watch", tool.line("watch", topic, "--interval", "0.1"), tmp_path)
    watch.wait_until_ready(lambda: f"{topic}  Dead, 0 members" in watch.stdout, 60)
    settle(consume("anna"))
    watch.wait_until_ready(lambda: "Stable, 1 member\n" in watch.stdout, 60)
    assert isinstance(broker, OttlaServer) or "Apache Kafka never does" in watch.stderr
    watch.signal(signal.SIGINT)
    assert watch.wait(60) == 130
    assert "Traceback" not in watch.stderr


TARGETS = [
    ("--to-earliest",),
    pytest.param(("--to-latest",), marks=pytest.mark.long),
    ("--shift-by", "-5"),
    pytest.param(("--shift-by", "15"), marks=pytest.mark.long),
    ("--to-datetime", "1970-01-01T00:16:55.000"),
    pytest.param(("--to-datetime", "1970-01-01T01:16:45.500+01:00"), marks=pytest.mark.long),
    pytest.param(("--by-duration", "P1D"), marks=pytest.mark.long),
    pytest.param(("--to-offset", "15"), marks=pytest.mark.long),
    pytest.param(("--to-current",), marks=pytest.mark.long),
]


@pytest.mark.needs_kafka
@pytest.mark.parametrize("target", TARGETS, ids=" ".join)
def test_offsets_go_where_apaches_tool_puts_them(
    tool: Tool, kafka_tool: Any, topic: str, target: tuple[str, ...], broker: RunningBroker
) -> None:
    commit(broker, topic, {(topic, 0): 12, (topic, 1): 20, (topic, 2): 3})
    scope = ("--topic", f"{topic}:0,2") if target[0] == "--shift-by" else ("--topic", topic)
    theirs = kafka_tool("--reset-offsets", "--group", topic, *target, *scope, "--dry-run", "--export").splitlines()
    mine = tool("reset-offsets", topic, *target, *scope, "--export")
    assert sorted(line for line in theirs if line and not line.startswith("Warn: ")) == mine.splitlines()
    assert [each["committed_offset"] for each in tool.json("describe", topic)[0]["partitions"]] == [12, 20, 3]


@pytest.mark.needs_kafka
def test_files_of_offsets_are_exchanged_with_apaches_tool(
    tool: Tool, kafka_tool: Any, topic: str, broker: RunningBroker, tmp_path: Path
) -> None:
    commit(broker, topic, {(topic, 0): 12, (topic, 1): 20})
    commit(broker, f"{topic}-b", {(topic, 2): 3})
    both = ("--all-topics", "--to-current", "--export")
    theirs = kafka_tool("--reset-offsets", "--group", topic, "--group", f"{topic}-b", "--dry-run", *both)
    mine = tool("reset-offsets", topic, f"{topic}-b", *both)
    assert sorted(filter(None, theirs.splitlines())) == mine.splitlines()
    assert len(mine.splitlines()) == 3
    path = tmp_path / "offsets.csv"
    path.write_text(mine.replace(",12\n", ",7\n"))
    assert "committed" in tool("reset-offsets", topic, f"{topic}-b", "--from-file", str(path), "--execute")
    assert [each["committed_offset"] for each in tool.json("describe", topic)[0]["partitions"]] == [7, 20]
    path.write_text(mine.replace(",20\n", ",9\n"))
    kafka_tool("--reset-offsets", "--group", topic, "--from-file", str(path), "--execute")
    assert [each["committed_offset"] for each in tool.json("describe", topic)[0]["partitions"]] == [12, 9]


def test_a_preview_changes_nothing_and_execution_does(tool: Tool, topic: str, broker: RunningBroker) -> None:
    commit(broker, topic, {(topic, 0): 12, (topic, 1): 20})
    asked = ("reset-offsets", topic, "--all-topics", "--to-offset", "25")
    lines = tool(*asked, code=1, stderr="nothing was changed: --yes does it").splitlines()
    assert lines[0] == f"{topic}  5 records to read then"
    assert [line.split()[1:] for line in lines[2:4]] == [
        ["0", "12", "25", "+13", "5"],
        ["1", "20", "20", "0", "0", "25", "is", "beyond", "the", "end"],
    ]
    offsets = lambda: [each["committed_offset"] for each in tool.json("describe", topic)[0]["partitions"]]  # noqa: E731
    assert offsets() == [12, 20]
    assert [each["executed"] for each in tool.json(*asked, "--execute")] == [True, True]
    assert offsets() == [25, 20]


def test_members_are_not_disturbed(tool: Tool, consume: Any, topic: str, broker: RunningBroker) -> None:
    commit(broker, topic, {(topic, 0): 12})
    settle(consume("anna"))
    asked = ("reset-offsets", topic, "--topic", topic, "--to-earliest")
    assert tool(*asked, code=1, stderr="has 1 member at work (it is Stable); the change will be refused")
    assert tool(*asked, "--execute", code=1, stderr="nothing is changed: group") == ""
    assert tool("delete", topic, "--yes", code=1, stderr="it has members; stop them first") == ""
    refused = tool.json("delete-offsets", topic, "--topic", topic, "--yes", code=1)
    assert [each["deleted"] for each in refused] == [False]
    assert tool.json("describe", topic)[0]["partitions"][0]["committed_offset"] == 12


@pytest.mark.needs_kafka
def test_deletion(tool: Tool, kafka_tool: Any, topic: str, broker: RunningBroker) -> None:
    commit(broker, topic, {(topic, 0): 12, (topic, 1): 20})
    told = tool("delete-offsets", topic, "--topic", f"{topic}:1,2", code=1, stderr="nothing was changed: --yes does it")
    assert [line.split() for line in told.splitlines()] == [["TOPIC", "PARTITION", "COMMITTED"], [topic, "1", "20"]]
    [shown] = tool.json("delete-offsets", topic, "--topic", f"{topic}:1,2", code=1)
    assert shown == {"group": topic, "topic": topic, "partition": 1, "committed_offset": 20, "deleted": False}
    told = tool("delete-offsets", topic, "--topic", f"{topic}:1,2", "--yes")
    assert told == f"deleted the offset of {topic}-1 (20)\n"
    assert [row["PARTITION"] for row in rows_of(kafka_tool("--describe", "--group", topic))] == ["0"]
    assert tool("delete-offsets", topic, "--topic", f"{topic}:1", code=1, stderr="has committed nothing there") == ""
    told = tool("delete", topic, f"{topic}-none", code=1, stderr="nothing was changed: --yes does it")
    assert [line.split() for line in told.splitlines()] == [
        ["GROUP", "STATE", "MEMBERS", "COMMITTED", "OFFSETS"],
        [topic, "Empty", "0", "1"],
    ]
    assert [each["deleted"] for each in tool.json("delete", topic, code=1)] == [False]
    none = f"{topic}-none"
    told = tool("delete", topic, none, "--yes", code=1, stderr=f"group {none} is not deleted: there is no such")
    assert told == f"deleted {topic}\n"
    assert topic not in kafka_tool("--list").splitlines()
    tool("describe", topic, code=1, stderr="there is no group")


def test_resets_that_cannot_be(tool: Tool, topic: str, broker: RunningBroker, tmp_path: Path) -> None:
    def refused(words: str, *arguments: str) -> None:
        assert tool("reset-offsets", topic, *arguments, code=2, stderr=words) == ""

    refused("has committed nothing in", "--topic", topic, "--shift-by", "3")
    refused("has committed nothing, so --all-topics is nothing", "--all-topics", "--to-latest")
    refused(f"topic {topic}-none does not exist", "--topic", f"{topic}-none", "--to-latest")
    refused("has no partition 7", "--topic", f"{topic}:7", "--to-latest")
    refused("cannot be read: No such file", "--from-file", str(tmp_path / "none"))
    (tmp_path / "bad.csv").write_text(f"{topic},0,many\n")
    refused("line 1: the offset 'many' is not a number", "--from-file", str(tmp_path / "bad.csv"))


def test_groups_that_are_not_there(tool: Tool, unique: str) -> None:
    assert tool("describe", unique, code=1, stderr=f"ottla group: there is no group {unique} at ") == ""
    assert tool("describe", f"{unique}\x1b[2J", code=1, stderr=rf"there is no group {unique}\x1b[2J at ") == ""


def test_nobody_there(tmp_path: Path) -> None:
    nobody = Tool("127.0.0.1:1")
    for arguments in (("list",), ("describe", "g")):
        assert nobody(*arguments, code=2, stderr="ottla group: cannot connect to 127.0.0.1:1") == ""
    nobody("describe", code=2, stderr="name the groups to describe")
    Tool("somewhere")("list", code=2, stderr="is not of the form host:port")
