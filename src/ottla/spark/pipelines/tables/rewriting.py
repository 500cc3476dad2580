"""Parquet files rewritten as one larger file, streaming: rows, their order and the file's schema stay the same.

In a table with a log any partition may be compacted at any time; it costs.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow
import pyarrow.fs
import pyarrow.parquet

from ottla.spark.pipelines.tables.parquet.times import is_passed

#: Bytes of rows (in memory) of a row group of the new file; about twice that is held at once.
ROW_GROUP_BYTES: Final = 32 * 1024 * 1024
#: Rows that are read at once.
_READ_ROWS: Final = 16_384
#: Files of one bin; more wait for the next compaction.
MAX_FILES: Final = 1_000
#: Small files of a partition that may still grow, or has no time, from which on it is compacted.
OPEN_FILES: Final = 32
#: A file that is smaller than the target by this factor is small.
_SMALL: Final = 4
#: After all times that a partition can have: whether it has one.
_AFTER_ALL_MS: Final = int(datetime(9999, 12, 31, tzinfo=UTC).timestamp() * 1000)


@dataclass(frozen=True, slots=True)
class Rewritten:
    """The new file; `footer` as `StagedFile` has it."""

    rows: int
    size_bytes: int
    footer: bytes


def is_worth_it(
    partition: Mapping[str, str | None], sizes: Sequence[int], watermark_ms: int | None, target_bytes: int
) -> bool:
    """Whether to compact a partition with files of these sizes in bytes; its values are ISO text.

    One that the watermark has passed: once two files fit into one. One for which rows can still come: never, if its
    values have a time and there is a watermark; else as soon as there are many small files.
    """
    small = sorted(size for size in sizes if size < target_bytes)
    if watermark_ms is not None and is_passed(partition, watermark_ms):
        return len(small) > 1 and small[0] + small[1] <= target_bytes
    if watermark_ms is not None and is_passed(partition, _AFTER_ALL_MS):
        return False
    return sum(1 for size in small if size * _SMALL <= target_bytes) >= OPEN_FILES


def bins(sizes: Sequence[int], target_bytes: int) -> list[list[int]]:
    """Numbers of neighbouring small files that fit into one of `target_bytes` each, two at least in a bin."""
    made: list[list[int]] = []
    filled = 0
    for number, size in enumerate(sizes):
        if size >= target_bytes:
            continue
        if not made or filled + size > target_bytes or len(made[-1]) == MAX_FILES:
            made.append([])
            filled = 0
        made[-1].append(number)
        filled += size
    return [each for each in made if len(each) > 1]


def alike(filesystem: pyarrow.fs.FileSystem, paths: Sequence[str]) -> list[list[str]]:
    """The files by their schema, in their order; only those can be written to one without a change. Raises OSError."""
    found: list[tuple[Any, list[str]]] = []
    for path in paths:
        with filesystem.open_input_file(path) as file:
            schema = pyarrow.parquet.read_schema(file).remove_metadata()
        for known, members in found:
            if known.equals(schema, check_metadata=True):
                members.append(path)
                break
        else:
            found.append((schema, [path]))
    return [members for _, members in found]


def rewrite(filesystem: pyarrow.fs.FileSystem, paths: Sequence[str], target: str, compression: str) -> Rewritten:
    """Write the rows of files of one schema to the file `target`, whose folder is there. Raises OSError."""
    footers: list[Any] = []
    rows = 0
    with ExitStack() as closing:
        sink = closing.enter_context(filesystem.open_output_stream(target))
        writer = None
        for group in _row_groups(filesystem, paths):
            if writer is None:
                writer = closing.enter_context(
                    pyarrow.parquet.ParquetWriter(
                        sink,
                        group.schema,
                        compression=compression,
                        version="2.6",
                        store_schema=False,
                        metadata_collector=footers,
                    )
                )
            writer.write_table(group, row_group_size=max(1, group.num_rows))
            rows += group.num_rows
    footer = io.BytesIO()
    if footers:
        footers[0].write_metadata_file(footer)
    return Rewritten(rows, filesystem.get_file_info(target).size, footer.getvalue())


def _row_groups(filesystem: pyarrow.fs.FileSystem, paths: Sequence[str]) -> Iterator[pyarrow.Table]:
    gathered: list[Any] = []
    size = 0
    for path in paths:
        for batch in _batches(filesystem, path):
            gathered.append(batch)
            size += batch.nbytes
            if size >= ROW_GROUP_BYTES:
                yield pyarrow.Table.from_batches(gathered)
                gathered, size = [], 0
    if gathered:
        yield pyarrow.Table.from_batches(gathered)


def _batches(filesystem: pyarrow.fs.FileSystem, path: str) -> Iterator[Any]:
    with (
        filesystem.open_input_file(path) as file,
        pyarrow.parquet.ParquetFile(file, pre_buffer=False, buffer_size=1 << 20) as parquet,
    ):
        for batch in parquet.iter_batches(batch_size=_READ_ROWS):
            yield batch.replace_schema_metadata(None)
