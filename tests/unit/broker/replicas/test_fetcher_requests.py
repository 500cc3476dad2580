"""How a replica fetcher sends its requests: over one connection, each answered in time or the connection is closed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from ottla.broker.quotas.replication import ReplicationQuota
from ottla.broker.replicas.fetching.fetcher import FETCH_VERSION, FetcherContext, ReplicaFetcher
from ottla.broker.replicas.fetching.requests import ReplicaFetcherSettings
from ottla.env.clock import Clock, SystemClock, VirtualClock
from ottla.peer.errors import ClientError, ClientTimeoutError, ConnectionLostError
from ottla.wire.messages.fetch import FetchRequest

pytestmark = pytest.mark.spec("R2")

TIMEOUT_MS = 50


class Leader:
    """A connection to a leader that answers when the test says so."""

    def __init__(self) -> None:
        self.is_open = True
        self.first: list[Any] = []
        self.waiting: list[Callable[[Any, ClientError | None], None]] = []
        self.closed_by: ClientError | None = None

    async def request(self, message: Any, *, timeout_ms: int, versions: tuple[int, int]) -> Any:
        assert (timeout_ms, versions) == (TIMEOUT_MS, (FETCH_VERSION, FETCH_VERSION))
        self.first.append(message)
        return "first"

    def submit(self, message: Any, answered: Callable[..., None], *, versions: tuple[int, int]) -> None:
        assert versions == (FETCH_VERSION, FETCH_VERSION)
        self.waiting.append(answered)

    def late(self, message: Any, timeout_ms: int) -> ClientTimeoutError:
        return ClientTimeoutError(f"{type(message).__name__} {timeout_ms}")

    def close_because(self, reason: ClientError) -> None:
        self.is_open, self.closed_by = False, reason
        for answered in self.waiting:
            answered(None, reason)

    def close(self) -> None:
        self.close_because(ConnectionLostError("closed"))


def fetcher_of(leaders: list[Leader], clock: Clock) -> ReplicaFetcher:
    async def connect(_broker_id: int, _client_id: str) -> Any:
        leaders.append(Leader())
        return leaders[-1]

    settings = ReplicaFetcherSettings(1, 1, 1, 1, backoff_ms=1, timeout_ms=TIMEOUT_MS)
    nothing: Any = None
    quota = ReplicationQuota(clock.monotonic_ms)
    return ReplicaFetcher(
        1, 0, FetcherContext(2, lambda: 1, nothing, nothing, nothing, clock, settings, connect, quota, nothing)
    )


def test_requests_after_the_first_take_the_short_way() -> None:
    async def run() -> None:
        leaders: list[Leader] = []
        fetcher = fetcher_of(leaders, SystemClock())
        assert await fetcher._request(FetchRequest(), FETCH_VERSION) == "first"
        (leader,) = leaders
        for answer in ("second", "third"):
            asking = asyncio.ensure_future(fetcher._request(FetchRequest(), FETCH_VERSION))
            await asyncio.sleep(0)
            leader.waiting.pop()(answer, None)
            assert await asking == answer
        assert len(leader.first) == len(leaders) == 1
        await fetcher.stop()

    asyncio.run(run())


def test_a_leader_that_does_not_answer_loses_the_connection() -> None:
    async def run() -> None:
        leaders: list[Leader] = []
        fetcher = fetcher_of(leaders, SystemClock())
        await fetcher._request(FetchRequest(), FETCH_VERSION)
        with pytest.raises(ClientTimeoutError, match=f"FetchRequest {TIMEOUT_MS}"):
            await fetcher._request(FetchRequest(), FETCH_VERSION)
        assert not leaders[0].is_open
        assert await fetcher._request(FetchRequest(), FETCH_VERSION) == "first", "over a new connection"
        assert len(leaders) == 2
        await fetcher.stop()

    asyncio.run(run())


def test_one_timer_watches_one_request_after_another() -> None:
    async def run() -> None:
        leaders: list[Leader] = []
        clock = VirtualClock()
        fetcher = fetcher_of(leaders, clock)
        await fetcher._request(FetchRequest(), FETCH_VERSION)
        (leader,) = leaders
        asking = asyncio.ensure_future(fetcher._request(FetchRequest(), FETCH_VERSION))
        await asyncio.sleep(0)
        clock.advance(TIMEOUT_MS - 1)
        leader.waiting.pop()("second", None)
        await asking
        fetcher._check_late()
        assert leader.closed_by is None, "nothing is asked"
        asking = asyncio.ensure_future(fetcher._request(FetchRequest(), FETCH_VERSION))
        await asyncio.sleep(0)
        clock.advance(TIMEOUT_MS - 1)
        fetcher._check_late()
        assert leader.closed_by is None, "asked later than the timer began"
        clock.advance(1)
        fetcher._check_late()
        with pytest.raises(ClientTimeoutError):
            await asking
        assert not leader.is_open
        await fetcher.stop()

    asyncio.run(run())


class AlmostLate(SystemClock):
    """A clock that stands a rounding error before the end of the time for an answer that was asked for at 0."""

    def monotonic_ms(self) -> float:
        return TIMEOUT_MS - 1e-12


def test_a_timer_that_comes_a_rounding_error_too_early_does_not_spin() -> None:
    async def run() -> None:
        fetcher = fetcher_of([], AlmostLate())
        before_s = asyncio.get_running_loop().time()
        fetcher._watch()
        assert fetcher._late_timer is not None
        assert fetcher._late_timer.when() - before_s > 0.0005
        await fetcher.stop()

    asyncio.run(run())
