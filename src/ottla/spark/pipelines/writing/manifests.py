"""Staged files as rows, in which tasks report them to the driver."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow

from ottla.spark.pipelines.tables.contract import StagedFile
from ottla.spark.pipelines.writing.refusals import RefusedRows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: The columns of a row, in Spark's DDL.
MANIFEST_COLUMNS = (
    "path STRING, partition ARRAY<STRING>, rows BIGINT, size_bytes BIGINT, footer BINARY, refused_rows BIGINT, "
    "refusal STRING"
)


@dataclass(frozen=True, slots=True)
class WrittenRows:
    """The output of one batch's tasks: the files, and the rows that they left out."""

    files: list[StagedFile]
    refused: RefusedRows


def as_rows(files: Iterable[StagedFile]) -> pyarrow.RecordBatch:
    """A row for each file."""
    return _rows(list(files), RefusedRows())


def as_last_row(refused: RefusedRows) -> pyarrow.RecordBatch:
    """The row of no file with which a task says what it left out."""
    return _rows([None], refused)


def _rows(found: Sequence[StagedFile | None], refused: RefusedRows) -> pyarrow.RecordBatch:
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
            "refused_rows": pyarrow.array([refused.rows] * len(found), pyarrow.int64()),
            "refusal": pyarrow.array([refused.reason] * len(found), pyarrow.string()),
        }
    )


def written_rows(rows: Iterable[Mapping[str, Any]]) -> WrittenRows:
    """Collect the reports of all tasks."""
    files, refused = [], RefusedRows()
    for row in rows:
        if row["path"] is not None:
            files.append(
                StagedFile(row["path"], tuple(row["partition"]), row["rows"], row["size_bytes"], row["footer"])
            )
        refused.add(row["refused_rows"], row["refusal"])
    return WrittenRows(files, refused)


def collect(manifests: DataFrame) -> WrittenRows:
    """Run the query of `manifests`, and give what it wrote; only manifests come to the driver, no data."""
    return written_rows(manifests.toArrow().to_pylist())
