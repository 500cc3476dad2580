"""Committed offsets: served below the high watermark only, transactions apart, expiry."""

from __future__ import annotations

import pytest

from ottla.groups.offsets import StoredOffsets, metadata_size
from ottla.groups.records import OffsetRecord, StoredOffset
from ottla.wire.errors import ErrorCode

T0, T1, U0 = ("t", 0), ("t", 1), ("u", 0)


def at(offset: int, timestamp: int = 0, expires: int = -1) -> StoredOffset:
    return StoredOffset(offset, -1, "", timestamp, expires)


def record(key: tuple[str, int], value: StoredOffset | None) -> OffsetRecord:
    return OffsetRecord("g", *key, value)


def test_served_only_once_committed():
    offsets = StoredOffsets("g")
    assert not offsets
    offsets.replay(record(T0, at(1)), 10)
    offsets.replay(record(T0, at(2)), 12)
    assert (offsets.committed, bool(offsets), offsets.has_uncommitted) == ({}, True, True)
    assert offsets.is_unstable(*T0)
    offsets.commit_up_to(12)
    assert offsets.committed.get(T0) == at(1)
    assert offsets.is_unstable(*T0)
    offsets.commit_up_to(13)
    assert offsets.committed.get(T0) == at(2)
    assert not offsets.is_unstable(*T0)
    assert not offsets.has_uncommitted


def test_a_tombstone_removes():
    offsets = StoredOffsets("g")
    offsets.replay(record(T0, at(1)), 0)
    offsets.replay(record(T1, at(1)), 1)
    offsets.commit_up_to(2)
    offsets.replay(record(T0, None), 2)
    assert offsets.partitions() == [T0, T1]
    offsets.commit_up_to(3)
    assert offsets.committed == {T1: at(1)}


def test_offsets_of_transactions_count_when_they_commit():
    offsets = StoredOffsets("g")
    offsets.pending(5, record(T0, at(1)), 0)
    offsets.pending(5, record(T1, at(1)), 0)
    assert offsets
    assert offsets.is_unstable(*T0)
    # A later commit of a member overtakes the transaction's.
    offsets.replay(record(T1, at(9)), 1)
    offsets.commit_up_to(2)
    offsets.complete(5, committed=True, log_offset=2)
    assert offsets.committed == {T1: at(9)}, "the marker is not committed yet"
    assert offsets.is_unstable(*T0)
    assert offsets.has_uncommitted
    offsets.commit_up_to(3)
    assert offsets.committed == {T0: at(1), T1: at(9)}
    offsets.pending(6, record(T0, at(7)), 3)
    offsets.pending(6, record(T1, at(7)), 3)
    offsets.pending(6, record(T1, None), 4)
    offsets.complete(6, committed=False, log_offset=5)
    offsets.complete(99, committed=True, log_offset=6)
    assert offsets.is_unstable(*T0)
    offsets.commit_up_to(6)
    assert offsets.committed == {T0: at(1), T1: at(9)}
    assert not offsets.is_unstable(*T0)


def test_a_removed_offset_does_not_come_back_with_a_transaction():
    offsets = StoredOffsets("g")
    offsets.pending(5, record(T0, at(1)), 0)
    offsets.replay(record(T0, None), 1)
    offsets.commit_up_to(2)
    offsets.complete(5, committed=True, log_offset=2)
    offsets.commit_up_to(3)
    assert offsets.committed.get(T0) is None


@pytest.mark.parametrize("committed_to", [2, 3, 4])
def test_an_offset_that_a_transaction_commits_after_it_was_removed_stays(committed_to: int):
    """However late the removal is committed by other brokers: a coordinator that loads the log finds it, too."""
    offsets = StoredOffsets("g")
    offsets.replay(record(T0, at(1)), 0)
    offsets.replay(record(T0, None), 1)
    offsets.pending(5, record(T0, at(2)), 2)
    offsets.commit_up_to(committed_to)
    offsets.complete(5, committed=True, log_offset=3)
    offsets.commit_up_to(4)
    assert offsets.committed == {T0: at(2)}


def test_markers_and_records_count_in_the_order_of_the_log():
    offsets = StoredOffsets("g")
    offsets.pending(5, record(T0, at(1)), 0)
    offsets.pending(5, record(T1, at(1)), 0)
    offsets.replay(record(T0, None), 1)
    offsets.complete(5, committed=True, log_offset=2)
    offsets.replay(record(T1, None), 3)
    offsets.commit_up_to(3)
    assert offsets.committed == {T1: at(1)}, "the first was removed before the marker"
    offsets.commit_up_to(4)
    assert not offsets


def test_expiry():
    offsets = StoredOffsets("g")
    for number, (key, value) in enumerate([(T0, at(1, 100)), (T1, at(1, 100, 150)), (U0, at(1, 200))]):
        offsets.replay(record(key, value), number)
    offsets.commit_up_to(3)

    def expired(now_ms: int, subscribed: tuple[str, ...] = ()) -> list[tuple[str, int]]:
        return offsets.expired(now_ms, 1000, subscribed=subscribed)

    assert expired(149) == []
    assert expired(150) == [T1]
    assert expired(1100) == [T0, T1]
    assert expired(5000) == [T0, T1, U0]
    assert expired(5000, ("t",)) == [U0]
    assert offsets.expired(1100, 1000, since_ms=300) == [T1], "the group is empty since then"
    offsets.replay(record(U0, at(2, 4000)), 9)
    assert expired(5000) == [T0, T1], "a commit on its way keeps its partition"


def test_records_are_made_of_what_is_not_too_large():
    offsets = StoredOffsets("g")
    large = at(2)._replace(metadata="more")
    errors, records = offsets.commit([(*T0, at(1)), (*T1, large)], 3)
    assert errors == [ErrorCode.NONE, ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert records == [record(T0, at(1))]
    assert not offsets, "they are not in the log yet"
    assert offsets.tombstones([T1, U0]) == [record(T1, None), record(U0, None)]


@pytest.mark.spec("C3")
@pytest.mark.parametrize(("metadata", "size"), [("", 0), ("abc", 3), ("é", 1), ("\N{CRAB}", 2), ("\ud83e", 1)])
def test_metadata_is_measured_in_java_s_units(metadata: str, size: int):
    assert metadata_size(metadata) == size
