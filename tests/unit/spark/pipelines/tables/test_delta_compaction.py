"""Compaction of a Delta table: what is chosen, and what readers and other writers see meanwhile."""

from __future__ import annotations

import threading
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import deltalake
import pyarrow
import pytest

from ottla.spark.pipelines import points
from ottla.spark.pipelines.errors import SupersededError
from ottla.spark.pipelines.tables.delta import DeltaBatchTable
from support.staged_tables import delta_sink, numbered, stage

pytestmark = pytest.mark.spec("D3")

ROWS = 10


def opened(path: Path, **settings: Any) -> DeltaBatchTable:
    return DeltaBatchTable(delta_sink(path, partition_by=("day",), **settings), "archive")


def ids(path: Path) -> list[int]:
    return sorted(pyarrow.table(deltalake.DeltaTable(path).scan()).column("id").to_pylist())


def parquet_files(path: Path) -> set[str]:
    return {str(each.relative_to(path)) for each in path.rglob("*.parquet") if "_delta_log" not in each.parts}


def watermark(*moment: int) -> int:
    return int(datetime(*moment, tzinfo=UTC).timestamp() * 1000)


def filled(path: Path, **settings: Any) -> DeltaBatchTable:
    """Three batches of a file for each of the days 1, 2 and null."""
    table = opened(path, **settings)
    for batch_id in range(3):
        days: Any = [("2024-01-01", "2024-01-02", None)[number % 3] for number in range(ROWS)]
        table.commit(stage(table, batch_id, numbered(batch_id).set_column(1, "day", pyarrow.array(days))))
    return table


def test_days_that_the_watermark_has_passed_are_compacted(tmp_path: Path) -> None:
    table = filled(tmp_path)
    assert table.compact(watermark(2024, 1, 1, 23)) == 0
    assert table.compact(watermark(2024, 1, 2)) == 0, "a day may end later in a western zone"
    assert table.compact(watermark(2024, 1, 2, 12)) == 3
    assert len(deltalake.DeltaTable(tmp_path).file_uris()) == 7
    assert table.compact(watermark(2024, 1, 5)) == 3
    assert table.compact(watermark(2024, 1, 5)) == 0, "one file of a day is compact"
    assert ids(tmp_path) == list(range(30))
    assert table.commit(stage(table, 3, numbered(3)))
    assert table.last_commit().batch_id == 3  # type: ignore[union-attr]


def test_without_a_time_many_small_files_are_compacted(tmp_path: Path) -> None:
    table = DeltaBatchTable(delta_sink(tmp_path), "archive")
    table.commit(stage(table, 0, numbered(0, 31), files=31))
    assert table.compact(None) == 0
    table.commit(stage(table, 1, numbered(31, 1)))
    assert table.compact(None) == 32
    assert len(deltalake.DeltaTable(tmp_path).file_uris()) == 1
    assert ids(tmp_path) == list(range(32))


def test_compaction_can_be_off_and_there_may_be_no_table(tmp_path: Path) -> None:
    assert filled(tmp_path / "off", compact_to_bytes=None).compact(watermark(2030, 1, 1)) == 0
    assert opened(tmp_path / "none").compact(watermark(2030, 1, 1)) == 0


def test_a_driver_that_ends_in_compaction_leaves_the_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = filled(tmp_path)
    reached: list[str] = []

    def end(point: str) -> None:
        reached.append(point)
        if len(reached) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(points, "on_reached", end)
    with pytest.raises(KeyboardInterrupt):
        table.compact(watermark(2024, 2, 1))
    assert reached == [points.COMPACTING] * 2
    leftover = parquet_files(tmp_path)
    assert len(deltalake.DeltaTable(tmp_path).file_uris()) == 7
    monkeypatch.setattr(points, "on_reached", None)
    again = opened(tmp_path)
    again.recover()
    assert len(leftover - parquet_files(tmp_path)) == 1
    assert again.compact(watermark(2024, 2, 1)) == 3
    assert ids(tmp_path) == list(range(30))


def test_commits_and_other_compactions_in_between(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, other = filled(tmp_path), opened(tmp_path)
    left: list[Any] = [
        lambda: other.commit(stage(other, 3, numbered(3))),
        lambda: deltalake.DeltaTable(tmp_path).optimize.compact(),
    ]
    monkeypatch.setattr(points, "on_reached", lambda _: left.pop(0)() if left else None)
    assert table.compact(watermark(2024, 2, 1)) == 3, "the other compaction was before that of the second day"
    assert not left
    assert ids(tmp_path) == list(range(40))
    before = parquet_files(tmp_path)
    opened(tmp_path).recover()
    assert parquet_files(tmp_path) == before, "what lost had gone"


def test_two_drivers_compact_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """deltalake's own optimize has the rows twice then."""
    table, other = filled(tmp_path), opened(tmp_path)
    left: list[Any] = [lambda: other.compact(watermark(2024, 2, 1))]
    monkeypatch.setattr(points, "on_reached", lambda _: left.pop(0)() if left else None)
    assert table.compact(watermark(2024, 2, 1)) == 0
    assert len(deltalake.DeltaTable(tmp_path).file_uris()) == 5
    assert ids(tmp_path) == list(range(30))


def test_a_driver_that_was_replaced_does_not_compact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = filled(tmp_path)
    table.recover()
    before = parquet_files(tmp_path)
    left: list[Any] = [opened(tmp_path).recover]
    monkeypatch.setattr(points, "on_reached", lambda _: left.pop(0)() if left else None)
    with pytest.raises(SupersededError):
        table.compact(watermark(2024, 2, 1))
    assert parquet_files(tmp_path) == before
    assert ids(tmp_path) == list(range(30))


def test_files_of_other_schemas_and_of_others_are_not_mixed(tmp_path: Path) -> None:
    table = opened(tmp_path)
    for batch_id in range(4):
        rows = numbered(batch_id)
        table.commit(stage(table, batch_id, rows if batch_id < 2 else rows.append_column("new", rows["id"])))
    deltalake.write_deltalake(tmp_path, numbered(4), mode="append", schema_mode="merge")
    assert table.compact(watermark(2024, 2, 1)) == 4
    whole = deltalake.DeltaTable(tmp_path)
    assert len(whole.file_uris()) == 3
    assert ids(tmp_path) == list(range(50))
    assert whole.to_pyarrow_table(columns=["new"]).column("new").null_count == 30


@pytest.mark.slow
def test_a_reader_in_a_loop_sees_each_row_once(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    commits, compactions = (1_000, 20) if request.config.getoption("--long") else (30, 3)
    table = opened(tmp_path)
    table.commit(stage(table, 0, numbered(0)))
    committed = 1
    ended = threading.Event()
    problems: list[str] = []
    scans = 0

    def read() -> None:
        nonlocal scans
        while not ended.is_set() and not problems:
            least = committed
            rows = deltalake.DeltaTable(tmp_path).to_pyarrow_table(columns=["id"]).column("id").to_pylist()
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
    assert ids(tmp_path) == list(range(commits * ROWS))
    assert table.last_commit().batch_id == commits - 1  # type: ignore[union-attr]
    assert DeltaBatchTable(delta_sink(tmp_path, partition_by=("day",)), "archive").last_commit() == table.last_commit()
