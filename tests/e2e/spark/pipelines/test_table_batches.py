"""Batches into tables: each row once, whatever dies between its steps, and only from the table's own checkpoint."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.dataset
import pytest

from ottla.records.record import Record
from ottla.spark.pipelines import crash_points
from ottla.spark.pipelines.errors import (
    CheckpointMismatchError,
    PipelineSettingsError,
    SupersededError,
)
from ottla.spark.pipelines.settings.model import PipelineKind, PipelineSettings, TableSinkSettings
from ottla.spark.pipelines.tables.opening import open_table
from support.filled_topics import fill_topic
from support.pipeline_settings import forget_last_batch, json_record, pipeline, run, source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from support.ottla_server import OttlaServer

BASE = 1_700_000_040_000
COUNT = 40
BAD_EVERY = 8
#: What pyarrow does not compute, so that rows go through Spark.
BY_SPARK = "reverse(reverse(day))"


@pytest.fixture
def dies_at(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Points that pass before the batch dies at the last of them."""
    wanted: list[str] = []

    def reached(point: str) -> None:
        if wanted and wanted[0] == point:
            wanted.pop(0)
            if not wanted:
                raise RuntimeError(f"died: {point}")

    monkeypatch.setattr(crash_points, "on_reached", reached)
    yield wanted
    assert not wanted, "a point that was never reached"


def _fill(server: OttlaServer, topic: str, first: int, count: int, *, create: bool = True) -> None:
    parts: list[list[Record]] = [[], []]
    for number in range(first, first + count):
        bad = number % BAD_EVERY == 0
        record = Record(0, BASE, b"k", b"{broken") if bad else json_record(BASE, id=number, day=f"d{number % 3}")
        parts[number % 2].append(record)
    fill_topic(server, topic, parts, create=create)


def _settings(
    server: OttlaServer, topic: str, folder: Path, *, format: str = "parquet", sql: str = ""
) -> PipelineSettings:
    return pipeline(
        folder,
        source(server, topic, "id BIGINT, day STRING", max_offsets_per_trigger=12),
        TableSinkSettings(format=format, path=str(folder / "table"), partition_by=("day",)),
        sql or "SELECT id, day, partition, offset FROM events",
        kind=PipelineKind.archive,
        dead_letters=TableSinkSettings(format=format, path=str(folder / "letters")),
    )


def _rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a table, as a reader of its format sees them."""
    if (path / "_delta_log").is_dir():
        import deltalake

        return deltalake.DeltaTable(str(path)).to_pyarrow_table().to_pylist()
    return pyarrow.dataset.dataset(path, format="parquet", partitioning="hive").to_table().to_pylist()


def _check(folder: Path, count: int) -> None:
    good = [number for number in range(count) if number % BAD_EVERY]
    rows = _rows(folder / "table")
    assert Counter(row["id"] for row in rows) == Counter(good)
    assert all((row["day"], row["partition"]) == (f"d{row['id'] % 3}", row["id"] % 2) for row in rows)
    letters = _rows(folder / "letters")
    bad = [(number % 2, number // 2) for number in range(count) if not number % BAD_EVERY]
    assert Counter((row["partition"], row["offset"]) for row in letters) == Counter(bad)
    assert {(row["value"], row["key"], row["source"]) for row in letters} == {(b"{broken", b"k", "events")}


@pytest.mark.spec("D3")
@pytest.mark.parametrize(
    ("format", "sql"),
    [
        pytest.param("parquet", "", id="parquet-ranges"),
        pytest.param("delta", f"SELECT id, {BY_SPARK} AS day, partition, offset FROM events", id="delta-rows"),
        pytest.param("delta", "", id="delta-ranges", marks=pytest.mark.long),
        pytest.param(
            "parquet",
            f"SELECT id, {BY_SPARK} AS day, partition, offset FROM events",
            id="parquet-rows",
            marks=pytest.mark.long,
        ),
    ],
)
def test_each_row_and_each_dead_letter_is_there_once_after_deaths_at_every_point(
    spark: SparkSession,
    shared_ottla_server: OttlaServer,
    unique: str,
    tmp_path: Path,
    dies_at: list[str],
    format: str,
    sql: str,
) -> None:
    _fill(shared_ottla_server, unique, 0, COUNT)
    settings = _settings(shared_ottla_server, unique, tmp_path, format=format, sql=sql)
    written, committed = crash_points.FILES_WRITTEN, crash_points.TABLE_COMMITTED
    # Rows are written, then letters written and committed, then rows committed. Letters that are there are not again.
    for deadly in ([written], [committed], [written, written], [committed]):
        dies_at += deadly
        with pytest.raises(Exception, match=f"died: {deadly[-1]}"):
            run(spark, settings)
    run(spark, settings)
    _check(tmp_path, COUNT)
    forget_last_batch(settings)
    run(spark, settings)
    _check(tmp_path, COUNT)
    assert settings.sink is not None
    last = open_table(settings.sink, "p").last_commit()
    assert last is not None
    assert (last.batch_id, last.end_offsets) == (3, {"events": {unique: {0: COUNT // 2, 1: COUNT // 2}}})


@pytest.mark.spec("D3")
def test_a_lost_checkpoint_is_refused_with_both_ways_on(
    spark: SparkSession, shared_ottla_server: OttlaServer, unique: str, tmp_path: Path
) -> None:
    _fill(shared_ottla_server, unique, 0, COUNT)
    settings = _settings(shared_ottla_server, unique, tmp_path)
    run(spark, settings)
    shutil.rmtree(settings.checkpoint)
    _fill(shared_ottla_server, unique, COUNT, 10, create=False)
    with pytest.raises(CheckpointMismatchError, match=r"is new or was lost: .*--continue-from-table.*another table$"):
        run(spark, settings)
    run(spark, settings, continue_from_table=True)
    _check(tmp_path, COUNT + 10)
    _fill(shared_ottla_server, unique, COUNT + 10, 10, create=False)
    run(spark, settings)
    _check(tmp_path, COUNT + 20)

    other = tmp_path / "other"
    other.mkdir()
    moved = _settings(shared_ottla_server, unique, other)
    run(spark, moved)
    _check(other, COUNT + 20)
    strange = replace(settings, checkpoint=moved.checkpoint)
    with pytest.raises(CheckpointMismatchError, match=r"is of another query: .* and a new checkpoint, or"):
        run(spark, strange, continue_from_table=True)


def test_a_checkpoint_that_was_put_back_is_refused(
    spark: SparkSession, shared_ottla_server: OttlaServer, unique: str, tmp_path: Path
) -> None:
    _fill(shared_ottla_server, unique, 0, 12)
    settings = replace(_settings(shared_ottla_server, unique, tmp_path), dead_letters=None)
    run(spark, settings)
    shutil.copytree(settings.checkpoint, tmp_path / "copy")
    _fill(shared_ottla_server, unique, 12, 12, create=False)
    run(spark, settings)
    shutil.rmtree(settings.checkpoint)
    shutil.copytree(tmp_path / "copy", settings.checkpoint)
    with pytest.raises(CheckpointMismatchError, match="is older than that, or not the one that wrote it"):
        run(spark, settings)


def test_a_query_with_state_does_not_go_on_without_it(
    spark: SparkSession, shared_ottla_server: OttlaServer, unique: str, tmp_path: Path
) -> None:
    _fill(shared_ottla_server, unique, 1, 3)
    timed = source(shared_ottla_server, unique, "id BIGINT", watermark_column="timestamp", watermark_delay="1 minute")
    settings = pipeline(
        tmp_path,
        timed,
        TableSinkSettings(format="parquet", path=str(tmp_path / "table")),
        "SELECT window.start AS minute, count(*) AS n FROM events GROUP BY window(timestamp, '1 minute')",
    )
    run(spark, settings)
    shutil.rmtree(settings.checkpoint)
    with pytest.raises(PipelineSettingsError, match=r"^step result keeps state .* choose another table$"):
        run(spark, settings, continue_from_table=True)


def test_a_driver_that_was_overtaken_ends_with_its_sentence(
    spark: SparkSession, shared_ottla_server: OttlaServer, unique: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fill(shared_ottla_server, unique, 0, 24)
    settings = replace(_settings(shared_ottla_server, unique, tmp_path), dead_letters=None)

    def overtaken(*_: object) -> bool:
        raise SupersededError("batch 7 is there already; another driver runs this pipeline")

    monkeypatch.setattr("ottla.spark.pipelines.tables.parquet.ParquetBatchTable.commit", overtaken)
    with pytest.raises(SupersededError, match=r"^batch 7 is there already; another driver runs this pipeline$"):
        run(spark, settings)
    assert _rows(tmp_path / "table") == []
