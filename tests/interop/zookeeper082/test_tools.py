"""Apache Kafka's tools of 0.8.2.2, which read and write ZooKeeper themselves."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from confluent_kafka import Producer
from kazoo.client import KazooClient

from ottla.zk.layout import ConsumerOffsetZnode, TopicConfigZnode, TopicZnode
from support.java import older_client_command
from support.old_consumers import VERSION, old_tool
from support.processes import ServerProcess
from support.waiting import wait_until
from support.zk_clusters import Cluster

pytestmark = [pytest.mark.needs_kafka, pytest.mark.needs_082, pytest.mark.slow, pytest.mark.spec("Z1", "L7")]

TOPICS = "kafka.admin.TopicCommand"


def create(cluster: Cluster, topic: str, partitions: int, *arguments: str) -> None:
    """Make a topic by the old tool, and wait until the broker leads its partitions."""
    wanted = ("--partitions", str(partitions), "--replication-factor", "1", *arguments)
    told = old_tool(TOPICS, "--zookeeper", cluster.zookeeper, "--create", "--topic", topic, *wanted).stdout
    assert told == f'Created topic "{topic}".\n'
    wait_until(lambda: ends(cluster, topic) == [0] * partitions, f"leaders of {topic}")


def ends(cluster: Cluster, topic: str) -> list[int]:
    """The end offset of each partition that has a leader."""
    told = old_tool(
        "kafka.tools.GetOffsetShell", "--broker-list", cluster.bootstrap, "--topic", topic, "--time", "-1", check=False
    ).stdout
    return [int(line.rpartition(":")[2]) for line in sorted(told.splitlines()) if re.fullmatch(r".*:\d+:\d+", line)]


def consume(cluster: Cluster, group: str, topic: str, count: int, folder: Path, *settings: str) -> list[str]:
    """`count` messages read by the console's high-level consumer, sorted."""
    config = folder / "consumer.properties"
    config.write_text("\n".join([f"group.id={group}", "consumer.timeout.ms=20000", *settings]))
    told = old_tool(
        *("kafka.tools.ConsoleConsumer", "--zookeeper", cluster.zookeeper, "--topic", topic, "--from-beginning"),
        *("--max-messages", str(count), "--consumer.config", str(config)),
    )
    return sorted(told.stdout.splitlines())


def test_topics_are_made_grown_set_and_deleted(cluster: Cluster, zk: KazooClient, unique: str) -> None:
    create(cluster, unique, 2, "--config", "retention.ms=77777")
    assert TopicConfigZnode.decode(unique, zk.get(TopicConfigZnode.path(unique))[0]) == {"retention.ms": "77777"}
    connect = ("--zookeeper", cluster.zookeeper)
    assert unique in old_tool(TOPICS, *connect, "--list").stdout.splitlines()
    told = old_tool(TOPICS, *connect, "--describe", "--topic", unique).stdout.splitlines()
    assert told[0] == f"Topic:{unique}\tPartitionCount:2\tReplicationFactor:1\tConfigs:retention.ms=77777"
    assert [re.sub(r"\s+", " ", line.strip()) for line in told[1:]] == [
        f"Topic: {unique} Partition: {number} Leader: 1 Replicas: 1 Isr: 1" for number in range(2)
    ]
    old_tool(TOPICS, *connect, "--alter", "--topic", unique, "--partitions", "4", "--config", "retention.ms=88888")
    wait_until(lambda: ends(cluster, unique) == [0] * 4, "leaders of the new partitions")
    old_tool(TOPICS, *connect, "--delete", "--topic", unique)
    wait_until(lambda: zk.exists(TopicZnode.path(unique)) is None, "the topic to be gone")
    assert unique not in old_tool(TOPICS, *connect, "--list").stdout.splitlines()


@pytest.mark.long
@pytest.mark.parametrize("storage", ["zookeeper", "kafka"])
def test_console_and_offset_tools(cluster: Cluster, zk: KazooClient, unique: str, tmp_path: Path, storage: str) -> None:
    create(cluster, unique, 2)
    lines = [f"message {number}" for number in range(10)]
    producing = ("kafka.tools.ConsoleProducer", "--broker-list", cluster.bootstrap, "--topic", unique)
    old_tool(*producing, stdin="\n".join(lines[:5]) + "\n")
    old_tool(*producing, "--new-producer", stdin="\n".join(lines[5:]) + "\n")
    at_end = ends(cluster, unique)
    assert sum(at_end) == 10
    group = f"{unique}-group"
    stored = (f"offsets.storage={storage}", "dual.commit.enabled=false")
    assert consume(cluster, group, unique, 10, tmp_path, *stored) == lines
    told = old_tool(
        "kafka.tools.ConsumerOffsetChecker", "--zookeeper", cluster.zookeeper, "--group", group, check=False
    )
    rows = [line.split() for line in told.stdout.splitlines() if line.startswith(group)]
    if storage == "zookeeper":
        assert rows == [[group, unique, str(p), str(end), str(end), "0", "none"] for p, end in enumerate(at_end)]
        assert [
            ConsumerOffsetZnode.decode(path, zk.get(path)[0])
            for path in (ConsumerOffsetZnode.path(group, unique, partition) for partition in range(2))
        ] == at_end
    else:
        assert zk.exists(ConsumerOffsetZnode.group_path(group)) is None


@pytest.mark.long
def test_offsets_are_exported_and_imported(cluster: Cluster, unique: str, tmp_path: Path) -> None:
    create(cluster, unique, 2)
    old_tool(
        *("kafka.tools.ConsoleProducer", "--broker-list", cluster.bootstrap, "--topic", unique),
        stdin="".join(f"message {number}\n" for number in range(8)),
    )
    group, connect = f"{unique}-group", cluster.zookeeper
    assert len(consume(cluster, group, unique, 8, tmp_path)) == 8
    exported, changed = tmp_path / "exported", tmp_path / "changed"
    export = ("kafka.tools.ExportZkOffsets", "--zkconnect", connect, "--group", group, "--output-file")
    old_tool(*export, str(exported))
    wanted = [f"/consumers/{group}/offsets/{unique}/{p}:{end}" for p, end in enumerate(ends(cluster, unique))]
    assert sorted(exported.read_text().splitlines()) == wanted
    changed.write_text("".join(f"/consumers/{group}/offsets/{unique}/{p}:{p}\n" for p in range(2)))
    old_tool("kafka.tools.ImportZkOffsets", "--zkconnect", connect, "--input-file", str(changed))
    again = tmp_path / "again"
    old_tool(*export[:-1], "--output-file", str(again))
    assert sorted(again.read_text().splitlines()) == sorted(changed.read_text().splitlines())


@pytest.mark.long
def test_messages_by_simple_consumer_shell_and_replay(cluster: Cluster, unique: str, tmp_path: Path) -> None:
    replayed = f"{unique}-again"
    create(cluster, unique, 1)
    create(cluster, replayed, 1)
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for number in range(6):
        producer.produce(unique, f"message {number}", partition=0)
    assert producer.flush(120) == 0
    shell = ("kafka.tools.SimpleConsumerShell", "--broker-list", cluster.bootstrap, "--partition", "0")
    wanted = [f"message {number}" for number in range(6)]
    told = old_tool(*shell, "--topic", unique, "--offset", "-2", "--max-messages", "6").stdout
    assert told.splitlines() == wanted
    old_tool(
        *("kafka.tools.ReplayLogProducer", "--zookeeper", cluster.zookeeper, "--broker-list", cluster.bootstrap),
        *("--inputtopic", unique, "--outputtopic", replayed, "--messages", "6", "--sync"),
    )
    assert ends(cluster, replayed) == [6]


@pytest.mark.long
def test_replicas_are_reassigned_and_leaders_elected_by_tools(
    cluster: Cluster, zk: KazooClient, unique: str, tmp_path: Path
) -> None:
    create(cluster, unique, 1)
    connect = ("--zookeeper", cluster.zookeeper)
    plan = tmp_path / "plan.json"
    one = {"topic": unique, "partition": 0}
    plan.write_text(json.dumps({"version": 1, "partitions": [{**one, "replicas": [1]}]}))
    moving = ("kafka.admin.ReassignPartitionsCommand", *connect, "--reassignment-json-file", str(plan))
    assert "Successfully started reassignment" in old_tool(*moving, "--execute").stdout
    wait_until(lambda: zk.exists("/admin/reassign_partitions") is None, "the reassignment to be taken up")
    assert "completed successfully" in old_tool(*moving, "--verify").stdout
    plan.write_text(json.dumps({"partitions": [one]}))
    electing = ("kafka.admin.PreferredReplicaLeaderElectionCommand", *connect, "--path-to-json-file", str(plan))
    assert "Successfully started preferred replica election" in old_tool(*electing).stdout
    wait_until(lambda: zk.exists("/admin/preferred_replica_election") is None, "the election to be taken up")


@pytest.mark.long
def test_offsets_are_set_to_the_ends_of_the_log(cluster: Cluster, zk: KazooClient, unique: str, tmp_path: Path) -> None:
    cluster.create(unique, 2)
    cluster.produce(unique, 2, 10)
    config = tmp_path / "consumer.properties"
    config.write_text(f"group.id={unique}\nzookeeper.connect={cluster.zookeeper}\n")
    for end, offset in (("latest", 5), ("earliest", 0)):
        told = old_tool("kafka.tools.UpdateOffsetsInZK", end, str(config), unique).stdout
        assert "updated the offset for 2 partitions" in told
        found = [zk.get(ConsumerOffsetZnode.path(unique, unique, number))[0] for number in range(2)]
        assert found == [b"%d" % offset] * 2
    told = old_tool("kafka.tools.VerifyConsumerRebalance", "--zookeeper.connect", cluster.zookeeper, "--group", unique)
    assert told.stdout == "Rebalance operation successful !\n"


@pytest.mark.long
def test_performance_tools(cluster: Cluster, unique: str) -> None:
    cluster.create(unique, 2)
    wanted = ("--messages", "500", "--topics", unique, "--compression-codec", "1")
    told = old_tool("kafka.tools.ProducerPerformance", "--broker-list", cluster.bootstrap, *wanted).stdout
    assert told.splitlines()[-1].split(", ")[7] == "500"
    assert sum(ends(cluster, unique)) == 500
    told = old_tool(
        *("kafka.tools.ConsumerPerformance", "--zookeeper", cluster.zookeeper, "--group", f"{unique}-group"),
        *("--topic", unique, "--messages", "500", "--threads", "2"),
    ).stdout
    assert told.splitlines()[-1].split(", ")[5] == "500"


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("producer", ["old", "new"])
@pytest.mark.parametrize("ways", [("apache", "embedded"), ("embedded", "apache")])
def test_topics_are_mirrored_between_clusters(
    request: pytest.FixtureRequest, unique: str, tmp_path: Path, ways: tuple[str, str], producer: str
) -> None:
    source, target = (request.getfixturevalue(f"{name}_cluster") for name in ways)
    for cluster in (source, target):
        cluster.create(unique, 2)
    source.produce(unique, 2, 20)
    reading, writing = tmp_path / "consumer.properties", tmp_path / "producer.properties"
    settings = {"group.id": unique, "zookeeper.connect": source.zookeeper, "auto.offset.reset": "smallest"}
    reading.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    brokers = "metadata.broker.list" if producer == "old" else "bootstrap.servers"
    writing.write_text(f"{brokers}={target.bootstrap}\n")
    files = ("--consumer.config", str(reading), "--producer.config", str(writing), "--whitelist", unique)
    more = ("--new.producer",) if producer == "new" else ()
    mirror = ServerProcess("mirror", older_client_command(VERSION, "kafka.tools.MirrorMaker", *files, *more), tmp_path)
    try:
        wait_until(lambda: sum(ends(target, unique)) == 20, "the mirror", interval_s=0.2)
        target_values = consume(target, f"{unique}-there", unique, 20, tmp_path)
        assert target_values == sorted(str(number) for number in range(20))
    finally:
        mirror.terminate()
