"""Tables that do not stream, as views: Parquet and Delta as they are in each batch, without a jar.

Spark lists the files of a table once, when a query is defined: a stream that joins it would never see new ones, and
fail where old ones are gone. A task of a source in Python runs in each batch. So Parquet folders and Delta tables are
read by the one here, in one task, with bounded memory; other formats by Spark's own readers, as they are at the start.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING

from ottla.spark.pipelines.data_sources import register_source
from ottla.spark.pipelines.errors import PipelineError
from ottla.spark.pipelines.settings.model import StaticTableSettings

if TYPE_CHECKING:
    import pyarrow
    import pyarrow.dataset
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.datasource import DataSource

PARQUET = "parquet"
DELTA = "delta"
#: Rows of an Arrow batch on its way into Spark.
ROWS_PER_BATCH = 8_192
#: Of those that are read ahead.
READ_AHEAD = 2
_FORMAT = "ottla_static_table"


def table_view(spark: SparkSession, table: StaticTableSettings) -> DataFrame:
    """The table as a frame. Raises PipelineError if it cannot be read."""
    if table.format not in (PARQUET, DELTA):
        return spark.read.format(table.format).options(**table.options).load(table.path)
    dataset(table.format, table.path, table.options)  # A table that is not there is refused here, in one sentence.
    register_source(spark, _source())
    given = {"table_format": table.format, "table_path": table.path, "table_options": json.dumps(dict(table.options))}
    return spark.read.format(_FORMAT).options(**given).load()


def dataset(kind: str, path: str, options: Mapping[str, str]) -> pyarrow.dataset.Dataset:
    """The files of a table as they are now. Raises PipelineError."""
    from ottla.records.extras import require_extra

    if kind == DELTA:
        require_extra("a Delta table", DELTA, "deltalake")
        import deltalake
        import deltalake.exceptions

        try:
            return deltalake.DeltaTable(path, storage_options=dict(options)).to_pyarrow_dataset()
        except (deltalake.exceptions.DeltaError, OSError) as problem:
            raise PipelineError(f"the Delta table {path} cannot be read: {problem}") from None
    import pyarrow
    import pyarrow.dataset

    from ottla.spark.pipelines.tables.filesystems import open_filesystem

    try:
        filesystem, root = open_filesystem(path, options)
        return pyarrow.dataset.dataset(root, filesystem=filesystem, format=PARQUET, partitioning="hive")
    except (OSError, pyarrow.ArrowException) as problem:
        raise PipelineError(f"the Parquet table {path} cannot be read: {problem}") from None


@cache
def _source() -> type[DataSource]:
    """The source's class; made late, since its bases import PySpark."""
    from ottla.spark.pipelines.queries.static_table_source import StaticTableSource

    return StaticTableSource


def batches_of(table: pyarrow.dataset.Dataset, schema: pyarrow.Schema) -> Iterator[pyarrow.RecordBatch]:
    """The rows of a table, in these columns of it."""
    for batch in table.to_batches(
        columns=schema.names, batch_size=ROWS_PER_BATCH, batch_readahead=READ_AHEAD, fragment_readahead=1
    ):
        yield batch.cast(schema) if batch.schema != schema else batch
