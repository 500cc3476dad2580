"""Batches for `BatchTable`s, their files written as Spark's tasks write them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow

from ottla.spark.pipelines.settings.model import TableSinkSettings
from ottla.spark.pipelines.tables.contract import BatchCommit, BatchTable, StagedFile
from ottla.spark.pipelines.writing.files import write_files


def stage(
    table: BatchTable,
    batch_id: int,
    rows: pyarrow.Table,
    *,
    query_id: str = "query-1",
    files: int = 1,
    end_offsets: Mapping[str, Mapping[str, Mapping[int, int]]] | None = None,
    watermark_ms: int | None = None,
) -> BatchCommit:
    """Write the rows to `files` files for each combination of partition values."""
    staging = table.staging(query_id, batch_id)
    made: list[StagedFile] = []
    each = max(1, -(-rows.num_rows // files))
    for piece in range(files):
        made += write_files(rows.slice(piece * each, each).to_batches(), staging, rows.schema)
    offsets = {"orders": {"t": {0: batch_id + 1}}} if end_offsets is None else end_offsets
    return BatchCommit(query_id, batch_id, offsets, watermark_ms, rows.schema, made)


def numbered(batch_id: int, rows: int = 10, day: str | None = "2024-01-01") -> pyarrow.Table:
    """Rows that tell of which batch they are: `id` from batch_id * rows on."""
    ids = range(batch_id * rows, (batch_id + 1) * rows)
    return pyarrow.table(
        {"id": pyarrow.array(ids, pyarrow.int64()), "day": pyarrow.array([day] * rows, pyarrow.string())}
    )


def delta_sink(path: Any, **settings: Any) -> TableSinkSettings:
    """Settings of a Delta table."""
    return TableSinkSettings(format="delta", path=str(path), **settings)
