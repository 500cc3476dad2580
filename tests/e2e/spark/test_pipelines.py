"""The three pipelines: what they make of a topic, also when they are killed on the way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.dataset
import pyarrow.parquet
import pytest

from ottla.client.model import TopicPartition
from ottla.client.sync import Client
from ottla.records.record import Record
from ottla.spark.pipelines import archive, mirror, online
from ottla.spark.pipelines.config import PipelineConfigError
from support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from support.brokers import RunningBroker
    from support.ottla_server import OttlaServer

HOUR_MS = 3_600_000
FIELDS = "carrier STRING, delay INT, origin STRING"
KILLED = """
import sys
from pathlib import Path
import ottla.spark
from ottla.spark.pipelines import archive, online
from ottla.spark.pipelines.config import load_config
folder = Path(sys.argv[1])
spark = ottla.spark.session(folder=folder / "spark", log_file=folder / "killed.log")
online.start(spark, load_config(online.OnlineConfig, folder / "online.toml"))
archive.start(spark, load_config(archive.ArchiveConfig, folder / "archive.toml"))
spark.streams.awaitAnyTermination()
"""


def _event(number: int) -> Record:
    carrier, origin = ("UA", "B6", "DL")[number % 3], ("JFK", "EWR")[number % 2]
    value = {"carrier": carrier, "delay": number % 50 if number % 10 else None, "origin": origin}
    return Record(0, number * HOUR_MS // 20, carrier.encode(), json.dumps(value).encode())


def _partitions(count: int, partitions: int = 2) -> list[list[Record]]:
    return [[_event(number) for number in range(start, count, partitions)] for start in range(partitions)]


def _expected(count: int) -> dict[tuple[int, str], tuple[int, int, float]]:
    found: dict[tuple[int, str], tuple[int, int, float]] = {}
    for number in range(count):
        told = json.loads(_event(number).value or b"")
        place = (number // 20, told["carrier"])
        events, measured, total = found.get(place, (0, 0, 0.0))
        found[place] = (events + 1, measured + (told["delay"] is not None), total + (told["delay"] or 0))
    return found


def _online(path: Path) -> dict[tuple[int, str], tuple[int, int, float]]:
    rows = pyarrow.parquet.read_table(path).to_pylist()
    return {
        (round(row["bucket"].timestamp()) // 3_600, row["key"]): (row["events"], row["measured"], row["total"] or 0.0)
        for row in rows
    }


def _check_archive(path: Path, count: int) -> None:
    table = pyarrow.dataset.dataset(path, format="parquet", partitioning="hive").to_table()
    origins = Counter(zip(table["record_partition"].to_pylist(), table["record_offset"].to_pylist(), strict=True))
    assert origins == Counter((number % 2, number // 2) for number in range(count)), "each record, once"
    assert table.num_rows == count
    assert sum(each or 0 for each in table["delay"].to_pylist()) == sum(
        json.loads(_event(number).value or b"")["delay"] or 0 for number in range(count)
    )


def _common(broker: RunningBroker, topic: str, folder: Path, name: str) -> dict[str, object]:
    return {
        "bootstrap_servers": broker.bootstrap,
        "topic": topic,
        "group_id": f"{topic}-{name}",
        "checkpoint": str(folder / "checkpoints" / name),
        "once": True,
    }


@pytest.mark.spec("D3")
def test_online_and_archive_of_the_same_stream(
    spark: SparkSession, shared_ottla_server: OttlaServer, unique: str, tmp_path: Path, fill
) -> None:
    broker, count = shared_ottla_server, 2_000
    fill(broker, unique, _partitions(count))
    totals = online.OnlineConfig(
        **_common(broker, unique, tmp_path, "online"),
        output=str(tmp_path / "online.parquet"),
        by="carrier",
        measure="delay",
    )
    updates: list[int] = []
    online.start(spark, totals, lambda totals, batch_id: updates.append(batch_id)).awaitTermination()
    assert _online(tmp_path / "online.parquet") == _expected(count)
    assert updates

    folders = archive.ArchiveConfig(
        **_common(broker, unique, tmp_path, "archive"),
        output=str(tmp_path / "archive"),
        fields=FIELDS,
        partition_by=("origin",),
        date_column="day",
        timezone="America/New_York",
    )
    archive.start(spark, folders).awaitTermination()
    _check_archive(tmp_path / "archive", count)
    made = {path.parent.relative_to(tmp_path / "archive").as_posix() for path in tmp_path.rglob("part-*.parquet")}
    assert "day=1969-12-31/origin=JFK" in made, "local days"
    assert made == {f"day={day}/origin={origin}" for day in {each[4:14] for each in made} for origin in ("EWR", "JFK")}


def test_an_event_that_cannot_be_parsed_is_kept_as_text(
    spark: SparkSession, shared_ottla_server: OttlaServer, unique: str, tmp_path: Path, fill
) -> None:
    records = [_event(1), Record(0, 5, b"k", b"not json"), Record(0, 6, None, None)]
    fill(shared_ottla_server, unique, [records])
    config = archive.ArchiveConfig(
        **_common(shared_ottla_server, unique, tmp_path, "archive"), output=str(tmp_path / "archive"), fields=FIELDS
    )
    archive.start(spark, config).awaitTermination()
    rows = pyarrow.dataset.dataset(tmp_path / "archive", format="parquet", partitioning="hive").to_table().to_pylist()
    rows.sort(key=lambda row: row["record_offset"])
    assert [row["_unreadable"] for row in rows] == [None, "not json", None]
    assert [row["carrier"] for row in rows] == ["B6", None, None]
    assert [row["record_key"] for row in rows] == ["B6", "k", None]


def test_settings_that_do_not_fit_are_refused(
    spark: SparkSession, shared_ottla_server: OttlaServer, unique: str, tmp_path: Path, fill
) -> None:
    fill(shared_ottla_server, unique, [[]])
    common = _common(shared_ottla_server, unique, tmp_path, "archive")
    for fields, by, complaint in (("date STRING", (), "the archive's own"), ("a INT", ("b",), "partition_by names b")):
        config = archive.ArchiveConfig(**common, output=str(tmp_path / "x"), fields=fields, partition_by=by)
        with pytest.raises(PipelineConfigError, match=complaint):
            archive.start(spark, config)


@pytest.mark.spec("D3")
def test_killed_pipelines_go_on_without_loss_or_duplicate(
    spark: SparkSession, shared_ottla_server: OttlaServer, unique: str, tmp_path: Path, fill
) -> None:
    broker, count = shared_ottla_server, 6_000
    fill(broker, unique, _partitions(count))
    common = {"max_offsets_per_trigger": 300, "trigger_seconds": 0.0, "once": False}
    settings = {
        "online": {
            "output": str(tmp_path / "online.parquet"),
            "by": "carrier",
            "measure": "delay",
            "watermark": "100 days",
        },
        "archive": {"output": str(tmp_path / "archive"), "fields": FIELDS, "partition_by": ["origin"]},
    }
    for name, own in settings.items():
        lines = [
            f"{key} = {json.dumps(value)}"
            for key, value in (_common(broker, unique, tmp_path, name) | common | own).items()
        ]
        (tmp_path / f"{name}.toml").write_text("\n".join(lines))
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path)], start_new_session=True)
    try:
        commits = [tmp_path / "checkpoints" / name / "commits" for name in settings]
        wait_until(
            lambda: process.poll() is not None or all((each / "2").exists() for each in commits),
            "three batches of each",
            timeout_s=120,
        )
        assert process.poll() is None, (tmp_path / "killed.log").read_text()[-2_000:]
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    finished = [len(list(folder.iterdir())) for folder in commits]
    assert max(finished) < 2 * count / 300, "killed on the way"

    for name, own in settings.items():
        values = _common(broker, unique, tmp_path, name) | own
        if name == "online":
            online.start(spark, online.OnlineConfig(**values)).awaitTermination()
        else:
            archive.start(spark, archive.ArchiveConfig(**values | {"partition_by": ("origin",)})).awaitTermination()
    _check_archive(tmp_path / "archive", count)
    assert _online(tmp_path / "online.parquet") == _expected(count)
    partitions = [TopicPartition(unique, number) for number in range(2)]
    with Client(broker.bootstrap) as client:
        assert set(client.committed(f"{unique}-archive", partitions).values()) == {count // 2}


@pytest.mark.spec("D3")
@pytest.mark.needs_kafka
def test_a_mirror_equals_its_source_record_by_record(
    spark: SparkSession,
    shared_ottla_server: OttlaServer,
    apache_kafka: RunningBroker,
    unique: str,
    tmp_path: Path,
    fill,
    read,
) -> None:
    now = round(time.time() * 1_000)
    records = [
        [
            Record(
                0, now + n, b"k%d" % n if n % 3 else None, b"v%d" % n if n % 5 else None, (("h", b"%d" % n),) * (n % 3)
            )
            for n in range(700)
        ],
        [Record(0, now - n, b"x", b"y" * n) for n in range(300)],
        [],
    ]
    fill(shared_ottla_server, unique, records)
    config = mirror.MirrorConfig(
        **_common(shared_ottla_server, unique, tmp_path, "mirror"),
        target_bootstrap_servers=apache_kafka.bootstrap,
        max_offsets_per_trigger=400,
    )
    mirror.start(spark, config).awaitTermination()
    mirrored = read(apache_kafka, unique)
    assert [len(each) for each in mirrored] == [700, 300, 0]
    assert mirrored == read(shared_ottla_server, unique)


def test_a_mirror_needs_as_many_partitions(
    spark: SparkSession, shared_ottla_server: OttlaServer, unique: str, tmp_path: Path, fill
) -> None:
    fill(shared_ottla_server, unique, [[], [], []])
    fill(shared_ottla_server, f"{unique}-small", [[]])
    config = mirror.MirrorConfig(
        **_common(shared_ottla_server, unique, tmp_path, "mirror"),
        target_bootstrap_servers=shared_ottla_server.bootstrap,
        target_topic=f"{unique}-small",
    )
    with pytest.raises(PipelineConfigError, match=r"has 1 partitions, .* has 3; add partitions"):
        mirror.start(spark, config)


@pytest.mark.long
@pytest.mark.spec("D3")
def test_a_pipeline_is_one_command_and_one_small_file(
    shared_ottla_server: OttlaServer, unique: str, tmp_path: Path, fill
) -> None:
    fill(shared_ottla_server, unique, _partitions(100))
    settings = _common(shared_ottla_server, unique, tmp_path, "archive") | {"output": "archive", "fields": FIELDS}
    (tmp_path / "archive.toml").write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in settings.items()))
    command = [sys.executable, "-m", "ottla", "pipeline", "archive", "archive.toml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    assert "batch 0: 100 records" in done.stdout
    _check_archive(tmp_path / "archive", 100)
