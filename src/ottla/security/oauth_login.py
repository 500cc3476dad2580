"""The origin of a client's tokens for OAUTHBEARER, as Kafka's settings say. Pure.

Source: Apache Kafka 3.9, `OAuthBearerLoginCallbackHandler`, `ExpiringCredentialRefreshingLogin`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from ottla.security.jaas import JaasError
from ottla.security.oauth import extension_problem
from ottla.security.tokens import UNSECURED_LOGIN, unsecured_claims

OAUTHBEARER: Final = "OAUTHBEARER"
ENDPOINT: Final = "sasl.oauthbearer.token.endpoint.url"
HANDLER: Final = "sasl.login.callback.handler.class"
CLIENT_ID: Final = "sasl.oauthbearer.client.credentials.client.id"
CLIENT_SECRET: Final = "sasl.oauthbearer.client.credentials.client.secret"
SCOPE: Final = "sasl.oauthbearer.scope"
_PACKAGE: Final = "org.apache.kafka.common.security.oauthbearer"
LOGIN_HANDLERS: Final = (
    f"{_PACKAGE}.OAuthBearerLoginCallbackHandler",
    f"{_PACKAGE}.secured.OAuthBearerLoginCallbackHandler",
    f"{_PACKAGE}.internals.unsecured.OAuthBearerUnsecuredLoginCallbackHandler",
)
"""Kafka's classes for tokens of a client; the settings beside them say what is meant."""
UNSECURED_VALIDATOR: Final = f"{_PACKAGE}.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
VALIDATORS: Final = (
    f"{_PACKAGE}.OAuthBearerValidatorCallbackHandler",
    f"{_PACKAGE}.secured.OAuthBearerValidatorCallbackHandler",
    UNSECURED_VALIDATOR,
)
"""Kafka's classes by which a broker checks tokens."""
LOCAL_HOSTS: Final = ("localhost", "127.0.0.1", "::1")
_EXTENSION_PREFIXES: Final = ("extension_", f"{UNSECURED_LOGIN}Extension_")
_BOUNDS: Final[Mapping[str, tuple[float, float]]] = {
    "sasl.login.refresh.window.factor": (0.5, 1.0),
    "sasl.login.refresh.window.jitter": (0.0, 0.25),
    "sasl.login.refresh.min.period.seconds": (0, 900),
    "sasl.login.refresh.buffer.seconds": (0, 3600),
}


@dataclass(frozen=True, slots=True)
class OauthLogin:
    """The login of a client by tokens; times are in milliseconds. One of `callback`, `url` and `unsecured` is set."""

    callback: Callable[[], Any] | None
    url: str | None
    unsecured: Mapping[str, str] | None
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    scope: str = ""
    extensions: Mapping[str, str] = field(default_factory=dict, repr=False)
    tls: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The `ssl.*` of `sasl.jaas.config`, for an endpoint with https."""
    urlencode: bool = False
    connect_timeout_ms: int | None = None
    read_timeout_ms: int | None = None
    backoff_ms: int = 100
    backoff_max_ms: int = 10_000
    buffer_ms: int = 300_000
    min_period_ms: int = 60_000
    window_factor: float = 0.8
    window_jitter: float = 0.05
    sub_claim: str = "sub"

    @property
    def is_readable_by_others(self) -> bool:
        """Whether the secret goes over a network without TLS."""
        return lacks_tls(self.url)

    def refresh_ms(self, begin_ms: float, expiry_ms: float, chance: float) -> float:
        """When a token is replaced by a new one; `chance` is a random number from 0 to 1."""
        life_ms = expiry_ms - begin_ms
        at_ms = begin_ms + life_ms * min(1.0, self.window_factor + self.window_jitter * chance)
        if self.buffer_ms + self.min_period_ms > life_ms:
            return at_ms  # a short life leaves no room for both
        return max(min(at_ms, expiry_ms - self.buffer_ms), begin_ms + self.min_period_ms)


def lacks_tls(url: str | None) -> bool:
    """Whether an address is reached over a network without TLS."""
    found = urlsplit(url or "")
    return found.scheme == "http" and found.hostname not in LOCAL_HOSTS


def oauth_login_of(
    options: Mapping[str, str], settings: Mapping[str, Any], callback: Callable[[], Any] | None = None
) -> OauthLogin:
    """The login that the options of `sasl.jaas.config` and the settings describe. Raises JaasError."""
    url = settings.get(ENDPOINT) or None
    unsecured = {name: text for name, text in options.items() if name.startswith(UNSECURED_LOGIN)}
    if callback is not None and url is not None:
        raise JaasError(f"{ENDPOINT} and {HANDLER} both say where tokens come from; give one of them")
    if callback is None and url is None:
        _check_unsecured(unsecured)
    credentials = {
        "client_id": _one_of(options, "clientId", settings, CLIENT_ID),
        "client_secret": _one_of(options, "clientSecret", settings, CLIENT_SECRET),
        "scope": _one_of(options, "scope", settings, SCOPE),
    }
    if url is not None:
        _check_url(url, credentials)
    for name, (lowest, highest) in _BOUNDS.items():
        if not lowest <= settings[name] <= highest:
            raise JaasError(f"{name}={settings[name]} is not between {lowest} and {highest}")
    return OauthLogin(
        callback,
        url,
        unsecured if callback is None and url is None else None,
        **credentials,
        extensions=_extensions(options),
        tls={name: text for name, text in options.items() if name.startswith("ssl.")},
        urlencode=bool(settings.get("sasl.oauthbearer.header.urlencode")),
        connect_timeout_ms=settings["sasl.login.connect.timeout.ms"],
        read_timeout_ms=settings["sasl.login.read.timeout.ms"],
        backoff_ms=max(1, settings["sasl.login.retry.backoff.ms"]),
        backoff_max_ms=max(1, settings["sasl.login.retry.backoff.max.ms"]),
        buffer_ms=settings["sasl.login.refresh.buffer.seconds"] * 1000,
        min_period_ms=settings["sasl.login.refresh.min.period.seconds"] * 1000,
        window_factor=settings["sasl.login.refresh.window.factor"],
        window_jitter=settings["sasl.login.refresh.window.jitter"],
        sub_claim=settings["sasl.oauthbearer.sub.claim.name"],
    )


def _check_unsecured(options: Mapping[str, str]) -> None:
    if not options:
        raise JaasError(
            f"OAUTHBEARER needs tokens; set {ENDPOINT} or {HANDLER}, or for tests "
            "unsecuredLoginStringClaim_sub in sasl.jaas.config"
        )
    try:
        unsecured_claims(options, 0)
    except ValueError as error:
        raise JaasError(f"sasl.jaas.config: {error}") from None


def _one_of(options: Mapping[str, str], option: str, settings: Mapping[str, Any], name: str) -> str:
    if options.get(option) and settings.get(name):
        raise JaasError(f"sasl.jaas.config has {option}, and {name} is set, too; give one of them")
    return options.get(option) or settings.get(name) or ""


def _check_url(url: str, credentials: Mapping[str, str]) -> None:
    try:
        parts = urlsplit(url)
        found, _ = parts.scheme, parts.port
    except ValueError:
        found = ""
    if found not in ("file", "http", "https") or (found != "file" and not parts.hostname):
        raise JaasError(f"{ENDPOINT} is not an address that begins with https://, http:// or file://")
    if parts.username or parts.password:
        raise JaasError(f"{ENDPOINT} has a user or a password; give {CLIENT_ID} and {CLIENT_SECRET}")
    if found != "file":
        for part, option, name in (("id", "clientId", CLIENT_ID), ("secret", "clientSecret", CLIENT_SECRET)):
            if not credentials[f"client_{part}"]:
                raise JaasError(f"{ENDPOINT} needs a client {part}; set {name}, or {option} in sasl.jaas.config")


def _extensions(options: Mapping[str, str]) -> dict[str, str]:
    found = {}
    for option, text in options.items():
        for prefix in _EXTENSION_PREFIXES:
            if option.startswith(prefix):
                name = option.removeprefix(prefix)
                if problem := extension_problem(name, text):
                    raise JaasError(f"sasl.jaas.config: {problem}")
                found[name] = text
    return found
