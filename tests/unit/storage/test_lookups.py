from __future__ import annotations

import random

import pytest

from ottla.env.disk import Disk
from ottla.records.record import Record
from ottla.storage.log import OffsetTimestamp, PartitionLog
from support.storage_logs import NOW_MS, append, log_config, new_log, of_records, open_log


def filled(ground: tuple[Disk, str], times: list[list[int]], **settings: object) -> PartitionLog:
    log = new_log(*ground, log_config(segment_bytes=600, index_interval_bytes=0, **settings))
    for group in times:
        append(
            log, of_records([Record(at, time, b"k", b"v" * 20, ()) for at, time in enumerate(group)]), leader_epoch=6
        )
    return log


@pytest.mark.spec("L3")
def test_the_first_record_that_is_late_enough(ground: tuple[Disk, str]) -> None:
    random_times = random.Random(7)
    times = [[NOW_MS + 10 * group + random_times.randrange(-40, 40) for _ in range(3)] for group in range(60)]
    flat = [time for group in times for time in group]
    log = filled(ground, times)
    assert len(log.segments) > 4
    for wanted in range(NOW_MS - 50, NOW_MS + 650, 7):
        found = log.offset_for_timestamp(wanted)
        first = next((offset for offset, time in enumerate(flat) if time >= wanted), None)
        if first is None:
            assert found is None
        else:
            assert found == OffsetTimestamp(flat[first], first, 6)
    largest = max(flat)
    assert log.offset_of_max_timestamp() == OffsetTimestamp(largest, flat.index(largest), 6)
    config = log.config
    log.close()
    again = open_log(*ground, config, clean=True)
    assert again.offset_of_max_timestamp() == OffsetTimestamp(largest, flat.index(largest), 6)
    assert again.offset_for_timestamp(NOW_MS + 300) == OffsetTimestamp(
        *next((time, offset) for offset, time in enumerate(flat) if time >= NOW_MS + 300), 6
    )


def test_records_below_the_start_are_not_found(ground: tuple[Disk, str]) -> None:
    log = filled(ground, [[NOW_MS, NOW_MS + 1, NOW_MS + 2], [NOW_MS + 3]])
    log.delete_records(2)
    assert log.offset_for_timestamp(NOW_MS) == OffsetTimestamp(NOW_MS + 2, 2, 6)


def test_a_segment_whose_late_records_lie_below_the_start_is_passed_over(ground: tuple[Disk, str]) -> None:
    log = filled(ground, [[NOW_MS + 50] * 6, [NOW_MS], [NOW_MS] * 4, [NOW_MS + 9] * 5])
    assert [segment.base_offset for segment in log.segments][:2] == [0, 11]
    log.delete_records(6)
    assert log.offset_for_timestamp(NOW_MS + 5) == OffsetTimestamp(NOW_MS + 9, 11, 6)


def test_an_empty_log_has_no_times(ground: tuple[Disk, str]) -> None:
    log = filled(ground, [])
    assert log.offset_for_timestamp(0) is None
    assert log.offset_of_max_timestamp() is None
    append(log, of_records([Record(0, -1, b"k", b"v", ())]))
    assert log.offset_of_max_timestamp() is None


def test_the_first_of_equal_times(ground: tuple[Disk, str]) -> None:
    log = filled(ground, [[NOW_MS, NOW_MS + 9], [NOW_MS + 9], [NOW_MS + 1]])
    assert log.offset_of_max_timestamp() == OffsetTimestamp(NOW_MS + 9, 1, 6)


def test_append_time_counts_for_the_whole_batch(ground: tuple[Disk, str]) -> None:
    log = filled(ground, [[1, 2, 3], [4]], message_timestamp_type="LogAppendTime")
    assert log.offset_for_timestamp(NOW_MS) == OffsetTimestamp(NOW_MS, 0, 6)
    log.delete_records(2)
    assert log.offset_for_timestamp(NOW_MS) == OffsetTimestamp(NOW_MS, 2, 6)
    assert log.offset_for_timestamp(NOW_MS + 1) is None
