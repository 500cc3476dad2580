from __future__ import annotations

from dataclasses import replace

import pytest

from ottla.records.batch import BatchHeader, check_crc, frame_batch, parse_batch_header
from ottla.records.compression import Compression
from ottla.records.control import ControlRecordType, end_transaction_record
from ottla.records.record import Record, decode_batch, encode_batch
from ottla.storage.batch_filter import CleanedTransactions, FilterRules, LastRecord, RetainedBatch, filter_batch
from ottla.storage.offset_map import DictMap
from ottla.storage.scan import ScannedBatch, scan_batches
from ottla.storage.transaction_index import AbortedTransaction, decode_aborted
from ottla.testing.disk_memory import MemoryDisk, MemoryFile
from support.storage_logs import NOW_MS

pytestmark = pytest.mark.spec("L5")

DAY_MS = 86_400_000
PRODUCER = 7


def rules(*aborted: AbortedTransaction, now_ms: int = NOW_MS, last: dict[int, LastRecord] | None = None) -> FilterRules:
    offsets = DictMap(1 << 20)
    offsets.latest_offset = 1 << 40
    return FilterRules(offsets, CleanedTransactions(aborted), last or {}, now_ms, DAY_MS)


def memory_file(data: bytes) -> MemoryFile:
    file = MemoryDisk().open("/batch", create=True)
    file.append([data])
    return file


def scanned(data: bytes) -> ScannedBatch:
    return next(scan_batches(memory_file(data), 0, len(data)))


def data_batch(offset: int, *values: bytes | None, transactional: bool = True, **options: object) -> ScannedBatch:
    records = [Record(0, NOW_MS + n, b"key-%d" % (offset + n), value) for n, value in enumerate(values)]
    encoded = encode_batch(
        records,
        base_offset=offset,
        producer_id=PRODUCER,
        producer_epoch=1,
        base_sequence=offset,
        is_transactional=transactional,
        **options,  # type: ignore[arg-type]
    )
    return scanned(encoded)


def marker(offset: int, kind: ControlRecordType) -> ScannedBatch:
    key, value = end_transaction_record(kind, 3)
    encoded = encode_batch(
        [Record(0, NOW_MS, key, value)],
        base_offset=offset,
        producer_id=PRODUCER,
        producer_epoch=1,
        is_transactional=True,
        is_control=True,
    )
    return scanned(encoded)


def head(kept: RetainedBatch | None) -> BatchHeader:
    assert kept is not None
    header = parse_batch_header(kept.data)
    assert check_crc(kept.data, header)
    return header


def test_records_of_an_aborted_transaction_go_and_its_marker_stays_a_day_longer() -> None:
    aborted = AbortedTransaction(PRODUCER, 0, 2, 3)
    abort = marker(2, ControlRecordType.ABORT)
    first = rules(aborted)
    assert filter_batch(data_batch(0, b"a", b"b"), first, must_stay=False) is None
    kept = filter_batch(abort, first, must_stay=False)
    assert kept is not None
    assert head(kept).delete_horizon is None, "its records were there a moment ago"
    assert first.transactions.take_retained() == [aborted]
    # The next round sees no record of it, and sets a horizon.
    second = filter_batch(scanned(bytes(kept.data)), rules(aborted), must_stay=False)
    assert head(second).delete_horizon == NOW_MS + DAY_MS
    (record,) = decode_batch(second.data, head(second))  # type: ignore[union-attr]
    assert record.timestamp == NOW_MS
    assert record.key == end_transaction_record(ControlRecordType.ABORT, 3)[0]
    # And a later one drops it.
    last = scanned(bytes(second.data))  # type: ignore[union-attr]
    early, late = NOW_MS + DAY_MS - 1, NOW_MS + DAY_MS
    assert filter_batch(last, rules(now_ms=early), must_stay=False) is not None
    assert filter_batch(last, rules(now_ms=late), must_stay=False) is None


def test_a_commit_marker_stays_as_long_as_its_records() -> None:
    chosen = rules()
    data, commit = data_batch(0, b"a"), marker(1, ControlRecordType.COMMIT)
    kept = filter_batch(data, chosen, must_stay=False)
    assert kept is not None
    assert kept.data == data.data
    assert head(filter_batch(commit, chosen, must_stay=False)).delete_horizon is None
    assert head(filter_batch(commit, rules(), must_stay=False)).delete_horizon == NOW_MS + DAY_MS


def test_two_transactions_of_one_producer_are_distinguished() -> None:
    chosen = rules(AbortedTransaction(PRODUCER, 0, 1, 2), AbortedTransaction(PRODUCER, 4, 5, 6))
    batches = (
        data_batch(0, b"aborted"),
        marker(1, ControlRecordType.ABORT),
        data_batch(2, b"committed"),
        marker(3, ControlRecordType.COMMIT),
        data_batch(4, b"aborted"),
        marker(5, ControlRecordType.ABORT),
        data_batch(6, b"plain", transactional=False),
    )
    assert [filter_batch(batch, chosen, must_stay=False) is not None for batch in batches] == [
        False,
        True,
        True,
        True,
        False,
        True,
        True,
    ]


def test_the_last_batch_of_an_active_producer_keeps_its_head() -> None:
    batch = data_batch(10, b"a", b"b", transactional=False)
    chosen = rules(last={PRODUCER: LastRecord(11, 1)})
    newer = parse_batch_header(batch.data)
    chosen.offsets.put(bytes(batch.data[61:]), 2, 100, 0)
    kept = filter_batch(batch, chosen, must_stay=False)
    header = head(kept)
    assert header.records_count == 0
    assert (header.base_offset, header.last_offset, header.producer_id) == (10, 11, PRODUCER)
    assert (header.base_sequence, header.last_sequence, header.max_timestamp) == (10, 11, newer.max_timestamp)
    assert kept is not None
    assert kept.max_timestamp == -1
    # Once it is not the last any more, the head goes, too.
    again = scanned(bytes(kept.data))
    assert filter_batch(again, rules(last={PRODUCER: LastRecord(50, 1)}), must_stay=False) is None
    assert filter_batch(again, rules(), must_stay=True) is not None
    # A producer whose last was a marker keeps that.
    fenced = rules(last={PRODUCER: LastRecord(None, 1)}, now_ms=NOW_MS + 10 * DAY_MS)
    old = marker(12, ControlRecordType.ABORT)
    old_header = replace(parse_batch_header(old.data), attributes=0x70, base_timestamp=NOW_MS)
    expired = scanned(frame_batch(old.data[61:], old_header))
    assert head(filter_batch(expired, fenced, must_stay=False)).records_count == 0


@pytest.mark.parametrize("compression", list(Compression))
def test_a_batch_in_part(compression: Compression) -> None:
    batch = data_batch(10, b"a", None, b"c", transactional=False, compression=compression)
    chosen = rules()
    newer = encode_batch([Record(0, 0, b"key-12", b"newer")])
    chosen.offsets.put(newer[61:], 1, 100, 0)
    kept = filter_batch(batch, chosen, must_stay=False)
    header = head(kept)
    assert (header.base_offset, header.last_offset, header.records_count) == (10, 12, 2)
    assert header.delete_horizon == NOW_MS + DAY_MS, "there is a tombstone in it"
    assert header.compression == compression
    records = decode_batch(kept.data, header)  # type: ignore[union-attr]
    assert [(r.offset, r.timestamp, r.value) for r in records] == [(10, NOW_MS, b"a"), (11, NOW_MS + 1, None)]
    assert header.max_timestamp == NOW_MS + 1
    after = filter_batch(scanned(bytes(kept.data)), rules(now_ms=NOW_MS + DAY_MS), must_stay=False)  # type: ignore[union-attr]
    records = decode_batch(after.data, head(after))  # type: ignore[union-attr]
    assert [(r.offset, r.timestamp, r.value) for r in records] == [(10, NOW_MS, b"a")]
    assert head(after).max_timestamp == NOW_MS


def test_entries_of_the_index_of_aborted_transactions() -> None:
    entries = [AbortedTransaction(1, 2, 3, 4), AbortedTransaction(1 << 40, 5, 6, 7)]
    data = b"".join(entry.encode() for entry in entries)
    assert len(data) == 68
    assert decode_aborted(data) == entries
    assert decode_aborted(data + b"cut") == entries
