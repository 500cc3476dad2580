"""Partition folders with fewer, larger files: the same rows, once, at each moment and after each crash."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import dataset, parquet

from ottla.spark.pipelines import crash_points
from ottla.spark.pipelines.errors import SupersededError
from ottla.spark.pipelines.settings.model import TableSinkSettings
from ottla.spark.pipelines.tables.opening import open_table
from ottla.spark.pipelines.tables.parquet import ParquetBatchTable, committed_files, compaction
from ottla.spark.pipelines.tables.parquet.compaction import exchange
from ottla.spark.pipelines.tables.parquet.manifests import CommitLog, Manifest
from ottla.spark.pipelines.tables.parquet.names import DataFileName
from support.played_s3 import PlayedS3
from support.staged_batches import SCHEMA, settings, stage

pytestmark = [pytest.mark.spec("D3"), pytest.mark.slow]

DAY = "2013-01-01"
NEXT = "2013-01-02"
#: In the middle of the next day, everywhere on Earth.
PASSED_MS = 1_357_171_200_000


class Killed(BaseException):
    """A crash: nothing that handles errors may run."""


@pytest.fixture
def sink(tmp_path: Path) -> TableSinkSettings:
    return settings(str(tmp_path / "table"))


def opened(sink: TableSinkSettings) -> ParquetBatchTable:
    made = open_table(sink, "archive")
    made.recover()
    assert isinstance(made, ParquetBatchTable)
    return made


def filled(sink: TableSinkSettings, batches: int = 5, first: int = 0) -> ParquetBatchTable:
    """Each batch has two rows for the day, and one for the next."""
    made = opened(sink)
    for number in range(first, first + batches):
        assert made.commit(stage(made, number, {DAY: [number * 3, number * 3 + 1], NEXT: [number * 3 + 2]}))
    return made


def files_of(sink: TableSinkSettings, day: str) -> list[Path]:
    return sorted((Path(sink.path or "") / f"day={day}").iterdir())


def rows_of(paths: list[Path]) -> list[int]:
    return [offset for path in paths for offset in parquet.read_table(path)["offset"].to_pylist()]


def all_rows(sink: TableSinkSettings) -> list[int]:
    found = dataset.dataset(sink.path, partitioning="hive").to_table(columns=["offset"])
    return sorted(found["offset"].to_pylist())


def on_point(monkeypatch: pytest.MonkeyPatch, action: Callable[[], None], hit: int = 1) -> None:
    """Do something when compaction comes to its point for this time."""
    hits = []

    def reached(point: str) -> None:
        if point == crash_points.COMPACTING:
            hits.append(point)
            if len(hits) == hit:
                action()

    monkeypatch.setattr(crash_points, "on_reached", reached)


def die() -> None:
    raise Killed


def test_only_folders_that_the_watermark_has_passed(sink: TableSinkSettings) -> None:
    made = filled(sink)
    before = files_of(sink, DAY)
    assert made.compact(None) == 0
    assert made.compact(PASSED_MS - 24 * 3_600_000) == 0
    assert files_of(sink, DAY) == before
    assert made.compact(PASSED_MS) == 5
    [file] = files_of(sink, DAY)
    assert rows_of([file]) == [0, 1, 3, 4, 6, 7, 9, 10, 12, 13]
    assert len(files_of(sink, NEXT)) == 5
    assert parquet.read_metadata(file).row_group(0).column(0).compression == "ZSTD"
    assert made.compact(PASSED_MS) == 0
    assert opened(sink).compact(PASSED_MS) == 0
    assert all_rows(sink) == list(range(15))


def test_the_old_folder_stays_hidden_for_those_who_list_it(
    sink: TableSinkSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = filled(sink)
    with os.scandir(Path(sink.path or "") / f"day={DAY}") as listing:
        assert made.compact(PASSED_MS)
        assert len({entry.name for entry in listing}) == 5
    building = Path(sink.path or "") / "_ottla/compacting"
    assert len(list(building.glob("*/*.parquet"))) == 5
    monkeypatch.setattr(compaction, "_LISTING_SECONDS", -1.0)
    made.compact(PASSED_MS)
    assert list(building.iterdir()) == []


def test_late_rows_are_compacted_when_there_are_enough(sink: TableSinkSettings) -> None:
    made = filled(sink)
    assert made.compact(PASSED_MS) == 5
    for number in range(5, 12):
        assert made.commit(stage(made, number, {DAY: [number * 3]}))
    assert made.compact(PASSED_MS) == 0
    assert made.commit(stage(made, 12, {DAY: [36]}))
    assert made.compact(PASSED_MS) == 9
    [file] = files_of(sink, DAY)
    assert rows_of([file]) == [0, 1, 3, 4, 6, 7, 9, 10, 12, 13, *range(15, 39, 3)]
    name = DataFileName.parse(file.name)
    assert name is not None
    assert (name.version, name.generation) == (13, 2)


def test_files_have_about_the_size_that_was_asked_for(tmp_path: Path) -> None:
    sink = settings(str(tmp_path), compression="none", compact_to_bytes=100_000)
    made = opened(sink)
    for number in range(9):
        rows = range(number * 5000, number * 5000 + (5000 if number != 4 else 30_000))
        assert made.commit(stage(made, number, {DAY: list(rows)}))
    large = files_of(sink, DAY)[4]
    inode = large.stat().st_ino
    expected = rows_of(files_of(sink, DAY))
    assert made.compact(PASSED_MS) == 8
    files = files_of(sink, DAY)
    assert rows_of(files) == expected
    assert len(files) < 9
    assert [file.stat().st_ino for file in files if file.name == large.name] == [inode]


@pytest.mark.parametrize("hit", [1, 2])
def test_a_crash_before_or_after_the_exchange(
    sink: TableSinkSettings, monkeypatch: pytest.MonkeyPatch, hit: int
) -> None:
    made = filled(sink)
    with monkeypatch.context() as patch:
        on_point(patch, die, hit)
        with pytest.raises(Killed):
            made.compact(PASSED_MS)
    assert len(files_of(sink, DAY)) == (5 if hit == 1 else 1)
    assert all_rows(sink) == list(range(15))
    again = opened(sink)
    assert [each.name for each in (Path(sink.path or "") / "_ottla").iterdir() if "remov" in each.name] == []
    assert not (Path(sink.path or "") / "_ottla/compacting").exists()
    assert all_rows(sink) == list(range(15))
    again.compact(PASSED_MS)
    assert rows_of(files_of(sink, DAY)) == [0, 1, 3, 4, 6, 7, 9, 10, 12, 13]


def test_a_crash_while_the_new_folder_is_built(sink: TableSinkSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    made = filled(sink)

    def broken(*_: Any, **__: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(compaction, "merge", broken)
        with pytest.raises(Killed):
            made.compact(PASSED_MS)
    assert all_rows(sink) == list(range(15))
    assert opened(sink).compact(PASSED_MS) == 5
    assert all_rows(sink) == list(range(15))


@pytest.mark.parametrize("when", ["at the exchange", "at the build"])
def test_a_driver_that_was_replaced_exchanges_nothing(
    sink: TableSinkSettings, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """Its new folder lacks what the second driver has committed since."""
    stopped = filled(sink)
    original = compaction.merge

    def replace() -> None:
        second = opened(sink)
        assert second.commit(stage(second, 5, {DAY: [15]}))

    def slow(*arguments: Any, **named: Any) -> Any:
        replace()
        return original(*arguments, **named)

    with monkeypatch.context() as patch:
        if when == "at the build":
            patch.setattr(compaction, "merge", slow)
        else:
            on_point(patch, replace)
        with pytest.raises(SupersededError, match="compacts nothing"):
            stopped.compact(PASSED_MS)
    assert all_rows(sink) == list(range(16))
    assert opened(sink).compact(PASSED_MS) == 6
    assert all_rows(sink) == list(range(16))


def test_a_driver_that_was_replaced_long_ago_compacts_nothing(sink: TableSinkSettings) -> None:
    stopped = filled(sink)
    second = opened(sink)
    with pytest.raises(SupersededError, match="compacts nothing"):
        stopped.compact(PASSED_MS)
    assert len(files_of(sink, DAY)) == 5
    assert second.compact(PASSED_MS) == 5


def test_only_folders_with_a_time_are_remembered(sink: TableSinkSettings) -> None:
    made = filled(sink)
    made.compact(0)
    assert made.commit(stage(made, 5, {"AA": [15], None: [16], "2013-01-05": [17]}))
    assert made._compactor._open == {f"day={day}" for day in (DAY, NEXT, "2013-01-05")}


def test_columns_that_came_later(sink: TableSinkSettings) -> None:
    made = opened(sink)
    assert made.commit(stage(made, 0, {DAY: [0]}))
    nested = pyarrow.field("seen", pyarrow.struct([("by", pyarrow.string())]))
    wider = pyarrow.field("seen", pyarrow.struct([("by", pyarrow.string()), ("at", pyarrow.int64())]))
    for number, (field, value) in enumerate([(nested, {"by": "x"}), (wider, {"by": "y", "at": 7})], start=1):
        assert made.commit(stage(made, number, {DAY: [number]}, schema=SCHEMA.append(field), more={"seen": value}))
    assert made.commit(stage(made, 3, {DAY: [3]}))
    assert made.compact(PASSED_MS) == 4
    [file] = files_of(sink, DAY)
    assert parquet.read_table(file)["seen"].to_pylist() == [None, {"by": "x", "at": None}, {"by": "y", "at": 7}, None]
    assert rows_of([file]) == [0, 1, 2, 3]


@pytest.mark.parametrize("spoiled", ["a foreign file", "a hidden file", "other types", "INT96"])
def test_folders_that_are_left_as_they_are(
    sink: TableSinkSettings, spoiled: str, caplog: pytest.LogCaptureFixture
) -> None:
    made = filled(sink)
    first = files_of(sink, DAY)[0]
    if spoiled == "a foreign file":
        (first.parent / "notes.txt").touch()
    elif spoiled == "a hidden file":
        (first.parent / "_SUCCESS").touch()
    elif spoiled == "other types":
        parquet.write_table(pyarrow.table({"offset": ["x"]}), first)
    else:
        times = pyarrow.array([0], pyarrow.timestamp("us"))
        parquet.write_table(pyarrow.table({"at": times}), first, use_deprecated_int96_timestamps=True)
    before = {path: path.stat().st_ino for path in files_of(sink, DAY)}
    assert made.compact(PASSED_MS) == 0
    assert {path: path.stat().st_ino for path in files_of(sink, DAY)} == before
    assert caplog.text.count("is not compacted") == 1
    assert list((Path(sink.path or "") / "_ottla").glob("compacting/*")) == []


def test_a_damaged_file_is_told_and_stays(sink: TableSinkSettings, caplog: pytest.LogCaptureFixture) -> None:
    made = filled(sink)
    files_of(sink, DAY)[2].write_bytes(b"PAR1 damaged PAR1")
    assert made.compact(PASSED_MS) == 0
    assert len(files_of(sink, DAY)) == 5
    assert "is not compacted" in caplog.text


def test_without_an_exchange_nothing_is_compacted(
    sink: TableSinkSettings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(compaction, "exchange", lambda *_: False)
    made = filled(sink)
    for _ in range(2):
        assert made.compact(PASSED_MS) == 0
    assert len(files_of(sink, DAY)) == 5
    assert caplog.text.count("cannot exchange two folders") == 1
    assert made.commit(stage(made, 5, {DAY: [15]}))


def test_object_stores_and_settings_without_a_size_compact_nothing(sink: TableSinkSettings, s3: PlayedS3) -> None:
    for other in (
        settings(s3.url("compaction"), storage_options=s3.options),
        settings("memory://compaction"),
        settings(sink.path or "", compact_to_bytes=None),
    ):
        made = opened(other)
        for number in range(3):
            assert made.commit(stage(made, number, {DAY: [number]}))
        assert made.compact(PASSED_MS) == 0


def test_folders_change_places(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    assert exchange(str(tmp_path / "a"), str(tmp_path / "b"))
    assert (tmp_path / "a" / "b").exists()
    with pytest.raises(FileNotFoundError):
        exchange(str(tmp_path / "a"), str(tmp_path / "c"))


def test_committed_files_in_compactions(sink: TableSinkSettings) -> None:
    made = filled(sink)
    assert made.compact(PASSED_MS)
    assert made.commit(stage(made, 5, {DAY: [15]}))
    assert rows_of([Path(path) for path in committed_files(sink.path or "")]) == [
        *[0, 1, 3, 4, 6, 7, 9, 10, 12, 13],
        15,
        *range(2, 15, 3),
    ]


def test_committed_files_when_a_folder_is_compacted_meanwhile(
    sink: TableSinkSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The merged file has rows of batches after the one that was the newest; without them rows would be missing."""
    made = filled(sink)
    newest = CommitLog.newest
    asked = []

    def and_then_compacted(log: CommitLog) -> Manifest | None:
        found = newest(log)
        if not asked:
            asked.append(True)
            assert made.commit(stage(made, 5, {DAY: [15]}))
            assert made.compact(PASSED_MS) == 6
        return found

    monkeypatch.setattr(CommitLog, "newest", and_then_compacted)
    assert sorted(rows_of([Path(path) for path in committed_files(sink.path or "")])) == list(range(16))


class Scanner:
    """A reader that lists names as `ls` does, opens all of them, and lists again when one is gone by then."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.scans = 0
        self.repeats = 0
        self.failure = ""
        self._before: set[int] = set()

    def scan(self) -> list[int]:
        while True:
            try:
                return rows_of(self._listed())
            except FileNotFoundError:
                self.repeats += 1

    def _listed(self) -> list[Path]:
        with os.scandir(self.folder) as folders:
            names = [entry.name for entry in folders if entry.name.startswith("day=")]
        found = []
        for name in names:
            with os.scandir(self.folder / name) as files:
                found += [self.folder / name / entry.name for entry in files if not entry.name.startswith(("_", "."))]
        return found

    def run(self, ended: threading.Event) -> None:
        while not self.failure:
            is_last = ended.is_set()
            seen = self.scan()
            if len(seen) != len(set(seen)):
                self.failure = "a row was there twice"
            if not self._before <= set(seen):
                self.failure = f"{sorted(self._before - set(seen))[:9]} went away"
            self._before = set(seen)
            self.scans += 1
            if is_last:
                return


def read_along(sink: TableSinkSettings, commits: int, compactions: int) -> Scanner:
    """Commits to one day after the other, each compacted when it is over, under a reader that scans in a loop."""
    made = opened(sink)
    scanner = Scanner(Path(sink.path or ""))
    ended = threading.Event()
    reader = threading.Thread(target=scanner.run, args=(ended,))
    reader.start()
    done = 0
    try:
        for number in range(commits):
            day = number * compactions // commits
            days = {time.strftime("%Y-%m-%d", time.gmtime((day + before) * 86_400)): before for before in range(2)}
            assert made.commit(stage(made, number, {name: [number * 2 + at] for name, at in days.items()}))
            done += bool(made.compact(int((day - 0.5 + 0.01) * 86_400_000)))
        for day in range(compactions, compactions + 5):
            done += bool(made.compact(day * 86_400_000))
    finally:
        ended.set()
        reader.join()
    assert done >= compactions
    assert not scanner.failure, scanner.failure
    assert len(scanner.scan()) == commits * 2
    return scanner


def test_a_reader_in_a_loop_through_compactions(sink: TableSinkSettings) -> None:
    scanner = read_along(sink, 60, 4)
    assert scanner.scans > 1


@pytest.mark.long
def test_a_reader_in_a_loop_through_a_thousand_commits(sink: TableSinkSettings) -> None:
    scanner = read_along(sink, 1_000, 20)
    assert scanner.scans > 20
    print(scanner.scans, "scans,", scanner.repeats, "of them repeated")
