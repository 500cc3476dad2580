"""What a follower does to its log: appends of fetched ranges, and truncation."""

from __future__ import annotations

import errno
from typing import NamedTuple

import pytest

from ottla.env.disk import Disk, DiskError, FileSlice
from ottla.records.batch import CRC_AT, LEADER_EPOCH_AT, patch_batch, split_batches
from ottla.records.compression import Compression
from ottla.records.control import ControlRecordType, end_transaction_record
from ottla.records.message_set import encode_messages
from ottla.records.record import Record
from ottla.storage.files import SegmentFile
from ottla.storage.following import append_as_follower
from ottla.storage.log import AppendRefusal, LogRead, PartitionLog
from ottla.storage.results import EpochEnd, FollowerAppend
from ottla.storage.transaction_index import AbortedTransaction
from ottla.storage.truncation import truncate_fully_and_start_at, truncate_to
from ottla.testing.disk_faulty import FaultyDisk
from ottla.testing.disk_memory import MemoryDisk
from ottla.wire.errors import ErrorCode
from support.storage_logs import (
    NOW_MS,
    append,
    batch,
    committed,
    log_config,
    new_log,
    of_records,
    open_log,
    read_all,
    records,
)

pytestmark = pytest.mark.spec("R2", "L1")


class Ground(NamedTuple):
    disk: Disk
    root: str


def sent(*batches: memoryview, first: int = 0, epoch: int = 0) -> memoryview:
    """The batches as a leader of that epoch has them, one behind the other, from offset `first` on."""
    whole = bytearray()
    for each in batches:
        patch_batch(each, 0, first, epoch)
        first = split_batches(each)[0].next_offset
        whole += each
    return memoryview(bytes(whole))


def follow(log: PartitionLog, data: memoryview, epoch: int = 9) -> FollowerAppend:
    done = append_as_follower(log, data, leader_epoch=epoch, now_ms=NOW_MS)
    assert isinstance(done, FollowerAppend), done
    return done


def refused(log: PartitionLog, data: memoryview, epoch: int = 9) -> AppendRefusal:
    refusal = append_as_follower(log, data, leader_epoch=epoch, now_ms=NOW_MS)
    assert isinstance(refusal, AppendRefusal), refusal
    return refusal


def stored(log: PartitionLog) -> bytes:
    """The contents of all log files."""
    return b"".join(segment.log.get().pread(segment.size, 0) for segment in log.segments)


def marker(producer_id: int, kind: ControlRecordType) -> memoryview:
    key, value = end_transaction_record(kind, 0)
    content = [Record(0, NOW_MS, key, value, ())]
    return of_records(content, producer_id=producer_id, producer_epoch=0, is_transactional=True, is_control=True)


def transactional(producer_id: int, sequence: int, count: int = 3) -> memoryview:
    return batch(count, producer_id=producer_id, producer_epoch=0, base_sequence=sequence, is_transactional=True)


# Appending


def test_a_fetched_range_is_appended_as_it_came(ground: Ground) -> None:
    log = new_log(ground.disk, ground.root)
    data = sent(batch(3), batch(5, compression=Compression.GZIP), first=0, epoch=4)
    assert follow(log, data) == FollowerAppend(len(data), 8)
    more = sent(batch(2), first=10, epoch=6)
    assert follow(log, more) == FollowerAppend(len(more), 12), "compaction leaves gaps"
    assert stored(log) == bytes(data) + bytes(more)
    assert log.epochs.entries == [(4, 0), (6, 10)]
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (0, 0, 12)
    assert [record.offset for record in read_all(committed(log))] == [*range(8), 10, 11]
    log.close()


def test_a_last_batch_that_is_cut_off_is_left_out(ground: Ground) -> None:
    log = new_log(ground.disk, ground.root)
    data = sent(batch(3), batch(5))
    whole = split_batches(data)[0].length
    assert follow(log, data[: whole + 70]) == FollowerAppend(whole, 3)
    assert follow(log, data[whole : whole + 8]) == FollowerAppend(0, 3)
    assert follow(log, memoryview(b"")) == FollowerAppend(0, 3)
    assert follow(log, data[whole:]) == FollowerAppend(len(data) - whole, 8)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_damaged_batch_refuses_the_whole_range(ground: Ground, number: int) -> None:
    log = new_log(ground.disk, ground.root)
    data = bytearray(sent(batch(2), batch(2), batch(2)))
    data[split_batches(data)[number].position + CRC_AT + 60] ^= 1
    assert refused(log, memoryview(data)).error == ErrorCode.CORRUPT_MESSAGE
    assert (log.log_end_offset, stored(log)) == (0, b"")


def test_a_length_that_cannot_be_is_refused(ground: Ground) -> None:
    log = new_log(ground.disk, ground.root)
    data = bytearray(sent(batch(2)))
    data[8:12] = b"\0\0\0\5"
    assert refused(log, memoryview(data)).error == ErrorCode.CORRUPT_MESSAGE


def test_offsets_go_forward(ground: Ground) -> None:
    log = new_log(ground.disk, ground.root)
    twice = bytes(sent(batch(2)))
    assert refused(log, memoryview(twice + twice)).error == ErrorCode.CORRUPT_MESSAGE
    follow(log, sent(batch(5)))
    for first in (0, 3, 4):
        refusal = refused(log, sent(batch(5), first=first))
        assert refusal.error == ErrorCode.INVALID_RECORD
        assert f"First offset {first} is less than the next offset 5" in refusal.message
    assert log.log_end_offset == 5


def test_an_epoch_later_than_the_leaders_is_not_believed(ground: Ground) -> None:
    log = new_log(ground.disk, ground.root)
    data = bytearray(sent(batch(2), epoch=3))
    data[LEADER_EPOCH_AT : LEADER_EPOCH_AT + 4] = b"\x7f\0\0\0"
    assert refused(log, memoryview(data), epoch=3).error == ErrorCode.CORRUPT_MESSAGE
    assert log.leader_epoch == -1


def test_an_empty_log_may_begin_within_a_batch(ground: Ground) -> None:
    """The leader's log may start there after DeleteRecords."""
    log = new_log(ground.disk, ground.root)
    truncate_fully_and_start_at(log, 12, NOW_MS)
    data = sent(batch(5), first=10, epoch=2)
    follow(log, data)
    assert (log.log_start_offset, log.log_end_offset) == (10, 15)
    assert stored(log) == bytes(data)
    assert refused(log, sent(batch(5), first=8)).error == ErrorCode.INVALID_RECORD


def test_a_range_is_divided_where_a_segment_ends(ground: Ground) -> None:
    """As the leader divided it, whose appends were single batches."""
    config = log_config(segment_bytes=900, index_interval_bytes=100)
    leader = new_log(ground.disk, f"{ground.root}/leader", config)
    for number in range(30):
        append(leader, batch(1 + number % 5))
    log = new_log(ground.disk, f"{ground.root}/follower", config)
    data = stored(leader)
    follow(log, memoryview(data))
    assert [segment.base_offset for segment in log.segments] == [segment.base_offset for segment in leader.segments]
    assert stored(log) == data
    assert all(segment.size <= 900 for segment in log.segments)
    assert len(log.segments) > 3


def test_a_batch_may_be_larger_than_the_topic_allows_by_now(ground: Ground) -> None:
    log = new_log(ground.disk, ground.root, log_config(max_message_bytes=100, segment_bytes=200))
    data = sent(batch(3, size=200), batch(3, size=200))
    follow(log, data)
    assert [segment.base_offset for segment in log.segments] == [0, 3]


def test_messages_of_older_formats_are_kept_and_clear_the_epochs(ground: Ground) -> None:
    log = new_log(ground.disk, ground.root)
    follow(log, sent(batch(2), epoch=3))
    old = encode_messages(records(2, first=2), 1)
    follow(log, memoryview(old))
    assert (log.log_end_offset, log.leader_epoch) == (4, -1)
    damaged = bytearray(encode_messages(records(1, first=4), 1))
    damaged[-1] ^= 1
    assert refused(log, memoryview(damaged)).error == ErrorCode.CORRUPT_MESSAGE


def test_producers_and_transactions_are_known_as_to_the_leader(ground: Ground) -> None:
    log = new_log(ground.disk, ground.root)
    follow(
        log,
        sent(
            transactional(1, 0),
            transactional(2, 0),
            marker(1, ControlRecordType.ABORT),
            transactional(1, 3),
            marker(2, ControlRecordType.COMMIT),
        ),
    )
    assert list(log.producers.open_transactions) == [1]
    log.update_high_watermark(7)
    assert log.last_stable_offset == 3, "the end of the second transaction is not replicated"
    committed(log)
    assert log.last_stable_offset == 7
    assert log.aborted_transactions(0, 20) == [AbortedTransaction(1, 0, 6, 3)]
    entry = log.producers.get(1)
    assert entry is not None
    assert entry.last_sequence == 5


def test_a_disk_that_takes_nothing_refuses(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    log = new_log(ground.disk, ground.root)

    def full(self: SegmentFile, create: bool = False) -> object:
        raise DiskError("write", self.path, errno.ENOSPC)

    monkeypatch.setattr(SegmentFile, "get", full)
    assert refused(log, sent(batch(2))).error == ErrorCode.KAFKA_STORAGE_ERROR
    monkeypatch.undo()
    follow(log, sent(batch(2)))
    log.release_files()
    assert refused(log, sent(batch(2), first=2)).error == ErrorCode.KAFKA_STORAGE_ERROR


# Truncation


@pytest.mark.parametrize("offset", range(31))
def test_a_batch_is_never_cut(ground: Ground, offset: int) -> None:
    log = new_log(ground.disk, ground.root, log_config(segment_bytes=700, index_interval_bytes=0))
    for number in range(10):
        follow(log, sent(batch(3), first=3 * number, epoch=number // 4))
    truncate_to(log, offset, NOW_MS)
    assert log.log_end_offset == offset - offset % 3
    assert log.epochs.entries == [
        (epoch, start) for epoch, start in ((0, 0), (1, 12), (2, 24)) if start < offset // 3 * 3
    ]
    follow(log, sent(batch(3), first=log.log_end_offset, epoch=5))
    assert [record.offset for record in read_all(committed(log))] == list(range(log.log_end_offset))


@pytest.mark.parametrize("offset", range(31))
def test_a_truncation_needs_no_room_on_the_disk(offset: int) -> None:
    disk = FaultyDisk(MemoryDisk())
    disk.mkdirs("/data")
    log = new_log(disk, "/data", log_config(index_interval_bytes=0))
    for number in range(10):
        follow(log, sent(batch(3), first=3 * number))
        if number == 4:
            log.flush()
    disk.fail("write", error=errno.ENOSPC)
    truncate_to(log, offset, NOW_MS)
    disk.heal()
    follow(log, sent(batch(3), first=log.log_end_offset, epoch=5))
    assert [record.offset for record in read_all(committed(log))] == list(range(offset - offset % 3 + 3))
    read = read_all(log)
    log.close()
    again = open_log(disk, "/data", log_config(index_interval_bytes=0), clean=True)
    assert read_all(committed(again)) == read


def test_the_epoch_of_a_leader_without_records_goes(ground: Ground) -> None:
    """It would be in conflict with the epochs of the records that follow, however often they are fetched."""
    log = new_log(ground.disk, ground.root)
    follow(log, sent(batch(3), epoch=2))
    log.assign_leader_epoch(5)
    assert truncate_to(log, 3, NOW_MS) == []
    assert log.epochs.entries == [(2, 0)]
    follow(log, sent(batch(3), first=3, epoch=4))
    assert log.epochs.end_of(3, log.log_end_offset) == EpochEnd(2, 3)


def test_truncation_between_batches_that_compaction_left(ground: Ground) -> None:
    log = new_log(ground.disk, ground.root)
    follow(log, sent(batch(3)))
    follow(log, sent(batch(3), first=10))
    truncate_to(log, 7, NOW_MS)
    assert log.log_end_offset == 7
    follow(log, sent(batch(3), first=8))
    assert [record.offset for record in read_all(committed(log))] == [0, 1, 2, 8, 9, 10]


def test_truncation_takes_transactions_and_the_high_watermark_back(ground: Ground) -> None:
    log = new_log(ground.disk, ground.root)
    follow(log, sent(transactional(1, 0), transactional(2, 0), marker(1, ControlRecordType.COMMIT)))
    follow(log, sent(marker(2, ControlRecordType.ABORT), first=7))
    log.update_high_watermark(5)
    truncate_to(log, 7, NOW_MS)
    assert list(log.producers.open_transactions) == [2]
    assert log.aborted_transactions(0, 10) == []
    assert (log.last_stable_offset, log.high_watermark) == (0, 5), "the commit of the first is not replicated"
    truncate_to(log, 3, NOW_MS)
    assert (log.last_stable_offset, log.high_watermark) == (0, 3)
    assert list(log.producers.open_transactions) == [1]


def test_what_is_about_to_be_sent_of_the_removed_range_is_not_sent(ground: Ground) -> None:
    """Nothing is written in its place: the file is short, which closes the connection."""
    log = new_log(ground.disk, ground.root)
    follow(log, sent(batch(3), batch(3), batch(3)))
    read = log.read(0, 1 << 20)
    assert isinstance(read, LogRead)
    assert isinstance(read.slice, FileSlice)
    before = read.slice.read()
    truncate_to(log, 3, NOW_MS)
    follow(log, sent(batch(3), batch(3), batch(3), first=3, epoch=1))
    assert read.slice.read() == before[: len(before) // 3]
    assert [segment.base_offset for segment in log.segments] == [0, 3]
    assert read.slice.release is not None
    read.slice.release()
    assert [record.offset for record in read_all(committed(log))] == list(range(12))


def test_what_is_about_to_be_sent_of_a_removed_file_is_sent_as_it_was(ground: Ground) -> None:
    log = new_log(ground.disk, ground.root)
    follow(log, sent(batch(3), batch(3)))
    read = log.read(0, 1 << 20)
    assert isinstance(read, LogRead)
    assert isinstance(read.slice, FileSlice)
    before = read.slice.read()
    truncate_to(log, 0, NOW_MS)
    follow(log, sent(batch(3, size=77), batch(3), epoch=1))
    assert read.slice.read() == before
    assert read.slice.release is not None
    read.slice.release()


# Beginning anew


@pytest.mark.parametrize("clean", [True, False])
def test_beginning_anew(ground: Ground, clean: bool) -> None:
    config = log_config(segment_bytes=400)
    log = new_log(ground.disk, ground.root, config)
    for number in range(10):
        each = batch(3, producer_id=7, producer_epoch=0, base_sequence=3 * number)
        follow(log, sent(each, first=3 * number, epoch=2))
    log.flush()
    for path in truncate_fully_and_start_at(log, 100, NOW_MS):
        ground.disk.remove(path)
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset, log.recovery_point) == (100,) * 4
    assert (log.leader_epoch, len(log.producers), log.size_bytes) == (-1, 0, 0)
    follow(log, sent(batch(3), first=100, epoch=4))
    if clean:
        log.close()
    else:
        log.flush()
    again = open_log(ground.disk, ground.root, config, clean=clean, recovery_point=103)
    assert (again.log_start_offset, again.log_end_offset) == (100, 103)
    assert again.epochs.entries == [(4, 100)]
    assert len(again.producers) == 0


def test_beginning_anew_before_the_log(ground: Ground) -> None:
    log = new_log(ground.disk, ground.root)
    follow(log, sent(batch(3), first=50))
    truncate_fully_and_start_at(log, 20, NOW_MS)
    follow(log, sent(batch(3), first=20))
    assert [record.offset for record in read_all(committed(log))] == [20, 21, 22]


def test_a_failed_beginning_refuses_appends(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = MemoryDisk()
    disk.mkdirs("/data")
    log = new_log(disk, "/data")
    follow(log, sent(batch(3)))

    def broken(source: str, target: str) -> None:
        raise DiskError("rename", source, errno.EIO)

    monkeypatch.setattr(disk, "rename", broken)
    with pytest.raises(DiskError):
        truncate_fully_and_start_at(log, 20, NOW_MS)
    assert refused(log, sent(batch(3), first=3)).error == ErrorCode.KAFKA_STORAGE_ERROR
