"""`ottla cluster health` and `ottla reassign plan` beside a cluster with a broker of Apache Kafka and two of ottla."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from typer.testing import CliRunner, Result

from interop.cluster.mixes import ASSIGNMENT
from ottla.cli.main import app
from support.acknowledged_load import AcknowledgedLoad
from support.tapped_cluster import TappedCluster
from support.waiting import wait_until

pytestmark = [pytest.mark.needs_kafka, pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.spec("R1", "R8")]

TOPIC = "watched"


def ottla(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def rows(done: Result, kind: str) -> list[dict[str, Any]]:
    return [each for each in map(json.loads, done.stdout.splitlines()) if each["kind"] == kind]


def test_both_makes_are_asked_and_moved(tmp_path: Path) -> None:
    with TappedCluster(tmp_path, ("apache", "ottla", "ottla")).prepared() as cluster:
        cluster.start_all()

        def findings() -> dict[str, dict[str, Any]]:
            done = ottla("cluster", "health", "-b", cluster.bootstrap, "--interval", "0.2", "--json")
            return {each["finding"]: each for each in rows(done, "finding")}

        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        wanted = NewTopic(TOPIC, 3, replica_assignment=ASSIGNMENT, config={"min.insync.replicas": "2"})
        admin.create_topics([wanted])[TOPIC].result(60)
        cluster.wait_for_isr(TOPIC)
        with AcknowledgedLoad(cluster.bootstrap, TOPIC, 3) as load:
            load.wait_for_more()
        load.check()
        passing = {"silent-broker", "no-controller", "unsettled-controller"}

        def all_answer() -> dict[str, Any] | None:
            found = findings()
            return found if "different-versions" in found and not passing & set(found) else None

        assert "1 | 2, 3" in wait_until(all_answer, "all to answer")["different-versions"]["what"]

        path = tmp_path / "moves.json"
        done = ottla("reassign", "plan", "-b", cluster.bootstrap, "--replication-factor", "2", "--topic", TOPIC,
                     "--output", str(path), "--json")  # fmt: skip
        assert done.exit_code == 0, done.output
        sizes = {each["broker"]: each["before"]["size_bytes"] for each in rows(done, "broker")}
        assert set(sizes) == {1, 2, 3}
        assert all(size > 0 for size in sizes.values()), "Apache Kafka's broker says its sizes, too"
        assert ottla("reassign", "execute", str(path), "-b", cluster.bootstrap, "--yes").exit_code == 0
        wait_until(
            lambda: ottla("reassign", "verify", str(path), "-b", cluster.bootstrap).exit_code == 0, "the moves to end"
        )
        wait_until(lambda: "no-spare-replica" in findings(), "two replicas each")

        cluster.brokers[1].kill9()
        cluster.wait_until_gone(1)
        wait_until(lambda: {"absent-broker", "under-min-isr"} <= set(findings()), "Apache Kafka's broker to be missed")
        assert findings()["absent-broker"]["brokers"] == [1]
