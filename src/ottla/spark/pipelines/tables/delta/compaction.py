"""Small files of a Delta table replaced by larger ones in one commit each, rows unchanged.

This is not deltalake's own optimize, which retries its commit after a conflict, whatever its options: where two
compact the same files, rows are there twice (seen with 1.6.6). Here the commit is made at the version in which the
files were seen, or not at all.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from ottla.spark.pipelines.tables.compaction_choice import is_worth_it
from ottla.spark.pipelines.tables.delta.files import partition_text
from ottla.spark.pipelines.tables.log_table import Bin, OldFile
from ottla.spark.pipelines.tables.rewriting import bins

if TYPE_CHECKING:
    import deltalake

_PARTITION: Final = "partition."


def live_names(table: deltalake.DeltaTable) -> set[str]:
    """The files of the table's version, relative to it."""
    return {unquote(path) for path in _actions(table).column("path").to_pylist()}


def small_files(
    table: deltalake.DeltaTable, watermark_ms: int | None, target_bytes: int, own_folder: str
) -> Iterator[Bin]:
    """Yield files in `own_folder` that are worth compacting, oldest first.

    Files of other writers are left to them, and so are whole tables with deletion vectors.
    """
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
        sizes = [each.size_bytes for each in found]
        texts = dict(zip(columns, map(partition_text, partition), strict=True))
        if is_worth_it(texts, sizes, watermark_ms, target_bytes):
            for numbers in bins(sizes, target_bytes):
                yield Bin(texts, tuple(found[number] for number in numbers))


def _actions(table: deltalake.DeltaTable) -> Any:
    import pyarrow

    return pyarrow.table(table.get_add_actions(flatten=True))


def _oldest_first(actions: Any) -> Any:
    import pyarrow.compute as pc

    return pc.sort_indices(actions, sort_keys=[("modification_time", "ascending"), ("path", "ascending")])
