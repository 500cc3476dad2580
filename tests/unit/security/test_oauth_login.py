"""What Kafka's settings say of a client's tokens."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.client.configs.settings import ADMIN, SETTINGS_OF
from ottla.client.configs.values import default_of
from ottla.security.jaas import JaasError
from ottla.security.oauth_login import CLIENT_ID, CLIENT_SECRET, ENDPOINT, SCOPE, OauthLogin, oauth_login_of

pytestmark = pytest.mark.spec("S2")
DEFAULTS = {name: default_of(setting) for name, setting in SETTINGS_OF[ADMIN].items()}
URL = "https://login.example.org/token"
BOTH = {"clientId": "us", "clientSecret": "hush"}


def login(options: dict[str, str] | None = None, **settings: Any) -> OauthLogin:
    return oauth_login_of(options or {}, DEFAULTS | {name.replace("_", "."): each for name, each in settings.items()})


def test_an_endpoint_with_the_options_of_jaas_or_plain_settings() -> None:
    options = {**BOTH, "scope": "read", "extension_traceId": "1", "ssl.truststore.location": "ca.pem"}
    settings = {CLIENT_ID: "us", CLIENT_SECRET: "hush", SCOPE: "read"}
    found = login(options, **{ENDPOINT: URL})
    plain = login(**{ENDPOINT: URL}, **settings)
    assert (found.client_id, found.client_secret, found.scope) == ("us", "hush", "read")
    assert (plain.client_id, plain.client_secret, plain.scope) == ("us", "hush", "read")
    assert (found.extensions, found.tls) == ({"traceId": "1"}, {"ssl.truststore.location": "ca.pem"})
    assert "hush" not in repr(found)
    with pytest.raises(JaasError, match="is set, too; give one of them"):
        login(options, **{ENDPOINT: URL}, **settings)


@pytest.mark.parametrize(
    ("url", "is_readable"),
    [
        (URL, False),
        ("http://login.example.org/token", True),
        ("http://localhost:1/token", False),
        ("http://[::1]:1/token", False),
    ],
)
def test_what_others_can_read(url: str, is_readable: bool) -> None:
    assert login(BOTH, **{ENDPOINT: url}).is_readable_by_others == is_readable


@pytest.mark.parametrize(
    ("options", "settings", "said"),
    [
        ({}, {}, "OAUTHBEARER needs tokens"),
        ({"unsecuredLoginStringClaim_x": "y"}, {}, "unsecuredLoginStringClaim_sub is missing"),
        ({}, {ENDPOINT: URL}, "needs a client id"),
        ({"clientId": "us"}, {ENDPOINT: URL}, "needs a client secret"),
        (BOTH, {ENDPOINT: "ftp://a"}, "not an address"),
        (BOTH, {ENDPOINT: "https://"}, "not an address"),
        (BOTH, {ENDPOINT: "https://a:x"}, "not an address"),
        (BOTH, {ENDPOINT: "https://us:hush@a"}, "has a user or a password"),
        ({**BOTH, "extension_auth": "x"}, {ENDPOINT: URL}, "extension 'auth'"),
        (BOTH, {ENDPOINT: URL, "sasl.login.refresh.window.factor": 0.2}, "is not between 0.5 and 1.0"),
    ],
)
def test_logins_that_cannot_be(options: dict[str, str], settings: dict[str, Any], said: str) -> None:
    with pytest.raises(JaasError, match=said) as raised:
        login(options, **settings)
    assert "hush" not in str(raised.value)


def test_when_a_token_is_replaced() -> None:
    """At a share of its life, but before the reserve and not sooner than the shortest time, as in Java."""
    found = login(BOTH, **{ENDPOINT: URL})
    hour = 3_600_000
    assert found.refresh_ms(0, hour, 0) == pytest.approx(0.8 * hour)
    assert found.refresh_ms(0, hour, 1) == pytest.approx(0.85 * hour)
    assert found.refresh_ms(0, 600_000, 0) == 300_000, "the reserve of 300 s"
    assert found.refresh_ms(0, 361_000, 0) == 61_000
    assert found.refresh_ms(0, 100_000, 0) == pytest.approx(80_000), "too short for the reserve"
