"""Delegation tokens of two brokers over one tree of znodes: made, changed at the same time, followed, and expired."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from itertools import count

import pytest

from ottla.broker.control.delegation_tokens import (
    EXPIRED,
    NOT_FOUND,
    OWNER_MISMATCH,
    DelegationTokens,
    DelegationTokenSettings,
)
from ottla.cluster.delegation_tokens import TokenInformation
from ottla.cluster.refusal import TopicRefusal
from ottla.env.clock import VirtualClock
from ottla.env.randomness import Randomness
from ottla.security.scram import SCRAM_MECHANISMS
from ottla.testing.disk_memory import MemoryDisk
from ottla.wire.errors import ErrorCode
from ottla.zk.client import LocalClient
from ottla.zk.layout import DelegationTokenChangeZnode, DelegationTokenZnode
from ottla.zk.store import TreeStore
from support.waiting import until

SETTINGS = DelegationTokenSettings("secret", max_lifetime_ms=10_000, expiry_ms=1_000, check_interval_ms=10)
ALICE, BOB, CAROL = "User:alice", "User:bob", "User:carol"

pytestmark = pytest.mark.spec("S2")


class Two:
    """Two brokers' sessions over one tree; the first is the controller once that is set."""

    def __init__(self) -> None:
        self.clock = VirtualClock(1_000_000)
        self.tree = TreeStore.open(MemoryDisk(), "/t", self.clock)
        self.sessions = [LocalClient(self.tree, number) for number in (1, 2)]
        self.is_controller = False
        ids = count()
        self.stores = [
            DelegationTokens(
                zk,
                SETTINGS,
                self.clock,
                Randomness(1),
                lambda: f"token-{next(ids)}",
                lambda number=number: self.is_controller and number == 0,
            )
            for number, zk in enumerate(self.sessions)
        ]

    async def token(self, *renewers: str, max_lifetime_ms: int = -1) -> TokenInformation:
        """Of alice, requested by carol, known to both."""
        made = await self.stores[0].create(ALICE, CAROL, renewers, max_lifetime_ms)
        assert isinstance(made, TokenInformation)
        assert made in self.stores[0].tokens, "at once"
        await until(lambda: made in self.stores[1].tokens, "the token")
        return made


def played(scenario: Callable[[Two], Awaitable[None]]) -> None:
    async def run() -> None:
        two = Two()
        for store in two.stores:
            await store.start()
        try:
            await scenario(two)
        finally:
            for store in two.stores:
                await store.stop()

    asyncio.run(run())


def test_times_of_a_token() -> None:
    async def scenario(two: Two) -> None:
        now_ms = two.clock.now_ms()
        for wanted, lifetime_ms in ((-1, 10_000), (0, 10_000), (20_000, 10_000), (500, 500)):
            token = await two.token(max_lifetime_ms=wanted)
            assert token.issue_ms == now_ms
            assert token.max_ms - now_ms == lifetime_ms
            assert token.expiry_ms - now_ms == min(lifetime_ms, 1_000)

    played(scenario)


def test_a_lifetime_without_end_is_one_that_clients_can_read() -> None:
    async def scenario(two: Two) -> None:
        two.stores[0]._settings = SETTINGS._replace(max_lifetime_ms=2**63 - 1, expiry_ms=2**63 - 1)
        token = await two.token()
        assert token.expiry_ms == token.max_ms == 2**63 - 1
        assert await two.stores[0].renew(ALICE, two.stores[0].hmac(token), 2**63 - 1) == 2**63 - 1

    played(scenario)


def test_what_one_broker_changes_the_other_knows() -> None:
    async def scenario(two: Two) -> None:
        first, second = two.stores
        token = await two.token(BOB)
        hmac = first.hmac(token)
        now_ms = two.clock.now_ms()
        assert await second.renew(BOB, hmac, 5_000) == now_ms + 5_000
        await until(lambda: token._replace(expiry_ms=now_ms + 5_000) in first.tokens, "the renewal")
        assert await first.renew(ALICE, hmac, -1) == now_ms + 1_000
        assert await second.renew(ALICE, hmac, 99_999) == token.max_ms, "at once, though it has not followed yet"
        assert await first.expire(BOB, hmac, 300) == now_ms + 300
        assert await second.expire(BOB, hmac, -1) == now_ms
        assert not second.tokens
        await until(lambda: not first.tokens, "the removal")

    played(scenario)


def test_what_is_refused() -> None:
    async def scenario(two: Two) -> None:
        first, second = two.stores
        token = await two.token(BOB)
        hmac = first.hmac(token)
        for call in (first.renew, first.expire):
            assert await call(CAROL, hmac, 1) == OWNER_MISMATCH, "who requests it may not change it"
            assert await call(ALICE, b"other", 1) == NOT_FOUND
        two.clock.advance(1_001)
        for call in (first.renew, first.expire):
            assert await call(ALICE, hmac, 1) == EXPIRED
        assert await first.expire(ALICE, hmac, -1) == two.clock.now_ms(), "it can still be removed"
        assert await second.renew(ALICE, hmac, 1) == NOT_FOUND, "though it has not followed yet"
        large = await first.create(ALICE, ALICE, ["User:" + "x" * 1000] * 2000, -1)
        assert isinstance(large, TopicRefusal)
        assert large.error is ErrorCode.INVALID_REQUEST

    played(scenario)


@pytest.mark.parametrize("mechanism", SCRAM_MECHANISMS)
def test_logins(mechanism: str) -> None:
    async def scenario(two: Two) -> None:
        token = await two.token()
        store = two.stores[1]
        login = store.login(mechanism, token.token_id)
        assert login is not None
        assert (login.owner, login.lifetime_ms) == ("alice", 1_000)
        assert store.login(mechanism, token.token_id) == login, "the same salt each time"
        assert store.login(mechanism, "other") is None
        two.clock.advance(1_001)
        assert store.login(mechanism, token.token_id) is None

    played(scenario)


def test_the_controller_removes_expired_tokens() -> None:
    async def scenario(two: Two) -> None:
        first, second = two.stores
        short, long = await two.token(), await two.token()
        assert await second.renew(ALICE, second.hmac(long), 5_000) == two.clock.now_ms() + 5_000
        two.clock.advance(1_001)
        two.is_controller = True
        await until(lambda: [each.token_id for each in second.tokens] == [long.token_id], "the removal")
        assert [each.token_id for each in first.tokens] == [long.token_id]
        assert await two.sessions[0].children(DelegationTokenZnode.ROOT) == [long.token_id]
        assert short.token_id != long.token_id

    played(scenario)


def test_damaged_znodes_are_logged_and_left_out(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(two: Two) -> None:
        token = await two.token()
        zk = two.sessions[0]
        announcement = f"{DelegationTokenChangeZnode.ROOT}/{DelegationTokenChangeZnode.PREFIX}"
        await zk.set(DelegationTokenZnode.path(token.token_id), b"{}")
        for data in (b"", token.token_id.encode()):
            await zk.create(announcement, data, sequential=True)
        await until(lambda: not two.stores[1].tokens, "the damage")
        await until(lambda: not two.stores[0].tokens, "the damage")
        refused = await two.stores[0].renew(ALICE, two.stores[0].hmac(token), 1)
        assert refused == NOT_FOUND

    with caplog.at_level(logging.ERROR, "ottla.broker"):
        played(scenario)
    assert "names no delegation token" in caplog.text
    assert "holds no delegation token" in caplog.text


def test_the_secret_is_not_shown() -> None:
    assert "secret" not in repr(SETTINGS)
