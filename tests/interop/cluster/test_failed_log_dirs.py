"""A log directory of a broker is gone under load: Apache Kafka is the controller, or has the broker, or neither."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.acknowledged_load import AcknowledgedLoad
from support.cluster_load import verify_over_the_wire
from support.tapped_cluster import Maker, TappedCluster
from support.waiting import wait_until

pytestmark = [pytest.mark.needs_kafka, pytest.mark.long, pytest.mark.timeout(600), pytest.mark.spec("R1", "L8")]

TOPICS = "org.apache.kafka.tools.TopicCommand"
TOPIC = "spread"
PARTITIONS = 4
FAILING = 2
#: Small segments: a broker notices when it begins the next one.
SETTINGS = {"log.segment.bytes": "20000", "min.insync.replicas": "2"}
MIXES: dict[str, tuple[Maker, Maker, Maker]] = {
    "ottla with Apache's controller": ("apache", "ottla", "ottla"),
    "Apache with ottla's controller": ("ottla", "apache", "ottla"),
    "ottla": ("ottla", "ottla", "ottla"),
}


def partitions_in(directory: Path) -> set[int]:
    found = directory.glob(f"{TOPIC}-*")
    return {int(path.name.rpartition("-")[2]) for path in found if not path.name.endswith("-delete")}


def wait_for_members(cluster: TappedCluster, gone: set[int]) -> None:
    """Until the failing broker is in the ISRs of all partitions but these, and leads none of these."""

    def states() -> dict[int, dict[str, object]]:
        return {index: cluster.partition(TOPIC, index) or {} for index in range(PARTITIONS)}

    def is_so() -> bool:
        return all(
            (FAILING in state["isr"]) == (index not in gone)  # type: ignore[operator]
            and state["leader"] != (FAILING if index in gone else -1)
            for index, state in states().items()
        )

    wait_until(is_so, lambda: f"{gone} to leave broker {FAILING}: {states()}", 90)


@pytest.mark.parametrize("mix", MIXES)
@pytest.mark.parametrize("comes_back", [True, False], ids=["comes back", "empty"])
def test_a_directory_is_gone(tmp_path: Path, mix: str, comes_back: bool) -> None:
    with TappedCluster(tmp_path, MIXES[mix], SETTINGS, directories=2).prepared() as cluster:
        cluster.start_all()
        assert cluster.controller() == 1
        cluster.tool(
            TOPICS, "--create", "--topic", TOPIC, "--replica-assignment", ",".join(["2:1:3", "2:3:1", "1:2:3", "3:2:1"])
        )
        cluster.wait_for_isr(TOPIC)
        broker = cluster.brokers[FAILING]
        here, there = broker.log_dirs
        wait_until(lambda: len(partitions_in(here) | partitions_in(there)) == PARTITIONS, "all replicas to be made")
        gone = partitions_in(there)
        assert gone
        assert len(gone) < PARTITIONS
        with AcknowledgedLoad(cluster.bootstrap, TOPIC, PARTITIONS) as load:
            load.wait_for_more(200)
            away = there.rename(there.with_name("away"))
            there.write_text("a file is no directory")
            wait_for_members(cluster, gone)
            assert FAILING in cluster.registered()
            load.wait_for_more(200)
            listed = subprocess.run(
                [sys.executable, "-m", "ottla", "replica", "list", "-b", cluster.bootstrap, "--json"],
                capture_output=True,
                text=True,
                check=False,
            )
            rows = [row for line in listed.stdout.splitlines() if (row := json.loads(line))["kind"] == "log_dir"]
            assert listed.returncode == 1
            assert [(row["broker"], row["path"]) for row in rows if row["error"]] == [(FAILING, str(there))]
            broker.stop()
            cluster.wait_until_gone(FAILING)
            there.unlink()
            if comes_back:
                away.rename(there)
            else:
                shutil.rmtree(away)
            cluster.start(FAILING)
            cluster.wait_for_isr(TOPIC)
            load.wait_for_more(100)
        load.check()
        verify_over_the_wire(cluster, TOPIC)
        if comes_back:
            assert partitions_in(there) == gone
