"""`ottla log explain` says what storage itself finds and deletes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ottla.env.disk import RealDisk
from ottla.inspection.directories import NothingThere
from ottla.inspection.explain import ExplainWish, duration, explain
from ottla.records.record import Record
from ottla.storage.cleanable import examine
from ottla.storage.log import PartitionLog
from ottla.storage.lookups import offset_for_timestamp
from ottla.storage.results import OffsetTimestamp
from ottla.storage.retention import delete_old_segments
from support.storage_logs import NOW_MS, append, batch, log_config, new_log, of_records

SECOND_MS = 1000


def written(root: Path, **settings: object) -> PartitionLog:
    """Twelve batches of three records, a second between them, about four batches in each segment."""
    settings = {"segment_bytes": 700, "index_interval_bytes": 200, **settings}
    log = new_log(RealDisk(), str(root), log_config(**settings))
    for number in range(12):
        append(log, batch(3, size=20, timestamp=NOW_MS + number * SECOND_MS))
    log.flush()
    return log


def rows(log: PartitionLog, kind: str, now_ms: int = NOW_MS, **wish: Any) -> list[dict[str, Any]]:
    for segment in log.segments:
        segment.spill_indexes()
    return [
        row
        for row in explain(RealDisk(), log.directory, ExplainWish(log.config, now_ms, **wish))
        if row["type"] == kind
    ]


@pytest.mark.spec("L3")
def test_segments_as_storage_has_them(tmp_path: Path) -> None:
    log = written(tmp_path)
    shown = rows(log, "segment")
    assert [(row["base_offset"], row["bytes"], row["index_entries"]) for row in shown] == [
        (each.base_offset, each.size, each.offset_index.entries) for each in log.segments
    ]
    assert [row["is_active"] for row in shown] == [False] * (len(shown) - 1) + [True]
    assert len(shown) > 2
    assert sum(row["records"] for row in shown) == 36
    assert shown[0]["oldest_timestamp"] == NOW_MS


def test_an_empty_log_has_no_records(tmp_path: Path) -> None:
    log = new_log(RealDisk(), str(tmp_path), log_config(retention_ms=1))
    roll, by_time, *_ = rows(log, "next")
    assert (roll["reason"], by_time["reason"]) == (f"{0:020}.log has no records", "no records")
    assert not any(row["takes"] for row in rows(log, "next"))


@pytest.mark.spec("L3")
@pytest.mark.parametrize("offset", [0, 5, 7, 8, 20, 35])
def test_offsets_are_found_where_storage_finds_them(tmp_path: Path, offset: int) -> None:
    log = written(tmp_path)
    (row,) = rows(log, "offset-lookup", offset=offset)
    segment = max((each for each in log.segments if each.base_offset <= offset), key=lambda each: each.base_offset)
    assert (row["position"], row["from"]) == (segment.locate(offset), segment.indexed_position(offset))
    assert row["base_offset"] <= offset <= row["last_offset"]


def test_an_offset_that_is_not_there(tmp_path: Path) -> None:
    (row,) = rows(written(tmp_path), "offset-lookup", offset=36)
    assert row["segment"] is None


@pytest.mark.spec("L3")
@pytest.mark.parametrize("after_ms", [-1, 0, 1, 3 * SECOND_MS, 7 * SECOND_MS + 1, 11 * SECOND_MS + 2, 99 * SECOND_MS])
def test_times_are_found_as_storage_finds_them(tmp_path: Path, after_ms: int) -> None:
    log = written(tmp_path)
    (row,) = rows(log, "time-lookup", timestamp_ms=NOW_MS + after_ms)
    found = offset_for_timestamp(log, NOW_MS + after_ms)
    assert row["found_offset"] == (found.offset if isinstance(found, OffsetTimestamp) else None)


@pytest.mark.spec("L4")
@pytest.mark.parametrize(
    "settings",
    [
        {"retention_ms": 5 * SECOND_MS},
        {"retention_ms": 1},
        {"retention_ms": -1, "retention_bytes": 800},
        {"retention_ms": 5 * SECOND_MS, "retention_bytes": 800},
        {"retention_ms": -1, "retention_bytes": 0},
        {"retention_ms": 1, "cleanup_policy": "compact"},
    ],
)
def test_what_retention_takes_is_what_storage_deletes(tmp_path: Path, settings: dict[str, object]) -> None:
    log = written(tmp_path, **settings)
    now_ms = NOW_MS + 12 * SECOND_MS
    said = [name for row in rows(log, "next", now_ms) if row["what"] == "retention" for name in row["takes"]]
    deleted = [Path(path).name.removesuffix(".deleted") for path in delete_old_segments(log, now_ms)]
    assert said == [name for name in deleted if name.endswith(".log")]


@pytest.mark.spec("L5")
def test_compaction_takes_what_the_cleaner_would(tmp_path: Path) -> None:
    log = written(tmp_path, cleanup_policy="compact")
    append(log, of_records([Record(0, NOW_MS, b"k0", None, ())]))
    (row,) = (row for row in rows(log, "next") if row["what"] == "compaction")
    found = examine(log, None, NOW_MS)
    assert row["bytes"] == found.dirty_bytes
    closed = [each for each in log.segments if each.base_offset < found.end_offset]
    assert row["takes"] == [f"{each.base_offset:020}.log" for each in closed]
    records = found.end_offset
    assert row["records"] == {"records": records, "superseded": records - 3}, "three keys, over and over"
    least = written(tmp_path / "x", cleanup_policy="compact", min_compaction_lag_ms=10 * SECOND_MS)
    (row,) = (row for row in rows(least, "next", NOW_MS + SECOND_MS) if row["what"] == "compaction")
    assert row["takes"] == []


def test_what_is_no_partition(tmp_path: Path) -> None:
    written(tmp_path)
    wish = ExplainWish(log_config(), NOW_MS)
    for path, words in ((tmp_path, "many partitions"), (tmp_path / "orders-0" / f"{0:020}.log", "not a directory")):
        with pytest.raises(NothingThere, match=words):
            list(explain(RealDisk(), str(path), wish))


def test_lengths_of_time() -> None:
    assert [duration(each) for each in (5, 1500, 90_000, 604_800_000)] == ["5 ms", "1.5 s", "1.5 min", "7 d"]
