"""Tokens and what they say: unsecured ones made and checked, and those that do not hold."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from typing import Any

import pytest

from ottla.security.tokens import (
    MAX_TOKEN_CHARACTERS,
    TokenError,
    check_unsecured,
    parse_token,
    unsecured_claims,
    unsecured_token,
)

pytestmark = pytest.mark.spec("S2")
NOW_MS = 1_700_000_000_000
EXP = NOW_MS / 1000 + 60


def encoded(text: str) -> str:
    return urlsafe_b64encode(text.encode()).decode().rstrip("=")


def test_what_options_say_is_in_the_token_and_taken() -> None:
    """The names of Kafka's login module, and of its validator."""
    options = {
        "unsecuredLoginStringClaim_sub": "älice",
        "unsecuredLoginNumberClaim_level": "3",
        "unsecuredLoginListClaim_scope": "|read|write",
        "unsecuredLoginLifetimeSeconds": "90",
    }
    token = unsecured_token(unsecured_claims(options, NOW_MS))
    assert parse_token(token).claims == {
        "iat": NOW_MS / 1000,
        "exp": NOW_MS / 1000 + 90,
        "sub": "älice",
        "level": 3,
        "scope": ["read", "write"],
    }
    found = check_unsecured(token, {"unsecuredValidatorRequiredScope": "read write"}, NOW_MS)
    assert (found.principal, found.expires_ms) == ("älice", NOW_MS + 90_000)
    assert token not in repr(found)
    with pytest.raises(TokenError) as raised:
        check_unsecured(token, {"unsecuredValidatorRequiredScope": "read admin"}, NOW_MS)
    assert raised.value.scope == "[read, admin]"
    bob = {"unsecuredLoginPrincipalClaimName": "who", "unsecuredLoginStringClaim_who": "bob"}
    other = unsecured_token(unsecured_claims(bob, NOW_MS))
    assert check_unsecured(other, {"unsecuredValidatorPrincipalClaimName": "who"}, NOW_MS).principal == "bob"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "unsecuredLoginStringClaim_sub is missing"),
        ({"unsecuredLoginStringClaim_sub": "a", "unsecuredLoginLifetimeSeconds": "x"}, "unsecuredLoginLifetimeSeconds"),
        ({"unsecuredLoginStringClaim_sub": "a", "unsecuredLoginNumberClaim_exp": "1"}, "cannot be set"),
    ],
)
def test_options_that_cannot_be(options: dict[str, str], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        unsecured_claims(options, NOW_MS)


@pytest.mark.parametrize(
    ("claims", "said"),
    [
        ({"exp": EXP}, "no text as claim sub"),
        ({"sub": 5, "exp": EXP}, "no text as claim sub"),
        ({"sub": "a"}, "no expiry"),
        ({"sub": "a", "exp": "soon"}, "exp of the token is not a number"),
        ({"sub": "a", "exp": True}, "exp of the token is not a number"),
        ({"sub": "a", "exp": 1e300}, "not a time in seconds"),
        ({"sub": "a", "exp": float("inf")}, "not a time in seconds"),
        ({"sub": "a", "exp": float("nan")}, "not a time in seconds"),
        ({"sub": "a", "exp": 10**400}, "not a time in seconds"),
        ({"sub": "a" * 1001, "exp": EXP}, "longer than 1000 characters"),
        ({"sub": "\ud800", "exp": EXP}, "characters that no text has"),
        ({"sub": "a", "exp": NOW_MS / 1000}, "has expired 0 s ago"),
        ({"sub": "a", "exp": EXP, "iat": EXP - 1}, "valid only in 59 s"),
        ({"sub": "a", "exp": EXP, "scope": [1]}, "claim scope"),
    ],
)
def test_claims_that_do_not_hold(claims: dict[str, Any], said: str) -> None:
    with pytest.raises(TokenError, match=said):
        check_unsecured(unsecured_token(claims), {}, NOW_MS)


def test_clocks_may_differ_as_far_as_the_listener_says() -> None:
    token = unsecured_token({"sub": "a", "exp": NOW_MS / 1000 - 1})
    check_unsecured(token, {"unsecuredValidatorAllowableClockSkewMs": "2000"}, NOW_MS)
    with pytest.raises(TokenError, match="expired"):
        check_unsecured(token, {"unsecuredValidatorAllowableClockSkewMs": "1000"}, NOW_MS)


@pytest.mark.parametrize(
    "token",
    ["", "a.b", "a.b.c.d", "..", "!.!.", f"{encoded('[]')}.{encoded('{}')}.",
     f"{encoded('[' * 20_000)}.{encoded('{}')}.",
     f"{encoded('1' * 9_000)}.{encoded('{}')}.", "a" * (MAX_TOKEN_CHARACTERS + 1)],
)  # fmt: skip
def test_what_is_no_token(token: str) -> None:
    with pytest.raises(TokenError):
        check_unsecured(token, {}, NOW_MS)


@pytest.mark.parametrize("token", ["eyJhbGciOiJub25lIn0.e30.AA", "eyJhbGciOiJIUzI1NiJ9.e30."])
def test_signed_tokens_are_not_taken_as_unsecured(token: str) -> None:
    with pytest.raises(TokenError, match="no keys to check it with"):
        check_unsecured(token, {}, NOW_MS)
