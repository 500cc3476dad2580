"""`ottla replica` at a cluster: what it shows, moves and compares, and what it ends with."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from ottla.cli.main import app
from ottla.client.admin import ReplicaLogDirs, TopicPartitionReplica
from ottla.client.errors import BrokerError
from ottla.client.sync import Admin, Producer
from ottla.testing import Cluster
from ottla.testing.disk_memory import MemoryDisk
from support.waiting import wait_until

pytestmark = [pytest.mark.spec("R1"), pytest.mark.slow]

ONE, TWO = "/logs/one", "/logs/two"


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    # What is offered to users has one log directory.
    monkeypatch.setattr("ottla.testing.cluster.IN_MEMORY", f"{ONE},{TWO}")
    with Cluster(3) as cluster:
        cluster.create_topic("orders", partitions=2, replication_factor=3)
        with Producer(bootstrap_servers=cluster.bootstrap_servers, acks="all") as producer:
            for number in range(40):
                producer.send("orders", b"record %d" % number, partition=number % 2)
                producer.flush()
        wait_until(lambda: all(len(cluster.in_sync("orders", index)) == 3 for index in range(2)), "all in sync")
        yield cluster


def ottla(cluster: Cluster, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["replica", *arguments, "-b", cluster.bootstrap_servers])


def rows(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def home(cluster: Cluster, broker: int, index: int = 0) -> ReplicaLogDirs:
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        replica = TopicPartitionReplica("orders", index, broker)
        return admin.describe_replica_log_dirs([replica])[replica]


def test_log_dirs_are_listed(cluster: Cluster) -> None:
    shown = ottla(cluster, "list")
    assert shown.exit_code == 0, shown.output
    assert shown.stdout.count(ONE) == shown.stdout.count(TWO) == 3
    assert "orders" not in shown.stdout, "replicas are shown where they are asked for, or moved"
    shown = ottla(cluster, "list", "orders", "--broker", "1", "--json")
    listed = rows(shown)
    assert [row["path"] for row in listed if row["kind"] == "log_dir"] == [ONE, TWO]
    replicas = [row for row in listed if row["kind"] == "replica"]
    assert sorted((row["partition"], row["broker"], row["is_future"]) for row in replicas) == [
        (0, 1, False),
        (1, 1, False),
    ]
    assert all(row["size_bytes"] > 0 for row in replicas)
    missing = ottla(cluster, "list", "nothing")
    assert missing.exit_code == 1


def test_a_replica_is_moved_after_it_was_shown(cluster: Cluster) -> None:
    here = home(cluster, 1).log_dir
    there = TWO if here == ONE else ONE
    shown = ottla(cluster, "move", "orders-0", "--broker", "1", "--to", there)
    assert shown.exit_code == 1
    assert "1 replica of broker 1 to" in shown.stdout
    assert home(cluster, 1) == ReplicaLogDirs(here, 0)
    moved = ottla(cluster, "move", "orders-0", "--broker", "1", "--to", there, "--yes", "--wait", "--json")
    assert moved.exit_code == 0, moved.output
    (row,) = rows(moved)
    assert (row["log_dir"], row["new_log_dir"], row["begun"]) == (here, there, True)
    assert home(cluster, 1) == ReplicaLogDirs(there, 0)
    whole = ottla(cluster, "move", "orders", "--broker", "1", "--to", ONE, "--yes", "--wait")
    assert whole.exit_code == 0, whole.output
    assert [home(cluster, 1, index).log_dir for index in range(2)] == [ONE, ONE]
    assert ottla(cluster, "verify", "orders").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("orders-0", "--broker", "1", "--to", "/nowhere"), "broker 1 has no log directory /nowhere; it has /logs/one"),
        (("orders-7", "--broker", "1", "--to", ONE), "broker 1 has no replica of orders-7"),
        (("nothing", "--broker", "1", "--to", ONE), "there is no topic nothing on this broker"),
        (("orders-0", "--broker", "9", "--to", ONE), "has no broker 9 at the moment"),
    ],
)
def test_mistakes_are_named(cluster: Cluster, arguments: tuple[str, ...], said: str) -> None:
    refused = ottla(cluster, "move", *arguments, "--yes")
    assert refused.exit_code == 2
    assert said in refused.stderr


def test_what_is_not_there_is_named(cluster: Cluster) -> None:
    listed = ottla(cluster, "list", "--broker", "9")
    assert (listed.exit_code, "there is no broker 9 at the moment; the brokers are 0, 1, 2" in listed.stderr) == (
        1,
        True,
    )
    for command in ("list", "verify"):
        done = ottla(cluster, command, "orderz")
        assert done.exit_code == 1
        assert done.stderr.startswith("ottla replica: topic orderz does not exist at ")
        assert "topic orderz" not in done.stderr.removeprefix("ottla replica: topic orderz"), "it is named once"
        assert "the same" not in done.stdout, "where nothing was compared nothing is the same"


def test_no_move_without_space(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    there = TWO if home(cluster, 1).log_dir == ONE else ONE
    monkeypatch.setattr(MemoryDisk, "space", lambda self, path: (1 << 30, 100))
    refused = ottla(cluster, "move", "orders-0", "--broker", "1", "--to", there, "--yes")
    assert refused.exit_code == 2
    assert "move fewer replicas, or make room" in refused.stderr


def test_replicas_that_differ_are_found(cluster: Cluster) -> None:
    same = ottla(cluster, "verify", "orders", "--json")
    assert same.exit_code == 0, same.output
    assert [(row["end_offset"], row["is_same"], row["difference"]) for row in rows(same)] == [(20, True, {})] * 2
    broker = cluster.broker(2)
    log = broker.logs.get("orders", 1)
    assert log is not None
    path = log.segments[0].log.path
    disk: Any = broker.disk
    while not hasattr(disk, "flip"):
        disk = disk.disk
    disk.flip(path, disk.file_size(path) - 3)
    differs = ottla(cluster, "verify", "orders", "--json")
    assert differs.exit_code == 1
    first, second = rows(differs)
    assert first["is_same"]
    assert {broker: mark["first_offset"] for broker, mark in second["difference"].items()} == dict.fromkeys("012", 19)
    shown = ottla(cluster, "verify", "orders")
    assert "1 not the same" in shown.stdout
    assert "different: broker" in shown.stdout


def test_a_broker_that_does_not_answer_is_a_problem(cluster: Cluster) -> None:
    cluster.kill(2)
    wait_until(lambda: 2 not in cluster.in_sync("orders", 0) + cluster.in_sync("orders", 1), "its end")
    found = ottla(cluster, "verify", "--json")
    assert found.exit_code == 1
    assert all(list(row["problems"]) == ["2"] for row in rows(found) if row["topic"] == "orders")


def test_what_brokers_refuse(cluster: Cluster) -> None:
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        with pytest.raises(BrokerError, match="LOG_DIR_NOT_FOUND"):
            admin.alter_replica_log_dirs({TopicPartitionReplica("orders", 0, 1): "/nowhere"})
        cluster.create_topic("single", replication_factor=1)
        (owner,) = cluster.replicas("single")
        with pytest.raises(BrokerError, match="REPLICA_NOT_AVAILABLE"):
            admin.alter_replica_log_dirs({TopicPartitionReplica("single", 0, (owner + 1) % 3): TWO})
        found = admin.describe_replica_log_dirs([TopicPartitionReplica("single", 0, (owner + 1) % 3)])
        assert list(found.values()) == [ReplicaLogDirs()]
