"""SCRAM: the examples of the RFCs, both sides together, and what each refuses."""

from __future__ import annotations

from base64 import b64decode

import pytest

from ottla.security.scram import (
    SCRAM_MECHANISMS,
    SaslError,
    ScramClient,
    ScramCredential,
    ScramServer,
    TokenLogin,
    credential_of,
    salted_password,
)

pytestmark = pytest.mark.spec("S2")
SALT = b"twenty bytes of salt"


def credential(mechanism: str, password: str, iterations: int = 4096) -> ScramCredential:
    return credential_of(mechanism, salted_password(mechanism, password, SALT, iterations), SALT, iterations)


def server(mechanism: str = SCRAM_MECHANISMS[0], **users: str) -> ScramServer:
    known = {name: credential(mechanism, password) for name, password in users.items()}
    return ScramServer(mechanism, known, "server-nonce", b"secret")


def test_the_example_of_rfc_7677() -> None:
    client = ScramClient("SCRAM-SHA-256", "user", "pencil", "rOprNGfwEbeRWgbNEkqO")
    assert client.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    final = client.step(b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096")
    assert final == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert client.step(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=") is None
    assert client.is_complete


def test_a_wrong_password_and_an_unknown_user_fail_alike_at_the_end() -> None:
    failures = []
    for user, password in (("alice", "wrong"), ("nobody", "wrong")):
        one, client = server(alice="right"), ScramClient("SCRAM-SHA-256", user, password, "client-nonce")
        first = one.step(client.first())
        assert b",i=4096" in first
        final = client.step(first)
        assert final is not None
        with pytest.raises(SaslError) as caught:
            one.step(final)
        assert not one.is_complete
        failures.append((str(caught.value), caught.value.shown))
    assert failures[0] == failures[1]
    again = server(alice="right").step(ScramClient("SCRAM-SHA-256", "nobody", "", "client-nonce").first())
    assert again == server().step(b"n,,n=nobody,r=client-nonce"), "an unknown user has the same salt each time"


@pytest.mark.spec("S5")
@pytest.mark.parametrize(("salt", "iterations"), [(b"of-kafka".replace(b"-", b"0") * 3, 8192), (b"\xff" * 20, 4096)])
def test_the_salt_of_an_unknown_user_looks_like_those_of_known_ones(salt: bytes, iterations: int) -> None:
    known = {"alice": credential_of("SCRAM-SHA-512", b"salted", salt, iterations)}
    for number in range(20):
        one = ScramServer("SCRAM-SHA-512", known, "nonce", b"secret of the cluster")
        shown = one.step(f"n,,n=user{number},r=x".encode()).decode().split(",")
        made = b64decode(shown[1].removeprefix("s="))
        assert (len(made), made.isalnum(), shown[2]) == (len(salt), salt.isalnum(), f"i={iterations}")


@pytest.mark.parametrize("mechanism", SCRAM_MECHANISMS)
@pytest.mark.parametrize(
    ("name", "password", "succeeds"),
    [("id", "hmac", True), ("id", "right", False), ("alice", "right", False), ("other", "hmac", False)],
)
def test_a_login_by_a_delegation_token(mechanism: str, name: str, password: str, succeeds: bool) -> None:
    tokens = {"id": TokenLogin("owner", credential(mechanism, "hmac"), 1000)}
    users = {"alice": credential(mechanism, "right")}
    one = ScramServer(mechanism, users, "server-nonce", b"secret", tokens.get)
    client = ScramClient(mechanism, name, password, "client-nonce", is_token=True)
    assert client.first() == f"n,,n={name},r=client-nonce,tokenauth=true".encode()
    final = client.step(one.step(client.first()))
    assert final is not None
    if succeeds:
        assert client.step(one.step(final)) is None
        assert (one.user, one.token) == ("id", tokens["id"])
    else:
        with pytest.raises(SaslError, match="invalid credentials"):
            one.step(final)
    assert one.is_complete == succeeds


@pytest.mark.parametrize(
    ("extension", "is_token"),
    [
        ("tokenauth=TRUE", True),
        ("a=b,tokenauth=true,c=d", True),
        ("tokenauth=false", False),
        ("a=tokenauth=true", False),
    ],
)
def test_the_extension_for_delegation_tokens(extension: str, is_token: bool) -> None:
    named: list[str] = []
    one = ScramServer(SCRAM_MECHANISMS[0], {}, "server-nonce", b"secret", named.append)
    one.step(f"n,,n=id,r=x,{extension}".encode())
    assert named == (["id"] if is_token else [])


@pytest.mark.parametrize(
    "token",
    [
        b"",
        b"\xff\xfe",
        b"n,,n=,r=x",
        b"n,,n=a,r=",
        b"n,,n=a=b,r=x",
        b"p=tls-unique,,n=a,r=x",
        b"n,,m=x,n=a,r=x",
        b"n,a=other,n=alice,r=x",
        b"n,,n=alice,r=" + b"x" * 9000,
    ],
)
def test_first_messages_that_a_server_refuses(token: bytes) -> None:
    with pytest.raises(SaslError):
        server(alice="right").step(token)


@pytest.mark.parametrize(
    "token",
    [
        b"c=biws,r=other,p=AAAA",
        b"c=eCws,r=client-nonceserver-nonce,p=AAAA",
        b"c=biws,r=client-nonceserver-nonce,p=AAAA",
        b"c=biws,r=client-nonceserver-nonce,p=????",
    ],
)
def test_final_messages_that_a_server_refuses(token: bytes) -> None:
    one = server(alice="right")
    one.step(b"n,,n=alice,r=client-nonce,ext=ignored")
    with pytest.raises(SaslError):
        one.step(token)


@pytest.mark.parametrize(
    "token",
    [b"r=client-nonce,s=AAAA,i=4096", b"r=other,s=AAAA,i=4096", b"r=client-nonceX,s=AAAA,i=1",
     b"r=client-nonceX,s=AAAA,i=999999999", b"r=client-nonceX,s=,i=4096,", b"rubbish"],
)  # fmt: skip
def test_first_messages_that_a_client_refuses(token: bytes) -> None:
    with pytest.raises(SaslError):
        ScramClient("SCRAM-SHA-256", "alice", "secret", "client-nonce").step(token)


def test_a_client_refuses_a_server_that_does_not_know_its_user() -> None:
    client = ScramClient("SCRAM-SHA-256", "alice", "secret", "client-nonce")
    client.step(b"r=client-nonceX,s=AAAA,i=4096")
    for token in (b"v=AAAA", b"e=other-error", b""):
        with pytest.raises(SaslError):
            client.step(token)
    assert not client.is_complete


def test_an_error_of_a_server_is_repeated_only_where_it_is_plain_text() -> None:
    client = ScramClient("SCRAM-SHA-256", "alice", "secret", "client-nonce")
    client.step(b"r=client-nonceX,s=AAAA,i=4096")
    with pytest.raises(SaslError, match="the broker says other-error"):
        client.step(b"e=other-error")
    with pytest.raises(SaslError, match="malformed"):
        client.step(b"e=\x1b[2Jcleared")


def test_the_text_of_a_credential_is_kafkas_and_its_repr_has_no_key() -> None:
    one = credential("SCRAM-SHA-256", "secret", 8192)
    text = one.to_text()
    assert text.startswith("salt=dHdlbnR5IGJ5dGVzIG9mIHNhbHQ=,stored_key=")
    assert text.endswith(",iterations=8192")
    assert ScramCredential.from_text(text) == one
    assert repr(one) == "ScramCredential(iterations=8192)"
    for damaged in ("", "salt=x", text.replace("salt=", "salt=?"), text.replace("8192", "many"), text + ",more=1"):
        with pytest.raises(ValueError, match="SCRAM credential"):
            ScramCredential.from_text(damaged)
