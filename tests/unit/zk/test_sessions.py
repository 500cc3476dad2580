from __future__ import annotations

import random

from ottla.zk.sessions import FIRST_DURABLE_SESSION, SessionTable, first_session_id

PASSWORD = b"p" * 16


def ids(table: SessionTable, now_ms: float) -> list[int]:
    found = [session.id for session in table.expired(now_ms)]
    for session_id in found:
        assert table.close(session_id)
    return found


def test_a_session_ends_when_its_client_was_silent_for_its_timeout() -> None:
    table = SessionTable()
    table.open(1, PASSWORD, 1000, 0.0)
    kept = table.open(2, PASSWORD, 1000, 0.0)
    kept.touch(900.0)
    assert ids(table, 999.0) == []
    assert ids(table, 1000.0) == [1]
    assert table.get(1) is None
    assert len(table) == 1
    assert ids(table, 1899.0) == []
    assert ids(table, 1900.0) == [2]
    assert table.next_look_ms() is None


def test_sessions_end_in_the_order_of_their_deadlines() -> None:
    table = SessionTable()
    for session_id, timeout_ms in ((1, 3000), (2, 1000), (3, 2000)):
        table.open(session_id, PASSWORD, timeout_ms, 0.0)
    assert table.next_look_ms() == 1000.0
    assert ids(table, 10_000.0) == [2, 3, 1]


def test_a_session_is_taken_up_with_its_password_and_a_timeout_agreed_on_anew() -> None:
    table = SessionTable()
    table.open(1, PASSWORD, 10_000, 0.0)
    assert table.reconnect(1, b"q" * 16, 500, 100.0) is None
    assert table.reconnect(1, b"", 500, 100.0) is None
    assert table.reconnect(2, PASSWORD, 500, 100.0) is None
    session = table.reconnect(1, PASSWORD, 500, 100.0)
    assert session is not None
    assert (session.timeout_ms, session.deadline_ms) == (500, 600.0)
    assert table.next_look_ms() == 600.0, "it is looked at earlier now"
    assert ids(table, 600.0) == [1]


def test_coming_back_again_and_again_costs_no_memory() -> None:
    table = SessionTable()
    session = table.open(1, PASSWORD, 1000, 0.0)
    for now_ms in range(100_000):
        session.touch(float(now_ms))
        assert table.expired(float(now_ms)) == []
    assert len(table._looks) == 1


def test_none_is_forgotten_and_none_ends_early() -> None:
    dice = random.Random(7)
    table, deadlines = SessionTable(), dict[int, float]()
    for now_ms in range(0, 40_000, 10):
        for session_id in dice.sample(sorted(deadlines), min(len(deadlines), 3)):
            session = table.get(session_id)
            assert session is not None
            if dice.random() < 0.2:
                session = table.reconnect(session_id, PASSWORD, dice.randrange(20, 2000), float(now_ms))
                assert session is not None
            session.touch(float(now_ms))
            deadlines[session_id] = now_ms + session.timeout_ms
        if dice.random() < 0.3:
            timeout_ms = dice.randrange(20, 2000)
            table.open(now_ms, PASSWORD, timeout_ms, float(now_ms))
            deadlines[now_ms] = now_ms + timeout_ms
        gone = {session_id for session_id, deadline in deadlines.items() if deadline <= now_ms}
        assert set(ids(table, float(now_ms))) == gone
        for session_id in gone:
            del deadlines[session_id]


def test_ids_of_a_later_server_are_higher() -> None:
    earlier, later = first_session_id(1_700_000_000_000), first_session_id(1_700_000_000_001)
    assert FIRST_DURABLE_SESSION < earlier < later < 2**63
    assert later - earlier > 60_000
    assert first_session_id(0) == FIRST_DURABLE_SESSION
