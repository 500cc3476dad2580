"""The log's half of transactions: open, committed and aborted ones, and what readers of committed records see."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from ottla.env.disk import DiskError, DiskFile
from ottla.env.warmth import without_waiting
from ottla.records.control import ControlRecordType, end_transaction_record
from ottla.records.record import Record
from ottla.storage.files import TXN_INDEX_SUFFIX, SegmentFile
from ottla.storage.log import COORDINATOR, AppendInfo, AppendRefusal, PartitionLog
from ottla.storage.transaction_index import MOST_CACHED_ENTRIES, AbortedTransaction, TransactionIndex, decode_aborted
from ottla.storage.truncation import truncate_to
from ottla.testing.disk_memory import MemoryDisk, MemoryFile
from ottla.wire.errors import ErrorCode
from support.storage_logs import FOLDER_NAME, NOW_MS, batch, committed, log_config, new_log, of_records, open_log

pytestmark = pytest.mark.spec("L3", "L5")

ROOT = "/data"
INDEX = f"{ROOT}/{FOLDER_NAME}/00000000000000000000.txnindex"


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


@pytest.fixture
def log(disk: MemoryDisk) -> PartitionLog:
    return new_log(disk, ROOT)


def write(log: PartitionLog, producer_id: int, sequence: int, count: int = 3, epoch: int = 0) -> int:
    """Append a transactional batch; its first offset."""
    records = batch(count, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, is_transactional=True)
    info = log.append(records, leader_epoch=0, now_ms=NOW_MS, origin=COORDINATOR)
    assert isinstance(info, AppendInfo), info
    committed(log)
    return info.first_offset


def end(
    log: PartitionLog, producer_id: int, kind: ControlRecordType, *, epoch: int = 0, coordinator_epoch: int = 0
) -> AppendInfo | AppendRefusal:
    """Append the marker that ends a transaction."""
    key, value = end_transaction_record(kind, coordinator_epoch)
    marker = of_records(
        [Record(0, NOW_MS, key, value, ())],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=-1,
        is_transactional=True,
        is_control=True,
    )
    done = log.append(marker, leader_epoch=0, now_ms=NOW_MS, origin=COORDINATOR)
    committed(log)
    return done


def abort(log: PartitionLog, producer_id: int) -> int:
    info = end(log, producer_id, ControlRecordType.ABORT)
    assert isinstance(info, AppendInfo), info
    return info.first_offset


def commit(log: PartitionLog, producer_id: int) -> int:
    info = end(log, producer_id, ControlRecordType.COMMIT)
    assert isinstance(info, AppendInfo), info
    return info.first_offset


def test_readers_of_committed_records_stop_at_the_oldest_open_transaction(log: PartitionLog) -> None:
    assert log.last_stable_offset == 0
    write(log, 1, 0)
    write(log, 2, 0)
    assert log.last_stable_offset == 0
    commit(log, 1)
    assert log.last_stable_offset == 3
    abort(log, 2)
    assert log.last_stable_offset == log.log_end_offset == 8


def test_a_transaction_whose_end_is_not_committed_is_not_stable(log: PartitionLog) -> None:
    write(log, 1, 0)
    end_offset = commit(log, 1)
    log.update_high_watermark(3)
    assert log.last_stable_offset == 0
    log.update_high_watermark(end_offset)
    assert log.last_stable_offset == 0
    log.update_high_watermark(end_offset + 1)
    assert log.last_stable_offset == end_offset + 1


def test_a_deleted_begin_of_a_transaction_is_not_waited_for(log: PartitionLog) -> None:
    write(log, 1, 0)
    log.raise_log_start(2)
    assert log.last_stable_offset == 2


def test_aborted_transactions_are_found_by_what_is_read(disk: MemoryDisk, log: PartitionLog) -> None:
    write(log, 1, 0)  # 0 to 2
    write(log, 2, 0)  # 3 to 5
    first = AbortedTransaction(2, 3, abort(log, 2), 0)  # 6
    write(log, 1, 3)  # 7 to 9
    second = AbortedTransaction(1, 0, abort(log, 1), 11)  # 10
    write(log, 3, 0)  # 11 to 13
    commit(log, 3)
    assert decode_aborted(disk.read_bytes(INDEX)) == [first, second]
    assert log.aborted_transactions(0, 15) == [first, second]
    assert log.aborted_transactions(0, 3) == [second]
    assert log.aborted_transactions(7, 15) == [second]
    assert log.aborted_transactions(11, 15) == []


def test_they_are_found_across_segments(disk: MemoryDisk) -> None:
    log = new_log(disk, ROOT, log_config(segment_bytes=300))
    wanted = []
    for turn in range(6):
        first = write(log, 1, 3 * turn)
        wanted.append(AbortedTransaction(1, first, abort(log, 1), first + 4))
    assert len(log.segments) > 3
    assert log.aborted_transactions(0, log.log_end_offset) == wanted
    assert log.aborted_transactions(wanted[2].first_offset, wanted[4].first_offset) == wanted[2:4]


@pytest.mark.parametrize("clean", [True, False])
def test_a_log_that_is_opened_again_knows_them(disk: MemoryDisk, clean: bool) -> None:
    log = new_log(disk, ROOT, log_config(segment_bytes=300))
    for turn in range(6):
        write(log, 1, 3 * turn)
        abort(log, 1) if turn % 2 else commit(log, 1)
    write(log, 2, 0)
    found, stable = log.aborted_transactions(0, log.log_end_offset), log.last_stable_offset
    assert len(found) == 3
    log.close() if clean else log.release_files()
    again = open_log(disk, ROOT, log_config(segment_bytes=300), clean=clean)
    assert again.aborted_transactions(0, again.log_end_offset) == found
    assert again.last_stable_offset == stable < again.log_end_offset


@pytest.mark.parametrize("damage", ["gone", "torn", "garbage", "added"])
def test_a_damaged_index_is_made_anew_by_recovery(disk: MemoryDisk, damage: str) -> None:
    log = new_log(disk, ROOT)
    for turn in range(4):
        write(log, 1, 3 * turn)
        abort(log, 1)
    found = log.aborted_transactions(0, log.log_end_offset)
    log.release_files()
    data = disk.read_bytes(INDEX)
    disk.remove(INDEX)
    if damage != "gone":
        changed = {"torn": data[:-7], "garbage": b"\xff" * len(data), "added": data + data}[damage]
        file = disk.open(INDEX, create=True)
        file.append([changed])
        file.close()
    again = open_log(disk, ROOT)
    assert again.aborted_transactions(0, again.log_end_offset) == found
    assert disk.read_bytes(INDEX) == data


def test_a_transaction_that_began_before_the_recovered_segment(disk: MemoryDisk) -> None:
    config = log_config(segment_bytes=1000)
    log = new_log(disk, ROOT, config)
    write(log, 9, 0)
    sequence = 0
    while len(log.segments) < 3:
        write(log, 1, sequence)
        commit(log, 1)
        sequence += 3
    abort(log, 9)
    found = log.aborted_transactions(0, log.log_end_offset)
    assert [entry.first_offset for entry in found] == [0]
    log.release_files()
    last = log.segments[-1].base_offset
    disk.remove(f"{ROOT}/{FOLDER_NAME}/{last:020d}.txnindex")
    again = open_log(disk, ROOT, config, recovery_point=last)
    assert again.aborted_transactions(0, again.log_end_offset) == found


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("damage", ["torn", "version", "order"])
def test_an_index_that_cannot_be_is_made_anew_whatever_the_checkpoints_say(
    disk: MemoryDisk, damage: str, clean: bool
) -> None:
    log = new_log(disk, ROOT)
    for turn in range(4):
        write(log, 1, 3 * turn)
        abort(log, 1)
    found, end_offset = log.aborted_transactions(0, log.log_end_offset), log.log_end_offset
    log.close()
    data = disk.read_bytes(INDEX)
    changed = {"torn": data[:-7], "version": data[:1] + b"\x07" + data[2:], "order": data[34:] + data[:34]}[damage]
    disk.write_atomic(INDEX, changed, sync=False)
    again = open_log(disk, ROOT, clean=clean, recovery_point=end_offset)
    assert again.aborted_transactions(0, again.log_end_offset) == found
    assert disk.read_bytes(INDEX) == data


def refuse_for(suffix: str, get: Callable[..., DiskFile]) -> Callable[..., DiskFile]:
    """`SegmentFile.get` as it is on a full disk, for files of one kind."""

    def refusing(self: SegmentFile, create: bool = False) -> DiskFile:
        if self.suffix == suffix:
            raise DiskError("open", self.path, errno.ENOSPC)
        return get(self, create)

    return refusing


def test_an_abort_that_the_disk_did_not_take_is_reported_nevertheless(
    log: PartitionLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(log, 1, 0)
    recovery_point = log.recovery_point
    monkeypatch.setattr(SegmentFile, "get", refuse_for(TXN_INDEX_SUFFIX, SegmentFile.get))
    abort(log, 1)
    assert [entry.first_offset for entry in log.aborted_transactions(0, 4)] == [0]
    assert log.failure is not None
    log.flush()
    assert log.recovery_point == recovery_point


def test_ended_transactions_are_not_kept_when_nobody_reads(log: PartitionLog) -> None:
    for turn in range(20):
        write(log, 1, 3 * turn)
        commit(log, 1)
    assert len(log.producers.unreplicated) <= 1


def test_truncation_takes_the_ends_of_transactions_back(log: PartitionLog) -> None:
    write(log, 1, 0)
    kept = AbortedTransaction(1, 0, abort(log, 1), 4)
    write(log, 1, 3)
    marker = abort(log, 1)
    truncate_to(log, marker, NOW_MS)
    assert log.aborted_transactions(0, 100) == [kept]
    assert log.last_stable_offset == 4


def test_markers_of_old_producers_and_coordinators_are_refused(log: PartitionLog) -> None:
    write(log, 1, 0, epoch=5)
    old = end(log, 1, ControlRecordType.ABORT, epoch=4)
    assert isinstance(old, AppendRefusal)
    assert old.error == ErrorCode.INVALID_PRODUCER_EPOCH
    assert isinstance(end(log, 1, ControlRecordType.ABORT, epoch=5, coordinator_epoch=7), AppendInfo)
    zombie = end(log, 1, ControlRecordType.COMMIT, epoch=5, coordinator_epoch=6)
    assert isinstance(zombie, AppendRefusal)
    assert zombie.error == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert "6 (zombie), 7 (current)" in zombie.message


def test_a_marker_without_records_leaves_no_entry(disk: MemoryDisk, log: PartitionLog) -> None:
    abort(log, 1)
    assert not disk.exists(INDEX)
    assert log.aborted_transactions(0, 10) == []
    assert log.last_stable_offset == 1


def test_large_indexes_are_not_kept_in_memory(disk: MemoryDisk) -> None:
    disk.mkdirs("/x")
    log = new_log(disk, ROOT)
    index = log.segments[0].txn_index
    assert isinstance(index, TransactionIndex)
    assert index.entries() == []
    wanted = [AbortedTransaction(1, at, at, at) for at in range(MOST_CACHED_ENTRIES + 5)]
    for entry in wanted:
        index.append(entry)
    assert list(index.entries()) == wanted
    index.keep_below(7)
    assert list(index.entries()) == wanted[:7]


def test_of_a_large_index_only_what_is_asked_for_is_read(disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.storage.transaction_index.MOST_CACHED_ENTRIES", 2000)
    disk.mkdirs("/x")
    index = new_log(disk, ROOT).segments[0].txn_index
    wanted = [AbortedTransaction(1, at, at + 2, at + 3) for at in range(0, 30_000, 3)]
    index.replace(wanted)
    reads: list[int] = []
    pread = MemoryFile.pread
    monkeypatch.setattr(
        MemoryFile, "pread", lambda file, length, at: (reads.append(length), pread(file, length, at))[1]
    )
    for offset in (0, 2, 3, 14_999, 15_000, 29_999, 30_000):
        reads.clear()
        assert next(index.entries_from(offset), None) == next(
            (entry for entry in wanted if entry.last_offset >= offset), None
        )
        assert sum(reads) < 20_000, "the whole of it are 340,000 bytes"
    assert list(index.entries_from(20_000)) == [entry for entry in wanted if entry.last_offset >= 20_000]


@pytest.mark.parametrize("kept", [0, 100])
def test_a_cold_index_is_not_waited_for(disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch, kept: int) -> None:
    monkeypatch.setattr("ottla.storage.transaction_index.MOST_CACHED_ENTRIES", kept)
    log = new_log(disk, ROOT)
    for number in range(3):
        write(log, 1, 3 * number)
        abort(log, 1)
    log.segments[0].txn_index._entries = None
    monkeypatch.setattr(MemoryFile, "is_warm", lambda *_: False)
    (cold,) = without_waiting(lambda: log.aborted_transactions(0, 100))
    assert cold.path == log.segments[0].txn_index.file.path
    monkeypatch.setattr(MemoryFile, "is_warm", lambda *_: True)
    assert without_waiting(lambda: log.aborted_transactions(0, 100)) == ()
    assert len(log.aborted_transactions(0, 100)) == 3
