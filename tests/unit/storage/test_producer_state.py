from __future__ import annotations

import struct

import pytest

from ottla.records.batch import patch_batch, split_batches
from ottla.records.crc import crc32c
from ottla.records.record import Record
from ottla.storage.producer_state import CompletedTransaction, ProducerState
from ottla.wire.errors import ErrorCode
from support.storage_logs import NOW_MS, batch, of_records


def header_of(buf: memoryview, offset: int = 0):
    patch_batch(buf, 0, offset, 0)
    return split_batches(buf)[0]


def data(
    sequence: int, *, count: int = 2, epoch: int = 0, producer_id: int = 1, offset: int = 0, transactional: bool = False
):
    buf = batch(
        count, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, is_transactional=transactional
    )
    return header_of(buf, offset)


def marker(kind: int, *, offset: int = 0, producer_id: int = 1, epoch: int = 0, coordinator_epoch: int = 7):
    record = Record(0, NOW_MS, struct.pack(">hh", 0, kind), struct.pack(">hi", 0, coordinator_epoch), ())
    buf = of_records([record], producer_id=producer_id, producer_epoch=epoch, is_transactional=True, is_control=True)
    return header_of(buf, offset), buf


def test_the_snapshot_is_kafkas() -> None:
    state = ProducerState()
    state.update(data(4, count=3, epoch=2, producer_id=77, offset=10))
    state.update(data(0, producer_id=78, offset=13, transactional=True))
    entries = struct.pack(">qhiqiqiq", 77, 2, 6, 12, 2, NOW_MS + 2, -1, -1)
    entries += struct.pack(">qhiqiqiq", 78, 0, 1, 14, 1, NOW_MS + 1, -1, 13)
    body = struct.pack(">i", 2) + entries
    assert state.encode() == struct.pack(">hI", 1, crc32c(body)) + body
    assert ProducerState().encode().hex() == "000148674bc700000000"


def test_a_snapshot_is_loaded_again() -> None:
    state = ProducerState()
    state.update(data(4, count=3, epoch=2, producer_id=77, offset=10))
    state.update(data(0, producer_id=78, offset=13, transactional=True))
    again = ProducerState()
    assert again.load(state.encode(), 15, NOW_MS, 1000)
    assert again.end_offset == 15
    assert again.encode() == state.encode()
    assert again.first_unstable_offset(100) == 13
    duplicate = again.find_duplicate(data(4, count=3, epoch=2, producer_id=77))
    assert duplicate is not None
    assert (duplicate.first_offset, duplicate.last_offset) == (10, 12)
    assert again.check(data(7, epoch=2, producer_id=77), 15, "t-0", from_client=True) is None


def test_expired_producers_are_not_loaded_but_open_transactions_are() -> None:
    state = ProducerState()
    state.update(data(0, producer_id=77))
    state.update(data(0, producer_id=78, transactional=True))
    again = ProducerState()
    assert again.load(state.encode(), 15, NOW_MS + 1001, 1000)
    assert [entry.producer_id for entry in again] == [78]
    assert again.expire(NOW_MS + 10**9, 1000) == 0


def test_damaged_snapshots_are_refused() -> None:
    state = ProducerState()
    state.update(data(0))
    whole = state.encode()
    again = ProducerState()
    for cut in range(len(whole)):
        assert not again.load(whole[:cut], 5, NOW_MS, 1000)
    for position in range(len(whole)):
        flipped = bytearray(whole)
        flipped[position] ^= 4
        assert not again.load(bytes(flipped), 5, NOW_MS, 1000)
    assert len(again) == 0
    assert again.end_offset == 0


@pytest.mark.parametrize(
    ("last", "following", "accepted"),
    [
        (0, 1, True),
        (0, 0, False),
        (5, 7, False),
        (2**31 - 1, 0, True),
        (2**31 - 1, 1, False),
        (2**31 - 2, 2**31 - 1, True),
    ],
)
def test_sequence_rule(last: int, following: int, accepted: bool) -> None:
    state = ProducerState()
    state.update(data(last, count=1))
    refusal = state.check(data(following, count=1), 1, "t-0", from_client=True)
    assert (refusal is None) == accepted
    assert state.check(data(following, count=1), 1, "t-0", from_client=False) is None


def test_messages_are_kafkas() -> None:
    state = ProducerState()
    state.update(data(0, epoch=5))
    for header, error, message in (
        (
            data(9, epoch=5),
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            "Out of order sequence number for producer 1 at offset 8 in "
            "partition t-0: 9 (incoming seq. number), 1 (current end sequence number)",
        ),
        (
            data(9, epoch=4),
            ErrorCode.INVALID_PRODUCER_EPOCH,
            "Epoch of producer 1 at offset 8 in t-0 is 4, which is smaller than the last seen epoch 5",
        ),
        (
            data(9, epoch=6),
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            "Invalid sequence number for new epoch of producer 1 at "
            "offset 8 in partition t-0: 6 (request epoch), 9 (seq. number), 5 (current producer epoch)",
        ),
    ):
        refusal = state.check(header, 8, "t-0", from_client=True)
        assert refusal is not None
        assert (refusal.error, refusal.message) == (error, message)


def test_markers_end_transactions() -> None:
    state = ProducerState()
    state.update(data(0, offset=3, transactional=True))
    state.update(data(0, offset=5, producer_id=2, transactional=True))
    assert state.first_unstable_offset(100) == 3
    header, buf = marker(0, offset=9)
    assert state.end_transaction(header, buf) == CompletedTransaction(1, 3, 9, aborted=True)
    assert state.first_unstable_offset(100) == 5
    header, buf = marker(1, offset=10, producer_id=2)
    assert state.end_transaction(header, buf) == CompletedTransaction(2, 5, 10, aborted=False)
    assert state.first_unstable_offset(100) is None
    header, buf = marker(1, offset=11, producer_id=3, epoch=1)
    assert state.end_transaction(header, buf) is None
    entry = state.get(3)
    assert entry is not None
    assert (entry.epoch, entry.coordinator_epoch, entry.last_sequence) == (1, 7, -1)
    header, buf = marker(2, offset=12, producer_id=4)
    assert state.end_transaction(header, buf) is None
    assert state.get(4) is None


def test_replaying_brings_the_same_state() -> None:
    live, replayed = ProducerState(), ProducerState()
    offset = 0
    for number in range(9):
        buf = batch(
            2,
            producer_id=number % 3,
            producer_epoch=0,
            base_sequence=2 * (number // 3),
            is_transactional=number % 3 == 2,
        )
        header = header_of(buf, offset)
        live.update(header)
        replayed.replay(header, buf)
        offset += 2
    plain = batch(1)
    replayed.replay(header_of(plain, offset), plain)
    header, buf = marker(1, offset=offset + 1, producer_id=2)
    live.end_transaction(header, buf)
    replayed.replay(header, buf)
    assert replayed.encode() == live.encode()
    assert replayed.end_offset == offset + 2
    replayed.clear()
    assert (len(replayed), replayed.end_offset) == (0, 0)


@pytest.mark.parametrize("sequence", [0, 5, 0x7FFFFFFE])
def test_a_plain_batch_is_replayed_as_any_other(sequence: int) -> None:
    known, quick = ProducerState(), ProducerState()
    for number, epoch in enumerate((0, 0, 1, 1, 1, 1, 1, 1)):
        buf = batch(3, producer_id=5, producer_epoch=epoch, base_sequence=sequence)
        header = header_of(buf, 3 * number)
        known.replay(header, buf)
        quick.replay_plain(5, epoch, sequence, 3 * number, 3 * number + 2, header.max_timestamp)
    (one,), (other,) = list(known), list(quick)
    assert one.batches == other.batches
    assert (one.epoch, one.last_timestamp, known.end_offset) == (other.epoch, other.last_timestamp, quick.end_offset)
    assert quick.encode() == known.encode()
