"""SASL exchanges, and PLAIN (RFC 4616) as Apache Kafka 3.9 has it. Pure.

A server answers tokens until `is_complete`; a client sends `first`, then `step` of each answer until that is None.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from typing import Final, Protocol

from ottla.security.jaas import Login
from ottla.security.kerberos import GSSAPI
from ottla.security.oauth import OauthClient
from ottla.security.oauth_login import OAUTHBEARER
from ottla.security.scram import MAX_TOKEN_BYTES, SCRAM_MECHANISMS, SaslError, ScramClient
from ottla.security.tokens import BearerToken

PLAIN: Final = "PLAIN"
MECHANISMS: Final = (PLAIN, *SCRAM_MECHANISMS, OAUTHBEARER, GSSAPI)
"""The mechanisms of brokers and clients."""


class ServerExchange(Protocol):
    """The server's side."""

    user: str
    is_complete: bool
    expires_ms: int | None
    """When what the client has shown expires, in milliseconds since 1970; None where it does not."""

    def step(self, token: bytes) -> bytes:
        """The answer to a token of the client. Raises SaslError."""


class ClientExchange(Protocol):
    """The client's side."""

    def first(self) -> bytes:
        """The first token."""

    def step(self, token: bytes) -> bytes | None:
        """The token that follows an answer of the server; None at the end. Raises SaslError."""


class PlainServer:
    """The server's side of PLAIN, with the passwords of its users."""

    expires_ms: int | None = None

    def __init__(self, users: Mapping[str, str]) -> None:
        self._users = users
        self.user = ""
        self.is_complete = False

    def step(self, token: bytes) -> bytes:
        """Check the user's name and password. Raises SaslError."""
        parts = token.split(b"\0") if len(token) <= MAX_TOKEN_BYTES else []
        if len(parts) != 3:
            raise SaslError("the token of PLAIN is malformed")
        try:
            authorization_id, user, password = (part.decode() for part in parts)
        except UnicodeDecodeError:
            raise SaslError("the token of PLAIN is not UTF-8") from None
        self.user = user
        for value, what in ((user, "username"), (password, "password")):
            if not value:
                raise SaslError(f"no {what}", f"Authentication failed: {what} not specified")
        expected = self._users.get(user)
        is_right = hmac.compare_digest(_digest(expected or ""), _digest(password))
        if not is_right or expected is None:
            raise SaslError("invalid credentials", "Authentication failed: Invalid username or password")
        if authorization_id not in ("", user):
            raise SaslError(
                "an authorization id other than the user",
                "Authentication failed: Client requested an authorization id that is different from username",
            )
        self.is_complete = True
        return b""


def _digest(password: str) -> bytes:
    """Of one length, so that a comparison does not show that of the password."""
    return hashlib.sha256(password.encode()).digest()


class PlainClient:
    """The client's side of PLAIN."""

    def __init__(self, login: Login) -> None:
        self._login = login

    def first(self) -> bytes:
        """User and password."""
        return b"\0" + self._login.user.encode() + b"\0" + self._login.password.encode()

    def step(self, token: bytes) -> bytes | None:
        """Nothing follows."""
        return None


def client_exchange(mechanism: str, login: Login | BearerToken, nonce: str) -> ClientExchange:
    """The client's side of an exchange, but for GSSAPI; `nonce` is new for each."""
    if isinstance(login, BearerToken):
        return OauthClient(login)
    if mechanism == PLAIN:
        return PlainClient(login)
    return ScramClient(mechanism, login.user, login.password, nonce, is_token=login.is_token)
