"""Staged files as rows, in which tasks report them to the driver."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ottla.spark.pipelines.tables.contract import StagedFile

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame

#: The columns of a row, in Spark's DDL.
MANIFEST_COLUMNS = "path STRING, partition ARRAY<STRING>, rows BIGINT, size_bytes BIGINT, footer BINARY"


def as_rows(files: Iterable[StagedFile | None]) -> pyarrow.RecordBatch:
    """A row for each file, of nulls for None."""
    import pyarrow

    found = list(files)

    def column(name: str, kind: pyarrow.DataType) -> pyarrow.Array:
        return pyarrow.array([None if each is None else getattr(each, name) for each in found], kind)

    values = pyarrow.list_(pyarrow.field("element", pyarrow.string()))
    return pyarrow.record_batch(
        {
            "path": column("path", pyarrow.string()),
            "partition": column("partition", values),
            "rows": column("rows", pyarrow.int64()),
            "size_bytes": column("size_bytes", pyarrow.int64()),
            "footer": column("footer", pyarrow.binary()),
        }
    )


def files_of(rows: Iterable[Mapping[str, Any]]) -> list[StagedFile]:
    """The files of rows; those of nulls are passed over."""
    return [
        StagedFile(row["path"], tuple(row["partition"]), row["rows"], row["size_bytes"], row["footer"])
        for row in rows
        if row["path"] is not None
    ]


def collect_files(manifests: DataFrame) -> list[StagedFile]:
    """Run the query of `manifests` and give its files; only their rows come to the driver, no data."""
    return files_of(manifests.toArrow().to_pylist())
