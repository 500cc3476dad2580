from __future__ import annotations

import random

import pytest

from ottla.env.disk import Disk
from ottla.records.batch import TimestampType
from ottla.records.compression import Compression
from ottla.records.message_set import encode_messages
from ottla.records.record import Record
from ottla.storage.log import PartitionLog
from ottla.storage.lookups import offset_for_timestamp, offset_of_max_timestamp
from ottla.storage.results import OffsetTimestamp
from ottla.storage.truncation import delete_records
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
        found = offset_for_timestamp(log, wanted)
        first = next((offset for offset, time in enumerate(flat) if time >= wanted), None)
        if first is None:
            assert found is None
        else:
            assert found == OffsetTimestamp(flat[first], first, 6)
    largest = max(flat)
    assert offset_of_max_timestamp(log) == OffsetTimestamp(largest, flat.index(largest), 6)
    config = log.config
    log.close()
    again = open_log(*ground, config, clean=True)
    assert offset_of_max_timestamp(again) == OffsetTimestamp(largest, flat.index(largest), 6)
    assert offset_for_timestamp(again, NOW_MS + 300) == OffsetTimestamp(
        *next((time, offset) for offset, time in enumerate(flat) if time >= NOW_MS + 300), 6
    )


def test_records_below_the_start_are_not_found(ground: tuple[Disk, str]) -> None:
    log = filled(ground, [[NOW_MS, NOW_MS + 1, NOW_MS + 2], [NOW_MS + 3]])
    delete_records(log, 2)
    assert offset_for_timestamp(log, NOW_MS) == OffsetTimestamp(NOW_MS + 2, 2, 6)


def test_a_segment_whose_late_records_lie_below_the_start_is_passed_over(ground: tuple[Disk, str]) -> None:
    log = filled(ground, [[NOW_MS + 50] * 6, [NOW_MS], [NOW_MS] * 4, [NOW_MS + 9] * 5])
    assert [segment.base_offset for segment in log.segments][:2] == [0, 11]
    delete_records(log, 6)
    assert offset_for_timestamp(log, NOW_MS + 5) == OffsetTimestamp(NOW_MS + 9, 11, 6)


def test_an_empty_log_has_no_times(ground: tuple[Disk, str]) -> None:
    log = filled(ground, [])
    assert offset_for_timestamp(log, 0) is None
    assert offset_of_max_timestamp(log) is None
    append(log, of_records([Record(0, -1, b"k", b"v", ())]))
    assert offset_of_max_timestamp(log) is None


def test_the_first_of_equal_times(ground: tuple[Disk, str]) -> None:
    log = filled(ground, [[NOW_MS, NOW_MS + 9], [NOW_MS + 9], [NOW_MS + 1]])
    assert offset_of_max_timestamp(log) == OffsetTimestamp(NOW_MS + 9, 1, 6)


def test_append_time_counts_for_the_whole_batch(ground: tuple[Disk, str]) -> None:
    log = filled(ground, [[1, 2, 3], [4]], message_timestamp_type="LogAppendTime")
    assert offset_for_timestamp(log, NOW_MS) == OffsetTimestamp(NOW_MS, 0, 6)
    delete_records(log, 2)
    assert offset_for_timestamp(log, NOW_MS) == OffsetTimestamp(NOW_MS, 2, 6)
    assert offset_for_timestamp(log, NOW_MS + 1) is None


def with_old_segment(ground: tuple[Disk, str], messages: bytes) -> PartitionLog:
    """A log whose first segment holds these messages, as Apache Kafka before 0.11 left it, and then a batch."""
    disk, root = ground
    log = new_log(disk, root, log_config())
    folder, config = log.directory, log.config
    log.close()
    disk.write_atomic(f"{folder}/{0:020d}.log", messages)
    return open_log(disk, root, config)


@pytest.mark.spec("L7")
@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP])
def test_times_in_messages_of_format_1(ground: tuple[Disk, str], codec: Compression) -> None:
    records = [Record(at, NOW_MS + 10 * at, b"k", b"v") for at in range(6)]
    messages = b"".join(encode_messages(records[at : at + 3], 1, compression=codec) for at in (0, 3))
    log = with_old_segment(ground, messages)
    assert log.log_end_offset == 6
    for wanted in range(6):
        assert offset_for_timestamp(log, NOW_MS + 10 * wanted - 1) == OffsetTimestamp(NOW_MS + 10 * wanted, wanted, -1)
    assert offset_for_timestamp(log, NOW_MS + 51) is None
    assert offset_of_max_timestamp(log) == OffsetTimestamp(NOW_MS + 50, 5, -1)
    log.raise_log_start(4)
    assert offset_for_timestamp(log, NOW_MS) == OffsetTimestamp(NOW_MS + 40, 4, -1)


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.LZ4])
def test_messages_with_the_brokers_time_have_one_time_for_all(ground: tuple[Disk, str], codec: Compression) -> None:
    records = [Record(at, NOW_MS - at, b"k", b"v") for at in range(3)]
    stamped = encode_messages(
        records, 1, compression=codec, timestamp_type=TimestampType.LOG_APPEND_TIME, log_append_time_ms=NOW_MS + 7
    )
    log = with_old_segment(ground, stamped)
    assert offset_for_timestamp(log, NOW_MS + 7) == OffsetTimestamp(NOW_MS + 7, 0, -1)


def test_messages_of_format_0_have_no_time(ground: tuple[Disk, str]) -> None:
    log = with_old_segment(ground, encode_messages([Record(at, NOW_MS, b"k", b"v") for at in range(3)], 0))
    assert offset_for_timestamp(log, 0) is None
    assert offset_of_max_timestamp(log) is None
    append(log, of_records([Record(0, NOW_MS, b"k", b"v", ())]), leader_epoch=2)
    assert offset_for_timestamp(log, 0) == OffsetTimestamp(NOW_MS, 3, 2)
