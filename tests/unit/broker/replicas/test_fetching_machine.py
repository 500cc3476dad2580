"""The pure machine of a replica fetcher: requests, answers, truncation, back-off."""

from __future__ import annotations

from uuid import UUID

import pytest

from ottla.broker.replicas.fetching.machine import (
    EARLIEST,
    LATEST,
    NO_TOPIC_ID,
    PARTITIONS_PER_SLICE,
    AskOffset,
    FetcherMachine,
    FetchRound,
    LogEnds,
    PartitionAnswer,
    ReplicaPosition,
    StartAt,
    TakeRecords,
    TruncateByEpoch,
    TruncateTo,
    truncation_offset,
)
from ottla.wire.errors import ErrorCode

pytestmark = pytest.mark.spec("R2")

A, B = ("a", 0), ("b", 1)
ID_A, ID_B = UUID(int=1), UUID(int=2)
BACKOFF_MS = 1000
AGREED = PartitionAnswer(ErrorCode.NONE, 10)


class Machine(FetcherMachine):
    """The machine with its invariants checked, and a leader that grants sessions."""

    def __init__(self) -> None:
        super().__init__(BACKOFF_MS)

    def planned(self, now_ms: float) -> FetchRound | None:
        """The next request."""
        for _ in self.prepare(now_ms):
            pass
        return self.plan()

    def round(self, now_ms: float = 0) -> FetchRound:
        """The next request, with its answer received."""
        fetch = self.planned(now_ms)
        assert fetch is not None
        self.check_invariants()
        assert self.received(ErrorCode.NONE, 7, now_ms)
        return fetch


@pytest.fixture
def machine() -> Machine:
    machine = Machine()
    machine.follow(A, ID_A, 3, LogEnds(5, 2, 0), 4)
    machine.follow(B, ID_B, 3, LogEnds(0, -1, 0), 0)
    return machine


def test_a_session_names_what_changed(machine: Machine) -> None:
    first = machine.round()
    assert (first.session_id, first.session_epoch, first.forgotten) == (0, 0, [])
    assert first.changed == {A: ReplicaPosition(3, LogEnds(5, 2, 0)), B: ReplicaPosition(3, LogEnds(0, -1, 0))}
    assert machine.answered(A, AGREED, 0) == TakeRecords()
    machine.moved(A, 3, LogEnds(9, 3, 1), 10)
    second = machine.round()
    assert (second.session_id, second.session_epoch) == (7, 1)
    assert second.changed == {A: ReplicaPosition(3, LogEnds(9, 3, 1))}
    machine.moved(A, 3, LogEnds(9, 3, 1), 12)
    assert machine.largest_lag == 3
    machine.forget(B)
    third = machine.round()
    assert (third.changed, third.forgotten) == ({}, [(B, ID_B)])
    machine.forget(A)
    assert machine.planned(0) is None


def test_without_sessions_everything_is_named_each_time(machine: Machine) -> None:
    for _ in range(2):
        fetch = machine.planned(0)
        assert fetch is not None
        assert fetch.changed.keys() == {A, B}
        assert machine.received(ErrorCode.NONE, 0, 0)


def test_many_partitions_are_named_by_several_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.broker.replicas.fetching.machine.MOST_NAMED", 3)
    machine = Machine()
    keys = [("a", index) for index in range(8)]
    for key in keys:
        machine.follow(key, ID_A, 3, LogEnds(5, 2, 0), 4)
    first = machine.round()
    assert (list(first.changed), first.is_partial) == (keys[:3], True)
    assert machine.answered(keys[0], AGREED, 0) == TakeRecords()
    assert machine.answered(keys[3], AGREED, 0) is None, "it was not asked for yet"
    machine.forget(keys[4])
    second, third, fourth = machine.round(), machine.round(), machine.round()
    assert (list(second.changed), second.forgotten, second.is_partial) == ([keys[3], *keys[5:7]], [], True)
    assert (list(third.changed), third.is_partial) == (keys[7:], False)
    assert (fourth.changed, fourth.is_partial) == ({}, False)
    # A session that is begun anew names all of them again, and the old one's answers count no more.
    machine.failed_round(0)
    again = machine.round(BACKOFF_MS)
    assert (list(again.changed), again.is_partial) == (keys[:3], True)
    assert machine.answered(keys[7], AGREED, BACKOFF_MS) is None


def test_a_leader_that_is_gone_is_asked_once_in_each_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many partitions it had: what was delayed before one attempt is not left over for the next."""
    monkeypatch.setattr("ottla.broker.replicas.fetching.machine.MOST_NAMED", 3)
    machine = Machine()
    for index in range(8):
        machine.follow(("a", index), ID_A, 3, LogEnds(5, 2, 0), 4)
    for attempt in range(5):
        now_ms = attempt * BACKOFF_MS
        assert machine.planned(now_ms) is not None
        machine.failed_round(now_ms)
        machine.check_invariants()
        assert machine.next_deadline_ms == now_ms + BACKOFF_MS
        assert machine.planned(now_ms + 1) is None


def test_a_leader_without_room_for_sessions_is_told_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.broker.replicas.fetching.machine.MOST_NAMED", 1)
    machine = Machine()
    machine.follow(A, ID_A, 3, LogEnds(5, 2, 0), 4)
    machine.follow(B, ID_B, 3, LogEnds(0, -1, 0), 0)
    for keys, is_partial in (([A], True), ([A, B], False), ([A, B], False)):
        fetch = machine.planned(0)
        assert fetch is not None
        assert (list(fetch.changed), fetch.is_partial) == (keys, is_partial)
        assert machine.received(ErrorCode.NONE, 0, 0)


@pytest.mark.parametrize("error", [ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH])
def test_a_lost_session_is_begun_anew_at_once(machine: Machine, error: ErrorCode) -> None:
    machine.round()
    machine.round()
    assert not machine.received(error, 0, 0)
    again = machine.round()
    assert again.session_epoch == 0
    assert again.changed.keys() == {A, B}


def test_any_other_error_of_the_request_waits(machine: Machine) -> None:
    machine.planned(0)
    assert not machine.received(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, 0, 0)
    assert machine.planned(BACKOFF_MS - 1) is None
    assert machine.next_deadline_ms == BACKOFF_MS
    assert machine.round(BACKOFF_MS).changed.keys() == {A, B}


def test_no_answer_waits_and_begins_a_session_anew(machine: Machine) -> None:
    machine.round()
    machine.failed_round(50)
    machine.check_invariants()
    assert machine.planned(60) is None
    again = machine.round(50 + BACKOFF_MS)
    assert (again.session_id, again.session_epoch, again.forgotten) == (7, 0, []), "the old session is closed"
    assert again.changed.keys() == {A, B}


def test_the_answer_of_an_older_role_is_dropped(machine: Machine) -> None:
    machine.round()
    machine.follow(A, ID_A, 4, LogEnds(5, 2, 0), 4)
    assert machine.answered(A, AGREED, 0) is None
    machine.moved(A, 3, LogEnds(50, 3, 0), 50)
    machine.refused(A, 3, 0)
    machine.gave_up(A, 3, ErrorCode.KAFKA_STORAGE_ERROR)
    assert machine.offset_found(A, 3, LATEST, ErrorCode.NONE, 0, 0) is None
    followed = machine.get(A)
    assert followed is not None
    assert followed.position == ReplicaPosition(4, LogEnds(5, 2, 0))
    machine.forget(B)
    assert machine.answered(B, AGREED, 0) is None
    fetch = machine.round()
    assert (set(fetch.changed), fetch.forgotten) == ({A}, [(B, ID_B)])


def test_the_same_role_twice_changes_nothing(machine: Machine) -> None:
    machine.round()
    machine.follow(A, ID_A, 3, LogEnds(1, 1, 0), 0)
    assert machine.round().changed == {}


def test_a_topic_made_anew_is_forgotten_under_its_old_id(machine: Machine) -> None:
    machine.round()
    machine.follow(A, UUID(int=9), 0, LogEnds(0, -1, 0), 0)
    fetch = machine.round()
    assert (set(fetch.changed), fetch.forgotten) == ({A}, [(A, ID_A)])


def test_topics_without_ids_are_named_by_name(machine: Machine) -> None:
    assert machine.round().with_topic_ids
    old = ("old", 0)
    machine.follow(old, NO_TOPIC_ID, 1, LogEnds(0, -1, 0), 0)
    fetch = machine.round()
    assert not fetch.with_topic_ids
    assert fetch.session_epoch == 0, "a session has either ids or names"
    assert fetch.changed.keys() == {A, B, old}
    machine.forget(old)
    assert machine.round().with_topic_ids


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
def test_a_refused_partition_waits_and_the_others_go_on(machine: Machine, error: ErrorCode) -> None:
    machine.round()
    assert machine.answered(A, PartitionAnswer(error), 100) is None
    machine.check_invariants()
    fetch = machine.round(100)
    assert (fetch.changed, fetch.forgotten) == ({}, [(A, ID_A)])
    assert machine.answered(A, AGREED, 100) is None
    assert machine.round(100 + BACKOFF_MS).changed.keys() == {A}
    assert machine.next_deadline_ms is None


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ],
)
def test_a_leader_that_was_not_told_yet_is_asked_again_soon(machine: Machine, error: ErrorCode) -> None:
    machine.round()
    now_ms, delays = 100.0, []
    for _ in range(9):
        assert machine.answered(A, PartitionAnswer(error), now_ms) is None
        machine.check_invariants()
        machine.round(now_ms)
        due_ms = machine.next_deadline_ms
        assert due_ms is not None
        delays.append(due_ms - now_ms)
        now_ms = due_ms
        assert machine.round(now_ms).changed.keys() == {A}
    assert delays == [10, 20, 40, 80, 160, 320, 640, BACKOFF_MS, BACKOFF_MS]
    assert machine.is_patient(A)
    machine.answered(A, AGREED, now_ms)
    assert not machine.is_patient(A)


def test_a_fenced_partition_waits_for_its_next_role(machine: Machine) -> None:
    machine.round()
    assert machine.answered(A, PartitionAnswer(ErrorCode.FENCED_LEADER_EPOCH), 0) is None
    assert machine.failed == {A: ErrorCode.FENCED_LEADER_EPOCH}
    assert machine.round(1e9).forgotten == [(A, ID_A)]
    machine.follow(A, ID_A, 4, LogEnds(5, 2, 0), 5)
    assert machine.failed == {}
    assert machine.round().changed.keys() == {A}


def test_a_log_that_takes_no_more_is_given_up(machine: Machine) -> None:
    machine.round()
    machine.gave_up(A, 3, ErrorCode.KAFKA_STORAGE_ERROR)
    assert (A in machine, machine.failed) == (False, {A: ErrorCode.KAFKA_STORAGE_ERROR})
    machine.refused(B, 3, 0)
    assert B in machine
    assert machine.planned(0) is None


def test_diverged_logs_are_cut_until_they_agree(machine: Machine) -> None:
    machine.round()
    diverged = PartitionAnswer(ErrorCode.NONE, 10, 1, 3)
    assert machine.answered(A, diverged, 0) == TruncateByEpoch(1, 3)
    machine.moved(A, 3, LogEnds(3, 1, 0))
    assert machine.round().changed == {A: ReplicaPosition(3, LogEnds(3, 1, 0))}
    assert machine.answered(A, PartitionAnswer(ErrorCode.NONE, 10, 0, 2), 0) == TruncateByEpoch(0, 2)
    machine.moved(A, 3, LogEnds(2, 0, 0))
    machine.round()
    assert machine.answered(A, AGREED, 0) == TakeRecords()


def test_logs_that_do_not_come_together_wait(machine: Machine) -> None:
    machine.round()
    diverged = PartitionAnswer(ErrorCode.NONE, 10, 1, 9)
    assert machine.answered(A, diverged, 0) == TruncateByEpoch(1, 9)
    machine.moved(A, 3, LogEnds(5, 2, 0))
    assert machine.answered(A, diverged, 0) is None
    assert machine.round(0).forgotten == [(A, ID_A)]


def test_a_log_without_epochs_is_cut_to_the_high_watermark_first() -> None:
    machine = Machine()
    machine.follow(A, ID_A, 3, LogEnds(9, -1, 0), 6)
    assert machine.planned(0) is None
    assert machine.first_cuts() == [(A, 3, TruncateTo(6))]
    machine.moved(A, 3, LogEnds(6, -1, 0))
    assert machine.first_cuts() == []
    assert machine.round().changed == {A: ReplicaPosition(3, LogEnds(6, -1, 0))}


def test_an_offset_beyond_the_leaders_end_is_cut(machine: Machine) -> None:
    machine.round()
    assert machine.answered(A, PartitionAnswer(ErrorCode.OFFSET_OUT_OF_RANGE), 0) == AskOffset(LATEST)
    assert machine.offset_found(A, 3, LATEST, ErrorCode.NONE, 4, 0) == TruncateTo(4)


def test_an_offset_below_the_leaders_start_begins_anew(machine: Machine) -> None:
    machine.round()
    assert machine.answered(A, PartitionAnswer(ErrorCode.OFFSET_OUT_OF_RANGE), 0) == AskOffset(LATEST)
    assert machine.offset_found(A, 3, LATEST, ErrorCode.NONE, 90, 0) == AskOffset(EARLIEST)
    assert machine.offset_found(A, 3, EARLIEST, ErrorCode.NONE, 40, 0) == StartAt(40)
    machine.moved(A, 3, LogEnds(40, -1, 40))
    assert machine.round().changed == {A: ReplicaPosition(3, LogEnds(40, -1, 40))}


def test_an_offset_that_the_leader_has_by_now_is_asked_again(machine: Machine) -> None:
    machine.round()
    machine.answered(A, PartitionAnswer(ErrorCode.OFFSET_OUT_OF_RANGE), 0)
    machine.offset_found(A, 3, LATEST, ErrorCode.NONE, 90, 0)
    assert machine.offset_found(A, 3, EARLIEST, ErrorCode.NONE, 5, 0) is None
    assert machine.round(BACKOFF_MS).changed.keys() == {A}


def test_offsets_that_are_refused(machine: Machine) -> None:
    machine.round()
    machine.answered(A, PartitionAnswer(ErrorCode.OFFSET_OUT_OF_RANGE), 0)
    assert machine.offset_found(A, 3, LATEST, ErrorCode.UNKNOWN_LEADER_EPOCH, -1, 0) is None
    assert A in machine
    assert machine.offset_found(A, 3, LATEST, ErrorCode.FENCED_LEADER_EPOCH, -1, 0) is None
    assert machine.failed == {A: ErrorCode.FENCED_LEADER_EPOCH}


@pytest.mark.parametrize(
    ("action", "own", "log_end", "offset"),
    [
        (TruncateByEpoch(3, 8), (3, 12), 20, 8),
        (TruncateByEpoch(3, 15), (3, 12), 20, 12),
        (TruncateByEpoch(3, 15), (2, 7), 20, 7),
        (TruncateByEpoch(3, 15), (-1, -1), 20, 15),
        (TruncateByEpoch(3, 35), (-1, -1), 20, 20),
        (TruncateByEpoch(3, 35), (3, 30), 20, 20),
    ],
)
def test_where_a_log_is_cut(action: TruncateByEpoch, own: tuple[int, int], log_end: int, offset: int) -> None:
    assert truncation_offset(action, *own, log_end) == offset


def test_roles_change_while_a_session_is_begun() -> None:
    """Everything is listed in steps: what comes meanwhile is asked for, what goes is not, nor is it forgotten."""
    machine = Machine()
    keys = [("many", index) for index in range(2 * PARTITIONS_PER_SLICE + 1)]
    for key in keys:
        machine.follow(key, ID_A, 3, LogEnds(5, 2, 0), 4)
    machine.round()
    machine.failed_round(0)
    steps = machine.prepare(BACKOFF_MS)
    next(steps)
    machine.forget(keys[0])
    machine.forget(keys[-1])
    machine.follow(A, ID_A, 3, LogEnds(5, 2, 0), 4)
    machine.follow(B, NO_TOPIC_ID, 3, LogEnds(5, 2, 0), 4)
    assert sum(1 for _ in steps) >= 2, "it takes several turns of the loop"
    fetch = machine.plan()
    assert fetch is not None
    named = dict(fetch.changed)
    assert machine.received(ErrorCode.NONE, 7, BACKOFF_MS)
    while fetch.is_partial:
        fetch = machine.round(BACKOFF_MS)
        named |= fetch.changed
        assert not fetch.forgotten
        assert not fetch.with_topic_ids
    assert named.keys() == {*keys[1:-1], A, B}
    machine.check_invariants()
