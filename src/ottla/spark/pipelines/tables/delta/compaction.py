"""Small files of a Delta table replaced by larger ones in one commit each, rows unchanged.

This is not deltalake's own optimize, which retries its commit after a conflict, whatever its options: where two
compact the same files, rows are there twice (seen with 1.6.6). Here the commit is made at the version in which the
files were seen, or not at all.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import unquote

import deltalake
import pyarrow
import pyarrow.compute as pc

from ottla.spark.pipelines.tables.delta.files import partition_text
from ottla.spark.pipelines.tables.log_table import OldFile, PartitionFiles

_PARTITION: Final = "partition."


def live_names(table: deltalake.DeltaTable) -> set[str]:
    """The files of the table's version, relative to it."""
    return {unquote(path) for path in _actions(table).column("path").to_pylist()}


def own_files(table: deltalake.DeltaTable, own_folder: str) -> Iterator[PartitionFiles]:
    """Yield the files in `own_folder`, oldest first; none of tables with deletion vectors."""
    if "deletionVectors" in (table.protocol().reader_features or ()):
        return
    columns = table.metadata().partition_columns
    actions = _actions(table)
    actions = actions.take(_oldest_first(actions))
    values = [actions.column(_PARTITION + column).to_pylist() for column in columns]
    files: dict[tuple[Any, ...], list[OldFile]] = defaultdict(list)
    for number, (path, size) in enumerate(
        zip(actions.column("path").to_pylist(), actions.column("size_bytes").to_pylist(), strict=True)
    ):
        if path.startswith(own_folder):
            files[tuple(column[number] for column in values)].append(OldFile(unquote(path), size))
    for partition, found in files.items():
        texts = dict(zip(columns, map(partition_text, partition), strict=True))
        yield PartitionFiles(texts, found, texts)


def _actions(table: deltalake.DeltaTable) -> Any:
    return pyarrow.table(table.get_add_actions(flatten=True))


def _oldest_first(actions: Any) -> Any:
    return pc.sort_indices(actions, sort_keys=[("modification_time", "ascending"), ("path", "ascending")])
