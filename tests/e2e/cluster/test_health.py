"""`ottla cluster health` beside brokers as processes: one is stopped, a disk goes and comes back, a deletion waits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from ottla.cli.main import app
from ottla.client.admin.model import NewTopic
from ottla.client.sync import Admin
from support.ottla_server import OttlaServer
from support.ottla_zookeeper import OttlaZooKeeper
from support.ports import free_port
from support.waiting import wait_until

pytestmark = [pytest.mark.spec("R1"), pytest.mark.slow, pytest.mark.timeout(300)]

TIMEOUT_S = 90.0
IDS = (1, 2, 3)


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[dict[int, OttlaServer]]:
    zookeeper = OttlaZooKeeper(tmp_path / "zookeeper").start()
    made = {
        broker: OttlaServer(
            tmp_path / f"process-{broker}",
            data=Path(f"{tmp_path}/one-{broker},{tmp_path}/two-{broker}"),
            overrides={
                "broker.rack": f"rack{broker}",
                "ottla.metrics.port": str(free_port()),
                "replica.high.watermark.checkpoint.interval.ms": "500",
                "offsets.topic.replication.factor": "3",
            },
            arguments=["--id", str(broker), "--zookeeper", zookeeper.connect],
        )
        for broker in IDS
    }
    try:
        for each in made.values():
            each.start()
        yield made
    finally:
        for each in made.values():
            if each._server is not None and each.server.running:
                each.kill9()
        zookeeper.stop()


def bootstrap(brokers: dict[int, OttlaServer]) -> str:
    return ",".join(each.bootstrap for each in brokers.values())


def health(brokers: dict[int, OttlaServer], *arguments: str) -> Result:
    command = ["cluster", "health", "-b", bootstrap(brokers), "--interval", "0.2", *arguments]
    return CliRunner().invoke(app, command)


def findings(brokers: dict[int, OttlaServer]) -> dict[str, dict[str, Any]]:
    rows = map(json.loads, health(brokers, "--json").stdout.splitlines())
    return {each["finding"]: each for each in rows if each["kind"] == "finding"}


def has(brokers: dict[int, OttlaServer], *kinds: str) -> bool:
    return set(kinds) <= set(findings(brokers))


def create(brokers: dict[int, OttlaServer], *topics: str) -> None:
    wanted = [
        NewTopic(name, 6, 3, configs={"min.insync.replicas": "2", "unclean.leader.election.enable": "false"})
        for name in topics
    ]
    with Admin(bootstrap_servers=bootstrap(brokers)) as admin:
        wait_until(lambda: len(admin.describe_cluster().nodes) == len(IDS), "all brokers", TIMEOUT_S)
        admin.create_topics(wanted)


def is_well(brokers: dict[int, OttlaServer]) -> bool:
    """Whether it is healthy, once leaders are where they should be."""
    if set(findings(brokers)) == {"leaders-not-preferred"}:
        with Admin(bootstrap_servers=bootstrap(brokers)) as admin:
            admin.elect_leaders()
    return health(brokers).exit_code == 0


def test_a_disk_fails_and_a_broker_stops(brokers: dict[int, OttlaServer], tmp_path: Path) -> None:
    create(brokers, "orders", "old")
    wait_until(lambda: is_well(brokers), "a healthy cluster", TIMEOUT_S)

    lost = tmp_path / "two-3"
    lost.rename(tmp_path / "unplugged")
    wait_until(lambda: has(brokers, "failed-log-directory", "at-min-isr"), "the disk's failure", TIMEOUT_S)
    found = findings(brokers)["failed-log-directory"]
    assert (found["level"], found["brokers"]) == ("critical", [3])
    assert str(lost) in found["what"]
    assert health(brokers).exit_code == 2

    brokers[2].stop()
    wait_until(lambda: has(brokers, "absent-broker", "under-min-isr"), "the broker to be missed", TIMEOUT_S)
    assert findings(brokers)["absent-broker"]["brokers"] == [2]
    with Admin(bootstrap_servers=bootstrap(brokers)) as admin:
        admin.delete_topics(["old"])
    wait_until(lambda: has(brokers, "stuck-deletion"), "the deletion to wait", TIMEOUT_S)
    shown = health(brokers).stdout
    assert "the deletion of 1 topic waits for broker 2" in shown
    assert "Start broker 2 again" in shown

    brokers[3].stop()
    (tmp_path / "unplugged").rename(lost)
    for broker in (2, 3):
        brokers[broker].restart()
    wait_until(lambda: is_well(brokers) and findings(brokers) == {}, "all to be well again", TIMEOUT_S)
