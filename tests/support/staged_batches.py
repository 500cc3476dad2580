"""Batches for tables of files: what tasks of a pipeline would write, written here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow
from pyarrow import parquet

from ottla.spark.pipelines.settings.model import TableSinkSettings
from ottla.spark.pipelines.tables.contract import BatchCommit, StagedFile
from ottla.spark.pipelines.tables.filesystems import open_filesystem

if TYPE_CHECKING:
    from ottla.spark.pipelines.tables.contract import BatchTable

QUERY = "11111111-2222-3333-4444-555555555555"
SCHEMA = pyarrow.schema([("day", pyarrow.string()), ("partition", pyarrow.int32()), ("offset", pyarrow.int64())])


def settings(path: str, **changes: Any) -> TableSinkSettings:
    """A table of Parquet files by day."""
    return TableSinkSettings(**{"format": "parquet", "path": path, "partition_by": ("day",), **changes})


def stage(
    table: BatchTable,
    batch_id: int,
    days: Mapping[str, Sequence[int]] | Mapping[str | None, Sequence[int]],
    *,
    query: str = QUERY,
    watermark_ms: int | None = None,
    schema: pyarrow.Schema = SCHEMA,
    more: Mapping[str, Any] | None = None,
) -> BatchCommit:
    """Write one file per day with these offsets (of partition 0), and columns more; gives the batch to commit."""
    staging = table.staging(query, batch_id)
    filesystem, folder = open_filesystem(staging.url, staging.storage_options)
    files = []
    for number, (day, offsets) in enumerate(days.items()):
        columns: dict[str, Any] = {
            "partition": pyarrow.array([0] * len(offsets), pyarrow.int32()),
            "offset": pyarrow.array(offsets, pyarrow.int64()),
        }
        for name, value in (more or {}).items():
            columns[name] = pyarrow.array([value] * len(offsets))
        rows = pyarrow.table(columns)
        name = f"{number}.parquet"
        with filesystem.open_output_stream(f"{folder}/{name}") as stream:
            parquet.write_table(rows, stream, compression=staging.compression)
        size = filesystem.get_file_info(f"{folder}/{name}").size
        values = (day,) if staging.partition_by else ()
        files.append(StagedFile(name, values, len(offsets), size, b""))
    top = max((offset for offsets in days.values() for offset in offsets), default=-1) + 1
    ends = {"events": {"flights": {0: top}}}
    return BatchCommit(query, batch_id, ends, watermark_ms, schema, files)
