"""A client's authentication by SASL: on a new connection, and again before its session ends (KIP-368).

Source: Apache Kafka 3.9, `SaslClientAuthenticator`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from ottla.env.http import in_own_thread
from ottla.peer.errors import (
    AuthenticationError,
    BrokerHangsError,
    BrokerTooOldError,
    BrokerUnreachableError,
    ClientError,
    ClientTimeoutError,
    ConnectError,
    ConnectionLostError,
    HandshakeFault,
    SecurityMismatchError,
    UnsupportedVersionError,
)
from ottla.security.jaas import Login
from ottla.security.kerberos import GssapiClient, KerberosLogin
from ottla.security.sasl import ClientExchange, client_exchange
from ottla.security.scram import NONCE_BYTES, SaslError
from ottla.security.tokens import BearerToken
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla.wire.messages.sasl_handshake import SaslHandshakeRequest

if TYPE_CHECKING:
    from ottla.peer.connection import PeerConnection
    from ottla.peer.settings import SaslSettings

#: A session is continued after between these shares of its lifetime, as in Java.
_SESSION_SHARES: Final = (0.85, 0.95)
#: Most tokens of one exchange; those of the mechanisms here have at most three.
_MOST_TOKENS: Final = 8
_WRONG_TOKEN: Final = "check the issuer, audience, scope and expiry of the token; the broker's log says what is wrong"
_WRONG_TICKET: Final = "compare its key tab with the KDC's key, and the clocks; the broker's log says what is wrong"
_WRONG_LOGIN: Final = "check the user and the password (sasl.username and sasl.password, or sasl.jaas.config)"


async def authenticate(connection: PeerConnection, sasl: SaslSettings, timeout_ms: int) -> None:
    """Log in on a connection whose versions are known, and have the session renewed when it is time.

    Raises the subclasses of ConnectError, AuthenticationError for a login that the broker refuses.
    """
    try:
        lifetime_ms = await _log_in(connection, sasl, timeout_ms)
    except ClientTimeoutError as error:
        raise BrokerHangsError(f"the login of {sasl.shown} takes too long: {error}", retriable=True) from error
    except ConnectionLostError as error:
        raise BrokerUnreachableError(f"{error} at the login of {sasl.shown}", retriable=True) from error
    except UnsupportedVersionError as error:
        raise BrokerTooOldError(f"{connection.address} takes no login by SASL ({error})") from error
    if lifetime_ms > 0:
        connection.renew_after(
            lifetime_ms * connection.randomness.between(*_SESSION_SHARES),
            lambda: _renew(connection, sasl, timeout_ms),
        )


async def _renew(connection: PeerConnection, sasl: SaslSettings, timeout_ms: int) -> None:
    """Log in again; where that fails, the connection is closed with the reason."""
    try:
        await authenticate(connection, sasl, timeout_ms)
    except SecurityMismatchError:
        # Brokers refuse a login within a second of another, as it may be needed shortly before a token ends.
        error = ConnectionLostError(f"{connection.address} does not continue the session yet", retriable=True)
        connection.close_because(error)
    except ClientError as error:
        connection.close_because(error)


async def _log_in(connection: PeerConnection, sasl: SaslSettings, timeout_ms: int) -> int:
    """The session's lifetime in milliseconds, 0 without a limit."""
    address, shown = connection.address, sasl.shown
    question = SaslHandshakeRequest(mechanism=sasl.mechanism)
    answer = await connection.exchange(question, timeout_ms)
    if answer.error_code == ErrorCode.ILLEGAL_SASL_STATE:
        raise SecurityMismatchError(
            f"{address} is a listener without SASL; set security.protocol to PLAINTEXT, or connect to another listener"
        ).because(HandshakeFault.LOGIN_NOT_TAKEN)
    if answer.error_code:
        offered = ", ".join(answer.mechanisms)
        raise AuthenticationError(
            f"{address} does not take the mechanism {sasl.mechanism}, only {offered}; set sasl.mechanism to one of them"
        ).because(HandshakeFault.MECHANISM_NOT_ENABLED)
    exchange, token, cure = await _begin(connection, sasl, timeout_ms)
    for _ in range(_MOST_TOKENS):
        answer = await connection.exchange(SaslAuthenticateRequest(auth_bytes=token), timeout_ms)
        if answer.error_code:
            why = answer.error_message or "it gives no reason"
            refusal = f"{address} refuses the login of {shown}: {why}; {cure}"
            raise AuthenticationError(refusal).because(HandshakeFault.LOGIN_REFUSED)
        try:
            following = exchange.step(answer.auth_bytes)
        except SaslError as error:
            raise AuthenticationError(f"{shown} cannot log in at {address}: {error}") from None
        if following is None:
            return int(answer.session_lifetime_ms)
        token = following
    raise AuthenticationError(f"{address} does not end the login of {shown}")


async def _begin(connection: PeerConnection, sasl: SaslSettings, timeout_ms: int) -> tuple[ClientExchange, bytes, str]:
    """The exchange, its first token, and the cure where the broker refuses the login."""
    login, shown = sasl.login, sasl.shown
    if isinstance(login, KerberosLogin):
        from ottla.security.gss_library import KdcUnreachableError, initiate  # few clients use Kerberos

        host = connection.address.rpartition(":")[0].strip("[]")
        kerberos = GssapiClient(partial(initiate, login, host))
        try:
            return kerberos, await in_own_thread(kerberos.first, timeout_ms / 1000), _WRONG_TICKET
        except (KdcUnreachableError, TimeoutError) as error:
            raise ConnectError(f"no ticket for {shown}: {error}; check krb5.conf and the KDC", retriable=True) from None
        except SaslError as error:
            raise AuthenticationError(f"{shown} gets no ticket for {login.service_name}@{host}: {error}") from None
    user: Login | BearerToken
    if isinstance(login, Login):
        user, cure = login, _WRONG_LOGIN
    else:
        user, cure = await login.token(connection.now_ms, connection.randomness), _WRONG_TOKEN
    exchange = client_exchange(sasl.mechanism, user, connection.randomness.secret_bytes(NONCE_BYTES).hex())
    return exchange, exchange.first(), cure
