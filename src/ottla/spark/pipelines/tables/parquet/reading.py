"""The files of a table as of one moment, for readers that want whole batches."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Final

from ottla.spark.pipelines.errors import PipelineError
from ottla.spark.pipelines.tables.parquet.identity import known_identity
from ottla.spark.pipelines.tables.parquet.manifests import CommitLog, Manifest
from ottla.spark.pipelines.tables.parquet.names import DataFileName, is_hidden
from ottla.spark.pipelines.tables.parquet.place import STAGING, TablePlace

#: Listings that meet a compaction before the call fails.
_LISTINGS_AT_MOST: Final = 100


def committed_files(url: str, storage_options: Mapping[str, str] | None = None) -> list[str]:
    """Paths of all files of all batches up to one, in that batch's file system, as pyarrow takes them.

    A batch whose files are still being moved is left out as a whole. A folder may be compacted between this and the
    opening of a file, which is then not found: call it again. Raises PipelineError.
    """
    place = TablePlace(url, storage_options or {})
    with place.errors():
        identity = known_identity(place)
        if identity is None:
            raise PipelineError(f"{place} is not a table of a pipeline")
        log = CommitLog(place)
        for _ in range(_LISTINGS_AT_MOST):
            found = _listed(place, identity.table, log.newest())
            if found is not None:
                return sorted(found)
    raise PipelineError(f"{place} was compacted each time it was listed; try again")


def _listed(place: TablePlace, table: str, newest: Manifest | None) -> list[str] | None:
    """The files up to the newest batch that is whole; None if a folder was compacted after that batch."""
    if newest is None:
        return []
    version = newest.version
    if newest.attempt is not None and place.sizes(f"{STAGING}/{newest.attempt}"):
        version -= 1
    found = []
    for folder, names in _names(place):
        for each in names:
            name = DataFileName.parse(each)
            if name is None or name.table != table:
                continue
            if name.version <= version:
                found.append(place.path(f"{folder}/{each}".lstrip("/")))
            elif name.generation:
                return None
    return found


def _names(place: TablePlace) -> Iterator[tuple[str, list[str]]]:
    """The names in each visible folder. Local names are read at once, without a look at each file by its path."""
    if not place.is_local:
        for folder, files in place.visible_folders():
            yield folder, [each.base_name for each in files]
        return
    waiting = [""]
    while waiting:
        folder = waiting.pop()
        files = []
        with os.scandir(place.path(folder)) as entries:
            for entry in entries:
                if is_hidden(entry.name):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(f"{folder}/{entry.name}".lstrip("/"))
                else:
                    files.append(entry.name)
        yield folder, files
