"""A crash before and after each single change that a table makes to its file system; then another driver goes on."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyarrow import dataset

from ottla.spark.pipelines.settings.model import TableSinkSettings
from ottla.spark.pipelines.tables.filesystems import open_filesystem
from ottla.spark.pipelines.tables.opening import open_table
from ottla.spark.pipelines.tables.parquet import committed_files, compaction, moving, place
from support.played_s3 import PlayedS3
from support.staged_batches import settings, stage

pytestmark = [pytest.mark.spec("D3"), pytest.mark.slow]

DAYS = ("2013-01-01", "2013-01-02")
PASSED_MS = 1_357_171_200_000
BATCHES = 4
#: All that changes a file system in a table's modules.
CHANGES: list[tuple[Any, str]] = [
    (place.TablePlace, "create"),
    (place.TablePlace, "delete_file"),
    (place.TablePlace, "delete_folder"),
    (place.TablePlace, "make_folder"),
    (place.TablePlace, "move"),
    (compaction, "exchange"),
    (compaction, "merge"),
    (compaction.os, "makedirs"),
    (compaction.os, "rename"),
    (compaction.shutil, "rmtree"),
]


class Killed(BaseException):
    """A crash: nothing that handles errors may run."""


@pytest.fixture(autouse=True)
def without_flushes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes die here, not machines."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


class Fuse:
    """Lets a number of changes happen, and dies at the next one, before or after it; then nothing happens any more."""

    def __init__(self, changes: int, *, after: bool) -> None:
        self.left = changes
        self.after = after
        self.blown = False

    def change(self, original: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        if self.blown:
            raise Killed
        self.left -= 1
        self.blown = self.left < 0
        if self.blown and not self.after:
            raise Killed
        result = original(*arguments, **named)
        if self.blown:
            raise Killed
        return result


@contextmanager
def blown_by(fuse: Fuse, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setattr(moving, "_AT_ONCE", 1)
        for owner, name in CHANGES:
            # A partial is no descriptor: for methods a function of their own.
            original = getattr(owner, name)
            if isinstance(owner, type):
                patch.setattr(
                    owner, name, lambda *given, _original=original, **named: fuse.change(_original, *given, **named)
                )
            else:
                patch.setattr(owner, name, functools.partial(fuse.change, original))
        yield


def drive(sink: TableSinkSettings) -> None:
    """A driver's life: what is not there yet is committed, the last batch again, and folders are compacted."""
    table = open_table(sink, "archive")
    table.recover()
    last = table.last_commit()
    for number in range(last.batch_id if last else 0, BATCHES):
        days = {day: [number * 2 + at] for at, day in enumerate(DAYS)}
        assert table.commit(stage(table, number, days)) is not (last is not None and last.batch_id == number)
        if number % 2:
            table.compact(PASSED_MS)


def offsets(sink: TableSinkSettings) -> list[int]:
    filesystem, path = open_filesystem(sink.path or "", sink.storage_options)
    found = dataset.dataset(path, filesystem=filesystem, format="parquet", partitioning="hive")
    return sorted(found.to_table(columns=["offset"])["offset"].to_pylist()) if found.files else []


def crash_everywhere(
    new_sink: Callable[[int], TableSinkSettings], monkeypatch: pytest.MonkeyPatch, *, after: bool, stride: int = 1
) -> int:
    """Crash at each change in turn, until a driver gets through without one; gives the number of crashes."""
    for changes in range(0, 10_000, stride):
        sink = new_sink(changes)
        fuse = Fuse(changes, after=after)
        with blown_by(fuse, monkeypatch):
            try:
                drive(sink)
            except Killed:
                pass
            else:
                return changes // stride
        if open_table(sink, "archive").last_commit() is not None:
            seen = offsets(sink)
            assert len(seen) == len(set(seen)), f"after {changes} changes"
        drive(sink)
        assert offsets(sink) == list(range(BATCHES * len(DAYS))), f"after {changes} changes"
        assert len(committed_files(sink.path or "", sink.storage_options)) <= BATCHES * len(DAYS)
        filesystem, path = open_filesystem(sink.path or "", sink.storage_options)
        assert staged(filesystem, path) == []
    raise AssertionError("the driver never came to its end")


def staged(filesystem: Any, path: str) -> list[str]:
    from pyarrow import fs

    selector = fs.FileSelector(f"{path}/_ottla/staging", recursive=True, allow_not_found=True)
    return [each.path for each in filesystem.get_file_info(selector) if each.type == fs.FileType.File]


@pytest.mark.parametrize("after", [False, True])
def test_crashes_at_each_change_of_a_local_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: bool) -> None:
    crashes = crash_everywhere(lambda number: settings(str(tmp_path / str(number))), monkeypatch, after=after)
    assert crashes > 20


@pytest.mark.parametrize("after", [False, True])
def test_crashes_at_each_change_of_a_table_in_memory(monkeypatch: pytest.MonkeyPatch, after: bool) -> None:
    crashes = crash_everywhere(lambda number: settings(f"memory://crashes-{after}-{number}"), monkeypatch, after=after)
    assert crashes > 20


@pytest.mark.long
@pytest.mark.parametrize("after", [False, True])
def test_crashes_at_each_change_of_a_table_on_s3(s3: PlayedS3, monkeypatch: pytest.MonkeyPatch, after: bool) -> None:
    crashes = crash_everywhere(
        lambda number: settings(s3.url(f"crashes-{after}-{number}"), storage_options=s3.options),
        monkeypatch,
        after=after,
    )
    assert crashes > 20
