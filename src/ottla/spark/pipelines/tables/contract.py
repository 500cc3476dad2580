"""The contract of tables and pipelines, and the data that passes from tasks, which write files, to the driver.

A task writes Parquet files where no reader looks yet; only their manifests (`StagedFile`) reach the driver. The driver
gives all files of a batch to `BatchTable.commit`, which in one conditional step checks that the batch is not there and
makes all of its files visible. So a batch that runs again, in the same driver or in another one, adds nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow

#: Topic, partition, offset of the next record.
EndOffsets = Mapping[str, Mapping[int, int]]


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A whole Parquet file that a task wrote. `path` is relative to the folder that `BatchTable.staging` names.

    `partition` has the values of the table's partition columns, in their order, as text; None for null. `footer` is its
    Parquet metadata (`FileMetaData.write_metadata_file`), for the statistics that table formats keep.
    """

    path: str
    partition: tuple[str | None, ...]
    rows: int
    size_bytes: int
    footer: bytes


@dataclass(frozen=True, slots=True)
class BatchCommit:
    """One batch of the query `query_id` (Spark's id, kept in the checkpoint).

    `schema` is that of its files, with partition columns. `end_offsets` has one entry per source of the pipeline, by
    the source's name. `watermark_ms` is the query's event-time watermark when the batch began, None where it has none.
    """

    query_id: str
    batch_id: int
    end_offsets: Mapping[str, EndOffsets]
    watermark_ms: int | None
    schema: pyarrow.Schema
    files: Sequence[StagedFile]


@dataclass(frozen=True, slots=True)
class LastCommit:
    """The newest batch of a pipeline that a table holds."""

    query_id: str
    batch_id: int
    end_offsets: Mapping[str, EndOffsets]


@dataclass(frozen=True, slots=True)
class Staging:
    """The folder that tasks write to, by its URL: each attempt at a batch has its own.

    Files lie in folders as Hive names them (`day=2013-01-01/part-….parquet`). They leave the columns `partition_by`
    out, or with `keep_partition_columns` have them.
    """

    url: str
    storage_options: Mapping[str, str]
    partition_by: tuple[str, ...]
    compression: str
    keep_partition_columns: bool = False


class BatchTable(Protocol):
    """A table and one pipeline's commits in it (the pipeline's name is given where it is opened)."""

    def last_commit(self) -> LastCommit | None:
        """The newest batch of this pipeline; None where there is none. Raises PipelineError."""
        ...

    def try_writing(self) -> None:
        """Create and remove a small file where tasks write, and leave nothing. Raises PipelineError."""
        ...

    def staging(self, query_id: str, batch_id: int) -> Staging:
        """A place for the files of one attempt at a batch. Raises PipelineError."""
        ...

    def commit(self, batch: BatchCommit) -> bool:
        """Make the batch's files visible; False if this batch of this query is there already.

        Raises SupersededError if a later batch of this pipeline is there, or one of another query since this table was
        opened; PipelineError if the table cannot take these rows.
        """
        ...

    def end_if_superseded(self) -> None:
        """Raise SupersededError if another driver has taken over since `recover`; what is read may fail, too."""
        ...

    def recover(self) -> None:
        """Finish or remove what a driver that died left behind. Called before the first batch of a driver."""
        ...

    def compact(self, watermark_ms: int | None) -> int:
        """Replace small files by larger ones where no rows come any more; gives how many files were replaced."""
        ...
