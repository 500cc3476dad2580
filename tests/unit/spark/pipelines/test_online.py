"""The online pipeline's totals, in memory and on disk."""

from __future__ import annotations

import datetime
from pathlib import Path

import pyarrow
import pyarrow.parquet

from ottla.spark.pipelines.online import COLUMNS, Totals


def _table(*rows: tuple[int, str | None, int, int, float | None]) -> pyarrow.Table:
    starts = [datetime.datetime.fromtimestamp(row[0] * 3_600, datetime.UTC) for row in rows]
    columns = [pyarrow.array(starts, pyarrow.timestamp("us", tz="UTC"))]
    kinds = (pyarrow.string(), pyarrow.int64(), pyarrow.int64(), pyarrow.float64())
    for position, kind in enumerate(kinds, start=1):
        columns.append(pyarrow.array([row[position] for row in rows], kind))
    return pyarrow.table(columns, names=list(COLUMNS))


def test_a_batch_replaces_what_it_touched(tmp_path: Path) -> None:
    totals = Totals(tmp_path / "x.parquet")
    totals.merge(_table((1, "UA", 3, 2, 5.0), (1, "B6", 1, 0, None)))
    totals.merge(_table((1, "UA", 4, 3, 9.0), (2, None, 1, 1, 1.5)))
    assert totals.table().equals(_table((1, "B6", 1, 0, None), (1, "UA", 4, 3, 9.0), (2, None, 1, 1, 1.5)))


def test_a_batch_that_is_run_twice_changes_nothing(tmp_path: Path) -> None:
    once, twice = Totals(tmp_path / "a"), Totals(tmp_path / "b")
    batch = _table((1, "UA", 3, 2, 5.0))
    once.merge(batch)
    twice.merge(batch)
    twice.merge(batch)
    assert once.rows == twice.rows


def test_totals_survive_in_their_file(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "online.parquet"
    totals = Totals.load(path)
    assert not totals.rows
    totals.merge(_table((1, "UA", 3, 2, 5.0)))
    totals.save()
    assert Totals.load(path).rows == totals.rows
    assert pyarrow.parquet.read_table(path).equals(_table((1, "UA", 3, 2, 5.0)))
    assert [each.name for each in path.parent.iterdir()] == [path.name], "no half-written file stays"
