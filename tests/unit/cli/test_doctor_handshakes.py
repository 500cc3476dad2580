"""`ottla doctor` at listeners with TLS and SASL: each handshake that fails has a fault of its own, and a cure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ottla.peer import diagnosis
from ottla.peer.errors import HandshakeFault
from ottla.testing import Broker
from support.certificates import authority, issue, the_authority
from support.command_line import ottla
from support.sasl_broker import PASSWORD, SETTINGS, USER

pytestmark = [pytest.mark.spec("S1"), pytest.mark.spec("S2"), pytest.mark.spec("U2"), pytest.mark.slow]

PROTOCOLS = {
    "PLAINTEXT": "PLAINTEXT",
    "SSL": "SSL",
    "MUTUAL": "SSL",
    "OTHER": "SSL",
    "OLD": "SSL",
    "SASL_PLAINTEXT": "SASL_PLAINTEXT",
}
JAAS = "listener.name.sasl_plaintext.plain.sasl.jaas.config"


@dataclass
class Place:
    """A broker with a listener for each mistake, and the files of its clients."""

    broker: Broker
    folder: Path

    def port(self, listener: str) -> int:
        return next(each.port for each in self.broker.server.listening if each.listener_name == listener)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("handshakes")
    keys = {
        "": issue(the_authority(), "localhost"),
        "listener.name.other.": issue(the_authority(), "elsewhere", ("elsewhere.example",)),
        "listener.name.old.": issue(the_authority(), "localhost", expired=True),
    }
    settings = the_authority().trust_settings(folder / "ca.pem")
    for number, (prefix, issued) in enumerate(keys.items()):
        found = issued.key_settings(folder / f"{number}.pem")
        settings |= {prefix + name: value for name, value in found.items()}
    settings |= {
        "listeners": ",".join(f"{name}://127.0.0.1:0" for name in PROTOCOLS),
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in PROTOCOLS.items()),
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.name.mutual.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
        JAAS: SETTINGS[JAAS],
    }
    authority("another").trust_settings(folder / "another.pem")
    issue(authority("another"), "ann", ()).key_settings(folder / "ann.pem")
    issue(the_authority(), "ann", (), expired=True).key_settings(folder / "old-ann.pem")
    with Broker(settings=settings) as broker:
        yield Place(broker, folder)


def fault(place: Place, listener: str, settings: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The only fault that a client with these settings has at a listener."""
    monkeypatch.setattr(diagnosis, "PROBE_TIMEOUT_S", 60)
    clusters = place.folder / "clusters.toml"
    named = settings | {"bootstrap.servers": f"127.0.0.1:{place.port(listener)}"}
    clusters.write_text("[here]\n" + "".join(f"{name} = {json.dumps(value)}\n" for name, value in named.items()))
    monkeypatch.setenv("OTTLA_CLUSTERS_FILE", str(clusters))
    done = ottla("doctor", "--cluster", "here", "--json")
    (row,) = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.exit_code == 1
    return dict(row)


TLS = {"security.protocol": "SSL", "ssl.truststore.type": "PEM", "ssl.truststore.location": "ca.pem"}
WITH_KEY = TLS | {"ssl.keystore.type": "PEM"}
LOGIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": USER,
    "sasl.password": PASSWORD,
}
TOKEN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.token.endpoint.url": "http://127.0.0.1:1/token",
    "sasl.oauthbearer.client.credentials.client.id": "ann",
    "sasl.oauthbearer.client.credentials.client.secret": "wrong",
    "sasl.login.retry.backoff.max.ms": "1",
}


@pytest.mark.parametrize(
    ("expected", "listener", "settings", "cure"),
    [
        (HandshakeFault.TLS_WANTED, "SSL", {}, "set security.protocol=SSL"),
        (HandshakeFault.TLS_NOT_SPOKEN, "PLAINTEXT", TLS, "set security.protocol=PLAINTEXT"),
        (HandshakeFault.LOGIN_WANTED, "SASL_PLAINTEXT", {}, "set security.protocol, sasl.mechanism"),
        (HandshakeFault.LOGIN_NOT_TAKEN, "PLAINTEXT", LOGIN, "set security.protocol to PLAINTEXT"),
        (
            HandshakeFault.UNTRUSTED_CERTIFICATE,
            "SSL",
            TLS | {"ssl.truststore.location": "another.pem"},
            "set ssl.truststore.location",
        ),
        (HandshakeFault.WRONG_HOST_NAME, "OTHER", TLS, "connect by a name that it has"),
        (HandshakeFault.EXPIRED_CERTIFICATE, "OLD", TLS, "renew it on the broker"),
        (
            HandshakeFault.EXPIRED_CERTIFICATE,
            "MUTUAL",
            WITH_KEY | {"ssl.keystore.location": "old-ann.pem"},
            "renew the certificate in ssl.keystore.location",
        ),
        (HandshakeFault.CLIENT_CERTIFICATE_MISSING, "MUTUAL", TLS, "set ssl.keystore.location"),
        (
            HandshakeFault.CLIENT_CERTIFICATE_REFUSED,
            "MUTUAL",
            WITH_KEY | {"ssl.keystore.location": "ann.pem"},
            "have it signed by an authority that the broker trusts",
        ),
        (
            HandshakeFault.MECHANISM_NOT_ENABLED,
            "SASL_PLAINTEXT",
            LOGIN | {"sasl.mechanism": "SCRAM-SHA-256"},
            "set sasl.mechanism to one of them",
        ),
        (
            HandshakeFault.LOGIN_REFUSED,
            "SASL_PLAINTEXT",
            LOGIN | {"sasl.password": "wrong"},
            "check the user and the password",
        ),
        (HandshakeFault.NO_TOKEN, "SASL_PLAINTEXT", TOKEN, "check sasl.oauthbearer.token.endpoint.url"),
    ],
)
def test_each_handshake_that_fails(
    place: Place,
    monkeypatch: pytest.MonkeyPatch,
    expected: HandshakeFault,
    listener: str,
    settings: dict[str, str],
    cure: str,
) -> None:
    written = {
        name: str(place.folder / value) if name.endswith(".location") else value for name, value in settings.items()
    }
    row = fault(place, listener, written, monkeypatch)
    assert row["fault"] == expected.name.lower().replace("_", "-")
    assert cure in row["cure"][0].lower() + row["cure"][1:]
    assert row["cure"].endswith(".")
    assert "wrong" not in row["what"], "a password"


def test_every_fault_of_handshakes_is_made() -> None:
    (parameters,) = (mark for mark in test_each_handshake_that_fails.pytestmark if mark.name == "parametrize")
    assert {case[0] for case in parameters.args[1]} == set(HandshakeFault)
