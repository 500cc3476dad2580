"""Rows of each batch to a table, exactly once: files by Spark's tasks, then one conditional commit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow
from pyspark.sql import DataFrame

from ottla.spark.pipelines import crash_points
from ottla.spark.pipelines.errors import PipelineError, SupersededError
from ottla.spark.pipelines.settings.model import TableSinkSettings
from ottla.spark.pipelines.sinks.sink import BatchInWork, BatchSink, StagedRows
from ottla.spark.pipelines.tables.contract import BatchCommit, BatchTable, LastCommit, Staging
from ottla.spark.pipelines.tables.opening import open_table
from ottla.spark.pipelines.writing.direct import DirectWriter, RecordRefusals
from ottla.spark.pipelines.writing.manifests import WrittenRows
from ottla.spark.pipelines.writing.refusals import PartitionRule, refused_rows
from ottla.spark.pipelines.writing.schemas import arrow_schema
from ottla.spark.pipelines.writing.splitting import check_partition_columns, rule_of
from ottla.spark.pipelines.writing.tasks import write_batch

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
        self._rule: PartitionRule | None = None
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
        check_partition_columns(arrow_schema(rows), self._settings.partition_by)

    def stage(self, frame: DataFrame, batch: BatchInWork) -> StagedRows:
        """Write the files of one batch where no reader looks; gives what was left out. Raises PipelineError."""
        with self._unless_superseded():
            staging = self._opened().staging(batch.query_id, batch.batch_id)
            return self._stage(frame, batch, staging)

    def _stage(self, frame: DataFrame, batch: BatchInWork, staging: Staging) -> StagedRows:
        self._rule = rule_of(staging)
        bad_records: int | None = None
        if self._direct is not None:
            watermark_ms = self._direct.watermark_ms
            source = self._direct.source
            start = batch.start_offsets.get(source, {}) if batch.batch_id else None
            written = self._direct.write(frame.sparkSession, staging, start, batch.end_offsets.get(source, {}))
            schema, files, refused = self._direct.schema, written.files, written.refused
            bad_records = written.bad_records
        else:
            watermark_ms = batch.watermark_ms
            schema, rows = _write_rows(frame, staging)
            files, refused = rows.files, rows.refused
        self._staged = BatchCommit(batch.query_id, batch.batch_id, batch.end_offsets, watermark_ms, schema, files)
        crash_points.reach(crash_points.FILES_WRITTEN)
        return StagedRows(bad_records, refused)

    def record_refusals(self) -> RecordRefusals | None:
        """Of tasks that read records themselves: what finds those whose rows they left out."""
        return None if self._direct is None or self._rule is None else self._direct.record_refusals(self._rule)

    def refused_rows(self, frame: DataFrame) -> DataFrame | None:
        """Of Spark's rows: those that were left out, as dead letters."""
        return None if self._direct is not None or self._rule is None else refused_rows(frame, self._rule)

    def take(self, frame: DataFrame, batch: BatchInWork) -> None:
        """Commit the batch that was staged; one that is there already adds nothing.

        Raises SupersededError, PipelineError.
        """
        commit, self._staged = self._staged, None
        assert commit is not None
        if not commit.files and (not self._keep_offsets or batch.start_offsets == batch.end_offsets):
            return
        table = self._opened()
        with self._unless_superseded():
            if table.commit(commit):
                crash_points.reach(crash_points.TABLE_COMMITTED)
            # By the number in the checkpoint, so that runs of few batches each come to it, too.
            if self._settings.compact_to_bytes is not None and (batch.batch_id + 1) % BATCHES_PER_COMPACTION == 0:
                table.compact(commit.watermark_ms)

    @contextmanager
    def _unless_superseded(self) -> Iterator[None]:
        """Work in the table. What fails since another driver has taken over, and removed files, is that driver's doing.

        Raises SupersededError then.
        """
        try:
            yield
        except SupersededError:
            raise
        except Exception as failed:
            try:
                self._opened().end_if_superseded()
            except SupersededError as superseded:
                raise superseded from failed
            except PipelineError:
                pass  # The table cannot be read either: the first error says more.
            raise

    def _opened(self) -> BatchTable:
        if self._table is None:
            self._table = open_table(self._settings, self._pipeline)
        return self._table


def _write_rows(frame: DataFrame, staging: Staging) -> tuple[pyarrow.Schema, WrittenRows]:
    return arrow_schema(frame), write_batch(frame, staging)
