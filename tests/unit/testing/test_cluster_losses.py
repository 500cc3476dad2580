"""What survives when brokers of the cluster for tests die, and how a loss is reported where one was asked for."""

from __future__ import annotations

import asyncio
import json
from itertools import permutations
from typing import Any

import pytest
from typer.testing import CliRunner

from ottla.cli.main import app
from ottla.ops.cluster_status import LossStatus, read_cluster_status
from ottla.peer.cluster import Cluster as Peer
from ottla.peer.settings import ConnectionSettings
from ottla.records.record import Record, encode_batch
from ottla.storage.log import CLIENT
from ottla.testing import Cluster
from support.waiting import wait_until
from unit.testing.test_cluster_replication import produce, values

UNCLEAN = {"unclean.leader.election.enable": True}


def losses(cluster: Cluster) -> list[LossStatus]:
    """What `ottla cluster status` shows."""

    async def read() -> list[LossStatus]:
        peer = Peer(ConnectionSettings(bootstrap_servers=cluster.bootstrap_servers))
        try:
            return (await read_cluster_status(peer)).losses
        finally:
            await peer.close()

    return asyncio.run(read())


def status_rows(cluster: Cluster) -> list[dict[str, Any]]:
    done = CliRunner().invoke(app, ["cluster", "status", "-b", cluster.bootstrap_servers, "--json"])
    return [json.loads(line) for line in done.stdout.splitlines()]


def metric(cluster: Cluster, broker: int, name: str) -> int:
    return int(getattr(cluster.broker(broker).partitions.losses, name))


@pytest.mark.spec("R5")
@pytest.mark.parametrize(
    ("count", "order"),
    [(count, order) for count in (2, 3) for order in permutations(range(count), count - 1)],
    ids=lambda value: "+".join(map(str, value)) if isinstance(value, tuple) else f"of {value}",
)
def test_what_all_have_acknowledged_survives_all_replicas_but_one(count: int, order: tuple[int, ...]) -> None:
    """Whichever die, with their disks, in whichever order, with records acknowledged in between."""
    with Cluster(count) as cluster:
        cluster.create_topic("orders")
        sent = ["before"]
        produce(cluster, "orders", *sent)
        for broker in order:
            former = cluster.wait_for_leader("orders")
            cluster.kill(broker)
            cluster.wait_for_leader("orders", other_than=former if former == broker else None)
            sent.append(f"without {broker}")
            produce(cluster, "orders", sent[-1])
        expected = [each.encode() for each in sent]
        (last,) = cluster.running
        assert values(cluster, "orders", last) == expected
        for broker in order:
            cluster.restart(broker, empty_disk=True)
        cluster.wait_until_in_sync("orders")
        assert [values(cluster, "orders", broker) for broker in range(count)] == [expected] * count
        assert losses(cluster) == []


@pytest.mark.spec("R3")
def test_nobody_leads_who_was_not_in_sync() -> None:
    with Cluster(2) as cluster:
        cluster.create_topic("orders")
        produce(cluster, "orders", "one")
        leader = cluster.wait_for_leader("orders")
        stale = 1 - leader
        cluster.kill(stale)
        produce(cluster, "orders", "two")
        cluster.kill(leader)
        cluster.restart(stale)
        wait_until(lambda: cluster.controller == stale, "an election of the controller")
        assert cluster.leader("orders") is None
        assert cluster.in_sync("orders") == (leader,)
        cluster.restart(leader)
        cluster.wait_until_in_sync("orders")
        assert cluster.leader("orders") == leader
        assert [values(cluster, "orders", broker) for broker in (0, 1)] == [[b"one", b"two"]] * 2
        assert losses(cluster) == []


@pytest.mark.spec("R3")
def test_a_replica_that_has_diverged_is_truncated_and_that_is_no_loss() -> None:
    with Cluster(3) as cluster:
        cluster.create_topic("orders")
        produce(cluster, "orders", "one")
        former = cluster.wait_for_leader("orders")

        async def append_and_die() -> None:
            partition = cluster.broker(former).partitions.get("orders", 0)
            assert partition is not None
            assert partition.leader is not None
            batch = bytearray(encode_batch([Record(0, 1, None, b"nobody else has this")]))
            partition.log.append(memoryview(batch), None, leader_epoch=partition.leader_epoch, now_ms=1, origin=CLIENT)
            await cluster._kill(former)

        cluster._running.run(append_and_die())
        cluster.wait_for_leader("orders", other_than=former)
        produce(cluster, "orders", "two")
        cluster.restart(former)
        cluster.wait_until_in_sync("orders")
        assert [values(cluster, "orders", broker) for broker in range(3)] == [[b"one", b"two"]] * 3
        (report,) = cluster.broker(former).partitions.losses.of("orders", 0)
        assert (report.is_election, report.start, report.end, report.was_committed) == (False, 1, 2, False)
        assert metric(cluster, former, "removed_records") == 1
        assert metric(cluster, former, "lost_records") == 0
        assert losses(cluster) == [], "nobody was told that it was written"


@pytest.mark.spec("R2", "R5")
def test_the_loss_of_an_unclean_election_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    with Cluster(3, settings=UNCLEAN) as cluster:
        cluster.create_topic("orders")
        produce(cluster, "orders", "one")
        former = cluster.wait_for_leader("orders")
        stale, other = (broker for broker in range(3) if broker != former)
        for broker in (stale, other):
            cluster.kill(broker)
        produce(cluster, "orders", "two", "three")
        cluster.kill(former)
        cluster.restart(stale)
        assert cluster.wait_for_leader("orders") == stale
        assert "no replica in sync" in caplog.text, "the controller's word"
        assert f"orders-0: this broker leads in epoch {epoch(cluster)} without having been in sync" in caplog.text
        (election,) = losses(cluster)
        assert (election.broker, election.report.is_election, election.report.start) == (stale, True, 1)
        produce(cluster, "orders", "four")
        cluster.restart(former)
        cluster.restart(other)
        cluster.wait_until_in_sync("orders")
        assert [values(cluster, "orders", broker) for broker in range(3)] == [[b"one", b"four"]] * 3
        assert "orders-0: removed the records from 1 to 2 (leader epochs" in caplog.text
        assert losses(cluster)[0] == election
        (removal,) = [each for each in losses(cluster) if not each.report.is_election]
        report = removal.report
        assert (removal.broker, report.start, report.end, report.leader) == (former, 1, 3, stale)
        assert metric(cluster, stale, "unclean_leaderships") == 1
        assert metric(cluster, former, "removed_records") == 2

        rows = [row for row in status_rows(cluster) if row["kind"] == "lost_records"]
        assert [
            (row["broker"], row["is_unclean_election"], row["first_offset"], row["end_offset"]) for row in rows
        ] == [
            (stale, True, 1, None),
            (former, False, 1, 3),
        ]
        shown = CliRunner().invoke(app, ["cluster", "status", "-b", cluster.bootstrap_servers]).stdout
        assert "LOST RECORDS" in shown
        assert f"2 removed for leader {stale}" in shown

        cluster.kill(former)
        cluster.restart(former)
        cluster.wait_until_in_sync("orders")
        assert len(losses(cluster)) == 2, "the reports survive a restart"


def epoch(cluster: Cluster) -> int:
    controller = cluster.controller
    assert controller is not None
    return cluster.broker(controller).image.topics["orders"].partitions[0].leader_epoch


@pytest.mark.spec("R2")
def test_committed_records_that_a_leader_had_told_of_are_known_to_be_lost() -> None:
    """A follower that goes on running knows its leader's high watermark; one that stopped in order has its own."""
    with Cluster(2, settings=UNCLEAN) as cluster:
        cluster.create_topic("orders")
        produce(cluster, "orders", "one")
        former = cluster.wait_for_leader("orders")
        cluster.kill(1 - former)
        produce(cluster, "orders", "two", "three")
        cluster.shut_down(former)
        cluster.restart(1 - former)
        assert cluster.wait_for_leader("orders") == 1 - former
        cluster.restart(former)
        cluster.wait_until_in_sync("orders")
        assert metric(cluster, former, "lost_records") == 2
        (removal,) = [each.report for each in losses(cluster) if not each.report.is_election]
        assert (removal.start, removal.end, removal.committed_end) == (1, 3, 3)
