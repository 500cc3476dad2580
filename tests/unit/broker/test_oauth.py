"""OAUTHBEARER against a broker: unsecured tokens, and tokens signed by keys of an address or a file."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from ottla.broker.connection_state import ConnectionState
from ottla.broker.control.interbroker import BrokerConnector
from ottla.broker.logins import login_problems, logins_of
from ottla.broker.oauth import URL, TokenChecks, TokenSettings
from ottla.client import TopicPartition
from ottla.client.errors import AuthenticationError
from ottla.client.sync import Admin, Consumer, Producer
from ottla.config.broker import BrokerConfig, parse_broker_config
from ottla.env.clock import SystemClock
from ottla.env.environment import Environment
from ottla.security.jwks import Expected, SigningKeys, parse_jwks
from ottla.security.oauth_login import CLIENT_ID, CLIENT_SECRET, ENDPOINT, UNSECURED_VALIDATOR, VALIDATORS
from ottla.security.tokens import TokenError, unsecured_token
from ottla.sim.virtual_loop import LoopClock, VirtualTimeLoop, run_in_virtual_time
from ottla.testing import Broker
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from support.framed_socket import Disconnected
from support.oauth import CLIENT_SECRET as SECRET
from support.oauth import (
    LISTENER,
    MODULE,
    SETTINGS,
    Provider,
    Signer,
    jwks_broker,
    login,
    provider,
    unsecured_broker,
    with_token,
)
from support.raw_client import RawClient
from support.waiting import wait_until

pytestmark = pytest.mark.spec("S2")


def first_message(token: str) -> SaslAuthenticateRequest:
    return SaslAuthenticateRequest(auth_bytes=f"n,,\x01auth=Bearer {token}\x01\x01".encode())


REFUSED = r'refuses the login of a token of .*: \{"status":"invalid_token"\}; check the issuer'


@pytest.fixture(scope="module")
def endpoint() -> Iterator[Provider]:
    with provider() as made:
        yield made


@pytest.fixture(scope="module")
def signed(endpoint: Provider) -> Iterator[Broker]:
    """A broker with the keys of the endpoint; the pauses between reads of keys are short."""
    short = {"sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms": "1"}
    with jwks_broker(f"{endpoint.address}/jwks", **short) as broker:
        yield broker


@pytest.fixture(scope="module")
def unsecured() -> Iterator[Broker]:
    options = 'unsecuredValidatorRequiredScope="produce" unsecuredValidatorAllowableClockSkewMs="600000"'
    with unsecured_broker(options) as broker:
        yield broker


def test_a_client_with_an_unsecured_token(unsecured: Broker) -> None:
    claims = 'unsecuredLoginStringClaim_sub="alice" unsecuredLoginListClaim_scope=",produce,consume"'
    settings = login(unsecured, sasl_jaas_config=f'{MODULE} {claims} unsecuredLoginExtension_traceId="7";')
    with Producer(settings) as producer:
        assert producer.send("t", b"v").result(60).offset == 0
        assert "User:alice" in {str(each.principal) for each in unsecured.server.connections.snapshot()}


def test_the_answer_to_a_refused_token_is_kafkas(unsecured: Broker, caplog: pytest.LogCaptureFixture) -> None:
    client = RawClient(unsecured.port)
    assert client.ask(SaslHandshakeRequest(mechanism="OAUTHBEARER"), SaslHandshakeResponse, 1).mechanisms == [
        "OAUTHBEARER"
    ]
    token = unsecured_token({"sub": "alice", "exp": time.time() + 600})
    answer = client.ask(first_message(token), SaslAuthenticateResponse, 2)
    failure = b'{"status":"insufficient_scope", "scope":"[produce]"}'
    assert (answer.error_code, answer.auth_bytes) == (0, failure)
    answer = client.ask(SaslAuthenticateRequest(auth_bytes=b"\x01"), SaslAuthenticateResponse, 2)
    assert (answer.error_code, answer.error_message) == (ErrorCode.SASL_AUTHENTICATION_FAILED, failure.decode())
    with pytest.raises(Disconnected):
        client.receive_frame()
    client.close()
    assert "the token lacks a required scope" in caplog.text
    assert token not in caplog.text


def test_a_client_may_hang_up_on_a_refusal(unsecured: Broker, caplog: pytest.LogCaptureFixture) -> None:
    """Some end the exchange so; the log has the reason, too."""
    failures = unsecured.server.authentication.failures
    client = RawClient(unsecured.port)
    client.ask(SaslHandshakeRequest(mechanism="OAUTHBEARER"), SaslHandshakeResponse, 1)
    client.ask(first_message("rubbish"), SaslAuthenticateResponse, 2)
    client.close()
    assert unsecured.server.authentication.failures == failures + 1
    assert "the token is not a JSON web token" in caplog.text


def test_no_token_with_a_known_key_waits_for_a_read(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Old keys are read again in the background, and serve while their address hangs."""
    first, second = Signer("first"), Signer("second")
    loop = VirtualTimeLoop()
    clock = LoopClock(loop, round(time.time() * 1000))
    #: The sets of keys that the address has; None hangs.
    answers: list[list[Signer] | None] = [[first], None, None, [second]]
    reads_s: list[float] = []

    def read_slowly(work: object, limit_s: float) -> asyncio.Future[SigningKeys]:
        reads_s.append(loop.time())
        answer, reading = answers.pop(0), loop.create_future()
        if answer is None:
            loop.call_later(limit_s, reading.set_exception, TimeoutError("no answer"))
        else:
            keys = parse_jwks(json.dumps({"keys": [each.public() for each in answer]}).encode())
            loop.call_later(3, reading.set_result, keys)
        return reading

    async def run() -> None:
        settings = TokenSettings("https://a/jwks", Expected(), {}, refresh_ms=60_000)
        checks = TokenChecks("L", settings, clock)

        def wanted(signer: Signer) -> asyncio.Future[SigningKeys] | None:
            return checks.wanted(first_message(signer.token(life_s=600)).auth_bytes)

        checks.renew()
        assert reads_s == [], "there was no token yet"
        reading = wanted(first)
        assert reading is not None
        await reading
        assert wanted(first) is None
        while len(reads_s) < 4 or wanted(second) is not None:
            assert wanted(first) is None
            assert checks.check(first.token(life_s=600)).principal == "alice"
            await asyncio.sleep(1)  # sleep: virtual
            checks.renew()
        with pytest.raises(TokenError, match="signed by none of the keys"):
            checks.check(first.token(life_s=600))

    monkeypatch.setattr("ottla.broker.oauth.in_own_thread", read_slowly)
    with closing(loop):
        run_in_virtual_time(run(), loop)
    # After 3 s, 60 s later, and after 20 s that it hangs each time.
    assert [round(each - reads_s[0]) for each in reads_s] == [0, 63, 84, 105]
    assert caplog.text.count("no answer; it is tried again") == 1


def test_a_client_with_the_credentials_of_the_endpoint(signed: Broker, endpoint: Provider) -> None:
    settings = login(signed) | {ENDPOINT: f"{endpoint.address}/token", CLIENT_ID: "payments", CLIENT_SECRET: SECRET}
    with Producer(settings) as producer:
        producer.send("t", b"v").result(60)
    with Consumer(settings, group_id="g", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["t"])
        while not consumer.poll(1000):
            pass
    with Admin(settings | {CLIENT_SECRET: "wrong-secret"}) as admin, pytest.raises(AuthenticationError) as raised:
        admin.list_topics()
    assert "refuses client 'payments': the answer is 401" in str(raised.value)
    assert "wrong-secret" not in str(raised.value)


def test_a_broker_logs_in_to_others(signed: Broker, endpoint: Provider) -> None:
    """By a token of the endpoint, as its settings say."""
    server = signed.server

    async def connect() -> None:
        connection = await BrokerConnector(9, server.config, Environment()).connect(server.image.brokers[server.id])
        assert "User:payments" in {str(each.principal) for each in server.connections.snapshot()}
        connection.close()

    asked = len(endpoint.forms)
    asyncio.run(connect())
    assert len(endpoint.forms) == asked + 1


def test_a_new_key_is_read_when_a_token_needs_it(signed: Broker, endpoint: Provider) -> None:
    new = Signer("new")
    with Admin(with_token(signed, new.token())) as admin, pytest.raises(AuthenticationError, match=REFUSED):
        admin.list_topics()
    endpoint.signers.append(new)
    with Admin(with_token(signed, new.token())) as admin:
        assert "t" in admin.list_topics()


def test_unknown_keys_make_no_more_than_one_read_in_a_pause() -> None:
    long = {"sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms": "600000"}
    with provider() as endpoint, jwks_broker(f"{endpoint.address}/jwks", **long) as broker:
        for number in range(4):
            with (
                Admin(with_token(broker, Signer(f"unknown{number}").token())) as admin,
                pytest.raises(AuthenticationError, match=REFUSED),
            ):
                admin.list_topics()
        assert endpoint.paths.count("/jwks") == 1


def test_keys_that_cannot_be_read_are_read_again(caplog: pytest.LogCaptureFixture) -> None:
    with provider() as endpoint:
        signer = endpoint.signers[0]
        short = {"sasl_oauthbearer_jwks_endpoint_retry_backoff_ms": "1"}
        with jwks_broker(f"{endpoint.address}/jwks", **short) as broker:
            endpoint.failures = [503]
            with Admin(with_token(broker, signer.token())) as admin, pytest.raises(AuthenticationError, match=REFUSED):
                admin.list_topics()
            assert "cannot be read: the answer is 503" in caplog.text
            with Admin(with_token(broker, signer.token())) as admin:
                assert "t" in admin.list_topics()


def test_old_keys_serve_while_new_ones_cannot_be_read(caplog: pytest.LogCaptureFixture) -> None:
    old = {"sasl_oauthbearer_jwks_endpoint_refresh_ms": "0", "sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms": "1"}
    with provider() as endpoint, jwks_broker(f"{endpoint.address}/jwks", **old) as broker:
        with Admin(with_token(broker, endpoint.signers[0].token())) as admin:
            assert "t" in admin.list_topics()
        endpoint.failures = [503] * 100
        wait_until(lambda: "cannot be read: the answer is 503" in caplog.text, "a failed read")
        with Admin(with_token(broker, endpoint.signers[0].token())) as admin:
            assert "t" in admin.list_topics()


def test_a_signed_token_is_not_replaced_by_an_unsecured_one(signed: Broker) -> None:
    for token in (
        unsecured_token({"sub": "eve", "iat": 1, "exp": time.time() + 600}),
        Signer().token("eve"),
        "rubbish",
    ):
        with Admin(with_token(signed, token)) as admin, pytest.raises(AuthenticationError, match=REFUSED):
            admin.list_topics()


@pytest.mark.slow
def test_a_session_ends_with_its_token(unsecured: Broker) -> None:
    """The lifetime of the session is the rest of the token's life."""
    client = RawClient(unsecured.port)
    client.ask(SaslHandshakeRequest(mechanism="OAUTHBEARER"), SaslHandshakeResponse, 1)
    token = unsecured_token({"sub": "alice", "scope": "produce", "exp": time.time() + 2})
    answer = client.ask(first_message(token), SaslAuthenticateResponse, 2)
    assert answer.error_code == 0
    assert answer.session_lifetime_ms <= 2010

    def is_over() -> bool:
        states = [each.state for each in unsecured.server.connections.snapshot()]
        return any(isinstance(each, ConnectionState) and each.expired is not None for each in states)

    wait_until(is_over, "the session ends")
    client.close()


@pytest.mark.slow
def test_a_client_renews_its_session_with_new_tokens() -> None:
    tokens: list[str] = []

    def new_token() -> str:
        tokens.append(unsecured_token({"sub": "alice", "n": len(tokens), "exp": time.time() + 4}))
        return tokens[-1]

    with (
        unsecured_broker('unsecuredValidatorAllowableClockSkewMs="600000"') as broker,
        Consumer(login(broker, sasl_login_callback_handler_class=new_token, fetch_max_wait_ms=100)) as consumer,
    ):
        consumer.assign([TopicPartition("t", 0)])
        consumer.poll(200)
        authentication, opened = broker.server.authentication, -1
        while broker.server.connections.accepted != opened:  # a busy machine may be too late for a session
            opened, logins, had = broker.server.connections.accepted, authentication.successes, len(tokens)
            while authentication.successes == logins:
                consumer.poll(200)
        assert len(tokens) > had
        assert authentication.failures == 0


def test_keys_of_a_file(tmp_path: Path) -> None:
    signer, path = Signer(), tmp_path / "keys.json"
    path.write_text(json.dumps({"keys": [signer.public()]}))
    claims = {"sasl_oauthbearer_expected_audience": "we,us", "sasl_oauthbearer_expected_issuer": "https://a"}
    jaas = f'{MODULE} unsecuredLoginStringClaim_sub="x";'
    plain = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0"}
    settings = SETTINGS | plain | {URL: path.as_uri(), f"{LISTENER}sasl.jaas.config": jaas}
    del settings["security.inter.broker.protocol"]
    settings |= {name.replace("_", "."): text for name, text in claims.items()}
    with Broker(topics={"t": 1}, settings=settings) as broker:
        port = next(each.port for each in broker.server.listening if each.listener_name == "SASL_PLAINTEXT")
        address = {"bootstrap.servers": f"127.0.0.1:{port}"}
        with Admin(with_token(broker, signer.token(aud="us", iss="https://a")) | address) as admin:
            assert "t" in admin.list_topics()
        with (
            Admin(with_token(broker, signer.token(aud="them", iss="https://a")) | address) as admin,
            pytest.raises(AuthenticationError, match=REFUSED),
        ):
            admin.list_topics()


def config_of(**settings: str) -> BrokerConfig:
    given = {name.replace("__", "."): text for name, text in settings.items()}
    config = parse_broker_config(
        {"listeners": "PLAINTEXT://:1,SASL_PLAINTEXT://:2", "sasl.enabled.mechanisms": "OAUTHBEARER"} | given
    )
    assert isinstance(config, BrokerConfig), config.problems
    return config


BETWEEN = {"inter.broker.listener.name": "SASL_PLAINTEXT", "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER"}
CHECKS, LOGS_IN = (f"{LISTENER}sasl.{side}.callback.handler.class" for side in ("server", "login"))
JAAS = f"{LISTENER}sasl.jaas.config"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({URL: "ftp://a/b"}, "is not an address that begins with"),
        ({URL: "http://a:x/b"}, "is not an address that begins with"),
        ({URL: "file:///no/such/file"}, "cannot be read: [Errno 2]"),
        ({f"{LISTENER}{URL}": "file:///no/such/file"}, "cannot be read: [Errno 2]"),
        ({CHECKS: "a.Own"}, f"a.Own is a Java class, which cannot be loaded here. Set it to {VALIDATORS[0]}"),
        ({LOGS_IN: "a.Own"}, "a.Own is a Java class"),
        ({CHECKS: VALIDATORS[0]}, f"does not fit {URL}, which is None: set it"),
        ({CHECKS: UNSECURED_VALIDATOR, URL: "https://a/b"}, "remove one of the two"),
        ({JAAS: f'{MODULE} unsecuredValidatorAllowableClockSkewMs="x";'}, "is not a number of milliseconds"),
        ({JAAS: "a.ScramLoginModule required;"}, "OAUTHBEARER needs the OAuthBearerLoginModule"),
        (BETWEEN, f"{ENDPOINT} is missing"),
        (BETWEEN | {ENDPOINT: "https://a"}, "needs a client id"),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, str], said: str) -> None:
    (problem,) = login_problems(config_of(**settings))
    assert said in problem


@pytest.mark.parametrize(
    ("url", "is_warned"),
    [("http://login.example.org/keys", True), ("https://login.example.org/keys", False), ("http://[::1]:1/", False)],
)
def test_keys_without_tls_are_warned_of(url: str, is_warned: bool, caplog: pytest.LogCaptureFixture) -> None:
    TokenChecks("L", TokenSettings(url, Expected(), {}), SystemClock())
    assert (f"{URL} is without TLS" in caplog.text) == is_warned


def test_a_listener_has_its_own_settings() -> None:
    """Those of the mechanism come before those of the listener, and these before those of all."""
    config = config_of(
        **{
            f"{LISTENER}sasl.server.callback.handler.class": VALIDATORS[1],
            f"{LISTENER}{URL}": "https://of-mechanism/",
            f"listener.name.sasl_plaintext.{URL}": "https://of-listener/",
            "listener.name.sasl_plaintext.sasl.oauthbearer.expected.issuer": "i",
            "sasl.oauthbearer.expected.audience": "a,b",
        }
    )
    assert config.warnings == []
    tokens = logins_of(config, "SASL_PLAINTEXT")[0]["OAUTHBEARER"].tokens
    assert tokens is not None
    assert tokens.url == "https://of-mechanism/"
    assert (tokens.expected.issuer, tokens.expected.audience) == ("i", ("a", "b"))


def test_the_class_of_kafka_has_to_be_set_for_a_listener() -> None:
    found = parse_broker_config({"sasl.server.callback.handler.class": VALIDATORS[0]})
    assert not isinstance(found, BrokerConfig)
    assert "Name it listener.name.NAME.oauthbearer.sasl.server.callback.handler.class" in found.problems[0]
