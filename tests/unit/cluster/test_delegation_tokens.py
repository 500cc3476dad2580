"""Who may do what with a delegation token, and its HMAC."""

from __future__ import annotations

import pytest

from ottla.cluster.delegation_tokens import TokenInformation, hmac_of

TOKEN = TokenInformation("id", "User:owner", "User:asker", ("User:renewer",), 0, 200, 100)

HMAC = (
    "62873243adbeea7c5896380f72f445acfcbda839539fc76872f00020c937db78"
    "37dbce061858581624f6fa75e729cd6012fa228f3eab144621a605c8545cc309"
)

pytestmark = pytest.mark.spec("S2")


@pytest.mark.parametrize(
    ("principal", "sees", "renews"),
    [
        ("User:owner", True, True),
        ("User:asker", True, False),
        ("User:renewer", True, True),
        ("User:other", False, False),
        ("Group:owner", False, False),
    ],
)
def test_who_sees_and_renews_it(principal: str, sees: bool, renews: bool) -> None:
    assert (TOKEN.is_of(principal), TOKEN.may_be_renewed_by(principal)) == (sees, renews)


def test_it_expires_after_both_times() -> None:
    assert not TOKEN.is_expired(100)
    assert TOKEN.is_expired(101)
    assert TOKEN._replace(expiry_ms=300).is_expired(201)


def test_the_hmac_is_javas() -> None:
    """Source: `DelegationTokenManager.createHmac` of Apache Kafka 3.9.1 for this id and secret."""
    assert hmac_of("sécret", "TMTeg9xQTq-rfG4KMMhG1A").hex() == HMAC
