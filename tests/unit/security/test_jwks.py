"""Signed tokens and sets of keys."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from typing import Any

import pytest
from joserfc import jws
from joserfc.errors import SecurityWarning
from joserfc.jwk import ECKey, OctKey, RSAKey

from ottla.records.extras import MissingExtraError
from ottla.security.errors import SecurityError
from ottla.security.jwks import MAX_KEYS, Expected, SigningKeys, parse_jwks
from ottla.security.tokens import TokenError, unsecured_token
from support.oauth import Signer

pytestmark = pytest.mark.spec("S2")
NOTHING = Expected()


def keys_of(*keys: dict[str, Any]) -> SigningKeys:
    return parse_jwks(json.dumps({"keys": keys}).encode())


def check(keys: SigningKeys, token: str, expected: Expected = NOTHING) -> str:
    return keys.check(token, expected, time.time() * 1000).principal


@pytest.fixture(scope="module")
def signer() -> Signer:
    return Signer()


def test_the_key_with_the_tokens_id_checks_it(signer: Signer) -> None:
    keys = keys_of(Signer("other").public(), {"kty": "unknown"}, {"kty": "EC", "crv": "none"}, signer.public())
    assert len(keys) == 2
    assert check(keys, signer.token()) == "alice"
    for token in (
        signer.token(key_id="other"),
        signer.token(key_id="gone"),
        Signer().token(),
        signer.token()[:-4] + "AAAA",
    ):
        with pytest.raises(TokenError, match="signed by none of the keys"):
            check(keys, token)


def test_rsa_keys_and_keys_without_an_id() -> None:
    key = RSAKey.generate_key(2048)
    payload = json.dumps({"sub": "bob", "iat": 1, "exp": time.time() + 600})
    for algorithm in ("RS256", "PS512"):
        token = jws.serialize_compact({"alg": algorithm}, payload, key, algorithms=[algorithm])
        assert check(keys_of(key.as_dict(private=False)), token) == "bob"
        with pytest.raises(TokenError, match="signed by none"):
            check(keys_of({**key.as_dict(private=False), "alg": "RS384"}), token)


def test_no_secret_key_and_no_missing_signature_is_taken(signer: Signer) -> None:
    """A public key as the secret of HMAC, and `none`: the classics."""
    public = json.dumps(signer.public())
    payload = json.dumps({"sub": "eve", "iat": 1, "exp": time.time() + 600})
    forged = jws.serialize_compact(
        {"alg": "HS256", "kid": "first"}, payload, OctKey.import_key(public), algorithms=["HS256"]
    )
    for token in (forged, unsecured_token({"sub": "eve", "iat": 1, "exp": time.time() + 600})):
        with pytest.raises(TokenError, match="is not signed by one of RS256"):
            check(keys_of(signer.public()), token)


@pytest.mark.parametrize(
    ("claims", "expected", "said"),
    [
        ({"life_s": -31}, NOTHING, "has expired"),
        ({"iat": None}, NOTHING, "claim iat"),
        ({"nbf": time.time() + 9_000_000}, NOTHING, "valid only in"),
        ({"sub": ""}, NOTHING, "claim sub"),
        ({"aud": "us"}, NOTHING, "audience"),
        ({}, Expected(audience=("us",)), "audience"),
        ({"aud": ["them"]}, Expected(audience=("us",)), "audience"),
        ({"aud": {"us": 1}}, Expected(audience=("us",)), "audience"),
        ({"aud": ""}, NOTHING, "audience"),
        ({"aud": []}, NOTHING, "audience"),
        ({"aud": 0}, NOTHING, "audience"),
        ({"iss": "https://b"}, Expected(issuer="https://a"), "issuer"),
        ({}, Expected(issuer="https://a"), "issuer"),
        ({"scope": 5}, NOTHING, "claim scope"),
    ],
)
def test_claims_that_are_not_as_expected(signer: Signer, claims: dict[str, Any], expected: Expected, said: str) -> None:
    with pytest.raises(TokenError, match=said):
        check(keys_of(signer.public()), signer.token(**claims), expected)


def test_claims_that_are(signer: Signer) -> None:
    expected = replace(NOTHING, audience=("we", "us"), issuer="https://a", sub_claim="client", scope_claim="scp")
    token = signer.token(aud=["x", "us"], iss="https://a", client="carol", scp=["a"], life_s=-1, iat=1)
    assert check(keys_of(signer.public()), token, expected) == "carol"


@pytest.mark.parametrize(
    "data", [b"", b"[]", b'{"keys": 5}', b'{"keys": [5]}', b'{"keys": [{"kty": "oct", "k": "AA"}]}', b"[" * 50_000]
)
def test_what_is_no_set_of_keys(data: bytes) -> None:
    with pytest.raises(SecurityError):
        parse_jwks(data)


def test_headers_of_other_issuers(signer: Signer) -> None:
    """What a header may have beside `alg` and `kid` is ignored (RFC 7515, section 4), but for `crit`."""
    keys = keys_of(signer.public())
    for header in ({"typ": "at+jwt", "ver": "1.0"}, {"x5c": ["A" * 4000]}, {"jku": "https://eve/keys"}):
        assert check(keys, signer.token(header=header)) == "alice"
    with pytest.raises(TokenError, match="crit"):
        check(keys, signer.token(header={"crit": ["exp"], "exp": 5}))


def test_short_rsa_keys_are_left_out() -> None:
    with pytest.warns(SecurityWarning):
        public = RSAKey.generate_key(1024).as_dict(private=False)
    with pytest.warns(SecurityWarning), pytest.raises(SecurityError, match="no public key"):
        keys_of(public)


def test_limits_and_keys_for_other_uses() -> None:
    public = ECKey.generate_key("P-256").as_dict(private=False)
    assert len(keys_of(*[public] * (MAX_KEYS + 1))) == MAX_KEYS
    with pytest.raises(SecurityError, match="no public key"):
        keys_of({**public, "use": "enc"})


def test_without_joserfc_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "joserfc", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'ottla\[oauth\]'"):
        parse_jwks(b"{}")
