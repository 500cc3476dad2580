"""Records of `__transaction_state`: round trips, and what cannot be read."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest

from ottla.txn.metadata import TransactionMetadata
from ottla.txn.records import (
    TransactionLogValue,
    TransactionRecord,
    UnreadableTransaction,
    decode_record,
    encode_record,
    value_version,
)
from ottla.txn.states import STATE_IDS, TransactionState
from ottla.wire.codec import encode

pytestmark = pytest.mark.spec("X1")

WRITTEN = STATE_IDS[:6]
FULL = TransactionMetadata(
    7, 32766, 60_000, TransactionState.ONGOING, 1_000, frozenset({("b", 3), ("a", 2), ("b", 1)}), 900, 5, 8, 2, 32765
)
KEY, _ = encode_record(TransactionRecord("mine", None), 0)


def of_status(status: int) -> bytes:
    return struct.pack(">h", 0) + encode(TransactionLogValue(transaction_status=status), 0)


@pytest.mark.parametrize("state", WRITTEN)
def test_version_1_keeps_everything_but_the_former_epoch(state: TransactionState):
    partitions = frozenset() if state is TransactionState.EMPTY else FULL.partitions
    record = TransactionRecord("mine", replace(FULL, state=state, partitions=partitions))
    read = decode_record(*encode_record(record, 1))
    assert read == record
    assert read.metadata is not None
    assert read.metadata.last_producer_epoch == -1


def test_version_0_keeps_what_the_older_protocol_knows():
    read = decode_record(*encode_record(TransactionRecord("mine", FULL), 0)).metadata
    assert read == replace(FULL, previous_producer_id=-1, next_producer_id=-1, client_transaction_version=0)


def test_a_tombstone():
    assert decode_record(KEY, None) == TransactionRecord("mine", None)


def test_the_version_follows_the_feature():
    assert [value_version(level) for level in (0, 1, 2)] == [0, 1, 1]


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        (None, b"", "key without version"),
        (b"\x00", b"", "key without version"),
        (b"\x00\x00", b"", "TransactionLogKey"),
        (KEY, b"\x00", "value without version"),
        (KEY, b"\x00\x02", "version 2 is newer"),
        (KEY, b"\xff\xff", "version -1"),
        (KEY, b"\x00\x00\x01", "TransactionLogValue"),
        (KEY, of_status(6), "state 6, which is never written"),
        (KEY, of_status(7), "state 7, which is never written"),
        (KEY, of_status(8), "state 8"),
        (KEY, of_status(-1), "state -1"),
    ],
)
def test_damaged_records_are_named(key: bytes | None, value: bytes | None, words: str):
    with pytest.raises(UnreadableTransaction, match=words) as caught:
        decode_record(key, value)
    assert caught.value.unknown_key_version is None


def test_a_key_of_a_newer_version_is_no_damage():
    with pytest.raises(UnreadableTransaction, match="a key of version 3") as caught:
        decode_record(b"\x00\x03\x00", None)
    assert caught.value.unknown_key_version == 3
