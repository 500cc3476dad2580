"""How a listener checks the tokens of OAUTHBEARER: signed ones by the keys of a JWKS address, or unsecured ones.

Source: Apache Kafka 3.9, `OAuthBearerValidatorCallbackHandler`, `RefreshingHttpsJwks`. Unlike there, the keys are first
read when a token needs them, and a token with an unknown key waits for a read.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit
from urllib.request import url2pathname

from ottla.env.http import MAX_ANSWER_BYTES, HttpError, HttpRequest, exchange, in_own_thread
from ottla.env.secret_files import read_whole
from ottla.records.extras import require_installed
from ottla.security.errors import SecurityError
from ottla.security.jwks import Expected, SigningKeys, parse_jwks
from ottla.security.oauth import parse_first
from ottla.security.oauth_login import lacks_tls
from ottla.security.scram import SaslError
from ottla.security.tokens import BearerToken, TokenError, check_unsecured, parse_token

if TYPE_CHECKING:
    from ottla.env.clock import Clock

log = logging.getLogger("ottla.broker")

URL: Final = "sasl.oauthbearer.jwks.endpoint.url"
MAX_READ_S: Final = 20.0
"""A read of the keys takes no longer, and no token with an unknown key waits longer."""


@dataclass(frozen=True, slots=True)
class TokenSettings:
    """Which tokens a listener takes; without `url` unsecured ones, as `options` of `sasl.jaas.config` say."""

    url: str | None
    expected: Expected
    options: Mapping[str, str] = field(repr=False)
    refresh_ms: int = 3_600_000
    backoff_ms: int = 100
    backoff_max_ms: int = 10_000

    @property
    def path(self) -> str | None:
        """The file with the keys; None where they come from an address."""
        url = urlsplit(self.url or "")
        return url2pathname(url.path) if url.scheme == "file" else None

    def read(self) -> SigningKeys:
        """Read the keys; blocks. Raises SecurityError with the cause."""
        try:
            if self.path is not None:
                return parse_jwks(read_whole(self.path, MAX_ANSWER_BYTES))
            context, tls = None, {name: text for name, text in self.options.items() if name.startswith("ssl.")}
            if tls:
                from ottla.security.contexts import client_context  # most addresses need no files

                context = client_context(tls)
            return parse_jwks(exchange(HttpRequest(self.url or "", {"Accept": "application/json"}, context=context)))
        except (HttpError, OSError, SecurityError) as error:
            raise SecurityError(f"the keys of {URL} cannot be read: {error}") from None


def token_settings(options: Mapping[str, str], settings: Mapping[str, Any]) -> TokenSettings:
    """The tokens that the options of `sasl.jaas.config` and the settings describe. Raises SecurityError."""
    url = settings[URL] or None
    if url is None:
        skew = options.get("unsecuredValidatorAllowableClockSkewMs") or "0"
        if not skew.isdecimal() or len(skew) > 18:
            raise SecurityError("unsecuredValidatorAllowableClockSkewMs is not a number of milliseconds")
        return TokenSettings(None, Expected(), options)
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in ("http", "https") and parts.port != 0 and bool(parts.hostname)
    except ValueError:
        is_address = False
    if not is_address and not (url.startswith("file:") and parts.path):
        raise SecurityError(f"{URL} is not an address that begins with https://, http:// or file://")
    expected = Expected(
        tuple(each for each in settings["sasl.oauthbearer.expected.audience"] or () if each),
        settings["sasl.oauthbearer.expected.issuer"] or None,
        settings["sasl.oauthbearer.clock.skew.seconds"] * 1000,
        settings["sasl.oauthbearer.scope.claim.name"],
        settings["sasl.oauthbearer.sub.claim.name"],
    )
    found = TokenSettings(
        url,
        expected,
        options,
        settings["sasl.oauthbearer.jwks.endpoint.refresh.ms"],
        max(1, settings["sasl.oauthbearer.jwks.endpoint.retry.backoff.ms"]),
        max(1, settings["sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms"]),
    )
    require_installed(f"OAUTHBEARER with {URL}", "oauth", "joserfc")
    if found.path is not None:
        found.read()
    return found


class TokenChecks:
    """Checks tokens, and reads the keys for that: when one is unknown, and in the background when they are old."""

    def __init__(self, listener_name: str, settings: TokenSettings, clock: Clock) -> None:
        self._listener_name = listener_name
        self.settings = settings
        self._clock = clock
        self._keys: SigningKeys | None = None
        self._read_at_ms = -inf
        #: The earliest time of another read, and the pause after one that fails.
        self._next_ms = -inf
        self._pause_ms = settings.backoff_ms
        self._reading: asyncio.Future[SigningKeys] | None = None
        #: Whether the last read has failed, which was logged.
        self._has_failed = False
        if settings.url is None:
            log.warning(
                "listener %s takes tokens without a signature: each client says itself who it is; set %s, unless this "
                "is a test",
                listener_name,
                URL,
            )
        elif lacks_tls(settings.url):
            log.warning(
                "listener %s: %s is without TLS: who can change its answers on the network can log in as anyone; use "
                "https",
                listener_name,
                URL,
            )

    def check(self, text: str) -> BearerToken:
        """Check a token. Raises TokenError."""
        settings, now_ms = self.settings, self._clock.now_ms()
        if settings.url is None:
            return check_unsecured(text, settings.options, now_ms)
        if self._keys is None:
            raise TokenError(f"the keys of {URL} are not there")
        return self._keys.check(text, settings.expected, now_ms)

    def wanted(self, message: bytes) -> asyncio.Future[SigningKeys] | None:
        """The read of the keys that a client's message has to wait for; None where it can be checked at once."""
        if self.settings.url is None:
            return None
        try:
            header = parse_token(parse_first(message).token).header
            if self._keys is not None and self._keys.fitting(header):
                return None
        except (SaslError, TokenError):
            return None
        self._read()
        return self._reading

    def renew(self) -> None:
        """Read keys that are old again; no token waits for it. Called now and then."""
        if self._keys is not None and self._clock.monotonic_ms() - self._read_at_ms >= self.settings.refresh_ms:
            self._read()

    def _read(self) -> None:
        """Begin a read, unless there is one, or was one just now."""
        if self._reading is None and self._clock.monotonic_ms() >= self._next_ms:
            self._reading = in_own_thread(self.settings.read, MAX_READ_S)
            self._reading.add_done_callback(self._has_read)

    def _has_read(self, reading: asyncio.Future[SigningKeys]) -> None:
        self._reading = None
        if reading.cancelled():
            return
        now_ms, error = self._clock.monotonic_ms(), reading.exception()
        if error is not None:
            log.log(
                logging.DEBUG if self._has_failed else logging.ERROR,
                "listener %s: %s; it is tried again",
                self._listener_name,
                error,
            )
            self._has_failed = True
            self._next_ms = now_ms + self._pause_ms
            self._pause_ms = min(2 * self._pause_ms, self.settings.backoff_max_ms)
            return
        self._has_failed = False
        self._keys, self._read_at_ms = reading.result(), now_ms
        self._pause_ms = self.settings.backoff_ms
        self._next_ms = now_ms + self.settings.backoff_max_ms
        log.info("listener %s: %d keys of %s are read", self._listener_name, len(self._keys), URL)
