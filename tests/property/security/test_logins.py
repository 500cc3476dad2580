"""Any user and password log in by any mechanism, another password never does, and rubbish raises SaslError only."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.security.jaas import JaasError, Login, jaas_text, parse_jaas
from ottla.security.oauth import OauthServer
from ottla.security.sasl import PLAIN, PlainServer, ServerExchange, client_exchange
from ottla.security.scram import SCRAM_MECHANISMS, SaslError, ScramClient, ScramServer, credential_of, salted_password
from ottla.security.tokens import BearerToken, check_unsecured
from support.random_cases import cases

pytestmark = pytest.mark.spec("S2")
FEW = settings(max_examples=cases(25), derandomize=True, database=None, deadline=None)
TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=20)
SALT = b"salt"
MECHANISMS = (PLAIN, *SCRAM_MECHANISMS)


def server_of(mechanism: str, login: Login) -> ServerExchange:
    if mechanism == PLAIN:
        return PlainServer({login.user: login.password})
    salted = salted_password(mechanism, login.password, SALT, 4096)
    return ScramServer(mechanism, {login.user: credential_of(mechanism, salted, SALT, 4096)}, "snonce", b"key")


def logs_in(server: ServerExchange, mechanism: str, login: Login) -> bool:
    client = client_exchange(mechanism, login, "cnonce")
    token: bytes | None = client.first()
    while token is not None:
        token = client.step(server.step(token))
    return server.is_complete


@FEW
@given(st.sampled_from(MECHANISMS), TEXT, TEXT, TEXT)
def test_only_the_right_password_logs_in(mechanism: str, user: str, password: str, other: str) -> None:
    login = Login(user, password)
    server = server_of(mechanism, login)
    assert logs_in(server, mechanism, login)
    assert server.user == user
    if other != password:
        with pytest.raises(SaslError):
            logs_in(server_of(mechanism, login), mechanism, Login(user, other))


@FEW
@given(st.sampled_from(MECHANISMS), TEXT, TEXT)
def test_a_login_survives_its_jaas_text(mechanism: str, user: str, password: str) -> None:
    assert parse_jaas(jaas_text(mechanism, Login(user, password)), mechanism).login == Login(user, password)


@settings(FEW, max_examples=cases(100))
@given(st.lists(st.binary(max_size=60) | TEXT.map(str.encode), max_size=3), st.sampled_from(MECHANISMS))
def test_rubbish_ends_in_an_error_and_never_authenticates(tokens: list[bytes], mechanism: str) -> None:
    server, client = server_of(mechanism, Login("a", "b")), ScramClient("SCRAM-SHA-256", "a", "b", "nonce")
    for token in tokens:
        with suppress(SaslError):
            server.step(token)
        with suppress(SaslError):
            client.step(token)
    assert not client.is_complete
    assert server.is_complete == (mechanism == PLAIN and any(token in (b"\0a\0b", b"a\0a\0b") for token in tokens))


def any_token(text: str) -> BearerToken:
    return check_unsecured(text, {}, 0)


@settings(FEW, max_examples=cases(100))
@given(
    st.binary(max_size=60)
    | st.lists(st.sampled_from(["n,", ",", "\x01", "auth=", "Bearer ", "eyJhbGciOiJub25lIn0", ".", "e30"])).map(
        lambda parts: "".join(parts).encode()
    )
)
def test_rubbish_is_no_token(message: bytes) -> None:
    server = OauthServer(any_token)
    with suppress(SaslError):
        assert server.step(message) == b'{"status":"invalid_token"}'
    assert not server.is_complete


@settings(FEW, max_examples=cases(100))
@given(
    st.text(max_size=60)
    | st.lists(st.sampled_from(["PlainLoginModule", " ", "required", "a=", '"b"', ";", "'"])).map("".join)
)
def test_any_text_is_a_login_configuration_or_an_error(text: str) -> None:
    with suppress(JaasError):
        assert parse_jaas(text, PLAIN).module == "PlainLoginModule"
