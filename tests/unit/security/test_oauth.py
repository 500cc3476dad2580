"""Both sides of OAUTHBEARER, as bytes."""

from __future__ import annotations

import pytest

from ottla.security.oauth import AFTER_FAILURE, OauthClient, OauthServer, extension_problem, parse_first
from ottla.security.scram import SaslError
from ottla.security.tokens import BearerToken, TokenError

pytestmark = pytest.mark.spec("S2")
TOKEN = BearerToken("a.b.c", "alice", 99, {"traceId": "12 3"})


def checked(text: str) -> BearerToken:
    if text != "a.b.c":
        raise TokenError("for a test", "[x]" if text == "scope" else None)
    return TOKEN


def test_a_login_with_extensions() -> None:
    first = OauthClient(TOKEN).first()
    assert first == b"n,,\x01auth=Bearer a.b.c\x01traceId=12 3\x01\x01"
    assert parse_first(first) == ("", "a.b.c", {"traceId": "12 3"})
    server = OauthServer(checked)
    assert server.step(first) == b""
    assert (server.is_complete, server.user, server.expires_ms) == (True, "alice", 99)
    assert OauthClient(TOKEN).step(b"") is None


@pytest.mark.parametrize(
    ("token", "answer"),
    [("x.y.z", b'{"status":"invalid_token"}'), ("scope", b'{"status":"insufficient_scope", "scope":"[x]"}')],
)
def test_a_refused_token_is_answered_as_by_kafka(token: str, answer: bytes) -> None:
    """The reason stays with the server; the client ends the exchange with one byte."""
    client, server = OauthClient(BearerToken(token, "alice", 99)), OauthServer(checked)
    found = server.step(client.first())
    assert found == answer
    assert not server.is_complete
    last = client.step(found)
    assert last == AFTER_FAILURE
    with pytest.raises(SaslError, match="for a test") as raised:
        server.step(last)
    assert raised.value.shown == answer.decode()
    with pytest.raises(SaslError, match="the broker refuses the token"):
        client.step(b"")


def test_no_second_token_follows_a_refused_one() -> None:
    """Each exchange ends with one refusal, so that each token that is tried costs the delay of a failure."""
    server = OauthServer(checked)
    server.step(OauthClient(BearerToken("x.y.z", "alice", 99)).first())
    with pytest.raises(SaslError, match="for a test"):
        server.step(OauthClient(TOKEN).first())
    assert not server.is_complete


def test_an_authorization_id_is_the_principal() -> None:
    assert parse_first(b"n,a=al=2Cice,\x01auth=bearer  a.b.c\x01\x01").authorization_id == "al,ice"
    assert OauthServer(checked).step(b"n,a=alice,\x01auth=Bearer a.b.c\x01\x01") == b""
    with pytest.raises(SaslError) as raised:
        OauthServer(checked).step(b"n,a=bob,\x01auth=Bearer a.b.c\x01\x01")
    assert raised.value.shown == (
        "Authentication failed: Client requested an authorization id (bob) that is different from the token's "
        "principal name (alice)"
    )
    with pytest.raises(SaslError) as raised:
        OauthServer(checked).step(b"n,a=" + b"b" * 40_000 + b",\x01auth=Bearer a.b.c\x01\x01")
    assert len(str(raised.value.shown)) < 2000


@pytest.mark.parametrize(
    "message",
    [b"", AFTER_FAILURE, b"y,,\x01auth=Bearer a\x01\x01", b"n,,\x01\x01", b"n,,\x01auth=Basic a\x01\x01",
     b"n,,\x01auth=Bearer \x01\x01",
     b"n,,\x01auth=Bearer a\x011=b\x01\x01", b"n,,\x01auth=Bearer a\x01b=\x00\x01\x01", b"\xff",
     b"n,,\x01auth=" + b"a" * 100_000],
)  # fmt: skip
def test_malformed_messages(message: bytes) -> None:
    server = OauthServer(checked)
    with pytest.raises(SaslError):
        server.step(message)
    assert not server.is_complete


def test_extensions_that_cannot_be() -> None:
    assert extension_problem("traceId", "1") is None
    assert "not auth" in str(extension_problem("auth", "1"))
    assert "characters" in str(extension_problem("a", "\x01"))
