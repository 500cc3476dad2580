"""A mirror whose driver is killed -9, with its tasks, between produce and checkpoint and in the middle of a batch."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.client.model import LATEST, TopicPartition
from ottla.client.sync import Client, Producer
from ottla.spark.pipelines.mirroring.start import start_mirror
from ottla.spark.pipelines.settings.model import MirrorSettings, PipelineKind, PipelineSettings, TriggerSettings
from support.filled_topics import ANY_TIME, read_topic
from support.mirrors import read_counts
from support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from support.ottla_server import OttlaServer

KILLED = """
import json, os, signal, sys
from pathlib import Path
import ottla.spark
from ottla.spark.pipelines import crash_points
from ottla.spark.pipelines.mirroring.start import start_mirror
from ottla.spark.pipelines.settings.model import *
folder, nth = Path(sys.argv[1]), int(sys.argv[2])
reached = 0
def kill_at_nth(point):
    global reached
    reached += point == crash_points.MIRROR_PRODUCED
    if reached == nth:
        os.killpg(0, signal.SIGKILL)
crash_points.on_reached = kill_at_nth
spark = ottla.spark.session(folder=folder / f"spark-{nth}", log_file=folder / "killed.log")
given = json.loads((folder / "settings.json").read_text())
settings = PipelineSettings(
    name=given["name"], kind=PipelineKind.mirror, checkpoint=given["checkpoint"],
    trigger=TriggerSettings(available_now=True), mirror=MirrorSettings(**given["mirror"]),
)
start_mirror(spark, settings).awaitTermination()
"""
COUNT = 120_000
PARTITIONS = 2
TIMEOUT_S = 240.0


@pytest.mark.long
@pytest.mark.spec("R6", "D3")
def test_a_killed_mirror_loses_nothing_keeps_the_order_and_counts_what_it_sent_again(
    spark: SparkSession, shared_ottla_server: OttlaServer, ottla_server: OttlaServer, unique: str, tmp_path: Path
) -> None:
    source, target, remote = shared_ottla_server, ottla_server, f"west.{unique}"
    with Client(source.bootstrap) as client, Producer(bootstrap_servers=source.bootstrap) as producer:
        client.create_topic(unique, PARTITIONS, config=ANY_TIME)
        for partition in range(PARTITIONS):
            for number in range(COUNT):
                producer.send(unique, b"%d" % number, b"key", partition, round(time.time() * 1_000))
    mirror = MirrorSettings(
        source_alias="west",
        target_alias="east",
        source_bootstrap_servers=source.bootstrap,
        target_bootstrap_servers=target.bootstrap,
        topics=unique,
        group_id=f"{unique}-mirror",
        max_offsets_per_trigger=COUNT,
    )
    settings = PipelineSettings(
        name=unique,
        kind=PipelineKind.mirror,
        checkpoint=str(tmp_path / "checkpoint"),
        trigger=TriggerSettings(available_now=True),
        mirror=mirror,
    )
    described = {"name": unique, "checkpoint": settings.checkpoint, "mirror": asdict(mirror)}
    (tmp_path / "settings.json").write_text(json.dumps(described))
    partitions = [TopicPartition(remote, number) for number in range(PARTITIONS)]

    def sent() -> int:
        with Client(target.bootstrap) as client:
            there = remote in client.topics()
            return sum(client.offsets_at(partitions, LATEST).values()) if there else 0

    for nth in (1, 2):
        _killed(tmp_path, nth, None)
    before = sent()
    assert 0 <= 2 * COUNT - before < 10, "the first batch, twice; its limit is shared with heartbeats"
    _killed(tmp_path, 1_000, lambda: sent() > before + COUNT // 10)
    start_mirror(spark, settings).awaitTermination()
    figures = read_counts(mirror)
    expected = [b"%d" % number for number in range(COUNT)]
    for number, records in enumerate(read_topic(target, remote)):
        found = [each.value for each in records]
        assert list(dict.fromkeys(found)) == expected, "first appearances, in order"
        assert figures[TopicPartition(unique, number)].repeated == len(found) - COUNT > 0


def _killed(folder: Path, nth: int, when: Callable[[], bool] | None) -> None:
    """Run the mirror until it kills itself, or until `when` holds."""
    command = [sys.executable, "-c", KILLED, str(folder), str(nth)]
    process = subprocess.Popen(command, start_new_session=True)
    try:
        wait_until(lambda: process.poll() is not None or (when is not None and when()), "a kill", timeout_s=TIMEOUT_S)
        assert (process.poll() is None) == (when is not None), (folder / "killed.log").read_text()[-2_000:]
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert process.returncode == -signal.SIGKILL
