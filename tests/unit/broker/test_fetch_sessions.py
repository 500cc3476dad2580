"""Fetch sessions: epochs, what an incremental answer tells, eviction (KIP-227)."""

from __future__ import annotations

from itertools import count

import pytest

from ottla.broker.fetch_sessions import (
    EVICTION_AGE_MS,
    LOOK_AT_ALL_MS,
    MAX_EPOCH,
    UNKNOWN_PARTITIONS_LIMIT,
    FetchSession,
    FetchSessionCache,
    SessionPartition,
)
from ottla.wire.errors import ErrorCode


def cache(slots: int = 10) -> FetchSessionCache:
    ids = count(100)
    return FetchSessionCache(slots, lambda: next(ids))


def wanted(index: int, offset: int = 0, topic: str = "t") -> SessionPartition:
    return SessionPartition(topic, index, offset, 1 << 20, -1)


def test_epochs_follow_each_other_and_a_wrong_one_is_refused() -> None:
    sessions = cache()
    session = sessions.create(False, [wanted(0)], 0)
    assert session is not None
    assert sessions.resume(session.session_id, 1, False, 1) is session
    assert sessions.resume(session.session_id, 1, False, 2) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert sessions.resume(session.session_id, 2, False, 3) is session


def test_the_epoch_wraps_to_1() -> None:
    sessions = cache()
    session = sessions.create(False, [wanted(0)], 0)
    assert session is not None
    session.epoch = MAX_EPOCH
    assert sessions.resume(session.session_id, MAX_EPOCH, False, 1) is session
    assert session.epoch == 1


def test_unknown_session_and_mixed_topic_ids() -> None:
    sessions = cache()
    assert sessions.resume(5, 1, False, 0) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    session = sessions.create(False, [wanted(0)], 0)
    assert session is not None
    assert sessions.resume(session.session_id, 1, True, 0) is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    sessions.remove(session.session_id)
    assert sessions.resume(session.session_id, 1, False, 0) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_full_cache_evicts_only_what_was_idle_long_enough() -> None:
    sessions = cache(slots=2)
    first = sessions.create(False, [wanted(0)], 0)
    second = sessions.create(False, [wanted(0)], 0)
    assert first is not None
    assert second is not None
    assert sessions.create(False, [wanted(0)], 1000) is None
    assert sessions.resume(first.session_id, 1, False, 1000) is first
    third = sessions.create(False, [wanted(0)], EVICTION_AGE_MS)
    assert third is not None
    assert sessions.resume(second.session_id, 1, False, EVICTION_AGE_MS) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert sessions.resume(first.session_id, 2, False, EVICTION_AGE_MS) is first
    assert len(sessions) == 2
    assert sessions.evictions == 1


def test_a_session_with_many_unknown_partitions_is_not_made() -> None:
    sessions = FetchSessionCache(10, lambda: 7, lambda partition: partition.topic != "gone")
    gone = [wanted(index, topic="gone") for index in range(UNKNOWN_PARTITIONS_LIMIT + 1)]
    assert sessions.create(False, gone, 0) is None
    session = sessions.create(False, [wanted(0), *gone[1:]], 0)
    assert session is not None
    assert sessions.partitions == UNKNOWN_PARTITIONS_LIMIT + 1
    assert sessions.change(session, [wanted(1)], [])
    assert not sessions.change(session, [gone[0]], []), "one unknown partition too many ends the session"
    assert (len(sessions), sessions.partitions) == (0, 0)


def test_partitions_that_are_hosted_by_now_or_forgotten_are_unknown_no_more() -> None:
    """A follower hears of new topics before their leaders do, again and again: it keeps its session."""
    hosted: set[int] = set()
    sessions = FetchSessionCache(10, lambda: 7, lambda partition: partition.index in hosted)
    session = sessions.create(True, [wanted(0)], 0, of_follower=True)
    assert session is not None
    last, step = 5 * UNKNOWN_PARTITIONS_LIMIT, UNKNOWN_PARTITIONS_LIMIT // 5
    for number, begin in enumerate(range(1, last, step)):
        new = range(begin, begin + step)
        assert sessions.change(session, [wanted(index) for index in new], [])
        if number % 2:
            hosted.update(new)
        else:
            assert sessions.change(session, [], [("t", index) for index in new])
    beyond = [wanted(index) for index in range(last + step, last + step + UNKNOWN_PARTITIONS_LIMIT + 1)]
    assert not sessions.change(session, beyond, []), "these are not hosted"
    assert len(sessions) == 0


def test_all_sessions_together_remember_a_limited_number_of_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.broker.fetch_sessions.REMEMBERED_PARTITIONS_LIMIT", 10)
    sessions = cache()
    assert sessions.create(False, [wanted(index) for index in range(11)], 0) is None
    first = sessions.create(False, [wanted(index) for index in range(6)], 0)
    assert first is not None
    assert sessions.create(False, [wanted(index) for index in range(5)], 1) is None
    second = sessions.create(False, [wanted(index) for index in range(4)], 2)
    assert second is not None
    assert not sessions.change(second, [wanted(4)], [])
    assert sessions.change(first, [wanted(7)], [("t", 0)])
    assert sessions.create(False, [wanted(index) for index in range(5)], EVICTION_AGE_MS) is not None
    assert sessions.evictions == 1
    assert sessions.partitions == 5


def test_the_session_of_a_follower_reads_what_changed() -> None:
    session = FetchSession(1, False, 0, of_follower=True)
    parts = [wanted(index) for index in range(4)]
    session.change(parts, [])
    assert session.to_read(0) == parts
    assert session.due is not None
    session.due.clear()
    assert session.to_read(1) == []
    assert (parts[2].changed(), parts[2].changed()) == (True, False)
    session.change([wanted(1, offset=7)], [])
    assert session.to_read(2) == [parts[2], parts[1]], "what changed, and what the follower names"
    session.served(parts[2])
    assert session.to_read(2) == [parts[1], parts[2]]
    session.change([], [("t", 1)])
    assert session.to_read(2) == [parts[2]]
    assert not parts[1].changed(), "a partition that the session has forgotten"
    session.due.clear()
    assert session.to_read(LOOK_AT_ALL_MS) == list(session.partitions.values())


def test_the_session_of_a_consumer_reads_all() -> None:
    session = FetchSession(1, False, 0)
    session.change([wanted(0), wanted(1)], [])
    assert not session.partitions["t", 0].changed()
    assert session.to_read(0) == list(session.partitions.values())


def test_changes_keep_what_was_reported_and_forgetting_drops() -> None:
    session = FetchSession(1, False, 0)
    session.change([wanted(0), wanted(1)], [])
    kept = session.partitions["t", 0]
    assert kept.must_include(0, 0, 5, 0)
    session.change([wanted(0, offset=7)], [("t", 1), ("unknown", 3)])
    assert list(session.partitions) == [("t", 0)]
    assert session.partitions["t", 0] is kept
    assert kept.fetch_offset == 7
    assert not kept.must_include(0, 0, 5, 0), "an update does not make the answer repeat itself"


@pytest.mark.parametrize(
    ("error", "size", "high_watermark", "log_start", "told"),
    [(0, 0, 5, 0, False), (0, 10, 5, 0, True), (0, 0, 6, 0, True), (0, 0, 5, 1, True), (3, 0, 5, 0, True)],
)
def test_what_an_incremental_answer_reports(
    error: int, size: int, high_watermark: int, log_start: int, told: bool
) -> None:
    partition = wanted(0)
    partition.must_include(0, 0, 5, 0)
    assert partition.must_include(error, size, high_watermark, log_start) is told


def test_an_error_is_repeated_and_its_end_is_reported() -> None:
    partition = wanted(0)
    assert partition.must_include(3, 0, -1, -1)
    assert partition.must_include(3, 0, -1, -1)
    assert partition.must_include(0, 0, 0, 0)
    assert not partition.must_include(0, 0, 0, 0)


def test_partitions_that_sent_data_go_behind_the_others() -> None:
    session = FetchSession(1, False, 0)
    session.change([wanted(index) for index in range(3)], [])
    session.served(session.partitions["t", 0])
    assert [index for _, index in session.partitions] == [1, 2, 0]
    gone = wanted(9)
    session.served(gone)
    assert ("t", 9) not in session.partitions, "a partition forgotten meanwhile does not come back"
