"""The Parquet files that one task writes: one at a time for each partition folder, with bounded memory.

Rows are gathered to some megabytes and then split, so that row groups are not as small as Spark's batches. A task that
is tried again, or run twice by speculation, writes files of other names; only those that it reported last are
committed, the others are never referenced.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

import pyarrow
import pyarrow.fs
import pyarrow.parquet

from ottla.spark.pipelines.tables.contract import StagedFile, Staging
from ottla.spark.pipelines.tables.partition_folders import partition_folder
from ottla.spark.pipelines.writing.refusals import RefusedRows
from ottla.spark.pipelines.writing.splitting import PartitionValues, rule_of, split

#: Bytes of rows that a task gathers before it splits and writes them. It needs about twice that while it does.
GATHERED_BYTES = 8 * 1024 * 1024
#: Files that a task has open at once; one more closes the largest, and its folder gets another file later.
MAX_OPEN_FILES = 64
#: The same where files are objects of a store: each open one holds parts of some megabytes that are being uploaded.
MAX_OPEN_OBJECTS = 8
#: Bytes after which a file ends and the next begins.
FILE_BYTES = 256 * 1024 * 1024
#: File systems whose files can be seen before they are whole, and renamed at no cost.
_WITH_RENAME = ("local", "hdfs")


class PartFiles:
    """Open files by partition values. Used in `with`: where that ends by an error, open files are removed."""

    def __init__(self, staging: Staging, schema: pyarrow.Schema, refused: RefusedRows | None = None) -> None:
        """`schema` is that of the rows, partition columns included. Raises PipelineError."""
        from ottla.spark.pipelines.tables.filesystems import open_filesystem

        self._staging = staging
        self._schema = schema
        self._rule = rule_of(staging)
        self._refused = refused
        kept = [each for each in schema if staging.keep_partition_columns or each.name not in staging.partition_by]
        self._columns = [each.name for each in kept]
        self._file_schema = _schema_of(kept)
        self._filesystem, self._root = open_filesystem(staging.url, staging.storage_options)
        local = self._filesystem.type_name in _WITH_RENAME
        self._most_open = MAX_OPEN_FILES if local else MAX_OPEN_OBJECTS
        self._renames = local
        self._gathered: list[pyarrow.RecordBatch] = []
        self._gathered_bytes = 0
        self._open: dict[PartitionValues, _PartFile] = {}
        self._folders: set[str] = set()

    def __enter__(self) -> PartFiles:
        return self

    def __exit__(self, failed: type[BaseException] | None, *_: object) -> None:
        for file in self._open.values():
            file.abandon()
        self._open.clear()

    def write(self, batch: pyarrow.RecordBatch) -> Iterator[StagedFile]:
        """Take rows; gives the files that were closed for it. Raises OSError."""
        batch = batch.cast(self._schema)
        self._gathered.append(batch)
        self._gathered_bytes += batch.nbytes
        if self._gathered_bytes >= GATHERED_BYTES:
            yield from self._write_gathered()

    def close(self) -> Iterator[StagedFile]:
        """Write what was gathered and close all; gives the files."""
        yield from self._write_gathered()
        for values in list(self._open):
            yield self._close(values)

    def _write_gathered(self) -> Iterator[StagedFile]:
        if not self._gathered:
            return
        whole = self._gathered[0] if len(self._gathered) == 1 else pyarrow.concat_batches(self._gathered)
        self._gathered, self._gathered_bytes = [], 0
        for values, rows in split(whole, self._rule, self._refused):
            file = self._open.get(values)
            if file is None:
                if len(self._open) >= self._most_open:
                    yield self._close(max(self._open, key=lambda each: self._open[each].size_bytes))
                file = self._open[values] = self._new(values)
            file.write(rows.select(self._columns))
            if file.size_bytes >= FILE_BYTES:
                yield self._close(values)

    def _new(self, values: PartitionValues) -> _PartFile:
        folder = partition_folder(self._staging.partition_by, values)
        if self._renames and folder not in self._folders:
            self._filesystem.create_dir(f"{self._root}/{folder}" if folder else self._root, recursive=True)
            self._folders.add(folder)
        name = f"part-{uuid.uuid4()}.parquet"
        path = f"{folder}/{name}" if folder else name
        return _PartFile(self._filesystem, self._root, path, self._file_schema, self._staging, self._renames)

    def _close(self, values: PartitionValues) -> StagedFile:
        return self._open.pop(values).close(values)


def write_files(
    rows: Iterable[pyarrow.RecordBatch], staging: Staging, schema: pyarrow.Schema, refused: RefusedRows | None = None
) -> Iterator[StagedFile]:
    """Write all rows to files below `staging`; gives each file once it is whole. Raises OSError, PipelineError.

    `rows` have the columns of `schema` in its order, in types that cast to its types. Without rows it writes none.
    Rows that no partition can hold are left out and counted in `refused`; without it they raise PipelineError.
    """
    with PartFiles(staging, schema, refused) as files:
        for batch in rows:
            yield from files.write(batch)
        yield from files.close()


def _schema_of(fields: Iterable[pyarrow.Field]) -> pyarrow.Schema:
    return pyarrow.schema(list(fields))


class _PartFile:
    """A Parquet file that grows, under a hidden name where a reader could see it half written."""

    def __init__(
        self,
        filesystem: pyarrow.fs.FileSystem,
        root: str,
        path: str,
        schema: pyarrow.Schema,
        staging: Staging,
        renames: bool,
    ) -> None:
        self._filesystem = filesystem
        self._path = path
        self._final = f"{root}/{path}"
        folder, _, name = self._final.rpartition("/")
        self._written = f"{folder}/.{name}.unfinished" if renames else self._final
        self._sink: Any = filesystem.open_output_stream(self._written)
        self._footers: list[Any] = []
        self._rows = 0
        self._writer = pyarrow.parquet.ParquetWriter(
            self._sink,
            schema,
            compression=staging.compression,
            version="2.6",
            store_schema=False,
            metadata_collector=self._footers,
        )

    @property
    def size_bytes(self) -> int:
        """Bytes written so far."""
        size: int = self._sink.tell()
        return size

    def write(self, rows: pyarrow.RecordBatch) -> None:
        """Append a row group. Raises OSError."""
        self._writer.write_batch(rows)
        self._rows += rows.num_rows

    def close(self, values: PartitionValues) -> StagedFile:
        """Finish the file, and give it its name. Raises OSError."""
        import io

        self._writer.close()
        size_bytes = self.size_bytes
        self._sink.close()
        if self._written != self._final:
            self._filesystem.move(self._written, self._final)
        footer = io.BytesIO()
        self._footers[0].write_metadata_file(footer)
        return StagedFile(self._path, values, self._rows, size_bytes, footer.getvalue())

    def abandon(self) -> None:
        """Close it unfinished, after an error, and remove it if that can be done."""
        with suppress(OSError, pyarrow.ArrowException):
            self._writer.close()
        with suppress(OSError):
            self._sink.close()
        with suppress(OSError):
            self._filesystem.delete_file(self._written)


def take_memory_of_the_system() -> None:
    """Have Arrow allocate by the C library from now on, in this process.

    Arrow's own allocator keeps what was freed for the next columns: with those of a task, which come and go by the
    megabyte, and much other memory that Python takes, a worker was a quarter larger by it, and no faster.
    """
    pyarrow.set_memory_pool(pyarrow.system_memory_pool())
