"""The mirror on a standalone Spark cluster, and as a client of Spark Connect."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.client.model import TopicPartition
from ottla.client.sync import Client
from ottla.records.record import Record
from ottla.spark.pipelines.mirroring.formats import GroupCheckpoint
from support.processes import run_tool
from support.spark_cluster import PROGRAM_TIMEOUT_S, spark_environment

if TYPE_CHECKING:
    from support.brokers import RunningBroker
    from support.ottla_server import OttlaServer
    from support.spark_cluster import SparkCluster

JOB = Path(__file__).parent / "jobs" / "mirror.py"


@pytest.mark.long
@pytest.mark.spec("R6")
@pytest.mark.parametrize("way", ["standalone", "connect"])
def test_a_mirror_runs_on_a_cluster(
    cluster: SparkCluster,
    shared_ottla_server: RunningBroker,
    ottla_server: OttlaServer,
    unique: str,
    tmp_path: Path,
    fill,
    read,
    way: str,
) -> None:
    records = [[Record(0, 1_000 + n, b"k%d" % (n % 7), b"p%d v%d" % (part, n)) for n in range(500)] for part in (0, 1)]
    fill(shared_ottla_server, unique, records)
    group, remote = f"{unique}-readers", f"west.{unique}"
    with Client(shared_ottla_server.bootstrap) as client:
        client.commit(group, {TopicPartition(unique, 1): 500})
    mirror = {
        "source_alias": "west",
        "target_alias": "east",
        "source_bootstrap_servers": shared_ottla_server.bootstrap,
        "target_bootstrap_servers": ottla_server.bootstrap,
        "topics": unique,
        "groups": group,
        "group_id": f"{unique}-mirror",
        "max_offsets_per_trigger": 300,
    }
    given = tmp_path / "settings.json"
    given.write_text(json.dumps({"checkpoint": str(tmp_path / "checkpoint"), "mirror": mirror}))
    if way == "standalone":
        done = cluster.submit(JOB, str(given))
    else:
        environment = spark_environment(tmp_path)
        with cluster.connect_server() as address:
            command = [environment["PYSPARK_PYTHON"], str(JOB), str(given), address]
            done = run_tool(command, env=environment, timeout_s=PROGRAM_TIMEOUT_S)
    assert "mirrored" in done.stdout
    assert read(ottla_server, remote) == read(shared_ottla_server, unique)
    written = [
        GroupCheckpoint.decode(each.key, each.value) for each in read(ottla_server, "west.checkpoints.internal")[0]
    ]
    newest = written[-1]
    assert (newest.partition, newest.upstream_offset, newest.downstream_offset) == (TopicPartition(remote, 1), 500, 500)
