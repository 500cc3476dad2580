"""One run of small Parquet files becomes few larger ones: the same rows in the same order, in bounded memory."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow
import pyarrow.parquet
from pyarrow import parquet

from ottla.spark.pipelines.tables.parquet.names import DataFileName

#: Arrow bytes that are gathered for one row group.
_ROW_GROUP_BYTES: Final = 64 * 1024 * 1024
_ROWS_AT_ONCE: Final = 65_536
#: Spark's own schema in a file; it is right only for files of that very schema.
_SPARK_SCHEMA: Final = b"org.apache.spark.sql.parquet.row.metadata"


class CannotMerge(Exception):
    """The files do not fit together, and stay as they are."""


def merge(sources: Sequence[str], folder: str, last: DataFileName, *, target_bytes: int, compression: str) -> list[str]:
    """Write the rows of local files, in order, to new files of about this size in a folder; gives their paths.

    The new files are flushed. `last` gives their names, but for the part. Raises CannotMerge.
    """
    try:
        written = _written(sources, folder, last, target_bytes, compression)
    except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError, pyarrow.ArrowNotImplementedError) as error:
        raise CannotMerge(str(error)) from error
    for path in written:
        with open(path, "rb") as file:
            os.fsync(file.fileno())
    return written


def _written(sources: Sequence[str], folder: str, last: DataFileName, target_bytes: int, compression: str) -> list[str]:
    footers = [parquet.read_metadata(source) for source in sources]
    schema = _common_schema(footers)
    written: list[str] = []
    writer: pyarrow.parquet.ParquetWriter | None = None
    sink: pyarrow.NativeFile | None = None
    try:
        for group in _row_groups(sources, schema):
            if writer is None or sink is None:
                name = DataFileName(last.version, last.index, last.generation, len(written), last.table)
                written.append(os.path.join(folder, str(name)))
                sink = pyarrow.OSFile(written[-1], "wb")
                writer = parquet.ParquetWriter(sink, schema, compression=compression)
            writer.write_table(group)
            if sink.tell() >= target_bytes:
                writer.close()
                sink.close()
                writer = sink = None
    finally:
        if writer is not None and sink is not None:
            writer.close()
            sink.close()
    expected = sum(footer.num_rows for footer in footers)
    found = sum(parquet.read_metadata(path).num_rows for path in written)
    if expected != found:
        raise CannotMerge(f"{expected} rows were to be merged, {found} were written")
    return written


def _common_schema(footers: Sequence[pyarrow.parquet.FileMetaData]) -> pyarrow.Schema:
    """That of the newest file, and after its columns those that only older ones have. Raises CannotMerge."""
    for footer in footers:
        types = {footer.schema.column(number).physical_type for number in range(len(footer.schema))}
        if "INT96" in types:
            raise CannotMerge("times are INT96, whose time zone a rewritten file would change")
    schemas = [footer.schema.to_arrow_schema() for footer in reversed(footers)]
    newest = schemas[0]
    if all(schema.equals(newest, check_metadata=False) for schema in schemas):
        return newest
    common = pyarrow.unify_schemas(schemas)
    metadata = dict(newest.metadata or {})
    if not common.equals(newest, check_metadata=False):
        metadata.pop(_SPARK_SCHEMA, None)
    return common.with_metadata(metadata or None)


def _row_groups(sources: Sequence[str], schema: pyarrow.Schema) -> Iterator[pyarrow.Table]:
    gathered: list[pyarrow.Table] = []
    size = 0
    for source in sources:
        with parquet.ParquetFile(source) as file:
            for batch in file.iter_batches(batch_size=_ROWS_AT_ONCE):
                gathered.append(_fitted(batch, schema))
                size += batch.nbytes
                if size >= _ROW_GROUP_BYTES:
                    yield pyarrow.concat_tables(gathered)
                    gathered, size = [], 0
    yield pyarrow.concat_tables(gathered) if gathered else schema.empty_table()


def _fitted(batch: pyarrow.RecordBatch, schema: pyarrow.Schema) -> pyarrow.Table:
    columns = []
    for field in schema:
        if field.name in batch.schema.names:
            column = batch.column(field.name)
            columns.append(column if column.type == field.type else column.cast(field.type))
        else:
            columns.append(pyarrow.nulls(batch.num_rows, field.type))
    return pyarrow.Table.from_arrays(columns, schema=schema)
