"""The demo's checks must fail when something is wrong."""

from __future__ import annotations

import dataclasses
import datetime
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import deltalake
import pyarrow
import pytest

from ottla.client.model import EARLIEST, TopicPartition
from ottla.demo import checks
from ottla.demo.feed import Event, Feed

HOUR = 3_600_000


class FakeClient:
    """Topics as lists of (key, value, timestamp) per partition."""

    def __init__(self, *partitions: list[tuple[bytes, bytes, int]], committed: int = 0) -> None:
        self._partitions = partitions
        self._committed = committed

    def partitions(self, topics: list[str]) -> dict[str, list[int]]:
        return {topic: list(range(len(self._partitions))) for topic in topics}

    def offsets_at(self, partitions: list[TopicPartition], at: int) -> dict[TopicPartition, int]:
        return {each: 0 if at == EARLIEST else len(self._partitions[each.partition]) for each in partitions}

    def committed(self, group: str, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, self._committed)

    def read_range_arrow(self, partition: TopicPartition, start: int, end: int, **_: Any) -> list[pyarrow.RecordBatch]:
        records = self._partitions[partition.partition][start:end]
        columns = {
            "key": [record[0] for record in records],
            "value": [record[1] for record in records],
            "offset": list(range(start, end)),
            "timestamp": [record[2] for record in records],
            "headers": [[] for _ in records],
        }
        return [pyarrow.record_batch(columns)] if records else []


RECORDS = [(b"a", b"1", 5), (b"b", b"2", 6)]


@pytest.fixture
def feed() -> Feed:
    """Three events: two of UA, one of B6, at JFK and EWR."""
    events = [
        Event(HOUR, b"UA1", b"{}", "UA", 5.0, "JFK"),
        Event(HOUR + 1, b"UA2", b"{}", "UA", None, "EWR"),
        Event(25 * HOUR, b"B61", b"{}", "B6", -1.0, "JFK"),
    ]
    fields = {"carrier": "STRING", "delay": "INT", "origin": "STRING"}
    return Feed("x", events, fields, "carrier", "delay", "origin")


def test_loaded(feed: Feed) -> None:
    assert checks.check_loaded(FakeClient(RECORDS, RECORDS[:1]), "t", feed).passed
    assert not checks.check_loaded(FakeClient(RECORDS), "t", feed).passed


def test_a_mirror_must_be_equal_in_everything() -> None:
    source = FakeClient(RECORDS, [])
    equal = checks.check_mirror(source, FakeClient(RECORDS, []), "t", "m.t")
    assert equal.passed
    assert equal.detail == "2 records compared in 2 partitions"
    wrong = {
        "records per partition": FakeClient([], RECORDS),
        "column key differs": FakeClient([(b"x", b"1", 5), RECORDS[1]], []),
        "column value differs": FakeClient([(b"a", b"x", 5), RECORDS[1]], []),
        "column timestamp differs": FakeClient([(b"a", b"1", 7), RECORDS[1]], []),
    }
    for complaint, target in wrong.items():
        check = checks.check_mirror(source, target, "t", "m.t")
        assert not check.passed
        assert complaint in check.detail
    assert not checks.check_mirror(source, FakeClient(RECORDS[::-1], []), "t", "m.t").passed, "order counts"


def test_groups_must_be_at_the_end() -> None:
    assert checks.check_groups(FakeClient(RECORDS, RECORDS, committed=2), "t", ["g"]).passed
    behind = checks.check_groups(FakeClient(RECORDS, RECORDS, committed=1), "t", ["g", "h"])
    assert not behind.passed
    assert behind.detail == "g 2 behind, h 2 behind"
    assert not checks.check_groups(FakeClient(RECORDS, committed=-1), "t", ["g"]).passed, "nothing committed"


def test_rebalances() -> None:
    assert checks.check_rebalances(7, 4).passed
    assert not checks.check_rebalances(3, 4).passed


def _archive(folder: Path, rows: list[tuple[str, str, int, int]]) -> None:
    days, places, partitions, offsets = (list(each) for each in zip(*rows, strict=True))
    table = pyarrow.table(
        {
            "date": pyarrow.array([datetime.date.fromisoformat(day) for day in days], pyarrow.date32()),
            "origin": places,
            "record_partition": pyarrow.array(partitions, pyarrow.int32()),
            "record_offset": offsets,
        }
    )
    deltalake.write_deltalake(folder, table, partition_by=["date", "origin"])


GOOD = [("1970-01-01", "JFK", 0, 0), ("1970-01-01", "EWR", 0, 1), ("1970-01-02", "JFK", 1, 0)]


def test_an_archive_must_hold_each_record_once(feed: Feed, tmp_path: Path) -> None:
    client = FakeClient(RECORDS, RECORDS[:1])
    _archive(tmp_path / "good", GOOD)
    good = checks.check_archive(client, "t", feed, tmp_path / "good")
    assert good.passed
    assert good.detail == "3 rows in 3 files of a Delta table"
    wrong = {
        "1 are there twice": [*GOOD, GOOD[0]],
        "1 of 3 are missing": GOOD[:2],
        "the last offsets differ": [*GOOD[:2], ("1970-01-02", "JFK", 1, 5)],
        "per day and place differ": [*GOOD[:2], ("1970-01-02", "LGA", 1, 0)],
    }
    for complaint, rows in wrong.items():
        _archive(tmp_path / complaint, rows)
        check = checks.check_archive(client, "t", feed, tmp_path / complaint)
        assert not check.passed
        assert complaint in check.detail
    assert not checks.check_archive(client, "t", feed, tmp_path / "none").passed


def test_the_day_may_be_in_three_fields(feed: Feed, tmp_path: Path) -> None:
    days = {"year": [1970, 1970, 1970], "month": [1, 1, 1], "day": [1, 1, 2], "origin": ["JFK", "EWR", "JFK"]}
    table = pyarrow.table(
        {**days, "record_partition": pyarrow.array([0, 0, 1], pyarrow.int32()), "record_offset": [0, 1, 0]}
    )
    deltalake.write_deltalake(tmp_path / "archive", table)
    fields = dict.fromkeys(("year", "month", "day"), "INT") | dict(feed.fields)
    three = dataclasses.replace(feed, fields=fields, day_fields=("year", "month", "day"))
    assert checks.check_archive(FakeClient(RECORDS, RECORDS[:1]), "t", three, tmp_path / "archive").passed


def _online(path: Path, *rows: tuple[int, str, int, int, float | None]) -> Path:
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE totals (bucket TEXT, key TEXT, events INTEGER, measured INTEGER, total REAL)")
        for hour, *rest in rows:
            start = datetime.datetime.fromtimestamp(hour * 3_600, datetime.UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
            database.execute("INSERT INTO totals VALUES (?, ?, ?, ?, ?)", (start, *rest))
        database.commit()
    return path


def test_online_totals_must_equal_the_file_s(feed: Feed, tmp_path: Path) -> None:
    rows = ((1, "UA", 2, 1, 5.0), (25, "B6", 1, 1, -1.0))
    right = _online(tmp_path / "right", *rows)
    check = checks.check_online(feed, right, 0)
    assert check.passed
    assert check.detail == "2 totals over 3 events, delay known of 2, sum 4"
    late = checks.check_online(feed, right, 2)
    assert not late.passed
    assert "2 events came too late" in late.detail
    for wrong in (
        rows[:1],
        (rows[0], (25, "B6", 1, 1, -1.5)),
        (*rows, (26, "DL", 1, 0, None)),
        ((1, "UA", 3, 1, 5.0), rows[1]),
        (*rows, rows[0]),
    ):
        assert not checks.check_online(feed, _online(tmp_path / "wrong", *wrong), 0).passed
    assert not checks.check_online(feed, tmp_path / "none", 0).passed
