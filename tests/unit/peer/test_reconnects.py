"""Pauses before brokers are tried again, and the time that attempts get."""

from __future__ import annotations

import pytest

from ottla.env.randomness import Randomness
from ottla.peer.errors import BrokerUnreachableError, ConnectTimeoutError
from ottla.peer.reconnects import Reconnects
from ottla.peer.settings import ConnectionSettings

ADDRESS = ("h", 1)
ERROR = BrokerUnreachableError("refused", retriable=True)


def reconnects(**settings: int) -> Reconnects:
    return Reconnects(ConnectionSettings("h:1", **settings), Randomness(1))


def pause_ms(of: Reconnects, now_ms: float) -> int:
    return next(after for after in range(100_000) if of.holds_back(ADDRESS, now_ms + after) is None)


def test_pauses_double_up_to_the_longest() -> None:
    tried = reconnects(reconnect_backoff_ms=100, reconnect_backoff_max_ms=1000)
    assert tried.holds_back(ADDRESS, 0) is None
    pauses = []
    for _ in range(7):
        tried.failed(ADDRESS, 5000, ERROR)
        pauses.append(pause_ms(tried, 5000))
    for pause, expected in zip(pauses, [100, 200, 400, 800, 1000, 1000, 1000], strict=True):
        assert 0.79 * expected <= pause <= min(1.21 * expected, 1000)
    assert tried.holds_back(("other", 1), 5000) is None
    tried.succeeded(ADDRESS)
    assert tried.holds_back(ADDRESS, 5000) is None


def test_the_last_error_is_reported_again() -> None:
    tried = reconnects()
    tried.failed(ADDRESS, 0, ERROR)
    again = tried.holds_back(ADDRESS, 1)
    assert again is not ERROR
    assert (type(again), str(again), again is not None and again.retriable) == (BrokerUnreachableError, "refused", True)


def test_no_pause_where_none_is_wanted() -> None:
    tried = reconnects(reconnect_backoff_ms=0, reconnect_backoff_max_ms=0)
    tried.failed(ADDRESS, 0, ERROR)
    assert tried.holds_back(ADDRESS, 0) is None


def test_attempts_that_run_out_of_time_get_more() -> None:
    tried = reconnects(socket_connection_setup_timeout_ms=1000, socket_connection_setup_timeout_max_ms=3000)
    times = [tried.timeout_ms(ADDRESS)]
    for _ in range(3):
        tried.failed(ADDRESS, 0, ConnectTimeoutError("silent"))
        times.append(tried.timeout_ms(ADDRESS))
    assert times[0] == 1000
    assert 1600 <= times[1] <= 2400
    assert times[2:] == [pytest.approx(3000, rel=0.21)] * 2
    assert max(times) <= 3000
    tried.failed(ADDRESS, 0, ERROR)
    assert tried.timeout_ms(ADDRESS) == 1000
