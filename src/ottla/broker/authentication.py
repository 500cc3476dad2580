"""Authentication of clients by SASL: what a broker knows of users, and where each connection stands.

Source: Apache Kafka 3.9, `SaslServerAuthenticator`. Unlike there, an unknown user fails as late as a wrong password.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from ottla.broker.connection_state import ConnectionState
from ottla.broker.logins import MechanismLogins, login_problems, logins_of
from ottla.config.settings import is_login_setting
from ottla.net.connection import Principal
from ottla.net.reports import LimitedReports, call_later
from ottla.security.kerberos import GSSAPI
from ottla.security.oauth import OauthServer
from ottla.security.sasl import PLAIN, PlainServer, ServerExchange
from ottla.security.scram import NONCE_BYTES, SCRAM_MECHANISMS, SaslError, ScramCredential, ScramServer, TokenLogin

if TYPE_CHECKING:
    from ottla.broker.oauth import TokenChecks
    from ottla.config.broker import BrokerConfig
    from ottla.env.clock import Clock
    from ottla.env.randomness import Randomness
    from ottla.net.connection import Connection

log = logging.getLogger("ottla.broker")

SALT_SECRET_BYTES = 32
#: A connection begins at most one new authentication in this time (Kafka's MIN_REAUTH_INTERVAL_ONE_SECOND).
MIN_REAUTHENTICATION_MS = 1000
USER = "User"
#: Of the first token of GSSAPI (RFC 2743, 3.1). No request begins so: the key of its API would be above 24,000.
FIRST_BYTE_OF_A_TICKET = b"\x60"


class Authentication:
    """The listeners with SASL, their mechanisms, and the users."""

    def __init__(self, config: BrokerConfig, randomness: Randomness, clock: Clock) -> None:
        self._randomness = randomness
        self.clock = clock
        #: By which unknown users get a salt; `_secure` takes that of the cluster.
        self.salt_secret = randomness.secret_bytes(SALT_SECRET_BYTES)
        #: By listener name and mechanism; of listeners with SASL only.
        self.listeners: dict[str, dict[str, MechanismLogins]] = {}
        #: Of listeners with OAUTHBEARER, by their names.
        self._tokens: dict[str, TokenChecks] = {}
        #: The dynamic settings of logins that are in use.
        self._dynamic: dict[str, str] = {}
        self._use(config)
        self.failure_delay_ms = config.get_int("connection.failed.authentication.delay.ms")
        #: By mechanism and user.
        self.scram: dict[str, dict[str, ScramCredential]] = {mechanism: {} for mechanism in SCRAM_MECHANISMS}
        #: Looks up a delegation token, by mechanism and id.
        self.token_login: Callable[[str, str], TokenLogin | None] = lambda mechanism, token_id: None
        self.successes = 0
        self.failures = 0
        self.report = LimitedReports(log.warning, call_later)

    def _use(self, config: BrokerConfig) -> None:
        self._dynamic = _dynamic(config)
        names = [endpoint.listener_name for endpoint in config.listeners if endpoint.uses_sasl]
        self.listeners = {name: logins_of(config, name)[0] for name in names}
        former, self._tokens = self._tokens, {}
        for name, mechanisms in self.listeners.items():
            for settings in (each.tokens for each in mechanisms.values() if each.tokens is not None):
                from ottla.broker.oauth import TokenChecks  # few listeners have it

                present = former.get(name)
                if present is None or present.settings != settings:
                    present = TokenChecks(name, settings, self.clock)
                self._tokens[name] = present

    def problem(self, config: BrokerConfig) -> str | None:
        """Why clients and brokers could not log in with these settings; None where the present ones stay."""
        return None if _dynamic(config) == self._dynamic else " ".join(login_problems(config)) or None

    def reload(self, config: BrokerConfig) -> bool:
        """Use changed settings for new logins; whether anything has changed. Sessions stay as they are."""
        if _dynamic(config) == self._dynamic:
            return False
        problem = self.problem(config)
        if problem is not None:
            log.error("the listeners keep their logins: %s", problem)
            return False
        self._use(config)
        return True

    def renew_keys(self) -> None:
        """Read keys of tokens that are old again."""
        for checks in self._tokens.values():
            checks.renew()

    def begin(self, listener_name: str, mechanism: str) -> SaslSession:
        """A new exchange by a mechanism that the listener has."""
        logins = self.listeners[listener_name][mechanism]
        exchange: ServerExchange
        tokens = None
        if logins.tokens is not None:
            tokens = self._tokens[listener_name]
            exchange = OauthServer(tokens.check)
        elif logins.kerberos_key is not None:
            exchange = logins.kerberos_key.exchange()
        elif mechanism == PLAIN:
            exchange = PlainServer(logins.users)
        else:
            nonce = self._randomness.secret_bytes(NONCE_BYTES).hex()
            exchange = ScramServer(
                mechanism, self.scram[mechanism], nonce, self.salt_secret, partial(self.token_login, mechanism)
            )
        return SaslSession(self, mechanism, exchange, logins, tokens)


def _dynamic(config: BrokerConfig) -> dict[str, str]:
    """The dynamic settings of SASL; others change with a restart only."""
    settings = {**config.dynamic_default, **config.dynamic_own}
    return {name: text for name, text in settings.items() if name.startswith("sasl.") or is_login_setting(name)}


class SaslSession:
    """An exchange with one client, and then the session that it began."""

    def __init__(
        self,
        authentication: Authentication,
        mechanism: str,
        exchange: ServerExchange,
        logins: MechanismLogins,
        tokens: TokenChecks | None,
    ) -> None:
        self._authentication = authentication
        self.failure_delay_ms = authentication.failure_delay_ms
        self.mechanism = mechanism
        self._exchange = exchange
        self._logins = logins
        self._tokens = tokens
        #: Whether tokens come as frames without a request (SaslHandshake version 0, or no SaslHandshake at all).
        self.is_raw = False
        self.begun_ms = authentication.clock.monotonic_ms()
        #: The session that is continued, and its principal; None at first.
        self.session: SaslSession | None = None
        self.former: Principal | None = None
        self._expiry: asyncio.TimerHandle | None = None
        self._has_failed = False

    @property
    def is_complete(self) -> bool:
        """Whether the client is authenticated."""
        return self._exchange.is_complete

    @property
    def token(self) -> TokenLogin | None:
        """The delegation token by which the client logs in; None for another login."""
        return self._exchange.token if isinstance(self._exchange, ScramServer) else None

    def wanted(self, token: bytes) -> asyncio.Future[Any] | None:
        """The read of keys that a token waits for before its `step`; None for no read."""
        return None if self._tokens is None else self._tokens.wanted(token)

    def step(self, connection: Connection, token: bytes) -> tuple[bytes, int]:
        """The answer to a token, and the session's lifetime in milliseconds (0: none yet, or without a limit).

        The last one authenticates the connection. Raises SaslError.
        """
        answer = self._exchange.step(token)
        if not self.is_complete:
            if isinstance(self._exchange, OauthServer) and self._exchange.refusal is not None:
                self._note(connection, self._exchange.refusal)  # many clients hang up now
            return answer, 0
        delegated = self.token
        principal = Principal(USER, self._exchange.user if delegated is None else delegated.owner)
        if self.former is not None and self.former != principal:
            raise SaslError(
                f"another user, {principal.name!r:.100}",
                f"Cannot change principals during re-authentication from {self.former}: {principal}",
            )
        self._authentication.successes += 1
        connection.set_principal(principal)
        if isinstance(state := connection.state, ConnectionState):
            state.expired = None
        if self.session is not None:
            self.session.cancel()
            self.session = None
        limits_ms = [self._logins.max_reauth_ms] if self._logins.max_reauth_ms > 0 else []
        if delegated is not None:
            limits_ms.append(delegated.lifetime_ms)
        if self._exchange.expires_ms is not None:
            limits_ms.append(max(0, round(self._exchange.expires_ms - self._authentication.clock.now_ms())))
        lifetime_ms = min(limits_ms, default=0)
        if limits_ms:
            loop = asyncio.get_running_loop()
            self._expiry = loop.call_later(lifetime_ms / 1000, partial(_expire, connection))
        return answer, lifetime_ms

    def failed(self, connection: Connection, error: SaslError) -> str:
        """Log a failed exchange; the text for the client, which says no more than Kafka's does."""
        self._note(connection, error)
        again = "authentication" if self.former is None else "re-authentication"
        generic = f"Authentication failed during {again} due to invalid credentials with SASL mechanism "
        return error.shown or generic + self.mechanism

    def _note(self, connection: Connection, error: SaslError) -> None:
        """Count and log a failure, once."""
        if self._has_failed:
            return
        self._has_failed = True
        self._authentication.failures += 1
        user = f" as user {self._exchange.user!r:.100}" if self._exchange.user else ""
        self._authentication.report(
            f"listener {connection.listener_name}",
            f"{connection.peer_host}:{connection.peer_port} failed to authenticate with "
            f"{self.mechanism}{user}: {error}",
        )

    def cancel(self) -> None:
        """End the timers: the connection is closed, or has another session."""
        if self.session is not None:
            self.session.cancel()
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None


def _expire(connection: Connection) -> None:
    """End a session: from now on its client may do no more than authenticate again."""
    state = connection.state
    if isinstance(state, ConnectionState) and not connection.closed:
        state.expired = connection.principal
        connection.set_principal(None)


def raw_login(authentication: Authentication | None, connection: Connection, frame: memoryview) -> SaslSession | None:
    """The exchange whose tokens come as bare frames on a connection; None where requests come.

    A ticket may come without SaslHandshake, as clients of 0.9 and franz-go send it. Apache Kafka takes it as the
    first frame alone; here ApiVersions may come before it, as franz-go asks for once.
    """
    state = connection.state
    login = state.login if isinstance(state, ConnectionState) else None
    if login is not None:
        return login if login.is_raw and not login.is_complete else None
    if authentication is None or frame[:1] != FIRST_BYTE_OF_A_TICKET:
        return None
    if GSSAPI not in authentication.listeners.get(connection.listener_name, ()):
        return None
    if not isinstance(state, ConnectionState):
        state = connection.state = ConnectionState()
    state.login = login = authentication.begin(connection.listener_name, GSSAPI)
    login.is_raw = True
    return login


def take_raw_token(connection: Connection, login: SaslSession, token: bytes) -> None:
    """Answer a bare token with a bare one; a failure has no answer, and the connection is closed after the delay."""
    login.wanted(token)  # begins to read keys, which are there for the client's next attempt
    try:
        answer, _ = login.step(connection, token)
    except SaslError as error:
        login.failed(connection, error)
        asyncio.get_running_loop().call_later(login.failure_delay_ms / 1000, connection.close)
        return
    if not answer and login.mechanism == GSSAPI:  # which ends with a token of the client
        connection.complete()
        return
    connection.send_bytes(len(answer).to_bytes(4, "big") + answer)
