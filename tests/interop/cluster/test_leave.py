"""A broker of ottla leaves a cluster of Apache Kafka: its replicas are moved, its evidence goes, its process ends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from typer.testing import CliRunner

from ottla.cli.main import app
from ottla.ops.cluster_leave import EVIDENCE_TOPIC
from ottla.peer.cluster import Cluster
from ottla.peer.settings import ConnectionSettings
from ottla.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from support.acknowledged_load import AcknowledgedLoad
from support.replica_files import wait_until_equal
from support.tapped_cluster import TappedCluster
from support.waiting import wait_until

pytestmark = [pytest.mark.needs_kafka, pytest.mark.long, pytest.mark.timeout(600), pytest.mark.spec("Z3")]

OURS = 3
TOPIC = "orders"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[TappedCluster]:
    with TappedCluster(tmp_path, ("apache", "apache", "ottla")).prepared() as cluster:
        cluster.start_all()
        yield cluster


def leave(cluster: TappedCluster, *arguments: str) -> Result:
    servers = cluster.brokers[1].bootstrap
    return CliRunner().invoke(app, ["cluster", "leave", "--id", str(OURS), "-b", servers, *arguments])


def reassign(servers: str, moves: dict[str, Any]) -> None:
    """What `kafka-reassign-partitions --execute` asks of the controller."""

    async def ask() -> None:
        peer = Cluster(ConnectionSettings(bootstrap_servers=servers))
        try:
            await peer.refresh([])
            partitions = [
                ReassignablePartition(partition_index=each["partition"], replicas=each["replicas"])
                for each in moves["partitions"]
            ]
            request = AlterPartitionReassignmentsRequest(
                topics=[ReassignableTopic(name=TOPIC, partitions=partitions)], timeout_ms=30_000
            )
            answer = await peer.request_controller(request, versions=(0, 0))
            assert answer.error_code == 0
            assert all(not each.error_code for topic in answer.responses for each in topic.partitions)
        finally:
            await peer.close()

    asyncio.run(ask())


def test_the_only_broker_of_ottla_leaves(cluster: TappedCluster, tmp_path: Path) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    wanted = [
        NewTopic(TOPIC, 2, replica_assignment=[[3, 1], [1, 3]]),
        NewTopic(EVIDENCE_TOPIC, 1, replica_assignment=[[3]]),
    ]
    for created in admin.create_topics(wanted).values():
        created.result(60)
    cluster.wait_for_isr(TOPIC, {1, 3})
    with AcknowledgedLoad(cluster.bootstrap, TOPIC, 2) as load:
        load.wait_for_more(1000)
        plan = tmp_path / "moves.json"
        kept = leave(cluster, "--yes", "--plan", str(plan))
        assert kept.exit_code == 1, kept.output
        assert "broker 3 holds 2 replicas" in kept.output, "that of the evidence topic goes with it"
        moves = json.loads(plan.read_text())
        assert [(each["partition"], set(each["replicas"])) for each in moves["partitions"]] == [
            (0, {1, 2}),
            (1, {1, 2}),
        ]
        reassign(cluster.bootstrap, moves)
        cluster.wait_for_isr(TOPIC, {1, 2})
        load.wait_for_more()
        done = leave(cluster, "--yes")
        assert done.exit_code == 0, done.output
        assert "stop its process now" in done.output
        wait_until(lambda: EVIDENCE_TOPIC not in admin.list_topics(timeout=60).topics, "all to know of the deletion")
        cluster.brokers[OURS].stop()
        cluster.wait_until_gone(OURS)
        load.wait_for_more()
    load.check()
    for partition in range(2):
        assert wait_until_equal([cluster.brokers[each].log_dir for each in (1, 2)], TOPIC, partition) > 0
    wait_until(lambda: "it has left the cluster" in leave(cluster).output, "the end of its registration")
