"""Parquet files rewritten as one larger file, streaming: rows, their order and the file's schema stay the same."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import pyarrow
    import pyarrow.fs

#: Bytes of rows (in memory) of a row group of the new file; about twice that is held at once.
ROW_GROUP_BYTES: Final = 32 * 1024 * 1024
#: Rows that are read at once.
_READ_ROWS: Final = 16_384
#: Files of one bin; more wait for the next compaction.
MAX_FILES: Final = 1_000


@dataclass(frozen=True, slots=True)
class Rewritten:
    """The new file; `footer` as `StagedFile` has it."""

    rows: int
    size_bytes: int
    footer: bytes


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
    import pyarrow.parquet

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
    import pyarrow.parquet

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
    import pyarrow

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
    import pyarrow.parquet

    with (
        filesystem.open_input_file(path) as file,
        pyarrow.parquet.ParquetFile(file, pre_buffer=False, buffer_size=1 << 20) as parquet,
    ):
        for batch in parquet.iter_batches(batch_size=_READ_ROWS):
            yield batch.replace_schema_metadata(None)
