"""Authentication by SASL as a client sees it that speaks the protocol by hand."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.dispatch import BEFORE_AUTHENTICATION
from ottla.broker.handlers import sasl_handshake
from ottla.broker.logins import MechanismLogins
from ottla.broker.served import SERVED
from ottla.net.connection import Principal
from ottla.security.jaas import Login
from ottla.security.kerberos import GssapiServer, ShortNames
from ottla.security.sasl import client_exchange
from ottla.testing import Broker
from ottla.wire.apis import API
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from support.framed_socket import Disconnected
from support.raw_client import RawClient
from support.sasl_broker import MECHANISMS, PASSWORD, SETTINGS, USER, add_scram_user, sasl_broker
from support.waiting import wait_until

pytestmark = pytest.mark.spec("S2")
TOKEN = f"\0{USER}\0{PASSWORD}".encode()
Connect = Callable[[Broker], RawClient]
LONG_MS = 600_000
"""In place of `MIN_REAUTHENTICATION_MS`, of which a busy machine needs more than there is."""


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with sasl_broker() as started:
        add_scram_user(started)
        yield started


@pytest.fixture
def connect() -> Iterator[Connect]:
    made: list[RawClient] = []

    def open_one(broker: Broker) -> RawClient:
        made.append(RawClient(broker.port))
        return made[-1]

    yield open_one
    for client in made:
        client.close()


def shake(client: RawClient, mechanism: str = "PLAIN", version: int = 1) -> SaslHandshakeResponse:
    return client.ask(SaslHandshakeRequest(mechanism=mechanism), SaslHandshakeResponse, version)


def send_token(client: RawClient, token: bytes, version: int = 2) -> SaslAuthenticateResponse:
    return client.ask(SaslAuthenticateRequest(auth_bytes=token), SaslAuthenticateResponse, version)


def is_closed(client: RawClient) -> bool:
    try:
        client.receive_frame()
    except Disconnected:
        return True
    return False


@pytest.mark.spec("S5")
@pytest.mark.parametrize("begun", ["connected", "versions", "handshake"])
def test_nothing_but_the_handshake_is_answered_before_authentication(broker, connect, begun):
    for key in SERVED.keys() - BEFORE_AUTHENTICATION:
        client = connect(broker)
        if begun != "connected":
            client.ask(
                ApiVersionsRequest(client_software_name="a", client_software_version="1"), ApiVersionsResponse, 3
            )
        if begun == "handshake":
            assert shake(client).error_code == 0
        with suppress(Disconnected):
            client.send(API[key].request(), SERVED[key].max_version)
        assert is_closed(client), key
    client = connect(broker)
    assert send_token(client, TOKEN).error_code == ErrorCode.ILLEGAL_SASL_STATE, "no handshake came before"
    client.send_bytes((1 << 20).to_bytes(4, "big"))
    assert is_closed(client), "large requests need authentication"


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_both_kinds_of_tokens(broker, connect, mechanism, version):
    """Bare frames follow a handshake of version 0."""
    client = connect(broker)
    assert shake(client, mechanism, version).mechanisms == list(MECHANISMS)
    exchange = client_exchange(mechanism, Login(USER, PASSWORD), "nonce")
    token: bytes | None = exchange.first()
    while token is not None:
        if version == 0:
            client.send_bytes(len(token).to_bytes(4, "big") + token)
            token = exchange.step(client.receive_frame())
        else:
            token = exchange.step(send_token(client, token).auth_bytes)
    assert "t" in client.topics()


class Ticket:
    """The broker's side of a context whose tickets are the byte 0x60 and the principal, and which signs nothing."""

    def __init__(self) -> None:
        self.is_complete = False
        self.peer = ""

    def step(self, token: bytes) -> bytes:
        self.peer, self.is_complete = token[1:].decode(), True
        return b""

    def wrap(self, message: bytes) -> bytes:
        return message

    unwrap = wrap


@pytest.fixture
def broker_with_tickets() -> Iterator[Broker]:
    """By GSSAPI, too, without its library."""
    with sasl_broker(connection_failed_authentication_delay_ms="10") as started:
        key: Any = SimpleNamespace(exchange=lambda: GssapiServer(Ticket(), ShortNames(["DEFAULT"], "EXAMPLE.ORG")))
        started.server.authentication.listeners["SASL_PLAINTEXT"]["GSSAPI"] = MechanismLogins({}, None, 0, None, key)
        yield started


def send_bare(client: RawClient, token: bytes) -> None:
    client.send_bytes(len(token).to_bytes(4, "big") + token)


@pytest.mark.parametrize("asks_for_versions", [False, True])
def test_a_ticket_may_come_without_a_handshake(broker_with_tickets, connect, asks_for_versions, monkeypatch):
    """As franz-go sends it, which has no answer to its last token."""
    monkeypatch.setattr(sasl_handshake, "MIN_REAUTHENTICATION_MS", LONG_MS)
    client = connect(broker_with_tickets)
    if asks_for_versions:
        client.ask(ApiVersionsRequest(), ApiVersionsResponse, 0)
    send_bare(client, b"\x60ann@EXAMPLE.ORG")
    offer = client.receive_frame()
    assert offer == b"\1\0\0\0"
    send_bare(client, offer)
    assert "t" in client.topics()
    assert [each.principal for each in broker_with_tickets.server.connections.snapshot()] == [Principal("User", "ann")]
    assert shake(client, "GSSAPI").error_code == ErrorCode.ILLEGAL_SASL_STATE, "it is too soon for another login"


def test_tickets_that_are_refused(broker_with_tickets, broker, connect, caplog):
    """After another handshake, of no known user, and where GSSAPI is not enabled."""
    client = connect(broker_with_tickets)
    shake(client)
    send_bare(client, b"\x60ann@EXAMPLE.ORG")
    assert is_closed(client)
    client = connect(broker_with_tickets)
    send_bare(client, b"\x60ann@OTHER.ORG")
    send_bare(client, client.receive_frame())
    assert is_closed(client)
    assert "failed to authenticate with GSSAPI as user 'ann@OTHER.ORG': no rules apply" in caplog.text
    client = connect(broker)
    send_bare(client, b"\x60ann@EXAMPLE.ORG")
    assert is_closed(client)


def test_a_wrong_password_is_answered_late_and_then_the_connection_closed(connect):
    with sasl_broker(connection_failed_authentication_delay_ms="300") as broker:
        client = connect(broker)
        shake(client)
        begun = time.monotonic()
        answer = send_token(client, b"\0alice\0wrong")
        assert time.monotonic() - begun >= 0.29
        assert (answer.error_code, answer.error_message) == (
            ErrorCode.SASL_AUTHENTICATION_FAILED,
            "Authentication failed: Invalid username or password",
        )
        assert is_closed(client)
        bare = connect(broker)
        shake(bare, version=0)
        bare.send_bytes(b"\0\0\0\2\0a")
        assert is_closed(bare)


def test_mechanisms_that_are_not_there(broker, connect):
    client = connect(broker)
    answer = shake(client, "GSSAPI")
    assert (answer.error_code, answer.mechanisms) == (ErrorCode.UNSUPPORTED_SASL_MECHANISM, list(MECHANISMS))
    assert is_closed(client)
    with Broker() as plaintext:
        client = connect(plaintext)
        answer = shake(client)
        assert (answer.error_code, answer.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])
        assert send_token(client, TOKEN).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert client.topics() == set()


def test_a_session_ends_unless_its_user_authenticates_again(connect, monkeypatch):
    with sasl_broker(connections_max_reauth_ms="1500") as broker:
        client, other = connect(broker), connect(broker)
        for each in (client, other):
            shake(each)
            assert send_token(each, TOKEN).session_lifetime_ms == 1500
        with monkeypatch.context() as patched:
            patched.setattr(sasl_handshake, "MIN_REAUTHENTICATION_MS", LONG_MS)
            assert shake(client).error_code == ErrorCode.ILLEGAL_SASL_STATE, "that is too soon"
        sessions = broker.server.connections
        wait_until(lambda: all(each.principal is None for each in sessions.snapshot()), "the sessions end")
        shake(client)
        assert send_token(client, TOKEN).error_code == 0
        assert "t" in client.topics()
        shake(other)
        answer = send_token(other, b"\0admin\0admin-secret")
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert answer.error_message == ("Cannot change principals during re-authentication from User:alice: User:admin")
        assert is_closed(other)


def test_a_session_that_is_over_gets_no_answers(connect):
    with sasl_broker(connections_max_reauth_ms="50") as broker:
        client = connect(broker)
        shake(client)
        send_token(client, TOKEN)
        (connection,) = broker.server.connections.snapshot()
        wait_until(lambda: connection.principal is None, "the session ends")
        with suppress(Disconnected):
            client.send(API[3].request(), 12)
        assert is_closed(client)


def test_the_log_names_users_and_no_passwords(broker, connect, caplog):
    client = connect(broker)
    shake(client)
    send_token(client, b"\0alice\0a-secret-of-hers")
    assert "failed to authenticate with PLAIN as user 'alice'" in caplog.text
    assert "a-secret-of-hers" not in caplog.text
    assert "secret" not in repr(broker.server.authentication.listeners) + str(SETTINGS["listeners"])
