"""Compaction of tables with a log, Delta and Iceberg: what is chosen, what readers and other writers see meanwhile."""

from __future__ import annotations

import threading
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pyarrow
import pytest

from ottla.spark.pipelines import crash_points
from ottla.spark.pipelines.errors import PipelineError, SupersededError
from ottla.spark.pipelines.tables.iceberg import expiry
from ottla.spark.pipelines.tables.log_table import LogTable
from support.staged_tables import Lake, numbered, stage

pytestmark = pytest.mark.spec("D3")

ROWS = 10


def opened(lake: Lake, **settings: Any) -> LogTable:
    table: LogTable = lake.opened(partition_by=("day",), **settings)
    return table


def watermark(*moment: int) -> int:
    return int(datetime(*moment, tzinfo=UTC).timestamp() * 1000)


def filled(lake: Lake, **settings: Any) -> LogTable:
    """Three batches of a file for each of the days 1, 2 and null."""
    table = opened(lake, **settings)
    for batch_id in range(3):
        days: Any = [("2024-01-01", "2024-01-02", None)[number % 3] for number in range(ROWS)]
        table.commit(stage(table, batch_id, numbered(batch_id).set_column(1, "day", pyarrow.array(days))))
    return table


def test_days_that_the_watermark_has_passed_are_compacted(lake: Lake) -> None:
    table = filled(lake)
    assert table.compact(watermark(2024, 1, 1, 23)) == 0
    assert table.compact(watermark(2024, 1, 2)) == 0, "a day may end later in a western zone"
    assert table.compact(watermark(2024, 1, 2, 12)) == 3
    assert len(lake.files()) == 7
    assert table.compact(watermark(2024, 1, 5)) == 3
    assert table.compact(watermark(2024, 1, 5)) == 0, "one file of a day is compact"
    assert lake.ids() == list(range(30))
    assert table.commit(stage(table, 3, numbered(3)))
    assert table.last_commit().batch_id == 3  # type: ignore[union-attr]


def test_columns_year_and_month_are_times(lake: Lake) -> None:
    table = lake.opened(partition_by=("year", "month"))
    for batch_id in range(2):
        rows = numbered(batch_id).append_column("year", pyarrow.array([2024] * ROWS))
        table.commit(stage(table, batch_id, rows.append_column("month", pyarrow.array([2] * ROWS))))
    assert table.compact(watermark(2024, 3, 1)) == 0
    assert table.compact(watermark(2024, 3, 1, 12)) == 2
    assert lake.ids() == list(range(20))


def test_without_a_time_many_small_files_are_compacted(lake: Lake) -> None:
    table = lake.opened()
    table.commit(stage(table, 0, numbered(0, 31), files=31))
    assert table.compact(None) == 0
    table.commit(stage(table, 1, numbered(31, 1)))
    assert table.compact(None) == 32
    assert len(lake.files()) == 1
    assert lake.ids() == list(range(32))


def test_compaction_can_be_off_and_there_may_be_no_table(lake: Lake) -> None:
    assert filled(Lake(lake.path / "off", lake.kind), compact_to_bytes=None).compact(watermark(2030, 1, 1)) == 0
    assert opened(Lake(lake.path / "none", lake.kind)).compact(watermark(2030, 1, 1)) == 0


def test_a_driver_that_ends_in_compaction_leaves_the_rows(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    table = filled(lake)
    reached: list[str] = []

    def end(point: str) -> None:
        reached.append(point)
        if len(reached) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(crash_points, "on_reached", end)
    with pytest.raises(KeyboardInterrupt):
        table.compact(watermark(2024, 2, 1))
    assert reached == [crash_points.COMPACTING] * 2
    leftover = lake.written()
    assert len(lake.files()) == 9
    monkeypatch.setattr(crash_points, "on_reached", None)
    again = opened(lake)
    again.recover()
    assert len(leftover - lake.written()) == 2
    assert again.compact(watermark(2024, 2, 1)) == 6
    assert lake.ids() == list(range(30))


def test_commits_and_other_compactions_in_between(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    table, other = filled(lake), opened(lake)
    left: list[Any] = [
        lambda: other.commit(stage(other, 3, numbered(3))),
        lake.tidy,
    ]
    monkeypatch.setattr(crash_points, "on_reached", lambda _: left.pop(0)() if left else None)
    # Delta's own compaction came before ours.
    assert table.compact(watermark(2024, 2, 1)) == (0 if lake.kind == "delta" else 6)
    assert not left
    assert lake.ids() == list(range(40))
    before = lake.written()
    opened(lake).recover()
    assert lake.written() == before, "what lost had gone"


def test_two_drivers_compact_the_same(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """deltalake's own optimize has the rows twice then."""
    table, other = filled(lake), opened(lake)
    left: list[Any] = [lambda: other.compact(watermark(2024, 2, 1))]
    monkeypatch.setattr(crash_points, "on_reached", lambda _: left.pop(0)() if left else None)
    assert table.compact(watermark(2024, 2, 1)) == 0
    assert len(lake.files()) == 5
    assert lake.ids() == list(range(30))


def test_a_driver_that_was_replaced_does_not_compact(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    table = filled(lake)
    table.recover()
    before = lake.written()
    left: list[Any] = [opened(lake).recover]
    monkeypatch.setattr(crash_points, "on_reached", lambda _: left.pop(0)() if left else None)
    with pytest.raises(SupersededError):
        table.compact(watermark(2024, 2, 1))
    assert lake.written() == before
    assert lake.ids() == list(range(30))


def test_files_of_other_schemas_and_of_others_are_not_mixed(lake: Lake) -> None:
    table = opened(lake)
    for batch_id in range(4):
        rows = numbered(batch_id)
        table.commit(stage(table, batch_id, rows if batch_id < 2 else rows.append_column("new", rows["id"])))
    lake.append(numbered(4).append_column("new", pyarrow.nulls(ROWS, pyarrow.int64())))
    assert table.compact(watermark(2024, 2, 1)) == 4
    assert len(lake.files()) == 2
    assert lake.ids() == list(range(50))
    assert lake.rows().column("new").null_count == 30


@pytest.mark.slow
@pytest.mark.timeout(3_600)  # with --long, and the machine's other work
def test_a_reader_in_a_loop_sees_each_row_once(
    lake: Lake, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits, compactions = (1_000, 20) if request.config.getoption("--long") else (30, 3)
    # So that files of Iceberg's old snapshots are removed while the reader is at work.
    monkeypatch.setattr(expiry, "REMOVED_AFTER_MS", 60_000)
    table = opened(lake)
    table.commit(stage(table, 0, numbered(0)))
    committed = 1
    ended = threading.Event()
    problems: list[str] = []
    scans = 0

    def read() -> None:
        nonlocal scans
        while not ended.is_set() and not problems:
            least = committed
            try:
                rows = lake.rows().column("id").to_pylist()
            except Exception as problem:
                problems.append(repr(problem))
                return
            scans += 1
            twice = [each for each, count in Counter(rows).items() if count > 1]
            if twice or len(rows) % ROWS or len(rows) < least * ROWS or sorted(rows) != list(range(len(rows))):
                problems.append(f"{len(rows)} rows of at least {least * ROWS}, twice: {twice}")

    reader = threading.Thread(target=read)
    reader.start()
    replaced = []
    try:
        for batch_id in range(1, commits):
            day = f"2024-01-{1 + batch_id * 27 // commits:02}"
            table.commit(stage(table, batch_id, numbered(batch_id, day=day), files=2))
            committed += 1
            if batch_id % (commits // compactions) == commits // compactions - 1:
                replaced.append(table.compact(watermark(2024, 1, int(day[-2:]))))
    finally:
        ended.set()
        reader.join()
    assert not problems
    assert scans > 1
    assert len(replaced) == compactions
    assert sum(replaced) > commits
    assert lake.ids() == list(range(commits * ROWS))
    assert table.last_commit().batch_id == commits - 1  # type: ignore[union-attr]
    assert opened(lake).last_commit() == table.last_commit()
    print(
        scans,
        "scans,",
        sum(replaced),
        "files replaced,",
        len(lake.written()) - len(lake.files()),
        "of them still there",
    )


@pytest.mark.parametrize("lake", ["iceberg"], indirect=True)
@pytest.mark.parametrize("misled", [1, 9, 10])
def test_files_that_pyiceberg_misses_are_looked_for_again(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, misled: int
) -> None:
    """Its threads share an evaluator of manifests, so that it may not find a file that is there."""
    from pyiceberg.exceptions import ValidationException
    from pyiceberg.table.update.snapshot import _OverwriteFiles

    table = filled(lake)
    found = _OverwriteFiles._deleted_entries
    missed = 0

    def missing(self: Any) -> Any:
        nonlocal missed
        missed += 1
        if missed <= misled:
            raise ValidationException("Missing required files to delete: a.parquet")
        return found(self)

    monkeypatch.setattr(_OverwriteFiles, "_deleted_entries", missing)
    if misled < 10:
        assert table.compact(watermark(2024, 1, 2, 12)) == 3
    else:
        with pytest.raises(PipelineError, match="Missing required files to delete"):
            table.compact(watermark(2024, 1, 2, 12))
    assert lake.ids() == list(range(30))
