"""`ottla cluster health` beside clusters that lack something, and get well again."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from ottla.cli.cluster.health import parse_metrics
from ottla.cli.main import app
from ottla.client.model import TopicPartition
from ottla.client.sync import Admin
from ottla.testing import Cluster
from support.waiting import wait_until
from unit.testing.test_cluster_replication import produce

pytestmark = [pytest.mark.spec("R1")]
EVEN = {"auto.leader.rebalance.enable": False, "offsets.topic.num.partitions": 1}


def health(cluster: Cluster, *arguments: str) -> Result:
    command = ["cluster", "health", "-b", cluster.bootstrap_servers, "--interval", "0.2", *arguments]
    return CliRunner().invoke(app, command)


def findings(cluster: Cluster) -> dict[str, dict[str, Any]]:
    rows = map(json.loads, health(cluster, "--json").stdout.splitlines())
    return {each["finding"]: each for each in rows if each["kind"] == "finding"}


def test_a_healthy_cluster() -> None:
    with Cluster(3, settings=EVEN) as cluster:
        cluster.create_topic("orders", partitions=3)
        produce(cluster, "orders", "one", "two")
        cluster.wait_until_in_sync()
        done = health(cluster)
        assert (done.exit_code, done.stderr) == (0, "")
        assert done.stdout.endswith("3 brokers · 3 partitions · healthy\n")
        whole = json.loads(health(cluster, "--json").stdout)
        assert (whole["state"], whole["findings"]) == ("healthy", 0)


def test_a_broker_dies_and_returns() -> None:
    with Cluster(3, settings=EVEN) as cluster:
        cluster.create_topic("orders", partitions=3, min_insync_replicas=2)
        cluster.create_topic("alone", partitions=3, replication_factor=1)
        produce(cluster, "orders", "one", "two")
        cluster.kill(2)
        for index in range(3):
            cluster.wait_for_leader("orders", index, other_than=2)
        wait_until(lambda: "at-min-isr" in findings(cluster), "the controller to take it out of the ISRs")
        found = findings(cluster)
        assert set(found) == {"offline-partitions", "absent-broker", "at-min-isr"}
        assert found["absent-broker"]["brokers"] == [2]
        assert len(found["at-min-isr"]["partitions"]) == 3
        done = health(cluster)
        assert done.exit_code == 2
        assert "critical  offline-partitions  1 partition without a leader" in done.stdout
        assert "Start broker 2 again" in done.stdout
        cluster.restart(2)
        cluster.wait_until_in_sync()
        assert set(findings(cluster)) <= {"leaders-not-preferred"}
        with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            admin.elect_leaders()
        wait_until(lambda: health(cluster).exit_code == 0, "all to be well")


def test_too_few_replicas_in_sync_and_what_watching_reports() -> None:
    with Cluster(3, settings=EVEN) as cluster:
        cluster.create_topic("orders", min_insync_replicas=2)
        last = cluster.leader("orders")
        for each in range(3):
            if each != last:
                cluster.kill(each)
        wait_until(lambda: "under-min-isr" in findings(cluster), "the ISR to shrink")
        assert health(cluster).exit_code == 2
        watched = health(cluster, "--watch", "--count", "2", "--interval", "0.05", "--json")
        assert watched.exit_code == 2
        assert [row for row in map(json.loads, watched.stdout.splitlines()) if "event" in row] == []


def test_racks_and_spare_replicas() -> None:
    with Cluster(3, settings=EVEN, racks=["a", "a", "b"]) as cluster:
        cluster.create_topic("orders", replication_factor=2, min_insync_replicas=2)
        found = findings(cluster)
        assert set(found) == {"no-spare-replica"}
        assert health(cluster).exit_code == 0, "a notice"
        with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            admin.alter_partition_reassignments({TopicPartition("orders", 0): [0, 1]})
        wait_until(lambda: set(cluster.replicas("orders")) == {0, 1}, "the move to end")
        wait_until(lambda: "crowded-racks" in findings(cluster), "the crowded rack")


def test_a_cluster_that_cannot_be_asked() -> None:
    done = CliRunner().invoke(app, ["cluster", "health", "-b", "127.0.0.1:1", "--timeout", "0.5"])
    assert done.exit_code == 2
    assert done.stderr.startswith("ottla cluster: ")


def test_metrics_without_labels_are_read() -> None:
    text = '# HELP a b\n# TYPE a gauge\na 2.0\nb_total 3 1700000000\nc{topic="t"} 4\nnonsense\nd NaNa\n'
    assert parse_metrics(text) == {"a": 2.0, "b_total": 3.0}
