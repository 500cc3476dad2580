from __future__ import annotations

import errno
import struct
from typing import NamedTuple
from uuid import UUID

import pytest

from ottla.env.disk import DiskError
from ottla.records.batch import TimestampType, check_crc, frame_batch, parse_batch_header, split_batches
from ottla.records.record import Record
from ottla.storage.flushing import begin_flush, end_flush
from ottla.storage.log import COORDINATOR, AppendInfo, AppendRefusal, LogRead, PartitionLog, ReadRefusal
from ottla.storage.lookups import offset_for_timestamp, offset_of_max_timestamp
from ottla.storage.recovery import create_log
from ottla.storage.resources import LogResources
from ottla.storage.results import DeleteRefusal, OffsetTimestamp
from ottla.storage.retention import drop_segments
from ottla.storage.truncation import delete_records, truncate_to
from ottla.testing.disk_faulty import FaultyDisk
from ottla.testing.disk_memory import MemoryDisk
from ottla.wire.errors import ErrorCode
from support.storage_logs import (
    NOW_MS,
    append,
    batch,
    committed,
    decode,
    log_config,
    new_log,
    of_records,
    open_log,
    place,
    read_all,
    read_bytes,
    records,
    refused,
)


class Ground(NamedTuple):
    disk: MemoryDisk
    root: str


def small_log(ground: Ground, **settings: object) -> PartitionLog:
    return new_log(ground.disk, ground.root, log_config(**settings))


# Appending


@pytest.mark.spec("L1", "L2")
def test_offsets_are_assigned_in_place_and_the_bytes_are_kept(ground: Ground) -> None:
    log = small_log(ground)
    first, second = batch(3), batch(5)
    untouched = bytes(second)
    assert append(log, first, leader_epoch=4) == AppendInfo(0, 2, -1, 0)
    assert append(log, second, leader_epoch=4) == AppendInfo(3, 7, -1, 0)
    assert (log.log_end_offset, log.high_watermark, log.leader_epoch) == (8, 8, 4)
    stored = read_bytes(log.read(0, 1 << 20))
    assert stored == bytes(first) + bytes(second)
    assert stored[len(first) :][16:] == untouched[16:], "only base offset and leader epoch differ"
    headers = split_batches(stored)
    assert [(header.base_offset, header.partition_leader_epoch) for header in headers] == [(0, 4), (3, 4)]
    assert all(check_crc(stored, header) for header in headers)
    log.close()


def test_a_read_only_buffer_is_copied(ground: Ground) -> None:
    log = small_log(ground)
    original = bytes(batch(2))
    append(log, memoryview(original), leader_epoch=9)
    assert original == bytes(batch(2))
    assert [record.offset for record in read_all(log)] == [0, 1]


def test_a_coordinator_may_append_several_batches_at_once(ground: Ground) -> None:
    log = small_log(ground)
    append(log)
    both = memoryview(bytearray(bytes(batch(2)) + bytes(batch(4))))
    assert log.append(both, leader_epoch=0, now_ms=NOW_MS, origin=COORDINATOR) == AppendInfo(3, 8, -1, 0)
    assert [record.offset for record in read_all(log)] == list(range(9))


def test_a_tail_that_is_cut_off_is_left_out(ground: Ground) -> None:
    log = small_log(ground)
    whole = batch(2)
    append(log, memoryview(bytearray(bytes(whole) + bytes(whole)[:40])))
    assert log.size_bytes == len(whole)
    assert log.log_end_offset == 2


def test_log_append_time_is_stamped(ground: Ground) -> None:
    log = small_log(ground, message_timestamp_type="LogAppendTime")
    info = append(log, batch(3, timestamp=5), now_ms=NOW_MS + 9)
    assert info.log_append_time_ms == NOW_MS + 9
    stored = read_bytes(log.read(0, 1 << 20))
    header = split_batches(stored)[0]
    assert header.timestamp_type == TimestampType.LOG_APPEND_TIME
    assert header.max_timestamp == NOW_MS + 9
    assert check_crc(stored, header)
    assert [record.timestamp for record in decode(stored)] == [NOW_MS + 9] * 3


def test_nothing_to_append_is_refused(ground: Ground) -> None:
    log = small_log(ground)
    for origin in (0, COORDINATOR):
        refusal = log.append(memoryview(bytearray()), leader_epoch=0, now_ms=NOW_MS, origin=origin)
        assert isinstance(refusal, AppendRefusal)
        assert refusal.error == ErrorCode.INVALID_RECORD


def test_a_batch_larger_than_a_segment_is_refused(ground: Ground) -> None:
    log = small_log(ground, segment_bytes=1000)
    refusal = refused(log, batch(20, size=100))
    assert refusal.error == ErrorCode.RECORD_LIST_TOO_LARGE
    assert "exceeds the maximum configured segment size of 1000." in refusal.message
    assert log.log_end_offset == 0


# Producers


def idempotent(sequence: int, count: int = 2, epoch: int = 0, producer_id: int = 9, **more: object) -> memoryview:
    return batch(count, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, **more)  # type: ignore[arg-type]


@pytest.mark.spec("P5")
def test_the_last_five_batches_are_recognised(ground: Ground) -> None:
    log = small_log(ground)
    for number in range(6):
        append(log, idempotent(2 * number))
    size = log.size_bytes
    for number in range(1, 6):
        info = append(log, idempotent(2 * number))
        assert (info.first_offset, info.last_offset, info.duplicate) == (2 * number, 2 * number + 1, True)
    assert refused(log, idempotent(0)).error == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.size_bytes == size
    assert log.log_end_offset == 12


def test_sequences_must_follow(ground: Ground) -> None:
    log = small_log(ground)
    append(log, idempotent(0))
    refusal = refused(log, idempotent(3))
    assert refusal.error == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert "3 (incoming seq. number), 1 (current end sequence number)" in refusal.message
    assert append(log, idempotent(2)).first_offset == 2
    assert append(log, idempotent(0, producer_id=10)).first_offset == 4


def test_an_older_epoch_is_refused_and_a_newer_one_begins_at_zero(ground: Ground) -> None:
    log = small_log(ground)
    append(log, idempotent(0, epoch=3))
    assert refused(log, idempotent(2, epoch=2)).error == ErrorCode.INVALID_PRODUCER_EPOCH
    assert refused(log, idempotent(2, epoch=4)).error == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    append(log, idempotent(0, epoch=4))
    assert refused(log, idempotent(2, epoch=3)).error == ErrorCode.INVALID_PRODUCER_EPOCH


def test_sequences_wrap(ground: Ground) -> None:
    log = small_log(ground)
    append(log, idempotent(2**31 - 2))
    append(log, idempotent(0))
    assert append(log, idempotent(2**31 - 2)).duplicate
    log = small_log(Ground(ground.disk, ground.root + "/other"))
    append(log, idempotent(2**31 - 1, count=3))
    append(log, idempotent(2))
    assert append(log, idempotent(2**31 - 1, count=3)).duplicate


def test_an_unknown_producer_may_begin_anywhere(ground: Ground) -> None:
    log = small_log(ground)
    assert append(log, idempotent(77)).first_offset == 0
    assert refused(log, idempotent(80)).error == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.producers.expire(NOW_MS + 100_000, 100_000) == 0
    assert log.producers.expire(NOW_MS + 100_001, 100_000) == 1
    assert append(log, idempotent(80)).first_offset == 2


def test_transactional_batches_need_the_coordinators_word(ground: Ground) -> None:
    log = small_log(ground)
    buf = idempotent(0, is_transactional=True)
    refusal = refused(log, buf)
    assert (refusal.error, refusal.message) == (
        ErrorCode.INVALID_TXN_STATE,
        "Record was not part of an ongoing transaction",
    )
    info = log.append(buf, leader_epoch=0, now_ms=NOW_MS, origin=COORDINATOR)
    assert isinstance(info, AppendInfo)
    append(log, idempotent(2, is_transactional=True))
    append(log)
    assert (log.last_stable_offset, log.high_watermark) == (0, 7)
    assert refused(log, idempotent(4)).error == ErrorCode.INVALID_TXN_STATE
    key, value = struct.pack(">hh", 0, 1), struct.pack(">hi", 0, 5)
    marker = of_records(
        [Record(0, NOW_MS, key, value, ())], producer_id=9, producer_epoch=0, is_transactional=True, is_control=True
    )
    assert isinstance(log.append(marker, leader_epoch=0, now_ms=NOW_MS, origin=COORDINATOR), AppendInfo)
    assert (log.last_stable_offset, log.high_watermark) == (0, 7), "its end is not committed yet"
    committed(log)
    assert log.last_stable_offset == log.high_watermark == 8
    append(log, idempotent(4))


# Rolling


@pytest.mark.spec("L3")
def test_a_segment_rolls_by_size(ground: Ground) -> None:
    size = len(batch())
    log = small_log(ground, segment_bytes=3 * size)
    for _ in range(7):
        append(log)
    assert [segment.base_offset for segment in log.segments] == [0, 9, 18]
    assert [segment.size for segment in log.segments] == [3 * size, 3 * size, size]
    assert [record.offset for record in read_all(log)] == list(range(21))
    names = ground.disk.listdir(log.directory)
    for base in (0, 9):
        assert {f"{base:020d}{suffix}" for suffix in (".log", ".index", ".timeindex")} <= set(names)
    assert f"{9:020d}.snapshot" in names


@pytest.mark.spec("L3")
def test_a_segment_rolls_by_the_age_of_its_first_record(ground: Ground) -> None:
    log = small_log(ground, segment_ms=1000)
    append(log, batch(1, timestamp=NOW_MS))
    append(log, batch(1, timestamp=NOW_MS + 1000), now_ms=NOW_MS + 9_999_999)
    assert len(log.segments) == 1, "the records' time counts, not the clock's"
    append(log, batch(1, timestamp=NOW_MS + 1001))
    assert [segment.base_offset for segment in log.segments] == [0, 2]


def test_a_segment_without_timestamps_rolls_by_the_clock(ground: Ground) -> None:
    log = small_log(ground, segment_ms=1000)
    append(log, batch(1, timestamp=-1))
    append(log, batch(1, timestamp=-1), now_ms=NOW_MS + 1000)
    assert len(log.segments) == 1
    append(log, batch(1, timestamp=-1), now_ms=NOW_MS + 1001)
    assert len(log.segments) == 2


def test_a_segment_rolls_when_its_index_is_full(ground: Ground) -> None:
    log = small_log(ground, index_interval_bytes=0, segment_index_bytes=80)
    for _ in range(30):
        append(log, batch(1, timestamp=NOW_MS))
    assert len(log.segments) > 2
    assert all(segment.offset_index.entries <= 10 for segment in log.segments)
    log.close()
    assert all(ground.disk.file_size(segment.offset_index.file.path) <= 80 for segment in log.segments)
    assert all(ground.disk.file_size(segment.time_index.file.path) <= 80 for segment in log.segments)


def test_jitter_rolls_earlier_but_never_later(ground: Ground) -> None:
    log = small_log(ground, segment_ms=100_000, segment_jitter_ms=50_000)
    append(log, batch(1, timestamp=NOW_MS))
    append(log, batch(1, timestamp=NOW_MS + 50_000))
    assert len(log.segments) == 1
    append(log, batch(1, timestamp=NOW_MS + 100_000))
    assert len(log.segments) == 2


def test_rolling_on_demand_needs_records(ground: Ground) -> None:
    log = small_log(ground)
    assert not log.roll(NOW_MS)
    append(log)
    assert log.roll(NOW_MS)
    assert not log.roll(NOW_MS)


# Reading


@pytest.mark.spec("L6")
def test_reads_begin_with_the_batch_that_holds_the_offset(ground: Ground) -> None:
    log = small_log(ground, index_interval_bytes=200)
    for _ in range(50):
        append(log, batch(3))
    for offset in range(150):
        found = decode(read_bytes(log.read(offset, 500)))
        assert found[0].offset == offset - offset % 3
    assert read_bytes(log.read(150, 500)) == b""
    assert read_bytes(log.read(149, 500))


def test_a_read_ends_at_the_limit_of_bytes(ground: Ground) -> None:
    log = small_log(ground, index_interval_bytes=4096)
    for _ in range(40):
        append(log, batch(3))
    size = len(batch(3))
    assert len(read_bytes(log.read(0, 2 * size + 20))) == 2 * size + 20, "half a batch at the end, as in Kafka"
    assert len(read_bytes(log.read(0, size - 1))) == size, "but a first batch is always whole"
    assert len(read_bytes(log.read(0, 0))) == size
    none = log.read(0, size - 1, min_one_batch=False)
    assert isinstance(none, LogRead)
    assert (none.slice, none.size) == (None, 0)
    assert len(read_bytes(log.read(0, size, min_one_batch=False))) == size


def test_a_long_read_ends_with_a_whole_batch_and_reports_where_to_go_on(ground: Ground) -> None:
    log = small_log(ground, index_interval_bytes=0)
    for _ in range(40):
        append(log, batch(3))
    size = len(batch(3))
    read = log.read(0, 10 * size + 20)
    assert isinstance(read, LogRead)
    assert (read.size, read.next_offset) == (10 * size, 30)
    read_bytes(read)
    read = log.read(30, 1 << 20)
    assert isinstance(read, LogRead)
    assert (read.size, read.next_offset) == (30 * size, 120)


def test_a_read_stops_at_the_offset_given(ground: Ground) -> None:
    log = small_log(ground, segment_bytes=1000)
    for _ in range(40):
        append(log, batch(3))
    for end in (3, 30, 33, 117):
        found: list[Record] = []
        while len(found) < end:
            found += decode(read_bytes(log.read(len(found), 300, up_to_offset=end)))
        assert [record.offset for record in found] == list(range(end))
        assert read_bytes(log.read(end, 1000, up_to_offset=end)) == b""
        assert read_bytes(log.read(end + 1, 1000, up_to_offset=end)) == b""
    assert len(read_bytes(log.read(117, 1000, up_to_offset=500)))


def test_offsets_out_of_range(ground: Ground) -> None:
    log = small_log(ground)
    for _ in range(4):
        append(log)
    refusal = log.read(13, 100)
    assert isinstance(refusal, ReadRefusal)
    assert refusal.error == ErrorCode.OFFSET_OUT_OF_RANGE
    assert "only have log segments upto 12." in refusal.message
    assert delete_records(log, 6) == 6
    refusal = log.read(5, 100)
    assert isinstance(refusal, ReadRefusal)
    assert "starting from offset: 6." in refusal.message


def test_open_files_are_bounded(ground: Ground) -> None:
    log = new_log(ground.disk, ground.root, log_config(segment_bytes=300, index_interval_bytes=0), open_files=4)
    for _ in range(60):
        append(log)
    assert len(log.segments) > 20
    assert [record.offset for record in read_all(log, max_bytes=250)] == list(range(180))
    files = log.resources.files
    assert len(files) <= 4
    slices = [log.read(3 * number, 100) for number in range(0, 60, 3)]
    assert all(isinstance(read, LogRead) and read.slice is not None for read in slices)
    assert [decode(read_bytes(read))[0].offset for read in slices] == [9 * number for number in range(20)]
    append(log)
    read_all(log)
    assert len(files) <= 4
    log.close()
    assert len(files) == 0


def test_memory_for_indexes_is_bounded(ground: Ground) -> None:
    config = log_config(segment_bytes=2000, index_interval_bytes=0)
    log = new_log(ground.disk, ground.root, config, index_memory_bytes=400)
    for _ in range(200):
        append(log)
    for offset in range(0, 600, 7):
        assert decode(read_bytes(log.read(offset, 100)))[0].offset == offset - offset % 3
    memory = log.resources.index_memory
    loaded = [segment.offset_index for segment in log.segments if segment.offset_index._offsets is not None]
    assert memory.used_bytes == sum(index.entries * 8 for index in loaded) <= 800


def test_deleted_segments_stay_readable_until_released(ground: Ground) -> None:
    log = small_log(ground, segment_bytes=300)
    for _ in range(10):
        append(log)
    read = log.read(0, 1 << 20)
    assert isinstance(read, LogRead)
    assert read.slice is not None
    renamed = drop_segments(log, 3)
    for path in renamed:
        assert path.endswith(".deleted")
        ground.disk.remove(path)
    assert [record.offset for record in decode(read.slice.read())][:3] == [0, 1, 2]
    assert read.slice.release is not None
    read.slice.release()
    refusal = log.read(0, 100)
    assert isinstance(refusal, ReadRefusal)
    assert refusal.error == ErrorCode.OFFSET_OUT_OF_RANGE


def test_batches_one_by_one(ground: Ground) -> None:
    log = small_log(ground, segment_bytes=700)
    for _ in range(10):
        append(log)
    bases = [split_batches(data)[0].base_offset for data in log.read_batches(10)]
    assert bases == list(range(9, 30, 3))
    assert list(log.read_batches(30)) == []


# Epochs, high watermark, start of the log


def test_leader_epochs_follow_the_appends(ground: Ground) -> None:
    log = small_log(ground)
    append(log, leader_epoch=1)
    append(log, leader_epoch=1)
    log.assign_leader_epoch(3)
    append(log, leader_epoch=3)
    assert ground.disk.read_bytes(f"{log.directory}/leader-epoch-checkpoint") == b"0\n2\n1 0\n3 6\n"
    assert (log.epochs.epoch_at(5), log.epochs.epoch_at(6)) == (1, 3)
    ends = [log.epochs.end_of(epoch, log.log_end_offset) for epoch in range(5)]
    assert [(end.leader_epoch, end.end_offset) for end in ends] == [(0, 0), (1, 6), (1, 6), (3, 9), (-1, -1)]


def test_the_high_watermark_is_moved_by_others_and_stays_within_the_log(ground: Ground) -> None:
    log = small_log(ground)
    assert isinstance(log.append(batch(), leader_epoch=0, now_ms=NOW_MS), AppendInfo)
    assert (log.log_end_offset, log.high_watermark) == (3, 0)
    assert log.update_high_watermark(2) == 2
    assert log.update_high_watermark(99) == 3
    log.raise_log_start(1)
    assert log.update_high_watermark(0) == 1


@pytest.mark.spec("L4")
def test_delete_records_moves_the_start(ground: Ground) -> None:
    log = small_log(ground)
    for _ in range(3):
        append(log)
    assert delete_records(log, 4) == 4
    assert delete_records(log, 2) == 4
    assert [record.offset for record in read_all(log)] == [4, 5, 6, 7, 8]
    beyond = delete_records(log, 10)
    assert isinstance(beyond, DeleteRefusal)
    assert beyond.error == ErrorCode.OFFSET_OUT_OF_RANGE
    negative = delete_records(log, -2)
    assert isinstance(negative, DeleteRefusal)
    assert delete_records(log, -1) == 9
    compacted = small_log(Ground(ground.disk, ground.root + "/compacted"), cleanup_policy="compact")
    refusal = delete_records(compacted, 0)
    assert isinstance(refusal, DeleteRefusal)
    assert refusal.error == ErrorCode.POLICY_VIOLATION


@pytest.mark.parametrize("offset", [0, 1, 9, 11, 20, 29])
def test_truncation(ground: Ground, offset: int) -> None:
    log = small_log(ground, segment_bytes=700, index_interval_bytes=0)
    for number in range(10):
        append(log, idempotent(3 * number, count=3), leader_epoch=number // 4)
    whole = offset - offset % 3
    truncate_to(log, whole, NOW_MS)
    assert log.log_end_offset == log.high_watermark == whole
    assert [record.offset for record in read_all(log)] == list(range(whole))
    assert log.leader_epoch == (whole - 1) // 12
    if whole:
        assert append(log, idempotent(whole - 3, count=3)).duplicate
        assert refused(log, idempotent(whole + 3, count=3)).error == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    append(log, idempotent(whole, count=3), leader_epoch=5)
    assert [record.offset for record in read_all(log)] == list(range(whole + 3))
    assert truncate_to(log, whole + 3, NOW_MS) == []


def test_truncation_before_the_first_segment(ground: Ground) -> None:
    log = small_log(ground, segment_bytes=300)
    for _ in range(10):
        append(log)
    drop_segments(log, 4)
    assert log.log_start_offset > 5
    truncate_to(log, 5, NOW_MS)
    assert (log.log_start_offset, log.log_end_offset) == (5, 5)
    append(log)
    assert [record.offset for record in read_all(log)] == [5, 6, 7]


# Disks that fail


@pytest.fixture
def faulty() -> FaultyDisk:
    disk = MemoryDisk()
    disk.mkdirs("/data")
    return FaultyDisk(disk)


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_a_failed_append_leaves_no_trace(faulty: FaultyDisk, error: int) -> None:
    log = new_log(faulty, "/data")
    append(log, idempotent(0))
    faulty.fail("write", "*.log", error, times=2)
    for _ in range(2):
        refusal = refused(log, idempotent(2))
        assert refusal.error == ErrorCode.KAFKA_STORAGE_ERROR
        assert "cannot write" in refusal.message
    assert (log.log_end_offset, log.high_watermark) == (2, 2)
    assert len(read_all(log)) == 2
    assert append(log, idempotent(2)) == AppendInfo(2, 3, -1, 0)
    assert len(read_all(log)) == 4


def test_what_follows_a_batch_that_the_disk_refused_is_not_called_out_of_order(faulty: FaultyDisk) -> None:
    """A producer of librdkafka would begin a new epoch, and repeat in it what waits for other partitions."""
    log = new_log(faulty, "/data")
    append(log, idempotent(0))
    faulty.capacity = 0
    assert refused(log, idempotent(2)).error == ErrorCode.KAFKA_STORAGE_ERROR
    # The next one of the producer was on its way, and there is room again.
    faulty.heal()
    assert refused(log, idempotent(4)).error == ErrorCode.KAFKA_STORAGE_ERROR
    append(log, idempotent(2))
    append(log, idempotent(4))
    assert refused(log, idempotent(8)).error == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_full_disk_refuses_until_there_is_room(faulty: FaultyDisk) -> None:
    log = new_log(faulty, "/data")
    size = len(batch())
    faulty.capacity = 3 * size
    accepted = 0
    while isinstance(log.append(batch(), leader_epoch=-1, now_ms=NOW_MS), AppendInfo):
        accepted += 1
    assert accepted == 3
    assert len(read_all(log)) == 9
    faulty.heal()
    append(log)
    assert len(read_all(log)) == 12


def test_remains_that_cannot_be_cut_off_end_the_appends(faulty: FaultyDisk) -> None:
    log = new_log(faulty, "/data")
    append(log)
    faulty.fail("write", "*.log", times=1)
    faulty.fail("truncate", "*.log", times=1)
    assert "could not be removed" in refused(log, batch()).message
    assert refused(log, batch()).error == ErrorCode.KAFKA_STORAGE_ERROR
    assert len(read_all(log)) == 3, "what was acknowledged is still served"


@pytest.mark.parametrize("what", ["write *.index", "write *.timeindex", "replace *.snapshot", "open *7.log"])
def test_a_failed_roll_refuses_the_append_and_can_be_tried_again(faulty: FaultyDisk, what: str) -> None:
    operation, pattern = what.split()
    log = new_log(faulty, "/data", log_config(segment_bytes=9 * len(batch()), index_interval_bytes=0))
    for number in range(9):
        append(log, idempotent(3 * number, count=3))
    faulty.fail(operation, pattern, times=1)
    assert refused(log, idempotent(27, count=3)).error == ErrorCode.KAFKA_STORAGE_ERROR
    assert len(log.segments) == 1
    assert append(log, idempotent(27, count=3)).first_offset == 27
    assert [segment.base_offset for segment in log.segments] == [0, 27]
    assert [record.offset for record in read_all(log)] == list(range(30))


def test_a_failed_read_is_a_refusal(faulty: FaultyDisk) -> None:
    log = new_log(faulty, "/data", log_config(index_interval_bytes=0))
    for _ in range(100):
        append(log)
    faulty.fail("read")
    refusal = log.read(7, 1000)
    assert isinstance(refusal, ReadRefusal)
    assert refusal.error == ErrorCode.KAFKA_STORAGE_ERROR
    for found in (offset_for_timestamp(log, NOW_MS), offset_of_max_timestamp(log)):
        assert isinstance(found, ReadRefusal)
        assert found.error == ErrorCode.KAFKA_STORAGE_ERROR


def test_an_append_is_refused_if_the_topic_id_cannot_be_written(faulty: FaultyDisk) -> None:
    log = create_log(LogResources(faulty), place("/data"), UUID(int=1), NOW_MS)
    faulty.fail("write", "*partition.metadata", times=1)
    refusal = log.append(batch(), leader_epoch=0, now_ms=NOW_MS)
    assert isinstance(refusal, AppendRefusal)
    assert refusal.error == ErrorCode.KAFKA_STORAGE_ERROR
    assert log.log_end_offset == 0
    assert isinstance(append(log), AppendInfo)
    assert b"topic_id" in faulty.read_bytes(f"{log.directory}/partition.metadata")


def test_epochs_that_could_not_be_written_are_written_with_the_next_flush(faulty: FaultyDisk) -> None:
    log = new_log(faulty, "/data")
    faulty.fail("replace", "*leader-epoch*", times=1)
    append(log, leader_epoch=2)
    assert not faulty.exists(f"{log.directory}/leader-epoch-checkpoint")
    log.flush()
    assert faulty.read_bytes(f"{log.directory}/leader-epoch-checkpoint") == b"0\n1\n2 0\n"


def test_a_failed_flush_ends_the_appends(faulty: FaultyDisk) -> None:
    log = new_log(faulty, "/data")
    append(log)
    faulty.fail("flush", "*.log", times=1)
    job = begin_flush(log)
    assert job is not None
    with pytest.raises(Exception, match="cannot flush") as caught:
        job.run()
    end_flush(log, job, caught.value, NOW_MS)
    assert log.recovery_point == 0
    assert "may be lost" in refused(log, batch()).message


# Flushing and closing


def test_flushing_moves_the_recovery_point(ground: Ground) -> None:
    log = small_log(ground, segment_bytes=700)
    for _ in range(10):
        append(log)
    assert (log.unflushed.bytes, log.unflushed.records) == (log.size_bytes, 30)
    job = begin_flush(log)
    assert job is not None
    append(log)
    job.run()
    end_flush(log, job, None, NOW_MS + 5)
    assert (log.recovery_point, log.unflushed.records, log.unflushed.last_flush_ms) == (30, 3, NOW_MS + 5)
    assert log.unflushed.bytes == len(batch())
    assert log.flush() == len(batch())
    assert not log.flush_needed()
    assert begin_flush(log) is None
    assert log.flush() == 0


def test_a_closed_log_neither_takes_nor_gives(ground: Ground) -> None:
    log = small_log(ground)
    append(log)
    read = log.read(0, 100)
    assert log.close() == len(batch())
    assert log.close() == 0
    assert refused(log, batch()).error == ErrorCode.KAFKA_STORAGE_ERROR
    refusal = log.read(0, 100)
    assert isinstance(refusal, ReadRefusal)
    assert decode(read_bytes(read)), "a range that is being sent stays readable"
    assert len(log.resources.files) == 0
    assert "orders-0" in repr(log)


def test_other_settings_hold_from_now_on(ground: Ground) -> None:
    log = small_log(ground)
    log.config = log_config(max_message_bytes=10)
    assert refused(log, batch()).error == ErrorCode.MESSAGE_TOO_LARGE


def test_records_are_read_back_as_they_were_written(ground: Ground) -> None:
    log = small_log(ground)
    content = [Record(0, NOW_MS, None, None, (("h", b"1"), ("h", None))), Record(1, NOW_MS - 5, b"", b"", ())]
    append(log, of_records(content))
    assert read_all(log) == content
    assert records(1) != content


def test_a_flush_says_nothing_of_what_was_appended_after_a_truncation(ground: Ground) -> None:
    log = new_log(*ground)
    for _ in range(3):
        append(log)
    job = begin_flush(log)
    assert job is not None
    truncate_to(log, 3, NOW_MS)
    append(log)
    append(log)
    job.run()
    end_flush(log, job, None, NOW_MS)
    assert log.recovery_point == 3
    log.flush()
    assert log.recovery_point == 9


@pytest.mark.spec("L4", "L6")
def test_deleted_records_do_not_count_as_forced_to_disk(ground: Ground) -> None:
    log = new_log(*ground, log_config(segment_bytes=200))
    for _ in range(3):
        append(log)
    delete_records(log, 8)
    drop_segments(log, 9)
    assert log.recovery_point == log.segments[0].base_offset == 6
    log.flush()
    assert log.recovery_point == 9


def head(count: int) -> memoryview:
    """A batch without records that spans so many offsets, as compaction leaves it."""
    data = bytes(batch(count))
    header = parse_batch_header(data)
    header.records_count = 0
    return memoryview(bytearray(frame_batch(b"", header)))


def test_batches_without_records_are_passed_over(ground: Ground) -> None:
    log = small_log(ground)
    append(log)
    for _ in range(20):
        log.roll(NOW_MS)
        assert isinstance(log.append(head(10), leader_epoch=0, now_ms=NOW_MS, origin=COORDINATOR), AppendInfo)
    at_the_end = log.log_end_offset
    # Nothing behind it: it is given, so that a reader gets on.
    assert len(read_bytes(log.read(at_the_end - 5, 1000))) == 61
    log.roll(NOW_MS)
    assert len(read_bytes(log.read(at_the_end - 5, 1000))) == 61
    append(log)
    for offset in (3, 50, at_the_end - 5):
        found = log.read(offset, 1000)
        assert isinstance(found, LogRead)
        assert decode(read_bytes(found))[0].offset == at_the_end
    assert len(read_bytes(log.read(3, 1000, up_to_offset=13))) == 61


@pytest.mark.spec("L1")
@pytest.mark.parametrize("number", [0, 1, 3])
def test_a_damaged_length_is_not_taken_for_that_of_an_answer(ground: Ground, number: int) -> None:
    size = len(batch())
    log = new_log(ground.disk, ground.root, log_config(segment_bytes=4 * size, index_interval_bytes=0))
    for _ in range(9):
        append(log)
    log.close()
    path = log.segments[0].log.path
    data = bytearray(ground.disk.read_bytes(path))
    struct.pack_into(">i", data, number * size + 8, 0x7FFFFF00)
    ground.disk.write_atomic(path, bytes(data))
    again = open_log(ground.disk, ground.root, log.config, clean=True, recovery_point=27)
    for max_bytes in (10, 1 << 20):
        for min_one_batch in (True, False):
            refusal = again.read(number * 3, max_bytes, min_one_batch=min_one_batch)
            assert isinstance(refusal, ReadRefusal)
            assert refusal.error is ErrorCode.CORRUPT_MESSAGE
    # What lies before it is given, the rest of the segment with it.
    assert not number or len(read_bytes(again.read(0, 1 << 20))) == 4 * size
    found = offset_for_timestamp(again, NOW_MS)
    if number == 0:
        assert isinstance(found, ReadRefusal)
        assert "damaged batch at position 0" in found.message
    assert [record.offset for record in read_all(again, 12)] == list(range(12, 27))
    again.close()


@pytest.mark.spec("L4")
@pytest.mark.parametrize("plan", ["*3.log", "*3.index", "*3.timeindex", "*3.snapshot"])
def test_a_segment_that_cannot_be_renamed_is_still_there_or_gone_but_nothing_between(ground: Ground, plan: str) -> None:
    disk = FaultyDisk(ground.disk)
    log = new_log(disk, ground.root, log_config(segment_bytes=len(batch()), index_interval_bytes=0))
    for _ in range(6):
        append(log)
    log.flush()
    disk.fail("rename", plan)
    with pytest.raises(DiskError):
        drop_segments(log, 4)
    start = 3 if plan == "*3.log" else 6
    assert log.log_start_offset == log.segments[0].base_offset == start
    assert [record.offset for record in read_all(log)] == list(range(start, 18))
    append(log)
    disk.heal()
    renamed = drop_segments(log, 4 - start // 3)
    assert log.log_start_offset == 12
    assert sorted(renamed) == sorted(
        f"{log.directory}/{name}" for name in disk.listdir(log.directory) if name.endswith(".deleted")
    ), "none is forgotten"
    log.close()
    again = open_log(disk, ground.root, log.config, clean=True, recovery_point=21)
    assert (again.log_start_offset, again.log_end_offset) == (12, 21)
    left = [name for name in disk.listdir(again.directory) if name < "00000000000000000012"]
    assert left in ([], ["00000000000000000003.snapshot"]), "a snapshot that old says nothing any more"


@pytest.mark.spec("L3", "L9")
def test_readers_of_a_closed_segment_that_was_cut_short_are_reported(ground: Ground) -> None:
    """Wherever it was cut while the broker was stopped: a reader gets on, or is told that there is damage."""
    log = new_log(*ground, log_config(segment_bytes=400, index_interval_bytes=0))
    for number in range(12):
        append(log, batch(3, timestamp=NOW_MS + number))
    log.close()
    first, second = log.segments[:2]
    whole = ground[0].read_bytes(first.log.path)
    starts = [header.position for header in split_batches(whole)]
    for kept in range(len(whole)):
        file = ground[0].open(first.log.path)
        file.truncate(0)
        file.append([whole[:kept]])
        file.close()
        again = open_log(*ground, log.config, clean=True, recovery_point=log.log_end_offset)
        offset, told = 0, 0
        while offset < second.base_offset:
            read = again.read(offset, 1 << 20)
            if isinstance(read, ReadRefusal):
                assert read.error is ErrorCode.CORRUPT_MESSAGE
                assert f"{first.log.path}" in read.message
                told += 1
                offset += 3
                continue
            got = [record.offset for record in decode(read_bytes(read)) if record.offset >= offset]
            assert got, f"cut to {kept} bytes: a reader at {offset} is stuck"
            offset = got[-1] + 1
        # Cut between two batches it looks like one that was mended, and readers go on behind it.
        assert (told > 0) == (kept not in starts)
        assert offset_for_timestamp(again, NOW_MS + 13) == OffsetTimestamp(NOW_MS + 13, 35, 0)
        again.release_files()
