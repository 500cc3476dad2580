"""Apache Kafka's own tools administer a cluster of three brokers of ottla on an Apache ZooKeeper."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from support.acknowledged_load import AcknowledgedLoad
from support.cluster_load import verify_over_the_wire
from support.java import GROUP_TOOL, java_tool
from support.tapped_cluster import TappedCluster
from support.waiting import wait_until

pytestmark = [pytest.mark.needs_kafka, pytest.mark.long, pytest.mark.timeout(600), pytest.mark.spec("R4")]

TOPICS = "org.apache.kafka.tools.TopicCommand"
ELECTION = "org.apache.kafka.tools.LeaderElectionCommand"
CONFIGS = "kafka.admin.ConfigCommand"
LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"
QUORUM = "org.apache.kafka.tools.MetadataQuorumCommand"
CLUSTER = "org.apache.kafka.tools.ClusterTool"
VERSIONS = "kafka.admin.BrokerApiVersionsCommand"
OFFSETS = "org.apache.kafka.tools.GetOffsetShell"
DELETE_RECORDS = "org.apache.kafka.tools.DeleteRecordsCommand"
#: Of `kafka-topics --describe`: partition, leader, replicas, ISR.
_DESCRIBED = re.compile(r"Partition: (\d+)\s+Leader: (\d+)\s+Replicas: ([\d,]+)\s+Isr: ([\d,]+)")
BROKERS = {1, 2, 3}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TappedCluster]:
    """Three brokers of ottla for all tests: use topics of your own."""
    with TappedCluster(tmp_path_factory.mktemp("tools"), ("ottla", "ottla", "ottla")).prepared() as cluster:
        cluster.start_together()
        yield cluster


def described(cluster: TappedCluster, *options: str) -> dict[int, tuple[int, list[int], list[int]]]:
    """Leader, replicas and ISR of each partition that `kafka-topics --describe` shows."""
    told = cluster.tool(TOPICS, "--describe", *options)
    return {
        int(number): (int(leader), list(map(int, replicas.split(","))), list(map(int, isr.split(","))))
        for number, leader, replicas, isr in _DESCRIBED.findall(told)
    }


def test_topics_are_created_described_extended_and_deleted(cluster: TappedCluster) -> None:
    cluster.tool(TOPICS, "--create", "--topic", "spread", "--partitions", "6", "--replication-factor", "3")
    cluster.wait_for_isr("spread")
    spread = described(cluster, "--topic", "spread")
    assert sorted(leader for leader, _, _ in spread.values()) == [1, 1, 2, 2, 3, 3]
    assert all(set(replicas) == set(isr) == BROKERS for _, replicas, isr in spread.values())
    create = (TOPICS, "--bootstrap-server", cluster.bootstrap, "--create", "--topic", "many", "--partitions", "1")
    refused = java_tool(*create, "--replication-factor", "4", check=False)
    assert refused.returncode == 1
    assert "Replication factor: 4 larger than available brokers: 3." in refused.stdout
    more = ("--partitions", "7", "--replica-assignment", ",".join(["1:2:3"] * 7))
    cluster.tool(TOPICS, "--alter", "--topic", "spread", *more)
    wait_until(lambda: described(cluster, "--topic", "spread").get(6, (0, [], []))[1] == [1, 2, 3], "the new partition")
    cluster.tool(TOPICS, "--delete", "--topic", "spread")
    wait_until(lambda: "spread" not in cluster.tool(TOPICS, "--list").split(), "the end of the topic")


def test_a_broker_goes_and_its_leaders_come_back(cluster: TappedCluster) -> None:
    assignment = ("--replica-assignment", "1:2:3,2:3:1,3:1:2")
    cluster.tool(TOPICS, "--create", "--topic", "moving", *assignment, "--config", "min.insync.replicas=2")
    cluster.wait_for_isr("moving")
    cluster.brokers[1].stop()
    cluster.wait_until_gone(1)
    for filtered in ("--under-replicated-partitions", "--at-min-isr-partitions"):
        found = described(cluster, "--topic", "moving", filtered)
        assert {number: set(isr) for number, (_, _, isr) in found.items()} == {number: {2, 3} for number in range(3)}
        assert {leader for leader, _, _ in found.values()} == {2, 3}
    assert not described(cluster, "--topic", "moving", "--under-min-isr-partitions")
    assert not described(cluster, "--topic", "moving", "--unavailable-partitions")
    cluster.start(1)
    cluster.wait_for_isr("moving")
    one = (ELECTION, "--election-type", "preferred", "--topic", "moving", "--partition", "0")
    assert "Successfully completed leader election (PREFERRED) for partitions moving-0" in cluster.tool(*one)
    assert "Valid replica already elected for partitions moving-0" in cluster.tool(*one)
    unclean = (ELECTION, "--election-type", "unclean", "--topic", "moving", "--partition", "0")
    assert "Valid replica already elected for partitions moving-0" in cluster.tool(*unclean)
    cluster.tool(ELECTION, "--election-type", "preferred", "--all-topic-partitions")
    assert {number: leader for number, (leader, _, _) in described(cluster, "--topic", "moving").items()} == {
        0: 1,
        1: 2,
        2: 3,
    }


def test_replicas_are_described_and_verified(cluster: TappedCluster) -> None:
    cluster.tool(TOPICS, "--create", "--topic", "sized", "--partitions", "3", "--replication-factor", "3")
    cluster.wait_for_isr("sized")
    with AcknowledgedLoad(cluster.bootstrap, "sized", 3) as load:
        load.wait_for_more(300)
    load.check()
    verify_over_the_wire(cluster, "sized")
    told = cluster.tool(LOG_DIRS, "--describe", "--topic-list", "sized")
    found = json.loads(next(line for line in told.splitlines() if line.startswith("{")))
    sizes = {}
    for broker in found["brokers"]:
        (directory,) = broker["logDirs"]
        sizes[broker["broker"]] = {one["partition"]: (one["size"], one["offsetLag"]) for one in directory["partitions"]}
    assert sizes.keys() == BROKERS
    assert sizes[1] == sizes[2] == sizes[3]
    assert all(size > 0 and lag == 0 for size, lag in sizes[1].values())


def test_settings_of_topics(cluster: TappedCluster) -> None:
    cluster.tool(TOPICS, "--create", "--topic", "set", "--partitions", "1", "--replication-factor", "3")
    topic = ("--entity-type", "topics", "--entity-name", "set")
    cluster.tool(CONFIGS, "--alter", *topic, "--add-config", "retention.ms=100000")
    assert "retention.ms=100000" in cluster.tool(CONFIGS, "--describe", *topic)


@pytest.mark.parametrize(
    ("entity", "setting"),
    [(("--entity-name", "2"), "log.cleaner.threads=2"), (("--entity-default",), "message.max.bytes=2000000")],
    ids=["broker", "default"],
)
def test_settings_of_brokers(cluster: TappedCluster, entity: tuple[str, ...], setting: str) -> None:
    broker = ("--entity-type", "brokers", *entity)
    cluster.tool(CONFIGS, "--alter", *broker, "--add-config", setting)
    wait_until(lambda: setting in cluster.tool(CONFIGS, "--describe", *broker), setting)
    cluster.tool(CONFIGS, "--alter", *broker, "--delete-config", setting.partition("=")[0])


def test_there_is_no_quorum_of_controllers(cluster: TappedCluster) -> None:
    """As a broker of Apache Kafka with ZooKeeper answers."""
    status = java_tool(QUORUM, "--bootstrap-server", cluster.bootstrap, "describe", "--status", check=False)
    assert status.returncode == 1
    assert "The node does not support DESCRIBE_QUORUM" in status.stdout + status.stderr
    assert re.search(r"Cluster ID: \S+", cluster.tool(CLUSTER, "cluster-id"))


def test_versions_of_all_brokers(cluster: TappedCluster) -> None:
    told = cluster.tool(VERSIONS)
    assert {int(number) for number in re.findall(r"\(id: (\d+) rack: null\) -> \(", told)} == BROKERS
    assert len(re.findall(r"AlterPartitionReassignments\(45\): 0", told)) == len(BROKERS)


def test_offsets_and_records_before_them(cluster: TappedCluster, tmp_path: Path) -> None:
    cluster.tool(TOPICS, "--create", "--topic", "cut", "--partitions", "3", "--replication-factor", "3")
    cluster.wait_for_isr("cut")
    with AcknowledgedLoad(cluster.bootstrap, "cut", 3, clients=("librdkafka",)) as load:
        load.wait_for_more(300)
    load.check()

    def offsets(time: str) -> dict[int, int]:
        lines = cluster.tool(OFFSETS, "--topic", "cut", "--time", time).split()
        return {int(line.split(":")[1]): int(line.split(":")[2]) for line in lines}

    ends = offsets("latest")
    assert sum(ends.values()) == load.count
    assert offsets("earliest") == dict.fromkeys(range(3), 0)
    file = tmp_path / "cut.json"
    wanted = [{"topic": "cut", "partition": number, "offset": 10 * (1 + number)} for number in range(3)]
    file.write_text(json.dumps({"version": 1, "partitions": wanted}))
    assert "low_watermark: 30" in cluster.tool(DELETE_RECORDS, "--offset-json-file", str(file))
    assert offsets("earliest") == {0: 10, 1: 20, 2: 30}
    assert offsets("latest") == ends


def test_groups_on_all_coordinators(cluster: TappedCluster) -> None:
    """Offsets of groups with coordinators on different brokers are listed, described, reset and deleted."""
    cluster.tool(TOPICS, "--create", "--topic", "grouped", "--partitions", "1", "--replication-factor", "3")
    cluster.wait_for_isr("grouped")
    with AcknowledgedLoad(cluster.bootstrap, "grouped", 1, clients=("librdkafka",)) as load:
        load.wait_for_more(50)
    load.check()
    names = [f"tools-{number}" for number in range(6)]
    for number, name in enumerate(names):
        consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": name})
        consumer.commit(offsets=[TopicPartition("grouped", 0, number)], asynchronous=False)
        consumer.close()
    assert set(names) <= set(cluster.tool(GROUP_TOOL, "--list").split())
    coordinators = set()
    for number, name in enumerate(names):
        row = next(
            line for line in cluster.tool(GROUP_TOOL, "--describe", "--group", name).splitlines() if "grouped" in line
        )
        assert row.split()[1:6] == ["grouped", "0", str(number), str(load.count), str(load.count - number)]
        state = cluster.tool(GROUP_TOOL, "--describe", "--state", "--group", name)
        coordinators.update(re.findall(r"\(([123])\)", state))
    assert len(coordinators) > 1
    cluster.tool(GROUP_TOOL, "--reset-offsets", "--group", names[3], "--topic", "grouped", "--to-earliest", "--execute")
    row = next(
        line for line in cluster.tool(GROUP_TOOL, "--describe", "--group", names[3]).splitlines() if "grouped" in line
    )
    assert row.split()[3] == "0"
    told = cluster.tool(GROUP_TOOL, "--delete", *(part for name in names for part in ("--group", name)))
    assert "was successful" in told, told
    assert not set(names) & set(cluster.tool(GROUP_TOOL, "--list").split())
