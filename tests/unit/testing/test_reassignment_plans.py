"""`ottla reassign plan` beside a cluster: what it proposes, its files, and that they are carried out."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from ottla.cli.main import app
from ottla.client.admin.reassignments import ReassignmentAdmin
from ottla.client.model import TopicPartition
from ottla.peer.cluster import Cluster as Peer
from ottla.peer.settings import ConnectionSettings
from ottla.testing import Cluster
from support.waiting import wait_until
from unit.testing.test_cluster_replication import produce

pytestmark = pytest.mark.spec("R1")


def plan(cluster: Cluster, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["reassign", "plan", "-b", cluster.bootstrap_servers, *arguments])


def rows(done: Result, kind: str) -> list[dict[str, Any]]:
    return [each for each in map(json.loads, done.stdout.splitlines()) if each["kind"] == kind]


def carry_out(cluster: Cluster, path: Path) -> None:
    """What `ottla reassign execute` does with the file."""
    wanted = {
        TopicPartition(each["topic"], each["partition"]): each["replicas"]
        for each in json.loads(path.read_text())["partitions"]
    }

    async def begin() -> None:
        peer = Peer(ConnectionSettings(bootstrap_servers=cluster.bootstrap_servers))
        try:
            await ReassignmentAdmin(peer).alter_partition_reassignments(wanted)
        finally:
            await peer.close()

    asyncio.run(begin())
    wait_until(
        lambda: all(cluster.replicas(*each) == tuple(replicas) for each, replicas in wanted.items()), "the moves to end"
    )


def test_a_broker_is_emptied_batch_by_batch(tmp_path: Path) -> None:
    with Cluster(4, racks=["a", "b", "a", "b"]) as cluster:
        cluster.create_topic("orders", partitions=8, replication_factor=2)
        produce(cluster, "orders", *(f"a record {number}" for number in range(20)))
        held = [index for index in range(8) if 3 in cluster.replicas("orders", index)]
        path = tmp_path / "moves.json"
        done = plan(cluster, "--empty", "3", "--output", str(path), "--at-once", "2", "--throttle", "1000")
        assert (done.exit_code, done.stderr) == (0, "")
        assert f"{len(held)} partitions copied" in done.stdout
        assert "empty then" in done.stdout
        steps = sorted(tmp_path.glob("moves-[0-9]*.json"))
        assert len(steps) >= len(held) // 2
        assert f"ottla reassign execute {steps[0]} --throttle 1000" in done.stdout
        before = {index: cluster.replicas("orders", index) for index in range(8)}
        for each in steps:
            carry_out(cluster, each)
        assert [index for index in range(8) if 3 in cluster.replicas("orders", index)] == []
        assert all(len({broker % 2 for broker in cluster.replicas("orders", index)}) == 2 for index in range(8))
        again = plan(cluster, "--empty", "3", "--output", str(path))
        assert again.stdout.startswith("nothing has to be moved")
        carry_out(cluster, tmp_path / "moves-back.json")
        assert {index: cluster.replicas("orders", index) for index in range(8)} == before


def test_an_even_cluster_has_even_leaders(tmp_path: Path) -> None:
    with Cluster(3) as cluster:
        cluster.create_topic("orders", partitions=6)
        cluster.create_topic("others", partitions=6)
        everything = {TopicPartition(name, index): (0, 1, 2) for name in ("orders", "others") for index in range(6)}
        path = tmp_path / "first.json"
        moves = [{"topic": key.topic, "partition": key.partition, "replicas": each} for key, each in everything.items()]
        path.write_text(json.dumps({"version": 1, "partitions": moves}))
        carry_out(cluster, path)
        done = plan(cluster, "--even", "--topic", "ord*", "--output", str(path), "--json")
        assert done.exit_code == 0
        (whole,) = rows(done, "plan")
        assert whole["moved_bytes"] == 0
        assert {each["topic"] for each in rows(done, "move")} == {"orders"}
        carry_out(cluster, path)
        assert Counter(cluster.replicas("orders", index)[0] for index in range(6)) == {1: 3, 2: 3}


def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    with Cluster(2) as cluster:
        cluster.create_topic("orders", replication_factor=2)
        assert plan(cluster).stderr == (
            "ottla reassign: say what is wanted: --even, --add, --empty, --replication-factor or --racks\n"
        )
        assert plan(cluster, "--empty", "one").exit_code == 2
        kept = plan(cluster, "--empty", "1")
        assert kept.exit_code == 1
        assert "orders-0 (no other broker can take a replica)" in kept.stderr
        refused = plan(cluster, "--add", "9")
        assert (refused.exit_code, refused.stderr) == (
            1,
            "ottla reassign: broker 9 cannot be added: it is not registered: start it\n",
        )
        unwritable = plan(cluster, "--replication-factor", "1", "--output", str(tmp_path / "none" / "moves.json"))
        assert unwritable.exit_code == 2
        assert "cannot be written" in unwritable.stderr
