"""Signed tokens, checked with the public keys of a JSON web key set (RFC 7517). Signatures are those of `joserfc`.

Source: Apache Kafka 3.9, `ValidatorAccessTokenValidator`.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ottla.records.extras import require_extra
from ottla.security.errors import SecurityError
from ottla.security.tokens import (
    MAX_TOKEN_CHARACTERS,
    BearerToken,
    TokenError,
    check_times,
    parse_token,
    scope_claim,
    text_claim,
)

if TYPE_CHECKING:
    from joserfc.jwk import Key

MAX_KEYS: Final = 100
"""More keys of a set are left out."""
MIN_RSA_BITS: Final = 2048
"""Shorter keys are left out (RFC 7518, section 3.3), as by Kafka."""
_KEY_TYPES: Final = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), "RSA"),
    **dict.fromkeys(("ES256", "ES384", "ES512"), "EC"),
}
"""The algorithms that are taken, all with public keys, and the type of key that each needs."""


@dataclass(frozen=True, slots=True)
class Expected:
    """Claims that a token must have; times are in milliseconds. `audience` is empty where none is expected."""

    audience: tuple[str, ...] = ()
    issuer: str | None = None
    skew_ms: int = 30_000
    scope_claim: str = "scope"
    sub_claim: str = "sub"


class SigningKeys:
    """The public keys of a set, by their ids; keys without an id have none of a token's."""

    def __init__(self, keys: list[tuple[dict[str, Any], Key]]) -> None:
        self._keys = keys

    def __len__(self) -> int:
        return len(self._keys)

    def fitting(self, header: dict[str, Any]) -> list[Key]:
        """The keys that may have signed a token with this header. Raises TokenError."""
        algorithm, key_id = header.get("alg"), header.get("kid")
        kind = _KEY_TYPES.get(algorithm) if isinstance(algorithm, str) else None
        if kind is None:
            raise TokenError(f"the token is not signed by one of {', '.join(_KEY_TYPES)}")
        if "crit" in header:
            raise TokenError("the header of the token has crit: extensions are not known here")
        return [
            key
            for values, key in self._keys
            if values.get("kty") == kind
            and (key_id is None or values.get("kid") == key_id)
            and values.get("alg", algorithm) == algorithm
        ]

    def check(self, text: str, expected: Expected, now_ms: float) -> BearerToken:
        """Check signature and claims. Raises TokenError."""
        parsed = parse_token(text)
        if not any(_is_signed(text, parsed.header["alg"], key) for key in self.fitting(parsed.header)):
            raise TokenError("the token is signed by none of the keys of sasl.oauthbearer.jwks.endpoint.url")
        claims = parsed.claims
        principal = text_claim(claims, expected.sub_claim)
        expires_ms = check_times(claims, now_ms, expected.skew_ms, "nbf")
        if claims.get("iat") is None:
            raise TokenError("the token does not say when it was issued (claim iat)")
        if expected.issuer is not None and claims.get("iss") != expected.issuer:
            raise TokenError("the issuer of the token is not that of sasl.oauthbearer.expected.issuer")
        audience = claims.get("aud")
        audience = [audience] if isinstance(audience, str) else audience
        if not _is_for(audience, expected.audience):
            raise TokenError("the audience of the token is not in sasl.oauthbearer.expected.audience")
        scope_claim(claims, expected.scope_claim)
        return BearerToken(text, principal, expires_ms)


def _is_for(audience: Any, expected: Collection[str]) -> bool:
    """Without an expected audience no token that has one is taken, as by Kafka."""
    if audience is None:
        return not expected
    return isinstance(audience, list) and any(each in expected for each in audience)


def _is_signed(text: str, algorithm: str, key: Key) -> bool:
    from joserfc import jws
    from joserfc.errors import JoseError

    registry = jws.JWSRegistry(algorithms=[algorithm], strict_check_header=False)
    registry.max_header_length = MAX_TOKEN_CHARACTERS  # it may have certificates
    try:
        jws.deserialize_compact(text, key, registry=registry)
    except (JoseError, ValueError, TypeError):
        return False
    return True


def parse_jwks(data: bytes) -> SigningKeys:
    """The keys of a set; those that cannot be used are left out. Raises SecurityError."""
    require_extra("OAUTHBEARER with sasl.oauthbearer.jwks.endpoint.url", "oauth", "joserfc")
    from joserfc import jwk
    from joserfc.errors import JoseError

    try:
        found = json.loads(data)
        listed = found["keys"]
        candidates = [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
    except (ValueError, RecursionError, TypeError, KeyError):
        raise SecurityError('it is not a JSON web key set, which has the form {"keys": [...]}') from None
    keys: list[tuple[dict[str, Any], Key]] = []
    for values in candidates[:MAX_KEYS]:
        if values.get("kty") not in _KEY_TYPES.values() or values.get("use", "sig") != "sig":
            continue
        try:
            key = jwk.import_key(values)
        except (JoseError, ValueError, TypeError, KeyError):
            continue
        if not isinstance(key, jwk.RSAKey) or key.public_key.key_size >= MIN_RSA_BITS:
            keys.append((values, key))
    if not keys:
        raise SecurityError("it has no public key for signatures (RSA or EC)")
    return SigningKeys(keys)
