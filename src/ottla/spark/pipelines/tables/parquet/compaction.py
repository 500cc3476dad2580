"""Partition folders that the watermark has passed get fewer, larger files.

The new folder is built in `_ottla/compacting/` and changes places with the old one in one step. The old one is hidden
then, and stays there for a minute, for readers that are listing it. A crash leaves one of the two in
`_ottla/compacting/`, and a start removes it. A driver that takes over renames `_ottla/compacting` first, so that one
that sleeps before the exchange cannot make it afterwards.
"""

from __future__ import annotations

import ctypes
import errno
import logging
import os
import secrets
import shutil
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from ottla.spark.pipelines import crash_points
from ottla.spark.pipelines.errors import SupersededError
from ottla.spark.pipelines.settings.model import TableSinkSettings
from ottla.spark.pipelines.tables.exclusive import flush_folder
from ottla.spark.pipelines.tables.parquet.merging import CannotMerge, merge
from ottla.spark.pipelines.tables.parquet.names import DataFileName
from ottla.spark.pipelines.tables.parquet.place import FOLDERS_AT_MOST, HIDDEN, TablePlace
from ottla.spark.pipelines.tables.parquet.times import is_passed
from ottla.spark.pipelines.tables.partition_folders import partition_values

_log = logging.getLogger(__name__)

_BUILDING: Final = f"{HIDDEN}/compacting"
_REMOVED: Final = "removed-"
#: Folders and bytes that one call compacts; the next call continues. The query waits meanwhile.
_FOLDERS_AT_ONCE: Final = 64
_BYTES_AT_ONCE: Final = 2 * 1024 * 1024 * 1024
#: Folders that wait for the watermark; more of them are found by the next start.
_FOLDERS_NOTED: Final = 100_000
#: Later than any day: the beginning of the year 9999.
_FAR_MS: Final = 253_370_764_800_000
#: Files that late rows must have made in a folder before it is compacted again.
_LATE_FILES: Final = 8
#: A reader that began to list the old folder is done by then; files that it opened live as long as it has them open.
_LISTING_SECONDS: Final = 60.0
#: A file of this share of the wished size is large enough.
_LARGE_ENOUGH: Final = 0.75

_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2
_UNSUPPORTED: Final = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP)


@dataclass(frozen=True, slots=True)
class _DataFile:
    name: DataFileName
    path: str
    size: int


class FolderCompactor:
    """Which folders of a table may want compaction, and the doing of it, in the driver between two batches."""

    def __init__(self, place: TablePlace, sink: TableSinkSettings, is_superseded: Callable[[], bool]) -> None:
        self._place = place
        self._target = sink.compact_to_bytes
        self._compression = sink.compression
        self._is_superseded = is_superseded
        self._is_possible = place.is_local and bool(sink.partition_by) and self._target is not None
        #: Folders that got files and were not looked at since; None before the first look at the table.
        self._open: set[str] | None = None
        #: Old folders, hidden now, with the time of their exchange.
        self._replaced: deque[tuple[float, str]] = deque()
        self._reported: set[str] = set()

    def note(self, folders: set[str]) -> None:
        """These folders got files."""
        if self._open is not None and len(self._open) < _FOLDERS_NOTED:
            self._open.update(filter(_has_time, folders))

    def compact(self, watermark_ms: int) -> int:
        """Compact what the watermark has passed; gives how many files were replaced. Raises SupersededError."""
        self._remove_replaced()
        if not self._is_possible:
            return 0
        if self._open is None:
            self._open = {
                folder
                for folder, files in self._place.visible_folders(FOLDERS_AT_MOST)
                if len(files) > 1 and _has_time(folder)
            }
        passed = sorted(folder for folder in self._open if is_passed(partition_values(folder), watermark_ms))
        replaced = size = 0
        for folder in passed[:_FOLDERS_AT_ONCE]:
            try:
                files, written_bytes = self._compact_folder(folder)
            except CannotMerge as error:
                self._say_once(folder, f"{folder} is not compacted: {error}")
                files = written_bytes = 0
            self._open.discard(folder)
            replaced += files
            size += written_bytes
            if size >= _BYTES_AT_ONCE or not self._is_possible:
                break
        return replaced

    def clean(self) -> None:
        """Remove what an older driver built, or replaced."""
        if not self._place.is_local:
            return
        hidden = self._place.path(HIDDEN)
        with suppress(FileNotFoundError):
            os.rename(self._place.path(_BUILDING), os.path.join(hidden, _REMOVED + secrets.token_hex(8)))
        for name in os.listdir(hidden):
            if name.startswith(_REMOVED):
                shutil.rmtree(os.path.join(hidden, name), ignore_errors=True)

    def _compact_folder(self, folder: str) -> tuple[int, int]:
        """The files replaced, and their bytes."""
        old = self._place.path(folder)
        files = self._data_files(folder, old)
        runs = _runs(files, (self._target or 0) * _LARGE_ENOUGH) if files else []
        merged = [file for run in runs if len(run) > 1 for file in run]
        if not merged:
            return 0, 0
        building = self._place.path(f"{_BUILDING}/{secrets.token_hex(8)}")
        os.makedirs(building)
        try:
            self._build(building, old, runs)
            if self._is_superseded():
                raise self._superseded()
            crash_points.reach(crash_points.COMPACTING)
            if not exchange(building, old):
                self._is_possible = False
                raise CannotMerge("this file system cannot exchange two folders in one step")
        except Exception as error:
            shutil.rmtree(building, ignore_errors=True)
            if isinstance(error, FileNotFoundError) and self._is_superseded():
                raise self._superseded() from error
            raise
        self._replaced.append((time.monotonic(), building))
        crash_points.reach(crash_points.COMPACTING)
        flush_folder(os.path.dirname(old))
        flush_folder(os.path.dirname(building))
        return len(merged), sum(file.size for file in merged)

    def _superseded(self) -> SupersededError:
        return SupersededError(f"{self._place}: another driver has taken over; this one compacts nothing, and ends")

    def _remove_replaced(self) -> None:
        """Remove the old folders that no reader can still be listing."""
        while self._replaced and self._replaced[0][0] + _LISTING_SECONDS < time.monotonic():
            shutil.rmtree(self._replaced.popleft()[1], ignore_errors=True)

    def _build(self, building: str, old: str, runs: Sequence[Sequence[_DataFile]]) -> None:
        shutil.copystat(old, building)
        for run in runs:
            if len(run) == 1:
                os.link(run[0].path, os.path.join(building, str(run[0].name)))
                continue
            last = run[-1].name
            generation = max(file.name.generation for file in run) + 1
            name = DataFileName(last.version, last.index, generation, 0, last.table)
            merge(
                [file.path for file in run],
                building,
                name,
                target_bytes=self._target or 0,
                compression=self._compression,
            )
        flush_folder(building)

    def _data_files(self, folder: str, path: str) -> list[_DataFile]:
        """The folder's files in order; none where compaction would lose something, or gain nothing."""
        files = []
        with os.scandir(path) as entries:
            for entry in entries:
                name = DataFileName.parse(entry.name)
                if name is None:
                    self._say_once(folder, f"{folder} is not compacted: it holds {entry.name}, which no commit made")
                    return []
                files.append(_DataFile(name, entry.path, entry.stat().st_size))
        if any(file.name.generation for file in files):
            late = sum(1 for file in files if not file.name.generation)
            if late < _LATE_FILES:
                return []
        return sorted(files, key=lambda file: file.name)

    def _say_once(self, about: str, message: str) -> None:
        if about not in self._reported and len(self._reported) < FOLDERS_AT_MOST:
            self._reported.add(about)
            _log.warning("%s: %s", self._place, message)


def _has_time(folder: str) -> bool:
    return is_passed(partition_values(folder), _FAR_MS)


def _runs(files: Sequence[_DataFile], large: float) -> list[list[_DataFile]]:
    """Neighbours that are small, together; a large file is alone, so that rows stay in their order."""
    runs: list[list[_DataFile]] = []
    may_grow = False
    for file in files:
        is_small = file.size < large
        if is_small and may_grow:
            runs[-1].append(file)
        else:
            runs.append([file])
        may_grow = is_small
    return runs


def exchange(one: str, other: str) -> bool:
    """Let two paths of one local file system change places in one step; False where that cannot be done.

    It is Linux' `renameat2` with `RENAME_EXCHANGE`, which Python does not have. Raises OSError.
    """
    function = _renameat2()
    if function is None:
        return False
    if function(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in _UNSUPPORTED:
        return False
    raise OSError(number, os.strerror(number), one, None, other)


@lru_cache(maxsize=1)
def _renameat2() -> Any:
    """The C library's function; None on other systems than Linux, and in libraries older than it."""
    try:
        library = ctypes.CDLL(None, use_errno=True)
        function = library.renameat2
    except (AttributeError, OSError, TypeError):
        return None
    function.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint]
    function.restype = ctypes.c_int
    return function
