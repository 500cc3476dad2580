"""Bearer tokens of OAUTHBEARER: JSON web tokens (RFC 7519), what their claims say, and unsecured ones. Pure.

Source: Apache Kafka 3.9, `OAuthBearerUnsecuredJws`, `OAuthBearerValidationUtils`,
`OAuthBearerUnsecuredLoginCallbackHandler`.
Times are in milliseconds since 1970, those of claims in seconds.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

MAX_TOKEN_CHARACTERS: Final = 64 * 1024
"""Longest token that is read."""
MAX_TIME_S: Final = 253_402_300_799
"""The end of the year 9999; times of claims beyond it are refused."""
MAX_TEXT_CHARACTERS: Final = 1000
"""Of a claim that names a principal."""
DEFAULT_LIFETIME_S: Final = 3600.0
_NO_EXTENSIONS: Final[Mapping[str, str]] = MappingProxyType({})
_STRING, _NUMBER, _LIST = "unsecuredLoginStringClaim_", "unsecuredLoginNumberClaim_", "unsecuredLoginListClaim_"
UNSECURED_LOGIN: Final = "unsecuredLogin"
"""How options of `sasl.jaas.config` begin that say what is in the unsecured token of a client."""


class TokenError(Exception):
    """A token that does not hold; the message says why, and has no token. `scope` is one that it lacks."""

    def __init__(self, message: str, scope: str | None = None) -> None:
        super().__init__(message)
        self.scope = scope


class BearerToken(NamedTuple):
    """A token with what it says; `extensions` go beside it (KIP-342)."""

    value: str
    principal: str
    expires_ms: int
    extensions: Mapping[str, str] = _NO_EXTENSIONS

    def __repr__(self) -> str:
        return f"BearerToken({self.principal!r})"


class ParsedToken(NamedTuple):
    """The parts of a token whose signature was not checked."""

    header: dict[str, Any]
    claims: dict[str, Any]
    signature: str

    def __repr__(self) -> str:
        return "ParsedToken()"


def parse_token(text: str) -> ParsedToken:
    """The parts of a token. Raises TokenError."""
    if len(text) > MAX_TOKEN_CHARACTERS:
        raise TokenError(f"the token is longer than {MAX_TOKEN_CHARACTERS} characters")
    parts = text.split(".")
    if len(parts) != 3:
        raise TokenError("the token is not a JSON web token: it does not have three parts with dots between them")
    return ParsedToken(_json_object(parts[0], "header"), _json_object(parts[1], "claims"), parts[2])


def _json_object(part: str, what: str) -> dict[str, Any]:
    try:
        found = json.loads(urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (ValueError, RecursionError):
        raise TokenError(f"the {what} of the token cannot be read as JSON in Base64") from None
    if not isinstance(found, dict):
        raise TokenError(f"the {what} of the token are not a JSON object")
    return found


def text_claim(claims: Mapping[str, Any], name: str) -> str:
    """A claim that the token must have as text. Raises TokenError."""
    found = claims.get(name)
    if not isinstance(found, str) or not found.strip():
        raise TokenError(f"the token has no text as claim {name}")
    if len(found) > MAX_TEXT_CHARACTERS:
        raise TokenError(f"the claim {name} of the token is longer than {MAX_TEXT_CHARACTERS} characters")
    try:
        found.encode()
    except UnicodeEncodeError:
        raise TokenError(f"the claim {name} of the token has characters that no text has") from None
    return found.strip()


def time_claim(claims: Mapping[str, Any], name: str) -> float | None:
    """A time in seconds, None without one. Raises TokenError."""
    found = claims.get(name)
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise TokenError(f"the claim {name} of the token is not a number")
    if not 0 <= found <= MAX_TIME_S:  # nor NaN
        raise TokenError(f"the claim {name} of the token is not a time in seconds since 1970")
    return found


def scope_claim(claims: Mapping[str, Any], name: str) -> list[str]:
    """The scope, a list of texts or one text, which Kafka does not split; empty without one. Raises TokenError."""
    found = claims.get(name)
    if found is None:
        return []
    if isinstance(found, str):
        return [found.strip()] if found.strip() else []
    if not isinstance(found, list) or not all(isinstance(each, str) and each.strip() for each in found):
        raise TokenError(f"the claim {name} of the token is neither text nor a list of texts")
    return [each.strip() for each in found]


def check_times(claims: Mapping[str, Any], now_ms: float, skew_ms: int, begins: str) -> int:
    """Check that the token is valid now, clocks differing by up to `skew_ms`; returns its expiry. Raises TokenError.

    `begins` is the claim before whose time it is not valid.
    """
    expires, issued, since = (time_claim(claims, name) for name in ("exp", "iat", begins))
    if expires is None:
        raise TokenError("the token has no expiry (claim exp)")
    if now_ms - skew_ms >= expires * 1000:
        raise TokenError(f"the token has expired {round(now_ms / 1000 - expires)} s ago")
    if since is not None and since * 1000 > now_ms + skew_ms:
        ahead = round(since - now_ms / 1000)
        raise TokenError(f"the token is valid only in {ahead} s (claim {begins}); compare the clocks")
    if issued is not None and expires <= issued:
        raise TokenError("the token expires before it is issued")
    return round(expires * 1000)


def check_unsecured(text: str, options: Mapping[str, str], now_ms: float) -> BearerToken:
    """Check a token without a signature, as `unsecuredValidator…` of `sasl.jaas.config` say. Raises TokenError."""
    parsed = parse_token(text)
    if parsed.header.get("alg") != "none" or parsed.signature:
        raise TokenError("the token is signed, and this listener has no keys to check it with: it takes unsecured ones")
    principal = text_claim(parsed.claims, options.get("unsecuredValidatorPrincipalClaimName") or "sub")
    skew_ms = int(options.get("unsecuredValidatorAllowableClockSkewMs") or 0)
    expires_ms = check_times(parsed.claims, now_ms, skew_ms, "iat")
    required = (options.get("unsecuredValidatorRequiredScope") or "").split()
    if not set(required) <= set(scope_claim(parsed.claims, options.get("unsecuredValidatorScopeClaimName") or "scope")):
        raise TokenError("the token lacks a required scope", f"[{', '.join(required)}]")
    return BearerToken(text, principal, expires_ms)


def unsecured_claims(options: Mapping[str, str], now_ms: float) -> dict[str, Any]:
    """The claims of a client's unsecured token, as `unsecuredLogin…` of `sasl.jaas.config` say.

    Raises ValueError that names the option.
    """
    lifetime = _number(options, "unsecuredLoginLifetimeSeconds", DEFAULT_LIFETIME_S)
    claims: dict[str, Any] = {"iat": now_ms / 1000, "exp": now_ms / 1000 + lifetime}
    for option, text in options.items():
        for prefix in (_STRING, _NUMBER, _LIST):
            name = option.removeprefix(prefix)
            if name == option:
                continue
            if name in ("iat", "exp"):
                raise ValueError(
                    f"{option} cannot be set; unsecuredLoginLifetimeSeconds says how long the token is valid"
                )
            if prefix == _NUMBER:
                claims[name] = _number(options, option, 0)
            else:
                claims[name] = text if prefix == _STRING else [each for each in text[1:].split(text[:1]) if each]
    principal = options.get("unsecuredLoginPrincipalClaimName") or "sub"
    if not isinstance(claims.get(principal), str) or not claims[principal].strip():
        raise ValueError(f"{_STRING}{principal} is missing, which says who logs in")
    return claims


def _number(options: Mapping[str, str], name: str, default: float) -> float:
    try:
        found = float(options.get(name) or default)
    except ValueError:
        found = float("nan")
    if not 0 <= found <= MAX_TIME_S:
        raise ValueError(f"{name} is not a number that can be")
    return found


def unsecured_token(claims: Mapping[str, Any]) -> str:
    """A token without a signature."""
    return f"{_encoded({'alg': 'none'})}.{_encoded(claims)}."


def _encoded(value: Mapping[str, Any]) -> str:
    return urlsafe_b64encode(json.dumps(value, separators=(",", ":")).encode()).rstrip(b"=").decode()
