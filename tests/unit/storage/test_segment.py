from __future__ import annotations

import pytest

from ottla.env.disk import Disk
from ottla.records.batch import patch_batch, split_batches
from ottla.storage.files import OpenFiles
from ottla.storage.index import IndexMemory
from ottla.storage.segment import REMEMBERED_POSITIONS, Segment
from support.storage_logs import NOW_MS, batch

BASE = 100


def new_segment(ground: tuple[Disk, str]) -> Segment:
    disk, root = ground
    segment = Segment(OpenFiles(disk), IndexMemory(), root, BASE, 0, NOW_MS)
    segment.max_timestamp = -1
    segment.create_files()
    return segment


def add(segment: Segment, offset: int, count: int = 2, timestamp: int = NOW_MS, interval: int = 300) -> int:
    buf = batch(count, timestamp=timestamp)
    patch_batch(buf, 0, offset, 0)
    segment.append([buf], split_batches(buf), len(buf), interval)
    return len(buf)


def test_entries_are_made_when_kafka_makes_them(ground: tuple[Disk, str]) -> None:
    segment = new_segment(ground)
    size = 0
    for number in range(10):
        size = add(segment, BASE + 2 * number, timestamp=NOW_MS + number)
    every = 300 // size + 1
    expected = [(BASE + 2 * number + 1, number * size) for number in range(every, 10, every)]
    assert [segment.offset_index.entry(number) for number in range(segment.offset_index.entries)] == expected
    assert [segment.time_index.entry(number) for number in range(segment.time_index.entries)] == [
        (NOW_MS + number + 1, BASE + 2 * number + 1) for number in range(every, 10, every)
    ]
    segment.finish()
    assert segment.time_index.last() == (NOW_MS + 10, BASE + 19)


def test_a_time_that_goes_back_makes_no_entry(ground: tuple[Disk, str]) -> None:
    segment = new_segment(ground)
    add(segment, BASE, timestamp=NOW_MS, interval=0)
    add(segment, BASE + 2, timestamp=NOW_MS - 50, interval=0)
    add(segment, BASE + 4, timestamp=NOW_MS - 60, interval=0)
    add(segment, BASE + 6, timestamp=NOW_MS + 7, interval=0)
    assert segment.offset_index.entries == 3
    assert [segment.time_index.entry(number) for number in range(segment.time_index.entries)] == [
        (NOW_MS + 1, BASE + 1),
        (NOW_MS + 8, BASE + 7),
    ]
    assert segment.first_timestamp() == NOW_MS + 1
    assert segment.retention_timestamp() == NOW_MS + 8


def test_batches_without_timestamps(ground: tuple[Disk, str]) -> None:
    disk = ground[0]
    segment = new_segment(ground)
    assert segment.retention_timestamp() == NOW_MS
    assert segment.first_timestamp() == -1
    buf = batch(1, timestamp=-1)
    patch_batch(buf, 0, BASE, 0)
    segment.append([buf], split_batches(buf), len(buf), 0)
    assert segment.first_timestamp() == -1
    segment.finish()
    assert segment.time_index.entries == 0
    assert segment.retention_timestamp() == disk.modified_ms(segment.log.path)


def test_positions_are_found_and_remembered_within_bounds(ground: tuple[Disk, str]) -> None:
    segment = new_segment(ground)
    assert segment.locate(BASE) is None
    size = 0
    for number in range(200):
        size = add(segment, BASE + 2 * number)
    for number in range(200):
        assert segment.locate(BASE + 2 * number + 1) == number * size
        assert segment.locate(BASE + 2 * number) == number * size
    assert segment.locate(0) == 0
    assert segment.locate(BASE + 400) is None
    assert segment._positions is not None
    assert REMEMBERED_POSITIONS // 2 <= len(segment._positions) <= REMEMBERED_POSITIONS
    cut = segment.cut(0, 50 * size)
    assert cut is not None
    assert 0 < cut.position <= 50 * size
    assert segment.cut(0, size) is None


@pytest.mark.parametrize("offset", [0, BASE, BASE + 2, BASE + 200, BASE + 398, BASE + 500])
def test_truncation(ground: tuple[Disk, str], offset: int) -> None:
    segment = new_segment(ground)
    size = 0
    for number in range(200):
        size = add(segment, BASE + 2 * number, timestamp=NOW_MS + number)
    kept = min(max(offset - BASE, 0) // 2, 200)
    assert segment.truncate(offset) == (200 - kept) * size
    assert segment.size == kept * size
    assert segment.locate(BASE + 2 * kept) is None
    assert all(segment.offset_index.entry(number)[0] < offset for number in range(segment.offset_index.entries))
    if kept < 200:
        add(segment, BASE + 2 * kept)
        assert segment.locate(BASE + 2 * kept) == kept * size
    assert "00000000000000000100.log" in repr(segment)
