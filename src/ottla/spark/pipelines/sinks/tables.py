"""Rows of each batch to a table, exactly once: files by Spark's tasks, then one conditional commit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.spark.pipelines import points
from ottla.spark.pipelines.settings.model import TableSinkSettings
from ottla.spark.pipelines.sinks.sink import BatchInWork, BatchSink
from ottla.spark.pipelines.tables.contract import BatchCommit, BatchTable, LastCommit

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame

    from ottla.spark.pipelines.tables.contract import StagedFile, Staging
    from ottla.spark.pipelines.writing.direct import DirectWriter

#: Batches between two looks for small files: each look lists the table, or reads its log.
BATCHES_PER_COMPACTION = 20


class TableSink(BatchSink):
    """A table as a sink of one pipeline. With `keep_offsets` batches without rows are committed for their offsets."""

    def __init__(self, settings: TableSinkSettings, pipeline: str, *, keep_offsets: bool = True) -> None:
        self._settings = settings
        self._keep_offsets = keep_offsets
        self._pipeline = pipeline
        self._table: BatchTable | None = None
        self._staged: BatchCommit | None = None
        self._direct: DirectWriter | None = None

    def take_ranges(self, writer: DirectWriter) -> None:
        """Take batches of ranges of offsets from now on, which `writer` makes files of, instead of rows."""
        self._direct = writer

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_table": None, "_staged": None}

    def prepare(self) -> LastCommit | None:
        """Open the table, finish what a driver that died left behind, and give the last batch. Raises PipelineError."""
        table = self._opened()
        table.recover()
        return table.last_commit()

    def check(self, rows: DataFrame) -> None:
        """Refuse columns that files cannot hold, and partition columns that are not there. Raises PipelineError."""
        from ottla.spark.pipelines.writing.schemas import arrow_schema
        from ottla.spark.pipelines.writing.splitting import check_partition_columns

        check_partition_columns(arrow_schema(rows), self._settings.partition_by)

    def stage(self, frame: DataFrame, batch: BatchInWork) -> int | None:
        """Write the files of one batch where no reader looks; gives how many records did not parse, if tasks read them.

        Raises PipelineError.
        """
        staging = self._opened().staging(batch.query_id, batch.batch_id)
        bad_records: int | None = None
        if self._direct is not None:
            watermark_ms = self._direct.watermark_ms
            source = self._direct.source
            start = batch.start_offsets.get(source, {}) if batch.batch_id else None
            written = self._direct.write(frame.sparkSession, staging, start, batch.end_offsets.get(source, {}))
            schema, files, bad_records = self._direct.schema, written.files, written.bad_records
        else:
            watermark_ms = batch.watermark_ms
            schema, files = _write_rows(frame, staging)
        self._staged = BatchCommit(batch.query_id, batch.batch_id, batch.end_offsets, watermark_ms, schema, files)
        points.reach(points.FILES_WRITTEN)
        return bad_records

    def take(self, frame: DataFrame, batch: BatchInWork) -> None:
        """Commit the batch that was staged; one that is there already adds nothing.

        Raises SupersededError, PipelineError.
        """
        commit, self._staged = self._staged, None
        assert commit is not None
        if not commit.files and (not self._keep_offsets or batch.start_offsets == batch.end_offsets):
            return
        table = self._opened()
        if table.commit(commit):
            points.reach(points.TABLE_COMMITTED)
        # By the number in the checkpoint, so that runs of few batches each come to it, too.
        if self._settings.compact_to_bytes is not None and (batch.batch_id + 1) % BATCHES_PER_COMPACTION == 0:
            table.compact(commit.watermark_ms)

    def _opened(self) -> BatchTable:
        from ottla.spark.pipelines.tables.opening import open_table

        if self._table is None:
            self._table = open_table(self._settings, self._pipeline)
        return self._table


def _write_rows(frame: DataFrame, staging: Staging) -> tuple[pyarrow.Schema, list[StagedFile]]:
    from ottla.spark.pipelines.writing.schemas import arrow_schema
    from ottla.spark.pipelines.writing.tasks import write_batch

    return arrow_schema(frame), write_batch(frame, staging)
