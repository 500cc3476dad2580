"""Apache Kafka's `kafka-reassign-partitions` and `ottla reassign` move partitions between three brokers of ottla."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from ottla.cli.main import app
from ottla.client.sync import Producer
from support.acknowledged_load import AcknowledgedLoad
from support.cluster_load import check_replicas
from support.java import java_tool
from support.tapped_cluster import TappedCluster
from support.waiting import wait_until

pytestmark = [pytest.mark.needs_kafka, pytest.mark.long, pytest.mark.timeout(600), pytest.mark.spec("R1", "R4")]

REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
TOPICS = "org.apache.kafka.tools.TopicCommand"
CONFIGS = "kafka.admin.ConfigCommand"
#: Bytes of a record, records of a partition, and a throttle with which its move takes minutes.
RECORD = b"x" * 1_000
RECORDS = 3_000
SLOW = 10_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TappedCluster]:
    """Three brokers of ottla for all tests: use topics of your own."""
    with TappedCluster(tmp_path_factory.mktemp("reassign"), ("ottla", "ottla", "ottla")).prepared() as cluster:
        cluster.start_together()
        yield cluster


def create(cluster: TappedCluster, topic: str, *replicas: Sequence[int], filled: bool = False) -> None:
    assignment = ",".join(":".join(map(str, each)) for each in replicas)
    cluster.tool(TOPICS, "--create", "--topic", topic, "--replica-assignment", assignment)
    cluster.wait_for_isr(topic)
    if filled:
        with Producer(bootstrap_servers=cluster.bootstrap, acks="all") as producer:
            for number in range(RECORDS):
                producer.send(topic, RECORD, partition=number % len(replicas))
            producer.flush()


def moves_file(cluster: TappedCluster, topic: str, *replicas: Sequence[int]) -> str:
    partitions = [{"topic": topic, "partition": index, "replicas": list(each)} for index, each in enumerate(replicas)]
    path = cluster.folder / f"{topic}.json"
    path.write_text(json.dumps({"version": 1, "partitions": partitions}))
    return str(path)


def reassign(cluster: TappedCluster, what: str, path: str, *more: str) -> str:
    return cluster.tool(REASSIGN, "--reassignment-json-file", path, what, *more)


def ottla(cluster: TappedCluster, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["reassign", *arguments, "-b", cluster.bootstrap])


def throttled(cluster: TappedCluster, topic: str) -> bool:
    """Whether the topic or any broker has settings of a throttle."""
    told = cluster.tool(CONFIGS, "--describe", "--entity-type", "topics", "--entity-name", topic)
    for broker in cluster.brokers:
        told += cluster.tool(CONFIGS, "--describe", "--entity-type", "brokers", "--entity-name", str(broker))
    return ".replication.throttled." in told


def placed(cluster: TappedCluster, topic: str) -> dict[int, list[int]]:
    return {index: list(replicas) for index, replicas in cluster.partitions(topic).items()}


def test_partitions_are_moved_and_verified(cluster: TappedCluster) -> None:
    create(cluster, "moved", [1, 2], [2, 3], [3, 1])
    path = moves_file(cluster, "moved", [3, 1], [1, 2], [2, 3])
    with AcknowledgedLoad(cluster.bootstrap, "moved", 3) as load:
        load.wait_for_more(300)
        assert "Successfully started partition reassignments for moved-0,moved-1,moved-2" in reassign(
            cluster, "--execute", path, "--throttle", "50000000"
        )
        assert throttled(cluster, "moved")

        def is_done() -> bool:
            told = reassign(cluster, "--verify", path)
            return all(f"Reassignment of partition moved-{index} is completed." in told for index in range(3))

        wait_until(is_done, "the end of the moves", 120)
        load.wait_for_more()
    assert not throttled(cluster, "moved")
    assert placed(cluster, "moved") == {0: [3, 1], 1: [1, 2], 2: [2, 3]}
    load.check()
    check_replicas(cluster, "moved")
    assert ottla(cluster, "verify", path).exit_code == 0
    assert "No partition reassignments found." in cluster.tool(REASSIGN, "--list")


def test_a_slow_move_is_listed_replaced_and_cancelled(cluster: TappedCluster) -> None:
    create(cluster, "slow", [1], filled=True)
    there, elsewhere = moves_file(cluster, "slow", [2]), cluster.folder / "elsewhere.json"
    reassign(cluster, "--execute", there, "--throttle", str(SLOW))
    assert "Reassignment of partition slow-0 is still in progress." in reassign(cluster, "--verify", there)
    assert throttled(cluster, "slow"), "a verification during a move leaves the throttle"
    listed = cluster.tool(REASSIGN, "--list")
    assert "slow-0: replicas: 2,1. adding: 2. removing: 1." in listed
    assert "slow" in ottla(cluster, "list").stdout
    elsewhere.write_text(json.dumps({"partitions": [{"topic": "slow", "partition": 0, "replicas": [3]}]}))
    tool = (REASSIGN, "--bootstrap-server", cluster.bootstrap, "--reassignment-json-file", str(elsewhere), "--execute")
    refused = java_tool(*tool, check=False)
    assert "Cannot execute because there is an existing partition assignment." in refused.stdout + refused.stderr
    reassign(cluster, "--execute", str(elsewhere), "--additional", "--throttle", str(SLOW))
    assert "slow-0: replicas: 3,1. adding: 3. removing: 1." in cluster.tool(REASSIGN, "--list")
    told = reassign(cluster, "--cancel", str(elsewhere))
    assert "Successfully cancelled partition reassignment for: slow-0" in told
    assert not throttled(cluster, "slow")
    wait_until(lambda: placed(cluster, "slow") == {0: [1]}, "the former replica")
    folders = [cluster.brokers[broker].log_dir / "slow-0" for broker in (2, 3)]
    wait_until(lambda: not any(folder.exists() for folder in folders), "the added replicas to be deleted")
    assert "None of the specified partition reassignments are active." in reassign(cluster, "--cancel", str(elsewhere))
    # What the one tool has begun the other one ends.
    assert ottla(cluster, "execute", there, "--yes", "--throttle", "100000000").exit_code == 0
    wait_until(lambda: "slow-0 is completed" in reassign(cluster, "--verify", there), "the end of the move", 120)
    assert not throttled(cluster, "slow")
    assert placed(cluster, "slow") == {0: [2]}


def test_what_cannot_be_moved_is_refused_in_kafkas_words(cluster: TappedCluster, tmp_path: Path) -> None:
    create(cluster, "kept", [1, 2])
    for replicas, topic, message in (
        ([1, 9], "kept", "Unknown broker id 9"),
        ([1, 2], "none", "UnknownTopicOrPartition"),
    ):
        path = tmp_path / "moves.json"
        path.write_text(json.dumps({"partitions": [{"topic": topic, "partition": 0, "replicas": replicas}]}))
        tool = (REASSIGN, "--bootstrap-server", cluster.bootstrap, "--reassignment-json-file", str(path), "--execute")
        refused = java_tool(*tool, check=False)
        assert message in refused.stdout + refused.stderr
    assert placed(cluster, "kept") == {0: [1, 2]}


def test_places_are_generated(cluster: TappedCluster, tmp_path: Path) -> None:
    create(cluster, "spread", [1], [1], [1])
    topics = tmp_path / "topics.json"
    topics.write_text('{"topics": [{"topic": "spread"}], "version": 1}')
    options = ("--topics-to-move-json-file", str(topics), "--broker-list", "1,2,3", "--generate")
    _, _, proposal = cluster.tool(REASSIGN, *options).partition("Proposed partition reassignment configuration\n")
    path = tmp_path / "proposal.json"
    path.write_text(proposal.strip())
    assert ottla(cluster, "execute", str(path), "--yes").exit_code == 0
    wait_until(lambda: ottla(cluster, "verify", str(path)).exit_code == 0, "the end of the moves")
    assert sorted(broker for (broker,) in placed(cluster, "spread").values()) == [1, 2, 3]
