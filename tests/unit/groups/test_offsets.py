"""Committed offsets: served below the high watermark only, transactions apart, expiry."""

from __future__ import annotations

import pytest

from ottla.groups.offsets import StoredOffset, StoredOffsets, metadata_size
from ottla.records.control import TransactionMarker

T0, T1, U0 = ("t", 0), ("t", 1), ("u", 0)


def at(offset: int, timestamp: int = 0, expires: int = -1) -> StoredOffset:
    return StoredOffset(offset, -1, "", timestamp, expires)


def test_served_only_once_committed():
    offsets = StoredOffsets()
    assert not offsets
    offsets.replay(T0, at(1), 10)
    offsets.replay(T0, at(2), 12)
    assert (offsets.get(*T0), len(offsets), bool(offsets), offsets.has_uncommitted) == (None, 0, True, True)
    assert offsets.is_unstable(*T0)
    offsets.commit_up_to(12)
    assert offsets.get(*T0) == at(1)
    assert offsets.is_unstable(*T0)
    offsets.commit_up_to(13)
    assert offsets.get(*T0) == at(2)
    assert not offsets.is_unstable(*T0)
    assert not offsets.has_uncommitted


def test_a_tombstone_removes():
    offsets = StoredOffsets()
    offsets.replay(T0, at(1), 0)
    offsets.replay(T1, at(1), 1)
    offsets.commit_up_to(2)
    offsets.replay(T0, None, 2)
    assert offsets.all_keys() == [T0, T1]
    offsets.commit_up_to(3)
    assert dict(offsets.items()) == {T1: at(1)}


def test_offsets_of_transactions_count_when_they_commit():
    offsets = StoredOffsets()
    offsets.replay_transactional(T0, at(1), 0, producer_id=5)
    offsets.replay_transactional(T1, at(1), 0, producer_id=5)
    assert offsets
    assert offsets.is_unstable(*T0)
    # A later commit of a member overtakes the transaction's.
    offsets.replay(T1, at(9), 1)
    offsets.commit_up_to(2)
    offsets.replay_marker(TransactionMarker(5, 0, 0, True), 2)
    assert dict(offsets.items()) == {T1: at(9)}, "the marker is not committed yet"
    assert offsets.is_unstable(*T0)
    assert offsets.has_uncommitted
    offsets.commit_up_to(3)
    assert dict(offsets.items()) == {T0: at(1), T1: at(9)}
    offsets.replay_transactional(T0, at(7), 3, producer_id=6)
    offsets.replay_transactional(T1, at(7), 3, producer_id=6)
    offsets.replay_transactional(T1, None, 4, producer_id=6)
    offsets.replay_marker(TransactionMarker(6, 0, 0, False), 5)
    offsets.replay_marker(TransactionMarker(99, 0, 0, True), 6)
    assert offsets.is_unstable(*T0)
    offsets.commit_up_to(6)
    assert dict(offsets.items()) == {T0: at(1), T1: at(9)}
    assert not offsets.is_unstable(*T0)


def test_a_removed_offset_does_not_come_back_with_a_transaction():
    offsets = StoredOffsets()
    offsets.replay_transactional(T0, at(1), 0, producer_id=5)
    offsets.replay(T0, None, 1)
    offsets.commit_up_to(2)
    offsets.replay_marker(TransactionMarker(5, 0, 0, True), 2)
    offsets.commit_up_to(3)
    assert offsets.get(*T0) is None


def test_markers_and_records_count_in_the_order_of_the_log():
    offsets = StoredOffsets()
    offsets.replay_transactional(T0, at(1), 0, producer_id=5)
    offsets.replay_transactional(T1, at(1), 0, producer_id=5)
    offsets.replay(T0, None, 1)
    offsets.replay_marker(TransactionMarker(5, 0, 0, True), 2)
    offsets.replay(T1, None, 3)
    offsets.commit_up_to(3)
    assert dict(offsets.items()) == {T1: at(1)}, "the first was removed before the marker"
    offsets.commit_up_to(4)
    assert not offsets


def test_expiry():
    offsets = StoredOffsets()
    for number, (key, value) in enumerate([(T0, at(1, 100)), (T1, at(1, 100, 150)), (U0, at(1, 200))]):
        offsets.replay(key, value, number)
    offsets.commit_up_to(3)

    def expired(now_ms: int, subscribed: tuple[str, ...] = ()) -> list[tuple[str, int]]:
        return offsets.expired(now_ms, 1000, lambda value: value.commit_timestamp_ms, subscribed)

    assert expired(149) == []
    assert expired(150) == [T1]
    assert expired(1100) == [T0, T1]
    assert expired(5000) == [T0, T1, U0]
    assert expired(5000, ("t",)) == [U0]
    offsets.replay(U0, at(2, 4000), 9)
    assert expired(5000) == [T0, T1], "a commit on its way keeps its partition"


@pytest.mark.spec("C3")
@pytest.mark.parametrize(("metadata", "size"), [("", 0), ("abc", 3), ("é", 1), ("\N{CRAB}", 2), ("\ud83e", 1)])
def test_metadata_is_measured_in_java_s_units(metadata: str, size: int):
    assert metadata_size(metadata) == size
