"""Tables that do not stream, as views: Parquet and Delta as they are in each batch.

Spark lists the files of a table once, when a query is defined: a stream that joins it would never see new ones, and
fail where old ones are gone. A task of a source in Python runs in each batch. So Parquet folders and Delta tables are
read by the one here, in one task, with bounded memory; other formats by Spark's own readers, as they are at the start.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from ottla.spark.data_sources import register_source
from ottla.spark.errors import one_sentence
from ottla.spark.pipelines.queries.static_tables import DELTA, PARQUET, dataset
from ottla.spark.pipelines.settings.model import StaticTableSettings

if TYPE_CHECKING:
    import pyarrow
    import pyarrow.dataset

#: Rows of an Arrow batch on its way into Spark.
ROWS_PER_BATCH = 8_192
#: Of those that are read ahead.
READ_AHEAD = 2


def table_view(spark: SparkSession, table: StaticTableSettings) -> DataFrame:
    """The table as a frame. Raises PipelineError if it cannot be read."""
    if table.format not in (PARQUET, DELTA):
        return spark.read.format(table.format).options(**table.options).load(table.path)
    dataset(table.format, table.path, table.options)  # A table that is not there is refused here, in one sentence.
    register_source(spark, StaticTableSource)
    options = {"table_format": table.format, "table_path": table.path, "table_options": json.dumps(dict(table.options))}
    return spark.read.format(StaticTableSource.name()).options(**options).load()


class StaticTableSource(DataSource):
    """A Parquet folder or a Delta table: its files are listed whenever it is read."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "ottla_static_table"

    @one_sentence
    def schema(self) -> StructType:
        """The columns. Raises PipelineError."""
        return from_arrow_schema(_dataset(self.options).schema)

    def reader(self, schema: StructType) -> StaticTableReader:
        """The reader of all files."""
        return StaticTableReader(dict(self.options), schema)


class StaticTableReader(DataSourceReader):
    """Reads the table as it is when its task runs: Spark plans a source once for all batches of a query.

    So there is one task, which sees one state of the table.
    """

    def __init__(self, options: dict[str, str], schema: StructType) -> None:
        self._options = options
        self._schema = schema

    @one_sentence
    def read(self, partition: InputPartition | None) -> Iterator[pyarrow.RecordBatch]:
        """All rows. Raises PipelineError."""
        schema = to_arrow_schema(self._schema, timezone="UTC")
        for batch in _dataset(self._options).to_batches(
            columns=schema.names, batch_size=ROWS_PER_BATCH, batch_readahead=READ_AHEAD, fragment_readahead=1
        ):
            yield batch.cast(schema) if batch.schema != schema else batch


def _dataset(options: Mapping[str, str]) -> pyarrow.dataset.Dataset:
    return dataset(options["table_format"], options["table_path"], json.loads(options["table_options"]))
