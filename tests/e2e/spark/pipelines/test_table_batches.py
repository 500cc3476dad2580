"""Batches into tables: each row once, whatever dies between its steps, and only from the table's own checkpoint."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.records.record import Record
from ottla.spark.pipelines import points
from ottla.spark.pipelines.errors import (
    CheckpointMismatchError,
    PipelineSettingsError,
    SupersededError,
)
from ottla.spark.pipelines.settings.model import PipelineKind, PipelineSettings, TableSinkSettings
from support.filled_topics import fill_topic
from support.pipeline_settings import forget_last_batch, json_record, pipeline, run, source
from support.table_in_memory import TablesInMemory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from support.ottla_server import OttlaServer

BASE = 1_700_000_040_000
COUNT = 40
BAD_EVERY = 8


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> TablesInMemory:
    made = TablesInMemory()
    monkeypatch.setattr("ottla.spark.pipelines.tables.opening.open_table", made.open)
    return made


@pytest.fixture
def dies_at(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Points that pass before the batch dies at the last of them."""
    wanted: list[str] = []

    def reached(point: str) -> None:
        if wanted and wanted[0] == point:
            wanted.pop(0)
            if not wanted:
                raise RuntimeError(f"died: {point}")

    monkeypatch.setattr(points, "on_reached", reached)
    yield wanted
    assert not wanted, "a point that was never reached"


def _fill(server: OttlaServer, topic: str, first: int, count: int, *, create: bool = True) -> None:
    parts: list[list[Record]] = [[], []]
    for number in range(first, first + count):
        bad = number % BAD_EVERY == 0
        record = Record(0, BASE, b"k", b"{broken") if bad else json_record(BASE, id=number, day=f"d{number % 3}")
        parts[number % 2].append(record)
    fill_topic(server, topic, parts, create=create)


def _settings(server: OttlaServer, topic: str, folder: Path) -> PipelineSettings:
    return pipeline(
        folder,
        source(server, topic, "id BIGINT, day STRING", max_offsets_per_trigger=12),
        TableSinkSettings(format="parquet", path=str(folder / "table"), partition_by=("day",)),
        "SELECT id, day, partition, offset FROM events",
        kind=PipelineKind.archive,
        dead_letters=TableSinkSettings(format="parquet", path=str(folder / "letters")),
    )


def _check(tables: TablesInMemory, folder: Path, count: int) -> None:
    good = [number for number in range(count) if number % BAD_EVERY]
    assert Counter(row["id"] for row in tables.rows(folder / "table")) == Counter(good)
    letters = tables.rows(folder / "letters")
    bad = [(number % 2, number // 2) for number in range(count) if not number % BAD_EVERY]
    assert Counter((row["partition"], row["offset"]) for row in letters) == Counter(bad)
    assert {(row["value"], row["key"], row["source"]) for row in letters} == {(b"{broken", b"k", "events")}


@pytest.mark.spec("D3")
def test_each_row_and_each_dead_letter_is_there_once_after_deaths_at_every_point(
    spark: SparkSession,
    shared_ottla_server: OttlaServer,
    unique: str,
    tmp_path: Path,
    tables: TablesInMemory,
    dies_at: list[str],
) -> None:
    _fill(shared_ottla_server, unique, 0, COUNT)
    settings = _settings(shared_ottla_server, unique, tmp_path)
    written, committed = points.FILES_WRITTEN, points.TABLE_COMMITTED
    # Of dead letters and rows; letters that are there already are not committed again.
    for deadly in ([written], [committed], [written, written], [committed]):
        dies_at += deadly
        with pytest.raises(Exception, match=f"died: {deadly[-1]}"):
            run(spark, settings)
    run(spark, settings)
    _check(tables, tmp_path, COUNT)
    forget_last_batch(settings)
    run(spark, settings)
    _check(tables, tmp_path, COUNT)
    commits = tables.commits[str(tmp_path / "table"), "p"]
    assert [batch.batch_id for batch, _ in commits] == [0, 1, 2, 3]
    assert commits[-1][0].end_offsets == {"events": {unique: {0: COUNT // 2, 1: COUNT // 2}}}
    assert commits[0][0].schema.names == ["id", "day", "partition", "offset"]


@pytest.mark.spec("D3")
def test_a_lost_checkpoint_is_refused_with_both_ways_on(
    spark: SparkSession, shared_ottla_server: OttlaServer, unique: str, tmp_path: Path, tables: TablesInMemory
) -> None:
    _fill(shared_ottla_server, unique, 0, COUNT)
    settings = _settings(shared_ottla_server, unique, tmp_path)
    run(spark, settings)
    shutil.rmtree(settings.checkpoint)
    _fill(shared_ottla_server, unique, COUNT, 10, create=False)
    with pytest.raises(CheckpointMismatchError, match=r"is new or was lost: .*--continue-from-table.*another table$"):
        run(spark, settings)
    run(spark, settings, continue_from_table=True)
    _check(tables, tmp_path, COUNT + 10)
    _fill(shared_ottla_server, unique, COUNT + 10, 10, create=False)
    run(spark, settings)
    _check(tables, tmp_path, COUNT + 20)

    other = tmp_path / "other"
    other.mkdir()
    moved = _settings(shared_ottla_server, unique, other)
    run(spark, moved)
    _check(tables, other, COUNT + 20)
    strange = replace(settings, checkpoint=moved.checkpoint)
    with pytest.raises(CheckpointMismatchError, match=r"is of another query: .* and a new checkpoint, or"):
        run(spark, strange, continue_from_table=True)


def test_a_checkpoint_that_was_put_back_is_refused(
    spark: SparkSession, shared_ottla_server: OttlaServer, unique: str, tmp_path: Path, tables: TablesInMemory
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
    spark: SparkSession, shared_ottla_server: OttlaServer, unique: str, tmp_path: Path, tables: TablesInMemory
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
    spark: SparkSession, shared_ottla_server: OttlaServer, unique: str, tmp_path: Path, tables: TablesInMemory
) -> None:
    _fill(shared_ottla_server, unique, 0, 24)
    settings = replace(_settings(shared_ottla_server, unique, tmp_path), dead_letters=None)

    def overtaken(*_: object) -> bool:
        raise SupersededError("batch 7 is there already; another driver runs this pipeline")

    table = tables.open(settings.sink, "p")
    table.commit = overtaken
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ottla.spark.pipelines.tables.opening.open_table", lambda *_: table)
        with pytest.raises(SupersededError, match=r"^batch 7 is there already; another driver runs this pipeline$"):
            run(spark, settings)
