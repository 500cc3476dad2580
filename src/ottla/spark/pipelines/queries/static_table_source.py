"""The source in Python behind `static_tables`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from ottla.spark.errors import one_sentence
from ottla.spark.pipelines.queries.static_tables import batches_of, dataset

if TYPE_CHECKING:
    import pyarrow
    import pyarrow.dataset


class StaticTableSource(DataSource):
    """A Parquet folder or a Delta table: its files are listed whenever it is read."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "ottla_static_table"

    @one_sentence
    def schema(self) -> StructType:
        """The columns. Raises PipelineError."""
        from pyspark.sql.pandas.types import from_arrow_schema

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
        from pyspark.sql.pandas.types import to_arrow_schema

        schema = to_arrow_schema(self._schema, timezone="UTC")
        yield from batches_of(_dataset(self._options), schema)


def _dataset(options: Mapping[str, str]) -> pyarrow.dataset.Dataset:
    return dataset(options["table_format"], options["table_path"], json.loads(options["table_options"]))
