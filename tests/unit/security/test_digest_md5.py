"""DIGEST-MD5, with the examples of RFC 2831, section 4."""

from __future__ import annotations

import pytest

from ottla.security.digest_md5 import DigestMd5Client, DigestMd5Server, directives
from ottla.security.jaas import Login
from ottla.security.scram import SaslError

pytestmark = pytest.mark.spec("S1")

CHRIS = Login("chris", "secret")


@pytest.mark.parametrize(
    ("service", "nonce", "cnonce", "response", "proof"),
    [
        ("imap", "OA6MG9tEQGm2hh", "OA6MHXh6VqTrRk", "d388dad90d4bbd760a152321f2143af7",
         "ea40f60335c427b5527b84dbabcdfffd"),
        ("acap", "OA9BSXrbuRhWay", "OA9BSuZWMSpW8m", "6084c6db3fede7352c551284490fd0fc",
         "2f0b3d7c3c2e486600ef710726aa2eae"),
    ],
)  # fmt: skip
def test_the_examples_of_the_rfc(service: str, nonce: str, cnonce: str, response: str, proof: str) -> None:
    client = DigestMd5Client(CHRIS, cnonce, service, "elwood.innosoft.com")
    assert client.first() == b""
    challenge = f'realm="elwood.innosoft.com",nonce="{nonce}",qop="auth",algorithm=md5-sess,charset=utf-8'
    sent = client.step(challenge.encode())
    assert sent is not None
    assert directives(sent)["response"] == response
    with pytest.raises(SaslError, match="does not know the password"):
        client.step(b"rspauth=" + b"0" * 32)
    assert client.step(f"rspauth={proof}".encode()) is None


def log_in(login: Login, users: dict[str, str]) -> DigestMd5Server:
    client, server = DigestMd5Client(login, "their"), DigestMd5Server(users, "ours")
    token: bytes | None = client.first()
    while token is not None:
        token = client.step(server.step(token))
    return server


@pytest.mark.parametrize("login", [CHRIS, Login('a"\\,= b', "päss ✓"), Login("jürgen", "日本")])
def test_client_and_server_agree(login: Login) -> None:
    server = log_in(login, {login.user: login.password, "other": "x"})
    assert (server.user, server.is_complete) == (login.user, True)


@pytest.mark.parametrize("users", [{"chris": "other"}, {"ann": "secret"}, {"chris": ""}, {}])
def test_a_wrong_login_is_refused(users: dict[str, str]) -> None:
    with pytest.raises(SaslError, match="invalid credentials"):
        log_in(CHRIS, users)


def test_a_response_counts_once_and_for_its_challenge_only() -> None:
    client, server = DigestMd5Client(CHRIS, "their"), DigestMd5Server({"chris": "secret"}, "ours")
    sent = client.step(server.step(b""))
    assert sent is not None
    another = DigestMd5Server({"chris": "secret"}, "another")
    another.step(b"")
    with pytest.raises(SaslError, match="invalid credentials"):
        another.step(sent)
    server.step(sent)
    with pytest.raises(SaslError):
        server.step(sent)


@pytest.mark.parametrize(
    "token", [b"x", b'username="a', b"=", b"username=a,response=b", b"a" * 9000, b'username="\xff"', b""]
)
def test_malformed_responses(token: bytes) -> None:
    server = DigestMd5Server({"chris": "secret"}, "ours")
    server.step(b"")
    with pytest.raises(SaslError):
        server.step(token)


@pytest.mark.parametrize("challenge", [b"", b'nonce="n",qop="auth-int"', b'nonce="n",algorithm=md5', b"realm=r"])
def test_challenges_that_cannot_be_answered(challenge: bytes) -> None:
    with pytest.raises(SaslError):
        DigestMd5Client(CHRIS, "c").step(challenge)
