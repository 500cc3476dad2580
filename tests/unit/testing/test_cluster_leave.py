"""`ottla cluster leave`: what keeps a broker in its cluster, and what is left when it has gone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from ottla.cli.main import app
from ottla.client.model import TopicPartition
from ottla.ops import cluster_leave
from ottla.ops.cluster_leave import EVIDENCE_TOPIC, planned_departure
from ottla.ops.planned_cluster import PlannedCluster
from ottla.ops.planning.model import PlannedBroker, PlannedPartition
from ottla.testing import Cluster
from support.waiting import wait_until

pytestmark = pytest.mark.spec("R1", "Z3")


def leave(cluster: Cluster, broker: int, *arguments: str) -> Result:
    command = ["cluster", "leave", "--id", str(broker), "-b", cluster.bootstrap_servers, *arguments]
    return CliRunner().invoke(app, command)


def test_a_broker_with_replicas_is_kept_and_shown_where_they_could_go(tmp_path: Path) -> None:
    with Cluster(3) as cluster:
        cluster.create_topic("orders", partitions=3, replication_factor=2)
        plan = tmp_path / "moves.json"
        done = leave(cluster, 2, "--yes", "--plan", str(plan))
        assert done.exit_code == 1
        assert "broker 2 holds 2 replicas:" in done.stdout
        assert "broker 2 cannot leave: its replicas have to live elsewhere first" in done.stderr
        moves = json.loads(plan.read_text())
        assert moves["version"] == 1
        held = [index for index in range(3) if 2 in cluster.replicas("orders", index)]
        assert [each["partition"] for each in moves["partitions"]] == held
        assert all(sorted(each["replicas"]) == [0, 1] for each in moves["partitions"])
        back = json.loads((tmp_path / "moves-back.json").read_text())["partitions"]
        assert {each["partition"]: tuple(each["replicas"]) for each in back} == {
            index: cluster.replicas("orders", index) for index in held
        }
        assert f"ottla reassign execute {plan}" in done.stderr
        assert cluster.broker(2).id == 2
        assert len({cluster.leader("orders", index) for index in range(3)}) == 3, "nothing was changed"


def test_programs_get_objects() -> None:
    with Cluster(2) as cluster:
        cluster.create_topic("orders", replication_factor=2)
        kept = leave(cluster, 1, "--json")
        *partitions, broker = map(json.loads, kept.stdout.splitlines())
        assert kept.exit_code == 1
        assert [(each["topic"], each["partition"], each["instead"]) for each in partitions] == [("orders", 0, None)]
        assert partitions[0]["problem"] == "no other broker can take a replica"
        assert broker == {"kind": "broker", "broker": 1, "state": "held", "held_partitions": 1}
        cluster.kill(1)
        gone = leave(cluster, 7, "--json")
        assert (gone.exit_code, json.loads(gone.stdout)["state"]) == (0, "left")


def test_what_has_no_place_to_go_or_is_nowhere_else() -> None:
    with Cluster(2) as cluster:
        cluster.create_topic("orders", replication_factor=2)
        cluster.create_topic("alone", partitions=2, replication_factor=1)
        done = leave(cluster, 1, "--yes")
        assert done.exit_code == 1
        assert "no other broker" in done.stdout
        assert "Of 1 partition no other replica has the records" in done.stdout
        assert "Start another broker" in done.stdout


def test_a_broker_without_replicas_leaves() -> None:
    with Cluster(3) as cluster:
        assert leave(cluster, 2).exit_code == 1, "a script has to say --yes"
        done = leave(cluster, 2, "--yes")
        assert (done.exit_code, done.stderr) == (0, "")
        assert "broker 2 leads nothing and is elected no more: stop its process now" in done.stdout
        cluster.shut_down(2)
        wait_until(lambda: set(cluster.broker(0).image.brokers) == {0, 1}, "its registration to go")
        done = leave(cluster, 2)
        assert (done.exit_code, done.stdout) == (
            0,
            "broker 2 is not registered and holds no replicas: it has left the cluster\n",
        )


def test_the_last_broker_of_ottla_takes_its_evidence_along(monkeypatch: pytest.MonkeyPatch) -> None:
    async def is_ottla(_cluster: object, broker: int) -> bool:
        return broker == 2

    with Cluster(3) as cluster:
        cluster.create_topic(EVIDENCE_TOPIC, replication_factor=3)
        done = leave(cluster, 2, "--yes")
        assert done.exit_code == 1, "the others are of ottla, and keep it"
        monkeypatch.setattr(cluster_leave, "_is_ottla", is_ottla)
        done = leave(cluster, 2, "--yes")
        assert (done.exit_code, done.stderr) == (0, "")
        assert f"the topic {EVIDENCE_TOPIC} is deleted" in done.stdout
        wait_until(lambda: EVIDENCE_TOPIC not in cluster.broker(0).image.topics, "the deletion")


def test_who_does_not_say_what_it_is_keeps_the_evidence(monkeypatch: pytest.MonkeyPatch) -> None:
    async def is_ottla(_cluster: object, broker: int) -> bool | None:
        return None if broker == 1 else False

    with Cluster(3) as cluster:
        cluster.create_topic(EVIDENCE_TOPIC, replication_factor=1)
        monkeypatch.setattr(cluster_leave, "_is_ottla", is_ottla)
        done = leave(cluster, 2, "--yes")
        assert f"broker 1 did not say whether it is one of ottla: the topic {EVIDENCE_TOPIC} stays" in done.stderr
        assert EVIDENCE_TOPIC in cluster.broker(0).image.topics


def test_the_plan_is_that_of_the_planner() -> None:
    """Racks, then bytes and what a disk can take: broker 3 has the fewest replicas, and is the fullest."""
    brokers = [PlannedBroker(each, rack, 1000) for each, rack in ((1, "a"), (2, "a"), (3, "b"), (4, "b"), (5, "c"))]
    partitions = [
        PlannedPartition("large", 0, (3, 1), 850),
        PlannedPartition("small", 0, (4, 2), 5),
        PlannedPartition("small", 1, (4, 2), 5),
        PlannedPartition("t", 0, (5, 1), 100),
        PlannedPartition("t", 1, (5, 2), 100),
        PlannedPartition("t", 2, (5, 4), 100, is_moving=True),
    ]
    planned = planned_departure(PlannedCluster(brokers, partitions, {}), 5)
    assert {each: set(replicas) for each, replicas in planned.moves.items()} == {
        TopicPartition("t", 0): {1, 4},
        TopicPartition("t", 1): {2, 4},
    }
    assert planned.left == {TopicPartition("t", 2): "a reassignment moves it already"}
    assert [each.moved_bytes for moves in planned.batches for each in moves] == [100, 100]
    nobody = planned_departure(PlannedCluster(brokers[-1:], [PlannedPartition("t", 0, (5,))], {}), 5)
    assert nobody.refusal.startswith("no live broker is left")
    assert not nobody.moves
