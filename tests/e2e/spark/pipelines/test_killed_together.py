"""Online and archive of one stream in one process, killed on the way: the end is as if it had not been."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import deltalake
import pytest

from ottla.client.model import TopicPartition
from ottla.client.sync import Client
from ottla.records.record import Record
from ottla.spark.pipelines.queries.start import start_pipeline
from ottla.spark.pipelines.settings.file import load_pipeline
from support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from support.ottla_server import OttlaServer

HOUR_MS = 3_600_000
EVENTS = 4_800
PER_BATCH = 400
NAMES = ("online", "archive")
KILLED = """
import sys
from pathlib import Path
import ottla.spark
from ottla.spark.pipelines.queries.start import start_pipeline
from ottla.spark.pipelines.settings.file import load_pipeline
folder = Path(sys.argv[1])
spark = ottla.spark.session(folder=folder / "spark", log_file=folder / "killed.log")
for name in ("online", "archive"):
    start_pipeline(spark, load_pipeline(folder / f"{name}.toml", {}))
spark.streams.awaitAnyTermination()
"""
SOURCE = """
name = "{name}"
kind = "{name}"
checkpoint = "checkpoints/{name}"
[trigger]
{trigger}
[source]
bootstrap_servers = "{brokers}"
topics = ["{topic}"]
group_id = "{topic}-{name}"
max_offsets_per_trigger = {most}
value_format = "json"
schema = "carrier STRING, delay INT, origin STRING"
watermark_column = "timestamp"
watermark_delay = "100 days"
"""
REST = {
    "online": """
[[steps]]
sql = \"\"\"
SELECT unix_seconds(window.start) DIV 3600 AS hour, carrier, count(*) AS events, sum(delay) AS total
FROM source GROUP BY window(timestamp, '1 hour'), carrier
\"\"\"
[sink]
kind = "database"
url = "sqlite:online.sqlite"
table = "totals"
key_columns = ["hour", "carrier"]
""",
    "archive": """
[[steps]]
sql = "SELECT carrier, delay, origin, partition AS record_partition, offset AS record_offset FROM source"
[sink]
kind = "delta"
path = "archive"
partition_by = ["origin"]
""",
}


def _event(number: int) -> Record:
    value = {"carrier": ("UA", "B6", "DL")[number % 3], "delay": number % 50, "origin": ("JFK", "EWR")[number % 2]}
    return Record(0, number * HOUR_MS // 20, b"k", json.dumps(value).encode())


def _totals() -> set[tuple[int, str, int, int]]:
    events: Counter[tuple[int, str]] = Counter()
    delays: Counter[tuple[int, str]] = Counter()
    for number in range(EVENTS):
        told = json.loads(_event(number).value or b"")
        events[number // 20, told["carrier"]] += 1
        delays[number // 20, told["carrier"]] += told["delay"]
    return {(*place, count, delays[place]) for place, count in events.items()}


def _write(folder: Path, broker: OttlaServer, topic: str, trigger: str) -> None:
    for name in NAMES:
        text = SOURCE.format(name=name, trigger=trigger, brokers=broker.bootstrap, topic=topic, most=PER_BATCH)
        (folder / f"{name}.toml").write_text(text + REST[name])


@pytest.mark.slow
@pytest.mark.needs_java
@pytest.mark.spec("D3")
def test_killed_pipelines_go_on_without_loss_or_duplicate(
    spark: SparkSession, shared_ottla_server: OttlaServer, unique: str, tmp_path: Path, fill
) -> None:
    broker = shared_ottla_server
    fill(broker, unique, [[_event(number) for number in range(start, EVENTS, 2)] for start in range(2)])
    _write(tmp_path, broker, unique, 'interval = "1 millisecond"')
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path)], start_new_session=True)
    commits = [tmp_path / "checkpoints" / name / "commits" for name in NAMES]
    try:
        wait_until(
            lambda: process.poll() is not None or all((each / "2").exists() for each in commits),
            "three batches of each",
            timeout_s=240,
        )
        assert process.poll() is None, (tmp_path / "killed.log").read_text()[-2_000:]
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    finished = [len([each for each in folder.iterdir() if each.name.isdigit()]) for folder in commits]
    assert min(finished) < EVENTS / PER_BATCH, "killed on the way"

    _write(tmp_path, broker, unique, "available_now = true")
    for name in NAMES:
        start_pipeline(spark, load_pipeline(tmp_path / f"{name}.toml", {})).awaitTermination()
    with closing(sqlite3.connect(tmp_path / "online.sqlite")) as database:
        rows = database.execute("SELECT hour, carrier, events, total FROM totals").fetchall()
    assert len(rows) == len(set(rows))
    assert set(rows) == _totals()
    table = deltalake.DeltaTable(tmp_path / "archive").to_pyarrow_table()
    origins = Counter(zip(table["record_partition"].to_pylist(), table["record_offset"].to_pylist(), strict=True))
    assert origins == Counter((number % 2, number // 2) for number in range(EVENTS)), "each record, once"
    partitions = [TopicPartition(unique, number) for number in range(2)]
    with Client(broker.bootstrap) as client:
        for name in NAMES:
            assert set(client.committed(f"{unique}-{name}", partitions).values()) == {EVENTS // 2}
