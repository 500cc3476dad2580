"""Rows to Parquet files in Spark's tasks."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow
import pyarrow.dataset
import pyarrow.parquet
import pytest

from ottla.spark.pipelines.errors import PipelineError
from ottla.spark.pipelines.tables.contract import Staging
from ottla.spark.pipelines.writing.schemas import arrow_schema
from ottla.spark.pipelines.writing.tasks import write_batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spec("D3")

#: One column of each kind, null in some rows.
TYPES = """
    SELECT id, id % 3 = 0 AS flag, CAST(id % 100 AS TINYINT) AS tiny,
      CAST(id AS SMALLINT) AS small, CAST(id AS INT) AS whole,
      CAST(id AS FLOAT) AS single, id / 7D AS number, CAST(id AS DECIMAL(20, 3)) / 10 AS price,
      CAST(id AS STRING) AS text, CAST(concat('b', id) AS BINARY) AS bytes,
      date_add(DATE '1960-01-01', CAST(id AS INT)) AS day, timestamp_micros(id * 1234567 - 10000000) AS at,
      CAST(timestamp_micros(id * 1234567) AS TIMESTAMP_NTZ) AS local,
      IF(id % 5 = 0, NULL, named_struct('x', id, 'y', array(timestamp_micros(id), NULL))) AS nested,
      map(CAST(id AS STRING), IF(id % 2 = 0, id, NULL)) AS pairs,
      IF(id % 4 = 0, NULL, concat('p/', id % 4)) AS place, date_add(DATE '2024-02-28', CAST(id % 3 AS INT)) AS folder
    FROM range(0, {count}, 1, 4)
"""


def _staging(folder: Path, *partition_by: str) -> Staging:
    return Staging(folder.as_uri(), {}, partition_by, "zstd")


def _hashes(frame: DataFrame) -> Counter[str]:
    """Each row as text, whatever the order of rows."""
    return Counter(row[0] for row in frame.selectExpr(f"to_json(struct({', '.join(sorted(frame.columns))}))").collect())


def test_rows_of_every_type_come_back(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.sql(TYPES.format(count=500))
    files = write_batch(rows, _staging(tmp_path, "place", "folder")).files

    assert len(files) == 12, "rows of a folder are gathered"
    assert sum(each.rows for each in files) == 500
    assert {each.partition for each in files} == {
        (place, f"2024-{day}") for place in (None, "p/1", "p/2", "p/3") for day in ("02-28", "02-29", "03-01")
    }
    assert _hashes(spark.read.parquet(str(tmp_path))) == _hashes(rows)
    schema = arrow_schema(rows)
    kept = [each for each in schema if each.name not in ("place", "folder")]
    for each in files:
        found = pyarrow.parquet.read_schema(tmp_path / each.path)
        assert found == pyarrow.schema(kept)


def test_in_a_stream_and_without_folders(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    pyarrow.parquet.write_table(pyarrow.table({"id": list(range(100))}), tmp_path / "in" / "a.parquet")
    batches = []

    def write(frame: DataFrame, batch_id: int) -> None:
        batches.append(write_batch(frame, _staging(tmp_path / "out")).files)

    stream = spark.readStream.schema("id BIGINT").parquet(str(tmp_path / "in"))
    query = stream.writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path / "checkpoint"))
    query.trigger(availableNow=True).start().awaitTermination()

    (files,) = batches
    assert sum(each.rows for each in files) == 100
    table = pyarrow.dataset.dataset([str(tmp_path / "out" / each.path) for each in files]).to_table()
    assert sorted(table["id"].to_pylist()) == list(range(100))


def test_a_task_that_is_tried_again_leaves_only_files_that_nobody_names(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "fails").mkdir()
    marks = str(tmp_path / "fails")

    def fail_once(batches):
        from pathlib import Path

        from pyspark import TaskContext

        context = TaskContext.get()
        yield from batches
        mark = Path(marks, f"{context.partitionId()}")
        if context.partitionId() == 1 and not mark.exists():
            mark.touch()
            raise RuntimeError("planned")

    rows = spark.range(0, 1_000, 1, 2)
    with pytest.raises(Exception, match="planned"):
        write_batch(rows.mapInArrow(fail_once, "id BIGINT"), _staging(tmp_path / "out"))
    files = write_batch(rows.mapInArrow(fail_once, "id BIGINT"), _staging(tmp_path / "out")).files
    table = pyarrow.dataset.dataset([str(tmp_path / "out" / each.path) for each in files]).to_table()
    assert sorted(table["id"].to_pylist()) == list(range(1_000))
    assert not list((tmp_path / "out").rglob("*.unfinished"))


def test_rows_that_files_cannot_hold_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="column a is of type void"):
        write_batch(spark.sql("SELECT NULL AS a, 1 AS b"), _staging(tmp_path))
    with pytest.raises(PipelineError, match="partition_by names c, which the rows lack"):
        write_batch(spark.sql("SELECT 1 AS b"), _staging(tmp_path, "c"))
    assert not list(tmp_path.iterdir())
