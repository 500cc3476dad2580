"""A batch's rows to Parquet files in Spark's tasks; the driver gets the manifests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ottla.spark.errors import message_only
from ottla.spark.pipelines.tables.contract import StagedFile, Staging
from ottla.spark.pipelines.writing.files import take_memory_of_the_system, write_files
from ottla.spark.pipelines.writing.manifests import MANIFEST_COLUMNS, WrittenRows, as_last_row, as_rows, collect
from ottla.spark.pipelines.writing.refusals import RefusedRows
from ottla.spark.pipelines.writing.schemas import arrow_schema
from ottla.spark.pipelines.writing.splitting import check_partition_columns
from ottla.spark.versions import Versioned

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame

#: Files that are reported in one Arrow batch: their footers are some kilobytes each.
FILES_PER_REPORT = 256


def write_batch(frame: DataFrame, staging: Staging, *, gather: bool = True) -> WrittenRows:
    """Write the rows of a batch to files below `staging`, and give the files and how many rows no partition can hold.

    With `gather`, rows of one partition folder are brought to one task first, if they are not too many, so that a
    batch writes about one file for each folder. Raises PipelineError if the rows cannot be written to such files, and
    what Spark raises if a task fails.
    """
    schema = arrow_schema(frame)
    check_partition_columns(schema, staging.partition_by)
    if gather and staging.partition_by:
        frame = frame.hint("rebalance", *staging.partition_by)
    task = WriteTask(staging, schema)
    return collect(frame.mapInArrow(lambda batches: task.run(batches), MANIFEST_COLUMNS))


class WriteTask(Versioned):
    """A task that writes its rows, and reports its files."""

    def __init__(self, staging: Staging, schema: pyarrow.Schema) -> None:
        self._staging = staging
        self._schema = schema

    def run(self, rows: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        """Write `rows`; gives rows of `MANIFEST_COLUMNS`."""
        take_memory_of_the_system()
        with message_only():
            refused = RefusedRows()
            yield from reports(write_files(rows, self._staging, self._schema, refused))
            yield as_last_row(refused)


def reports(files: Iterator[StagedFile]) -> Iterator[pyarrow.RecordBatch]:
    """Rows of `MANIFEST_COLUMNS` for the files, as they come."""
    pending: list[StagedFile] = []
    for each in files:
        pending.append(each)
        if len(pending) == FILES_PER_REPORT:
            yield as_rows(pending)
            pending = []
    if pending:
        yield as_rows(pending)
