"""The mirror from and to Apache Kafka, its checkpoints read by Kafka's own RemoteClusterUtils."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.client.model import OffsetAndMetadata, TopicPartition
from ottla.client.sync import Admin
from ottla.records.record import Record
from ottla.spark.pipelines.mirroring.start import start_mirror
from ottla.spark.pipelines.settings.model import MirrorSettings, PipelineKind, PipelineSettings, TriggerSettings
from support.filled_topics import fill_topic, read_topic
from support.java import java_tool

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from support.brokers import RunningBroker

PROGRAM = Path(__file__).with_name("RemoteOffsets.java")


@pytest.mark.spec("R6")
@pytest.mark.parametrize("source_name", ["shared_ottla_server", "apache_kafka"])
def test_offsets_translated_to_the_other_cluster_are_found_by_kafka(
    spark: SparkSession, request: pytest.FixtureRequest, source_name: str, unique: str, tmp_path: Path
) -> None:
    target_name = {"shared_ottla_server": "apache_kafka", "apache_kafka": "shared_ottla_server"}[source_name]
    source: RunningBroker = request.getfixturevalue(source_name)
    target: RunningBroker = request.getfixturevalue(target_name)
    now, group, alias = round(time.time() * 1_000), f"{unique}-readers", source_name.replace("_", "-")
    records = [Record(0, now + n, b"k%d" % n, b"v%d" % n, (("h", b"%d" % n),)) for n in range(250)]
    fill_topic(source, unique, [records, records[:40], []], config={"cleanup.policy": "compact,delete"})
    with Admin(bootstrap_servers=source.bootstrap) as admin:
        committed = {0: OffsetAndMetadata(250, "at the end"), 1: OffsetAndMetadata(7), 2: OffsetAndMetadata(0)}
        admin.alter_group_offsets(group, {TopicPartition(unique, part): each for part, each in committed.items()})
    mirror = MirrorSettings(
        source_alias=alias,
        target_alias="other",
        source_bootstrap_servers=source.bootstrap,
        target_bootstrap_servers=target.bootstrap,
        topics=unique,
        groups=group,
        group_id=f"{unique}-mirror",
    )
    settings = PipelineSettings(
        name=unique,
        kind=PipelineKind.mirror,
        checkpoint=str(tmp_path / "checkpoint"),
        trigger=TriggerSettings(available_now=True),
        mirror=mirror,
    )
    start_mirror(spark, settings).awaitTermination()
    remote = f"{alias}.{unique}"
    assert read_topic(target, remote) == read_topic(source, unique), "offsets, too: nothing was sent again"
    printed = java_tool(str(PROGRAM), target.bootstrap, alias, group).stdout.splitlines()
    offsets = dict(
        line.removeprefix(f"offset {remote}-").split(" ", 1) for line in printed if line.startswith("offset ")
    )
    assert offsets["0"] == "250 at the end"
    assert offsets["1"] == "1 ", "behind the only sync before it"
    assert "2" not in offsets, "nothing was mirrored of it"
    assert f"topic {remote}" in printed
    assert {"upstream true", "hops 1", "checkpoints true"} <= {*printed}
