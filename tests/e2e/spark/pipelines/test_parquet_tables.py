"""A query into a table of plain Parquet files, with drivers that die at the points of a batch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyarrow import dataset

from ottla.spark.pipelines import crash_points
from ottla.spark.pipelines.settings.model import PipelineKind, TableSinkSettings
from support.filled_topics import fill_topic
from support.pipeline_settings import json_record, pipeline, run, source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from support.ottla_server import OttlaServer

DAY_MS = 86_400_000
#: 2013-01-01.
BASE = 1_356_998_400_000
SQL = (
    "SELECT id, carrier, to_date(timestamp) AS day, partition AS record_partition, offset AS record_offset FROM events"
)


@pytest.mark.spec("D3", "D6")
@pytest.mark.parametrize("sql", [SQL, SQL.replace("carrier,", "reverse(reverse(carrier)) AS carrier,")])
def test_each_record_is_there_once(
    spark: SparkSession,
    shared_ottla_server: OttlaServer,
    unique: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    sql: str,
) -> None:
    carriers = ["AA", "a/b", None, "", "ü"]
    parts = [
        [json_record(BASE + n % 3 * DAY_MS, id=n, carrier=carriers[n % 5]) for n in range(first, 300, 2)]
        for first in range(2)
    ]
    fill_topic(shared_ottla_server, unique, parts)
    folder = tmp_path / "table"
    settings = pipeline(
        tmp_path,
        source(shared_ottla_server, unique, "id BIGINT, carrier STRING", max_offsets_per_trigger=60),
        TableSinkSettings(format="parquet", path=str(folder), partition_by=("day", "carrier")),
        sql,
        kind=PipelineKind.archive,
    )
    for point in (crash_points.RECOVERING, crash_points.FILES_WRITTEN, crash_points.TABLE_COMMITTED):

        def die(reached: str, point: str = point) -> None:
            if reached == point:
                raise RuntimeError(f"died: {point}")

        with monkeypatch.context() as patch:
            patch.setattr(crash_points, "on_reached", die)
            with pytest.raises(Exception, match="died"):
                run(spark, settings)
    run(spark, settings)
    run(spark, settings)
    found = dataset.dataset(folder, partitioning="hive").to_table()
    assert sorted(found["id"].to_pylist()) == list(range(300))
    origins = set(zip(found["record_partition"].to_pylist(), found["record_offset"].to_pylist(), strict=True))
    assert origins == {(part, offset) for part in range(2) for offset in range(150)}
    by_spark = spark.read.parquet(str(folder))
    assert by_spark.count() == 300
    assert sorted(row["n"] for row in by_spark.groupBy("day").count().withColumnRenamed("count", "n").collect()) == [
        100,
        100,
        100,
    ]
    assert {row["carrier"] for row in by_spark.select("carrier").distinct().collect()} == {"AA", "a/b", None, "ü"}
    assert list((folder / "_ottla/staging").iterdir()) == []
