"""TLS of a broker's listeners: contexts and principals from the settings, replaced while the broker runs."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ottla.net.connection import ANONYMOUS, Principal

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig
    from ottla.config.listeners import Endpoint
    from ottla.env.clock import Clock
    from ottla.net.tls import TlsTerms

log = logging.getLogger("ottla.broker")

#: A certificate that expires within this time is warned about.
SOON_MS = 30 * 24 * 3600 * 1000
STORES = ("ssl.keystore.location", "ssl.truststore.location")


class ListenerTls:
    """The terms of all TLS listeners, by the listener's name."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.terms: dict[str, TlsTerms] = {}
        #: Which expiry of each listener's certificate was logged.
        self._logged_ms: dict[str, int] = {}
        #: The settings, and the files of the stores, as they were when they were last read.
        self._seen: list[object] = []

    def load(self, config: BrokerConfig) -> str | None:
        """Make the terms from the settings; returns why a listener cannot have any."""
        self._seen = _seen(config)
        made = _made(config)
        if isinstance(made, str):
            return made
        self.terms = made
        self._log_expiry()
        return None

    def problem(self, config: BrokerConfig) -> str | None:
        """Why the listeners could not speak TLS with these settings."""
        made = _made(config)
        return made if isinstance(made, str) else None

    def reload(self, config: BrokerConfig) -> bool:
        """Use changed settings, and changed files of stores, for new connections; whether anything has changed."""
        seen = _seen(config)
        if seen == self._seen:
            return False
        self._seen = seen
        made = _made(config)
        if isinstance(made, str):
            log.error("the TLS listeners keep their certificates: %s", made)
            return False
        for name, terms in made.items():
            self.terms[name].context, self.terms[name].expires_ms = terms.context, terms.expires_ms
        self._log_expiry()
        return True

    def _log_expiry(self) -> None:
        for name, terms in self.terms.items():
            if self._logged_ms.get(name) == terms.expires_ms:
                continue
            self._logged_ms[name] = terms.expires_ms
            is_soon = terms.expires_ms - self._clock.now_ms() < SOON_MS
            moment = datetime.fromtimestamp(terms.expires_ms / 1000, UTC)
            log.log(
                logging.WARNING if is_soon else logging.INFO,
                "listener %s: its certificate expires on %s",
                name,
                moment.strftime("%Y-%m-%d %H:%M UTC"),
            )


def _endpoints(config: BrokerConfig) -> list[Endpoint]:
    return [each for each in config.listeners if each.uses_tls]


def _seen(config: BrokerConfig) -> list[object]:
    """A value that changes with the settings and with the files of the stores."""
    endpoints = _endpoints(config)
    if not endpoints:
        return []
    from ottla.env.secret_files import version_of  # a broker without TLS loads nothing of it

    settings = [config.tls_settings(each.listener_name) for each in endpoints]
    return [settings, [version_of(str(each[store])) for each in settings for store in STORES if each[store]]]


def _made(config: BrokerConfig) -> dict[str, TlsTerms] | str:
    endpoints = _endpoints(config)
    if not endpoints:
        return {}
    from ottla.security.contexts import client_context
    from ottla.security.errors import SecurityError

    made = {}
    for endpoint in endpoints:
        try:
            made[endpoint.listener_name] = _terms(config, endpoint)
            if endpoint.listener_name == config.inter_broker_listener_name:
                client_context(config.tls_settings(endpoint.listener_name))
        except SecurityError as error:
            return f"listener {endpoint.listener_name}: {error}"
    return made


def _terms(config: BrokerConfig, endpoint: Endpoint) -> TlsTerms:
    """Raises SecurityError."""
    from ottla.net.tls import TlsTerms
    from ottla.security.contexts import server_context
    from ottla.security.errors import SecurityError
    from ottla.security.principal import PrincipalMapper, principal_name
    from ottla.security.stores import key_material

    settings = config.tls_settings(endpoint.listener_name)
    keys = key_material(settings)
    context = server_context(settings, keys)
    assert keys is not None, "a context has a key"
    rules = settings["ssl.principal.mapping.rules"]
    mapper = PrincipalMapper(None if rules is None else str(rules))

    def principal_of(certificate: bytes | None) -> Principal | str | None:
        if endpoint.uses_sasl:
            return None
        if certificate is None:
            return ANONYMOUS
        try:
            return Principal("User", mapper.name(principal_name(certificate)))
        except SecurityError as error:
            return str(error)

    return TlsTerms(context, principal_of, int(keys.expires.timestamp() * 1000))
