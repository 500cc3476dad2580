"""Committed files go from where they were staged to where readers look; begun again, it does what is left."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from ottla.spark.pipelines.errors import PipelineError
from ottla.spark.pipelines.tables.parquet.manifests import PlacedFile
from ottla.spark.pipelines.tables.parquet.names import DataFileName
from ottla.spark.pipelines.tables.parquet.place import TablePlace

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
#: Requests under way at once, on file systems that are asked by requests; and flushes that a disk can join.
_AT_ONCE: Final = 16


def flush_files(place: TablePlace, paths: Iterable[str]) -> None:
    """Force local files to the disk. Elsewhere a file is durable when it is written."""
    if place.is_local:
        _each(lambda path: _flush(place.path(path)), list(paths))


def move_into_place(place: TablePlace, files: Sequence[PlacedFile]) -> None:
    """Move files that are not moved yet, durably.

    A file that is in neither place was moved, and merged since, perhaps by another driver. Raises PipelineError if the
    merged file is missing, too: it was removed from outside.
    """
    folders = {file.path.rpartition("/")[0] for file in files}
    for folder in sorted(folders):
        place.make_folder(folder)
    lost = [file.path for file in _each(lambda file: None if _move(place, file) else file, files) if file is not None]
    if lost:
        raise PipelineError(
            f"{place} lacks {lost[0]}, a file of its newest batch, and {len(lost) - 1} more: what was "
            "committed was removed; restore it, or continue in another folder from this batch's offsets"
        )
    place.flush_folders(folders)


def _move(place: TablePlace, file: PlacedFile) -> bool:
    """Whether the file is in its place now."""
    try:
        place.move(file.staged, file.path)
    except OSError:
        if place.exists(file.staged):
            raise
        return place.exists(file.path) or _is_merged(place, file)
    return True


def _is_merged(place: TablePlace, file: PlacedFile) -> bool:
    folder, _, base = file.path.rpartition("/")
    name = DataFileName.parse(base)
    others = (DataFileName.parse(each.base_name) for each in place.entries(folder))
    return name is not None and any(other and other.generation and other > name for other in others)


def _flush(path: str) -> None:
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def _each(function: Callable[[_Item], _Result], items: Sequence[_Item]) -> list[_Result]:
    if len(items) < 2:
        return [function(item) for item in items]
    with ThreadPoolExecutor(min(_AT_ONCE, len(items)), "ottla-table") as pool:
        return list(pool.map(function, items))
