"""A client's login by Kerberos, without its library: where it waits for a KDC, and what its errors become."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.peer.authentication import authenticate
from ottla.peer.errors import AuthenticationError, ConnectError
from ottla.peer.settings import SaslSettings
from ottla.security import gss_library
from ottla.security.gss_library import KdcUnreachableError
from ottla.security.kerberos import KerberosLogin
from ottla.security.scram import SaslError
from ottla.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.wire.messages.sasl_handshake import SaslHandshakeResponse

pytestmark = pytest.mark.spec("S2")
SASL = SaslSettings("GSSAPI", KerberosLogin("ann@EXAMPLE.ORG", "/k", None, "kafka"))


class Context:
    """One whose broker ends the exchange at once."""

    is_complete = True
    peer = ""

    def step(self, token: bytes) -> bytes:
        return threading.current_thread().name.encode()

    def wrap(self, message: bytes) -> bytes:
        return message

    def unwrap(self, token: bytes) -> bytes:
        return token


def log_in(monkeypatch: pytest.MonkeyPatch, begin: Any) -> list[bytes]:
    """The tokens of the client, to a broker that offers no layer in answer to each."""
    sent: list[bytes] = []

    async def exchange(request: Any, timeout_ms: int) -> Any:
        if not isinstance(request, SaslAuthenticateRequest):
            return SaslHandshakeResponse(error_code=0, mechanisms=["GSSAPI"])
        sent.append(bytes(request.auth_bytes))
        return SaslAuthenticateResponse(error_code=0, auth_bytes=b"\1\0\0\0", session_lifetime_ms=0)

    monkeypatch.setattr(gss_library, "initiate", begin)
    connection: Any = SimpleNamespace(address="[::1]:9092", exchange=exchange)
    asyncio.run(authenticate(connection, SASL, 10_000))
    return sent


def test_tickets_are_had_in_a_thread_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host of the service is that of the connection."""
    begun: list[tuple[object, ...]] = []

    def initiate(login: KerberosLogin, host: str) -> Context:
        begun.append((login, host, threading.current_thread()))
        return Context()

    assert log_in(monkeypatch, initiate) == [b"ottla-http", b"\1\0\0\0"]
    ((login, host, thread),) = begun
    assert (login, host) == (SASL.login, "::1")
    assert thread is not threading.main_thread()


@pytest.mark.parametrize(
    ("raised", "expected", "said"),
    [
        (
            SaslError("Kerberos: no"),
            AuthenticationError,
            r"'ann@EXAMPLE.ORG' gets no ticket for kafka@::1: Kerberos: no",
        ),
        (
            KdcUnreachableError("Kerberos: none"),
            ConnectError,
            "no ticket for user .*: Kerberos: none; check krb5.conf and the KDC",
        ),
    ],
)
def test_no_ticket(monkeypatch: pytest.MonkeyPatch, raised: Exception, expected: Any, said: str) -> None:
    def initiate(login: KerberosLogin, host: str) -> Context:
        raise raised

    with pytest.raises(expected, match=said) as caught:
        log_in(monkeypatch, initiate)
    assert caught.value.retriable == (expected is ConnectError)
