"""Replicas move between log directories, by Apache Kafka's tools and by ottla's, in clusters of both."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.acknowledged_load import AcknowledgedLoad
from support.cluster_load import verify_over_the_wire
from support.tapped_cluster import Maker, TappedCluster
from support.waiting import wait_until

pytestmark = [pytest.mark.needs_kafka, pytest.mark.long, pytest.mark.timeout(600), pytest.mark.spec("R1")]

TOPICS = "org.apache.kafka.tools.TopicCommand"
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"
BROKERS = (1, 2, 3)

MIXES: dict[str, tuple[Maker, Maker, Maker]] = {
    "ottla": ("ottla", "ottla", "ottla"),
    "mixed": ("apache", "ottla", "ottla"),
}


@pytest.fixture(scope="module", params=MIXES)
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TappedCluster]:
    """Three brokers with two log directories each."""
    folder = tmp_path_factory.mktemp("moves")
    settings = {"log.segment.bytes": "200000"}
    with TappedCluster(folder, MIXES[request.param], settings, directories=2).prepared() as cluster:
        cluster.start_together()
        yield cluster


def homes(cluster: TappedCluster, topic: str) -> dict[tuple[int, int], str]:
    """The log directory of each replica, by broker and partition, as Apache Kafka's tool tells it."""
    told = cluster.tool(LOG_DIRS, "--describe", "--topic-list", topic)
    found = json.loads(next(line for line in told.splitlines() if line.startswith("{")))
    return {
        (broker["broker"], int(one["partition"].rpartition("-")[2])): directory["logDir"]
        for broker in found["brokers"]
        for directory in broker["logDirs"]
        for one in directory["partitions"]
        if not one["isFuture"]
    }


def plan_file(folder: Path, topic: str, wanted: dict[int, list[tuple[int, str]]]) -> Path:
    """The file of a reassignment: broker and log directory of each replica."""
    partitions = [
        {
            "topic": topic,
            "partition": number,
            "replicas": [broker for broker, _ in replicas],
            "log_dirs": [path for _, path in replicas],
        }
        for number, replicas in wanted.items()
    ]
    path = folder / f"{topic}.json"
    path.write_text(json.dumps({"version": 1, "partitions": partitions}))
    return path


def ottla(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "ottla", *arguments], capture_output=True, text=True, check=False)


def test_apaches_tool_moves_replicas_between_log_directories(cluster: TappedCluster, tmp_path: Path) -> None:
    cluster.tool(TOPICS, "--create", "--topic", "moved", "--replica-assignment", "1:2:3,2:3:1")
    cluster.wait_for_isr("moved")
    before = homes(cluster, "moved")
    with AcknowledgedLoad(cluster.bootstrap, "moved", 2) as load:
        load.wait_for_more(300)
        other = {
            (broker, number): str(next(each for each in cluster.brokers[broker].log_dirs if str(each) != path))
            for (broker, number), path in before.items()
        }
        wanted = {number: [(broker, other[broker, number]) for broker in BROKERS] for number in range(2)}
        path = plan_file(tmp_path, "moved", wanted)
        cluster.tool(REASSIGN, "--reassignment-json-file", str(path), "--execute")

        def is_done() -> bool:
            told = cluster.tool(REASSIGN, "--reassignment-json-file", str(path), "--verify", "--preserve-throttles")
            return told.count("is completed") + told.count("completed successfully") >= 6

        wait_until(is_done, "all replicas to be moved", 120)
        assert homes(cluster, "moved") == other
        load.wait_for_more(100)
    load.check()
    cluster.wait_for_isr("moved")
    verify_over_the_wire(cluster, "moved")
    for broker in cluster.brokers.values():
        names = [path.name for directory in broker.log_dirs for path in directory.glob("moved-*")]
        assert sorted(name for name in names if not name.endswith("-delete")) == ["moved-0", "moved-1"]


def test_a_new_replica_comes_into_the_named_directory(cluster: TappedCluster, tmp_path: Path) -> None:
    cluster.tool(TOPICS, "--create", "--topic", "placed", "--replica-assignment", "2:3")
    cluster.wait_for_isr("placed")
    with AcknowledgedLoad(cluster.bootstrap, "placed", 1) as load:
        load.wait_for_more(100)
    second = str(cluster.brokers[1].log_dirs[1])
    path = plan_file(tmp_path, "placed", {0: [(1, second), (2, "any")]})
    cluster.tool(REASSIGN, "--reassignment-json-file", str(path), "--execute")
    wait_until(lambda: cluster.partitions("placed") == {0: [1, 2]}, "the reassignment", 90)
    cluster.wait_for_isr("placed")
    wait_until(lambda: homes(cluster, "placed").get((1, 0)) == second, "the replica in its directory")


def test_replicas_are_verified_by_both_tools(cluster: TappedCluster) -> None:
    cluster.tool(TOPICS, "--create", "--topic", "same", "--partitions", "3", "--replication-factor", "3")
    cluster.wait_for_isr("same")
    with AcknowledgedLoad(cluster.bootstrap, "same", 3) as load:
        load.wait_for_more(300)
    load.check()
    verify_over_the_wire(cluster, "same")
    ours = ottla("replica", "verify", "same", "-b", cluster.bootstrap, "--json")
    rows = [json.loads(line) for line in ours.stdout.splitlines()]
    assert ours.returncode == 0, (ours.stdout, ours.stderr)
    assert [(row["partition"], row["is_same"], row["compared_bytes"] > 0) for row in rows] == [
        (number, True, True) for number in range(3)
    ]


def test_ottlas_commands_move_replicas(cluster: TappedCluster) -> None:
    cluster.tool(TOPICS, "--create", "--topic", "ours", "--replica-assignment", "1:2:3")
    cluster.wait_for_isr("ours")
    with AcknowledgedLoad(cluster.bootstrap, "ours", 1) as load:
        load.wait_for_more(100)
        for broker in (1, 2):
            here = homes(cluster, "ours")[broker, 0]
            there = next(str(each) for each in cluster.brokers[broker].log_dirs if str(each) != here)
            options = ("ours-0", "--broker", str(broker), "--to", there, "-b", cluster.bootstrap)
            asked = ottla("replica", "move", *options)
            assert asked.returncode == 1
            assert "nothing was changed: --yes does it" in asked.stderr
            done = ottla("replica", "move", *options, "--yes", "--wait", "--json")
            assert done.returncode == 0, done.stderr
            assert json.loads(done.stdout)["begun"] is True
            listed = ottla("replica", "list", "ours", "--broker", str(broker), "-b", cluster.bootstrap, "--json")
            replicas = [row for line in listed.stdout.splitlines() if (row := json.loads(line))["kind"] == "replica"]
            assert [(row["log_dir"], row["is_future"]) for row in replicas] == [(there, False)]
    load.check()
    verify_over_the_wire(cluster, "ours")
