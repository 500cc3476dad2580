"""A client's tokens for OAUTHBEARER: had from an endpoint, a file or a callable, kept, and replaced in time.

A token is replaced at the first login after its time for that has come, and not before: a session ends with its token
and is renewed late in its life, so each renewal brings a new one.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
from base64 import b64encode
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote_plus, urlencode, urlsplit, urlunsplit
from urllib.request import url2pathname
from weakref import WeakKeyDictionary

from ottla.env.http import TIMEOUT_MS, HttpError, HttpRequest, exchange, in_own_thread, shown_text
from ottla.env.secret_files import read_whole
from ottla.peer.errors import AuthenticationError, ConnectError, HandshakeFault
from ottla.security.oauth import extension_problem
from ottla.security.tokens import (
    MAX_TOKEN_CHARACTERS,
    BearerToken,
    TokenError,
    parse_token,
    text_claim,
    time_claim,
    unsecured_claims,
    unsecured_token,
)

if TYPE_CHECKING:
    from ottla.env.randomness import Randomness
    from ottla.security.oauth_login import OauthLogin

log = logging.getLogger("ottla.peer")

CALLBACK_LIMIT_S: Final = 60.0
"""A callable that takes longer has failed."""
RETRIED_STATUSES: Final = (408, 429)
"""Of 400 to 499, those that a further attempt may change."""


class TokenSource:
    """The tokens of one client, which all its connections share."""

    def __init__(self, login: OauthLogin) -> None:
        """Raises SecurityError for files of TLS that cannot be used."""
        self._login = login
        self._token: BearerToken | None = None
        self._refresh_ms = 0.0
        #: By event loop: clients of several threads may share the settings.
        self._turns: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()
        self._context = None
        if login.tls and (login.url or "").startswith("https"):
            from ottla.security.contexts import client_context  # most endpoints need no files

            self._context = client_context(login.tls)

    @property
    def shown(self) -> str:
        """The origin of the tokens, for messages."""
        login = self._login
        if login.url is None:
            return "sasl.login.callback.handler.class" if login.callback is not None else "sasl.jaas.config"
        return urlunsplit((*urlsplit(login.url)[:3], "", ""))

    async def token(self, now_ms: Callable[[], float], randomness: Randomness) -> BearerToken:
        """The present token. Raises AuthenticationError, or ConnectError where another attempt may help."""
        async with self._turns.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
            begun_ms = now_ms()
            if self._token is None or begun_ms >= self._refresh_ms:
                try:
                    self._token = await self._new(now_ms)
                    begun_ms = now_ms()
                    life = begun_ms, self._token.expires_ms
                    self._refresh_ms = self._login.refresh_ms(*life, randomness.between(0, 1))
                except (ConnectError, asyncio.CancelledError) as error:
                    if isinstance(error, ConnectError):
                        error.because(HandshakeFault.NO_TOKEN)
                    if self._token is None or begun_ms >= self._token.expires_ms:
                        raise
                    self._refresh_ms = begun_ms + self._login.backoff_max_ms
                    if not isinstance(error, ConnectError):  # it takes longer than its user waits
                        raise
                    log.warning("%s; the former token is used until it expires", error)
            return self._token

    async def _new(self, now_ms: Callable[[], float]) -> BearerToken:
        found = await self._found(now_ms)
        try:
            token = self._read(found)
        except (TokenError, TypeError, ValueError, OverflowError) as error:
            raise AuthenticationError(f"{self.shown} gives a token that cannot be used: {error}") from None
        if token.expires_ms <= now_ms():
            raise AuthenticationError(f"{self.shown} gives a token that has expired; compare the clocks")
        return token

    def _read(self, found: Any) -> BearerToken:
        """A token, or a token with its expiry and perhaps with extensions. Raises TokenError."""
        value, *rest = found if isinstance(found, tuple) else (found,)
        if not isinstance(value, str) or not value:
            raise TokenError("it is not a text, nor a text and its expiry in milliseconds since 1970")
        if len(value) > MAX_TOKEN_CHARACTERS:
            raise TokenError(f"it is longer than {MAX_TOKEN_CHARACTERS} characters")
        if not all("!" <= character <= "~" for character in value):
            raise TokenError("it has characters that no token has")
        extensions = {**self._login.extensions, **(rest[1] if len(rest) > 1 else {})}
        for name, text in extensions.items():
            if problem := extension_problem(name, text):
                raise TokenError(problem)
        if rest and rest[0] is not None:
            return BearerToken(value, "", int(rest[0]), extensions)
        claims = parse_token(value).claims
        expires_s = time_claim(claims, "exp")
        if expires_s is None:
            raise TokenError("it has no expiry (claim exp)")
        return BearerToken(value, text_claim(claims, self._login.sub_claim), round(expires_s * 1000), extensions)

    async def _found(self, now_ms: Callable[[], float]) -> Any:
        login = self._login
        if login.unsecured is not None:
            claims = unsecured_claims(login.unsecured, now_ms())
            principal = str(claims[login.unsecured.get("unsecuredLoginPrincipalClaimName") or "sub"])
            token = unsecured_token(claims)
            return (token, claims["exp"] * 1000) if principal != claims.get(login.sub_claim) else token
        if login.callback is not None:
            return await _called(login.callback)
        assert login.url is not None
        if login.url.startswith("file:"):
            return await self._of_file(url2pathname(urlsplit(login.url).path))
        return await self._of_endpoint(now_ms)

    async def _of_file(self, path: str) -> str:
        try:
            data = await in_own_thread(lambda: read_whole(path, MAX_TOKEN_CHARACTERS), TIMEOUT_MS / 1000)
            return data.decode().strip()
        except OSError as error:
            raise AuthenticationError(
                f"the token in {path} cannot be read ({error.strerror or error}); check the path"
            ) from None
        except UnicodeDecodeError:
            raise AuthenticationError(f"{path} has no token, which is text") from None

    async def _of_endpoint(self, now_ms: Callable[[], float]) -> str:
        """Ask until `sasl.login.retry.backoff.max.ms` is over."""
        login, request = self._login, self._request()
        latest_ms, pause_ms = now_ms() + login.backoff_max_ms, login.backoff_ms
        while True:
            try:
                body = await in_own_thread(lambda: exchange(request), request.longest_s)
                return _access_token(self.shown, body)
            except (HttpError, TimeoutError) as problem:
                error = problem if isinstance(problem, HttpError) else HttpError(str(problem))
                if error.status is not None and 400 <= error.status < 500 and error.status not in RETRIED_STATUSES:
                    raise AuthenticationError(
                        f"{self.shown} refuses client {login.client_id!r}: {error}{_said(error.body)}; check the "
                        "client id, its secret and the scope"
                    ) from None
                if now_ms() + pause_ms > latest_ms:
                    raise ConnectError(
                        f"no token from {self.shown}: {error}{_said(error.body)}; check "
                        "sasl.oauthbearer.token.endpoint.url",
                        retriable=True,
                    ) from None
            await asyncio.sleep(pause_ms / 1000)
            pause_ms = min(2 * pause_ms, login.backoff_max_ms)

    def _request(self) -> HttpRequest:
        login = self._login
        client, secret = login.client_id, login.client_secret
        if login.urlencode:
            client, secret = quote_plus(client), quote_plus(secret)
        body = {"grant_type": "client_credentials"} | ({"scope": login.scope} if login.scope else {})
        headers = {
            "Accept": "application/json",
            "Authorization": f"Basic {b64encode(f'{client}:{secret}'.encode()).decode()}",
            "Cache-Control": "no-cache",
            "Content-Type": "application/x-www-form-urlencoded",
        }
        return HttpRequest(
            str(login.url),
            headers,
            urlencode(body).encode(),
            login.connect_timeout_ms or TIMEOUT_MS,
            login.read_timeout_ms or TIMEOUT_MS,
            self._context,
        )


async def _called(callback: Callable[[], Any]) -> Any:
    """The result of a user's callable; it may block, or be a coroutine function."""
    try:
        found = await in_own_thread(callback, CALLBACK_LIMIT_S)
        return await asyncio.wait_for(found, CALLBACK_LIMIT_S) if inspect.isawaitable(found) else found
    except TimeoutError:
        raise AuthenticationError(
            f"sasl.login.callback.handler.class gives no token within {CALLBACK_LIMIT_S:.0f} s"
        ) from None
    except Exception as error:  # user code
        raise AuthenticationError(
            f"sasl.login.callback.handler.class gives no token ({type(error).__name__}: {error})"
        ) from error


def _access_token(address: str, body: bytes) -> str:
    """Raises AuthenticationError."""
    try:
        found = json.loads(body)["access_token"]
    except (ValueError, RecursionError, TypeError, KeyError):
        found = None
    if not isinstance(found, str):
        raise AuthenticationError(f"{address} answers without an access_token; check that it is a token endpoint")
    return found.strip()


def _said(body: bytes) -> str:
    """The error that an endpoint names (RFC 6749, section 5.2)."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    texts = [found.get(name) for name in ("error", "error_description")] if isinstance(found, dict) else []
    shown = ": ".join(text for text in texts if isinstance(text, str))
    return f" ({shown_text(shown)})" if shown else ""
