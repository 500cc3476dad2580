"""Batches for `BatchTable`s, their files written as Spark's tasks write them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow

from ottla.spark.pipelines.settings.model import TableSinkSettings
from ottla.spark.pipelines.tables.contract import BatchCommit, BatchTable, StagedFile
from ottla.spark.pipelines.tables.opening import open_table
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


def iceberg_sink(path: Path, **settings: Any) -> TableSinkSettings:
    """Settings of an Iceberg table `lake.rows`, in a catalog in SQLite, both below `path`."""
    path.mkdir(parents=True, exist_ok=True)
    options = {"type": "sql", "uri": f"sqlite:///{path}/catalog.db", "warehouse": path.as_uri()}
    return TableSinkSettings(format="iceberg", catalog="local", catalog_options=options, table="lake.rows", **settings)


class Lake:
    """A table that pipelines and foreign writers share, as its own library sees it."""

    def __init__(self, path: Path, kind: str) -> None:
        self.path = path
        self.kind = kind

    def opened(self, pipeline: str = "archive", **settings: Any) -> Any:
        """The pipeline's `BatchTable`."""
        sink = (delta_sink if self.kind == "delta" else iceberg_sink)(self.path, **settings)
        return open_table(sink, pipeline)

    def foreign(self) -> Any:
        """The table by deltalake or pyiceberg."""
        if self.kind == "delta":
            import deltalake

            return deltalake.DeltaTable(self.path)
        from pyiceberg.catalog import load_catalog

        return load_catalog("local", **iceberg_sink(self.path).catalog_options).load_table("lake.rows")

    def rows(self) -> pyarrow.Table:
        """All rows as readers see them."""
        if self.kind == "delta":
            scanned: pyarrow.Table = pyarrow.table(self.foreign().scan())
            return scanned
        found: pyarrow.Table = self.foreign().scan().to_arrow()
        return found

    def ids(self) -> list[int]:
        """The column `id`, sorted."""
        return sorted(self.rows().column("id").to_pylist())

    def files(self) -> set[str]:
        """The files of the newest version, relative to the folder of the pipelines' files."""
        table = self.foreign()
        if self.kind == "delta":
            found = [unquote(each) for each in pyarrow.table(table.get_add_actions()).column("path").to_pylist()]
        else:
            found = [each.file.file_path for each in table.scan().plan_files()]
        return {each.rpartition("data/archive/")[2] for each in found if "data/archive/" in each}

    def written(self) -> set[str]:
        """The files of rows of the pipeline `archive` that are on the disk, as `files` names them."""
        return {str(each).rpartition("data/archive/")[2] for each in self.path.rglob("data/archive/**/*.parquet")}

    def append(self, rows: pyarrow.Table) -> None:
        """A commit of a foreign writer."""
        if self.kind == "delta":
            import deltalake

            deltalake.write_deltalake(self.path, rows, mode="append")
        else:
            self.foreign().append(rows)

    def tidy(self) -> None:
        """Another kind of commit by a foreign writer: of files, not of rows; or of a property."""
        if self.kind == "delta":
            self.foreign().optimize.compact()
        else:
            with self.foreign().transaction() as transaction:
                transaction.set_properties({"tidy": "yes"})
