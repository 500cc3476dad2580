"""Tokens of a client: where they come from, how long they are kept, and what is said when there is none."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.oauth import URL, token_settings
from ottla.client.configs.settings import ADMIN, SETTINGS_OF
from ottla.client.configs.values import default_of
from ottla.env.randomness import Randomness
from ottla.peer.errors import AuthenticationError, ConnectError
from ottla.peer.tokens import TokenSource
from ottla.security.contexts import server_context
from ottla.security.oauth_login import CLIENT_ID, CLIENT_SECRET, ENDPOINT, SCOPE, oauth_login_of
from ottla.security.tokens import BearerToken, unsecured_token
from support.certificates import issue, the_authority
from support.oauth import CLIENT_SECRET as SECRET
from support.oauth import Provider, provider

pytestmark = pytest.mark.spec("S2")
DEFAULTS = {name: default_of(setting) for name, setting in SETTINGS_OF[ADMIN].items()}
NOW_MS = 1_700_000_000_000.0


class Clock:
    now_ms = NOW_MS

    def __call__(self) -> float:
        return self.now_ms


def source(callback: Callable[[], Any] | None = None, **settings: Any) -> TokenSource:
    return TokenSource(oauth_login_of({}, DEFAULTS | settings, callback))


def tokens(source: TokenSource, *clocks: float) -> list[BearerToken]:
    clock = Clock()

    async def run() -> list[BearerToken]:
        found = []
        for clock.now_ms in clocks or (NOW_MS,):
            found.append(await source.token(clock, Randomness(1)))
        return found

    return asyncio.run(run())


def token(subject: str = "alice", life_s: float = 100, **claims: Any) -> str:
    return unsecured_token({"sub": subject, "exp": NOW_MS / 1000 + life_s, **claims})


@pytest.fixture
def endpoint() -> Iterator[Provider]:
    with provider() as made:
        yield made


def of_endpoint(endpoint: Provider, **settings: Any) -> TokenSource:
    given = {ENDPOINT: f"{endpoint.address}/token", CLIENT_ID: "payments", CLIENT_SECRET: SECRET}
    return source(**given | settings)


@pytest.mark.parametrize(
    "given",
    [lambda: token(), lambda: (token(), NOW_MS + 100_000), lambda: ("opaque+/=", NOW_MS + 100_000, {"traceId": "1"})],
)
def test_a_callable(given: Callable[[], Any]) -> None:
    async def later() -> Any:
        return given()

    for callback in (given, later):
        (found,) = tokens(source(callback))
        assert found.expires_ms == NOW_MS + 100_000
    assert dict(found.extensions) in ({}, {"traceId": "1"})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (lambda: 1 / 0, r"gives no token \(ZeroDivisionError: division by zero\)"),
        (lambda: None, "cannot be used: it is not a text"),
        (lambda: "opaque", "three parts"),
        (lambda: token(sub=5), "claim sub"),
        (lambda: unsecured_token({"sub": "a"}), "no expiry"),
        (lambda: token(life_s=-1), "has expired"),
        (lambda: (token(), NOW_MS / 1000), "has expired"),
        (lambda: ("a\x01b", NOW_MS + 9), "characters that no token has"),
        (lambda: ("a", "soon"), "cannot be used"),
        (lambda: ("a", float("inf")), "cannot be used"),
        (lambda: ("a", NOW_MS + 9, {"auth": "x"}), "extension 'auth'"),
    ],
)
def test_what_a_callable_must_not_give(given: Callable[[], Any], said: str) -> None:
    with pytest.raises(AuthenticationError, match=said):
        tokens(source(given))


def test_a_token_is_replaced_late_in_its_life_and_not_before() -> None:
    calls: list[float] = []

    def call() -> tuple[str, float]:
        calls.append(0)
        return f"token{len(calls)}", NOW_MS + 100_000 * len(calls)

    found = tokens(source(call), NOW_MS, NOW_MS + 79_000, NOW_MS + 86_000)
    assert [each.value for each in found] == ["token1", "token1", "token2"]


def test_the_former_token_serves_until_it_expires(caplog: pytest.LogCaptureFixture) -> None:
    answers = iter([("first", NOW_MS + 100_000)])
    made = source(lambda: next(answers))
    caplog.set_level(logging.WARNING)
    assert [each.value for each in tokens(made, NOW_MS, NOW_MS + 90_000)] == ["first", "first"]
    assert "the former token is used until it expires" in caplog.text
    with pytest.raises(AuthenticationError):
        tokens(made, NOW_MS + 100_001)


def test_the_former_token_serves_where_a_new_one_takes_longer_than_its_user_waits() -> None:
    is_first, is_called_again = True, asyncio.Event()

    async def call() -> tuple[str, float]:
        nonlocal is_first
        if not is_first:
            is_called_again.set()
            await asyncio.Event().wait()
        is_first = False
        return "first", NOW_MS + 100_000

    async def run() -> None:
        clock, made = Clock(), source(call)
        await made.token(clock, Randomness(1))
        clock.now_ms += 90_000
        asking = asyncio.create_task(made.token(clock, Randomness(1)))
        await is_called_again.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert (await made.token(clock, Randomness(1))).value == "first"

    asyncio.run(asyncio.wait_for(run(), 60))


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "a token"
    made = source(**{ENDPOINT: path.as_uri()})
    with pytest.raises(AuthenticationError, match=r"a token cannot be read \(No such file or directory\)"):
        tokens(made)
    path.write_text(token("carol") + "\n")
    assert tokens(made)[0].principal == "carol"


def test_an_endpoint(endpoint: Provider) -> None:
    now_ms = time.time() * 1000
    made = of_endpoint(endpoint, **{SCOPE: "read write"})
    first, second = tokens(made, now_ms, now_ms)
    assert (first.principal, first) == ("payments", second)
    assert endpoint.forms == [{"grant_type": ["client_credentials"], "scope": ["read write"]}]
    assert made.shown == f"{endpoint.address}/token"


def test_an_endpoint_with_tls(tmp_path: Path) -> None:
    """The authority is in `sasl.jaas.config`, as Kafka has it."""
    context = server_context(issue(the_authority(), "127.0.0.1").key_settings(tmp_path / "server.pem"))
    trust = the_authority().trust_settings(tmp_path / "ca.pem")
    with provider(context) as endpoint:
        given = {ENDPOINT: f"{endpoint.address}/token", CLIENT_ID: "payments", CLIENT_SECRET: SECRET}
        made = TokenSource(oauth_login_of(trust, DEFAULTS | given))
        assert tokens(made, time.time() * 1000)[0].principal == "payments"
        keys = token_settings(trust, DEFAULTS | {URL: f"{endpoint.address}/jwks"})
        assert len(keys.read()) == 1
        with pytest.raises(ConnectError, match="certificate verify failed"):
            tokens(source(**given | {"sasl.login.retry.backoff.max.ms": 1}), time.time() * 1000)


def test_an_endpoint_that_refuses_is_asked_once(endpoint: Provider) -> None:
    with pytest.raises(AuthenticationError, match=r"refuses client 'payments': .*401.*\(invalid_client\)") as raised:
        tokens(of_endpoint(endpoint, **{CLIENT_SECRET: "wrong-secret"}))
    assert "wrong-secret" not in str(raised.value)
    assert len(endpoint.paths) == 1


def test_an_endpoint_that_fails_is_asked_again(endpoint: Provider) -> None:
    endpoint.failures = [503, 429]
    backoff = {"sasl.login.retry.backoff.ms": 1, "sasl.login.retry.backoff.max.ms": 10_000}
    assert tokens(of_endpoint(endpoint, **backoff), time.time() * 1000)[0].principal == "payments"
    endpoint.failures = [500] * 100
    clock = Clock()

    async def run() -> None:
        made = of_endpoint(endpoint, **backoff | {"sasl.login.retry.backoff.max.ms": 1})
        clock.now_ms = NOW_MS

        def later() -> float:
            clock.now_ms += 1
            return clock.now_ms

        await made.token(later, Randomness(1))

    with pytest.raises(ConnectError, match=r"no token from .*500.*server_error") as raised:
        asyncio.run(run())
    assert raised.value.retriable
    assert not isinstance(raised.value, AuthenticationError)
