"""Segments that are missing in the middle of a log, and gaps that are no loss."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.spark.backfill.reading import SegmentRange
from ottla.spark.errors import DataLossError
from ottla.storage.checkpoints import CLEANER_FILE, encode_offsets
from ottla.storage.retention import drop_segments
from support.storage_logs import NOW_MS, TOPIC
from support.transacted_logs import TransactedLog

pytestmark = pytest.mark.spec("D5")

LEFT = "the log was not compacted there, and the segments before and behind are without gaps"


@pytest.fixture
def kept(tmp_path: Path) -> TransactedLog:
    """A log of a topic that is not compacted, in several segments, with transactions."""
    log = TransactedLog(tmp_path, cleanup_policy="delete")
    for turn in range(100):
        log.write(3)
        log.write(2, producer_id=1)
        log.end(1, commit=turn % 2 == 0)
    log.checkpoint()
    return log


def segments(log: TransactedLog) -> list[int]:
    return [int(each.stem) for each in sorted(log.directory.glob("*.log"))]


def remove(log: TransactedLog, number: int, *suffixes: str) -> tuple[int, int]:
    """Remove files of a segment, all of them by default; from which to which offset it was."""
    bases = segments(log)
    for path in log.directory.glob(f"{bases[number]:020d}.*"):
        if not suffixes or path.suffix in suffixes:
            path.unlink()
    return bases[number], bases[number + 1]


def clean(log: TransactedLog) -> None:
    """Compact the log; nothing is left of the segments that were replaced."""
    log.clean()
    for each in log.directory.glob("*.deleted"):
        each.unlink()
    log.checkpoint()


def test_a_log_without_gaps_is_read_whole(kept: TransactedLog, read, small) -> None:
    assert len(segments(kept)) > 4
    assert read() == kept.expected()
    assert read(minPartitions="30") == kept.expected()


@pytest.mark.parametrize("parts", ["1", "30"])
def test_a_segment_missing_in_the_middle_is_a_loss(
    kept: TransactedLog, read, plan, rows, small, caplog: pytest.LogCaptureFixture, parts: str
) -> None:
    expected = kept.expected()
    low, high = remove(kept, 2)
    with pytest.raises(
        DataLossError,
        match=rf"orders-0: offsets {low} to {high - 1} are missing in .*: {LEFT}; name another replica's log directory",
    ):
        read(minPartitions=parts)
    found = [
        row
        for each in plan(minPartitions=parts, failOnDataLoss="false").ranges
        for row in rows(each, fail_on_data_loss=False)
    ]
    assert found == [row for row in expected if not low <= row[0] < high]
    assert f"offsets {low} to {high - 1} are missing" in caplog.text


def test_first_segments_that_are_missing_are_a_loss(kept: TransactedLog, read, plan) -> None:
    expected = kept.expected()
    _, high = remove(kept, 0)
    with pytest.raises(DataLossError, match=rf"orders-0 wanted 0, .* begins at {high}\); name another replica's"):
        plan()
    assert plan(failOnDataLoss="false").starting == {(TOPIC, 0): high}
    offsets = f'{{"{TOPIC}": {{"0": {high}}}}}'
    assert read(startingOffsets=offsets) == [row for row in expected if row[0] >= high]


def test_first_segments_that_retention_deleted_are_none(kept: TransactedLog, read) -> None:
    drop_segments(kept.log, 2)
    assert kept.log.log_start_offset > 0
    assert read() == kept.expected()
    for each in kept.directory.glob("*.deleted"):
        each.unlink()
    assert read() == kept.expected()


def test_a_range_that_begins_within_the_gap_is_a_loss(kept: TransactedLog, rows) -> None:
    low, high = remove(kept, 2)
    with pytest.raises(DataLossError, match=f"offsets {low + 2} to {high - 1} are missing"):
        rows(SegmentRange(str(kept.directory), TOPIC, 0, low + 2, high + 5))
    with pytest.raises(DataLossError, match=f"offsets {low + 2} to {high - 1} are missing"):
        rows(SegmentRange(str(kept.directory), TOPIC, 0, low + 2, high - 1))


def test_what_is_left_of_a_segment_shows_that_there_was_one(log: TransactedLog, read) -> None:
    """Also where the log was compacted."""
    for turn in range(300):
        log.write(keys=[b"key%d" % (turn % 7), b"own%d" % turn])
    clean(log)
    whole = read()
    (log.root / CLEANER_FILE).write_bytes(encode_offsets({(TOPIC, 0): segments(log)[-1]}))
    low, _ = remove(log, 1, ".log")
    with pytest.raises(DataLossError, match=rf"{low:020d}.index is there, and the segment that it belongs to is not"):
        read()
    for each in list(log.directory.glob(f"{low:020d}.*")):
        each.unlink()
    assert 0 < len(read()) < len(whole), "nothing tells it from compaction"


def test_gaps_behind_what_was_compacted_are_a_loss_and_those_before_are_not(kept: TransactedLog, read) -> None:
    expected = kept.expected()
    low, high = remove(kept, 2)
    (kept.root / CLEANER_FILE).write_bytes(encode_offsets({(TOPIC, 0): high, ("other", 0): 10_000}))
    assert read() == [row for row in expected if not low <= row[0] < high]
    (kept.root / CLEANER_FILE).write_bytes(encode_offsets({(TOPIC, 0): high - 1}))
    with pytest.raises(DataLossError, match=f"offsets {low} to"):
        read()


def test_a_compacted_log_that_a_follower_copied_has_no_loss(log: TransactedLog, read) -> None:
    """Its own broker has compacted nothing, so no checkpoint names it."""
    for turn in range(300):
        log.write(keys=[b"key%d" % (turn % 7), b"own%d" % (turn % 50)])
    clean(log)
    log.write(keys=[b"key0"])
    log.log.roll(NOW_MS)
    clean(log)
    assert read() == log.expected()


@pytest.mark.parametrize("name", ["log.cleaned", "log.swap", "log.deleted"])
def test_nothing_is_reported_while_segments_are_replaced(kept: TransactedLog, read, name: str) -> None:
    expected = kept.expected()
    low, high = remove(kept, 2)
    base = segments(kept)[-1] if name == "log.swap" else low
    (kept.directory / f"{base:020d}.{name}").write_bytes(b"")
    assert read() == [row for row in expected if not low <= row[0] < high]


def test_segments_that_retention_deletes_are_no_sign_of_compaction(kept: TransactedLog, read) -> None:
    (kept.directory / f"{segments(kept)[0]:020d}.log").rename(kept.directory / f"{segments(kept)[0]:020d}.log.deleted")
    low, _ = remove(kept, 2)
    with pytest.raises(DataLossError, match=f"offsets {low} to"):
        read()
