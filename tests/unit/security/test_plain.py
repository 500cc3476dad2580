"""PLAIN, as Apache Kafka's PlainSaslServer answers it."""

from __future__ import annotations

import pytest

from ottla.security.jaas import Login
from ottla.security.sasl import PlainServer, client_exchange
from ottla.security.scram import SaslError

pytestmark = pytest.mark.spec("S2")


@pytest.mark.parametrize(
    ("token", "shown"),
    [
        (b"\0alice\0wrong", "Authentication failed: Invalid username or password"),
        (b"\0nobody\0secret", "Authentication failed: Invalid username or password"),
        (b"\0\0secret", "Authentication failed: username not specified"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (
            b"other\0alice\0secret",
            "Authentication failed: Client requested an authorization id that is different from username",
        ),
        (b"alice", None),
        (b"\0alice\0secret\0", None),
        (b"\0\xff\0secret", None),
        (b"\0alice\0" + b"x" * 9000, None),
    ],
)
def test_refused(token: bytes, shown: str | None) -> None:
    server = PlainServer({"alice": "secret"})
    with pytest.raises(SaslError) as caught:
        server.step(token)
    assert caught.value.shown == shown
    assert not server.is_complete


def test_the_client_logs_in() -> None:
    server, client = PlainServer({"älice": "gehéim"}), client_exchange("PLAIN", Login("älice", "gehéim"), "")
    assert client.step(server.step(client.first())) is None
    assert (server.is_complete, server.user) == (True, "älice")
    named = PlainServer({"alice": "secret"})
    assert named.step(b"alice\0alice\0secret") == b""
