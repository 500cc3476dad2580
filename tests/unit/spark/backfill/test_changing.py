"""Segments that are rolled, compacted, deleted or truncated between planning and reading, and while they are read."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from ottla.env.disk import RealDisk
from ottla.records.batch import split_batches
from ottla.spark.backfill.errors import SegmentError
from ottla.spark.backfill.reading import SegmentRange, read_rows
from ottla.spark.backfill.segments import SegmentName, segment_names
from ottla.spark.errors import DataLossError
from ottla.storage.truncation import truncate_to
from support.storage_logs import NOW_MS, TOPIC
from support.transacted_logs import TransactedLog

pytestmark = pytest.mark.spec("D5")


def fill(log: TransactedLog, turns: int = 80) -> None:
    """Records with keys that repeat, half of them in transactions, a third of which are aborted."""
    for turn in range(turns):
        log.write(keys=[b"key%d" % (turn % 7), b"often"])
        log.write(keys=[b"key%d" % (turn % 5), b"own%d" % (turn % 3)], producer_id=turn % 2)
        if turn % 4 == 3:
            for producer in log.open_producers:
                log.end(producer, commit=turn % 3 != 0)
    for producer in log.open_producers:
        log.end(producer, commit=True)
    log.checkpoint()


def compact(log: TransactedLog) -> None:
    """Twice: segments that have become small are made one."""
    log.clean()
    log.write(keys=[b"key0"])
    log.log.roll(NOW_MS)
    log.clean()
    log.checkpoint()


def test_segments_compacted_after_planning_are_found_by_their_offsets(log: TransactedLog, plan, rows, small) -> None:
    fill(log)
    planned = plan(minPartitions="50")
    assert len(planned.ranges) > 5
    before = sorted(log.directory.glob("*.log"))
    end = log.log.last_stable_offset
    compact(log)
    assert len(sorted(log.directory.glob("*.log"))) < len(before)
    assert [row for each in planned.ranges for row in rows(each)] == log.expected(end)


@pytest.mark.parametrize("seed", range(8))
def test_segments_compacted_while_they_are_read(log: TransactedLog, plan, small, seed: int) -> None:
    chance = random.Random(seed)
    fill(log)
    everything = log.expected()
    [wanted] = plan().ranges
    found = []
    for batch in read_rows(wanted, rows_per_batch=5, include_headers=False, fail_on_data_loss=True):
        found += [(row["offset"], row["key"], row["value"]) for row in batch.to_pylist()]
        if chance.random() < 0.2:
            chance.choice((log.clean, lambda: log.log.roll(NOW_MS), lambda: log.write(2)))()
    assert [row for row in everything if row in found] == found, "in order, once, and only what was committed"
    left = {key: (offset, key, value) for offset, key, value in everything}
    assert set(left.values()) <= set(found), "the newest of each key"


def test_markers_that_compaction_removed_while_their_data_were_open_are_not_missed(
    log: TransactedLog, plan, rows, small
) -> None:
    for _ in range(10):
        log.write(keys=[b"plain"])
    log.write(keys=[b"gone"], producer_id=1)
    for turn in range(60):
        log.write(keys=[b"filler%d" % turn], size=100)
    log.end(1, commit=False)
    # The marker of a producer's last transaction stays.
    log.write(keys=[b"filler0"], producer_id=1)
    log.end(1, commit=True)
    for turn in range(60, 120):
        log.write(keys=[b"filler%d" % turn], size=100)
    log.checkpoint()
    second = int(sorted(log.directory.glob("*.log"))[1].stem)
    wanted = SegmentRange(str(log.directory), TOPIC, 0, 0, second)
    batches = read_rows(wanted, rows_per_batch=1, include_headers=False, fail_on_data_loss=True)
    keys = next(batches)["key"].to_pylist()
    # The first segment is open now, and not looked at for transactions yet; the marker is in a later one.
    log.clean()
    log._cleaning.clock.advance(3_600_000)
    log.write(keys=[b"last"])
    log.log.roll(NOW_MS)
    log.clean()
    assert not list(log.directory.glob("*.txnindex"))
    assert int(sorted(log.directory.glob("*.log"))[1].stem) == second, "other files of the same names"
    for batch in batches:
        keys += batch["key"].to_pylist()
    assert keys[0] == b"plain"
    assert b"gone" not in keys


def test_a_log_that_grows_and_rolls_is_read_to_where_it_was_planned(log: TransactedLog, plan, rows) -> None:
    fill(log)
    planned, expected = plan(), log.expected()
    fill(log)
    assert [row for each in planned.ranges for row in rows(each)] == expected


def test_what_retention_took_is_an_error_or_left_out(tmp_path: Path, plan, rows) -> None:
    log = TransactedLog(tmp_path, cleanup_policy="delete")
    for _ in range(100):
        log.write(3)
    log.checkpoint()
    [wanted] = plan().ranges
    segments = sorted(log.directory.glob("*.log"))
    for each in segments[:2]:
        each.rename(f"{each}.deleted")
    begins = int(segments[2].stem)
    with pytest.raises(DataLossError, match=rf"orders-0 was to be read from offset 0, but .* begins at {begins}: ret"):
        rows(wanted)
    assert [offset for offset, _, _ in rows(wanted, fail_on_data_loss=False)] == list(range(begins, 300))
    with pytest.raises(DataLossError, match=rf"orders-0 wanted 0, .* begins at {begins}\)"):
        plan(startingOffsets=f'{{"{TOPIC}": {{"0": 0}}}}')
    skipped = plan(startingOffsets=f'{{"{TOPIC}": {{"0": 0}}}}', failOnDataLoss="false")
    assert skipped.starting == {(TOPIC, 0): begins}


def test_the_names_that_a_killed_cleaner_left(log: TransactedLog, read, tmp_path: Path) -> None:
    fill(log)
    log.clean()
    log.write(keys=[b"key0"])
    log.log.roll(NOW_MS)
    before = tmp_path / "before"
    shutil.copytree(log.directory, before)
    log.clean()
    log.checkpoint()
    after = log.expected()
    replaced = {each.name for each in before.glob("*.log")} - {each.name for each in log.directory.glob("*.log")}
    assert replaced
    both = [each for each in sorted(log.directory.glob("*.log")) if (before / each.name).exists()]
    cleaned = [each for each in both if each.stat().st_size != (before / each.name).stat().st_size]
    assert cleaned
    for each in cleaned:
        each.rename(f"{each}.swap")
    assert read() == after, "the old segments are gone, the new ones not renamed"
    last = sorted(replaced)[-1]
    shutil.copy(before / last, log.directory / last)
    assert read() == after, "one of the old segments is still there"
    for each in [*cleaned, *(log.directory / name for name in replaced)]:
        shutil.copy(before / each.name, each)
    assert [row for row in read() if row in after] == after, "all are still there"
    (log.directory / "00000000000000000000.log.cleaned").write_bytes(b"half")
    (log.directory / "00000000000000000000.log.deleted").write_bytes(b"old")
    assert [row for row in read() if row in after] == after


def test_names_of_segments() -> None:
    names = ["00000000000000000005.log.swap", "00000000000000000005.log", "00000000000000000009.log.swap", "x.log"]
    names += ["00000000000000000002.log.deleted", "00000000000000000003.log.cleaned", "00000000000000000011.index"]
    found = segment_names(names)
    assert found == (SegmentName(5, ""), SegmentName(9, ".swap"))
    assert found[1].file(".txnindex") == "00000000000000000009.txnindex.swap"


def test_a_log_that_was_truncated_is_an_error(log: TransactedLog, plan, rows) -> None:
    for _ in range(10):
        log.write(3)
    log.checkpoint()
    [wanted] = plan().ranges
    truncate_to(log.log, 12, NOW_MS)
    with pytest.raises(SegmentError, match="ends at offset 12, and was to be read to 30: it was truncated meanwhile"):
        rows(wanted)


def test_a_directory_that_is_not_there(tmp_path: Path, rows) -> None:
    wanted = SegmentRange(str(tmp_path / "orders-0"), "orders", 0, 0, 5)
    with pytest.raises(SegmentError, match="mounted at the same path on every executor"):
        rows(wanted)


def test_a_listing_that_misses_a_file_is_not_believed(
    log: TransactedLog, read, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(log)
    chance = random.Random(1)
    listdir = RealDisk.listdir

    def missing_one(disk: RealDisk, path: str) -> list[str]:
        names = listdir(disk, path)
        segments = [name for name in names if name.endswith(".log")]
        if segments and chance.random() < 0.3:
            names.remove(chance.choice(segments))
        return names

    monkeypatch.setattr(RealDisk, "listdir", missing_one)
    assert read() == log.expected()


@pytest.mark.parametrize("left", [0, 10, 40])
def test_a_segment_that_is_cut_while_it_is_read(tmp_path: Path, plan, small, left: int) -> None:
    """To the middle of a batch; `left` bytes of it are there."""
    log = TransactedLog(tmp_path, segment_bytes=100_000)
    for _ in range(20):
        log.write(1, size=100)
    log.checkpoint()
    [wanted] = plan().ranges
    [segment] = log.directory.glob("*.log")
    batches = split_batches(segment.read_bytes())
    rows = read_rows(wanted, rows_per_batch=1, include_headers=False, fail_on_data_loss=True)
    assert next(rows).column("offset").to_pylist() == [0]
    with segment.open("r+b") as file:
        file.truncate(batches[10].position + left)
    found: list[int] = []
    with pytest.raises(SegmentError, match=r"truncated meanwhile; plan the read again|is damaged at position"):
        found.extend(each for batch in rows for each in batch.column("offset").to_pylist())
    assert found == list(range(1, 10))
