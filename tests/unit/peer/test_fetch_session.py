from __future__ import annotations

from ottla.client.model import TopicPartition
from ottla.peer.fetch_session import MAX_EPOCH, FetchSession, WantedFetch
from ottla.wire.errors import ErrorCode

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def at(offset):
    return WantedFetch(offset, -1, 1000)


def told(plan):
    return {(t.topic, p.partition): p.fetch_offset for t in plan.topics for p in t.partitions}


def forgotten(plan):
    return {(t.topic, p) for t in plan.forgotten for p in t.partitions}


def test_only_changes_are_reported():
    session = FetchSession()
    first = session.build({A0: at(0), A1: at(5), B0: at(7)})
    assert (first.session_id, first.session_epoch) == (0, 0)
    assert told(first) == {("a", 0): 0, ("a", 1): 5, ("b", 0): 7}
    assert session.handled(ErrorCode.NONE, 77)
    second = session.build({A0: at(3), A1: at(5)})
    assert (second.session_id, second.session_epoch) == (77, 1)
    assert told(second) == {("a", 0): 3}
    assert forgotten(second) == {("b", 0)}
    assert session.handled(ErrorCode.NONE, 77)
    third = session.build({A0: at(3), A1: at(5)})
    assert (third.session_epoch, told(third), forgotten(third)) == (2, {}, set())


def test_without_a_session_everything_is_reported_each_time():
    session = FetchSession()
    session.build({A0: at(0)})
    assert session.handled(ErrorCode.NONE, 0)
    again = session.build({A0: at(0)})
    assert (again.session_id, again.session_epoch, told(again)) == (0, 0, {("a", 0): 0})


def test_a_session_that_the_broker_forgot_is_begun_anew():
    session = FetchSession()
    session.build({A0: at(0)})
    session.handled(ErrorCode.NONE, 77)
    session.build({A0: at(0)})
    assert session.handled(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0) is False
    again = session.build({A0: at(0)})
    assert (again.session_id, again.session_epoch, told(again)) == (0, 0, {("a", 0): 0})


def test_a_session_out_of_step_is_closed_by_the_next_request():
    session = FetchSession()
    session.build({A0: at(0)})
    session.handled(ErrorCode.NONE, 77)
    session.build({A0: at(1)})
    assert session.handled(ErrorCode.INVALID_FETCH_SESSION_EPOCH, 0) is False
    again = session.build({A0: at(1)})
    assert (again.session_id, again.session_epoch, told(again)) == (77, 0, {("a", 0): 1})
    session.failed()
    assert session.build({}).session_epoch == 0


def test_epochs_begin_again_at_one():
    session = FetchSession()
    session.build({A0: at(0)})
    session.handled(ErrorCode.NONE, 77)
    session.epoch = MAX_EPOCH
    session.handled(ErrorCode.NONE, 77)
    assert session.build({A0: at(0)}).session_epoch == 1
