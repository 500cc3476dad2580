"""What a broker's settings of SASL say, and what is wrong with those that cannot be."""

from __future__ import annotations

import sys

import pytest

from ottla.broker.logins import login_problems, logins_of
from ottla.config.broker import BrokerConfig, parse_broker_config
from ottla.security.jaas import Login
from ottla.testing import Broker, TestBrokerError

JAAS = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
KERBEROS = "listener.name.sasl_plaintext.gssapi.sasl.jaas.config"
KRB5 = "com.sun.security.auth.module.Krb5LoginModule required"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"


@pytest.mark.spec("S2")
@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, f"{KERBEROS} is missing: GSSAPI takes the broker's principal and key from there"),
        ({KERBEROS: f"{KRB5} useTicketCache=true;"}, "sasl.kerberos.service.name is missing"),
        (
            {KERBEROS: f"{KRB5} useTicketCache=true;", "sasl.kerberos.service.name": "kafka"},
            "a broker needs useKeyTab=true, keyTab and principal",
        ),
        (
            {
                KERBEROS: f'{KRB5} useKeyTab=true keyTab="/k" principal="kafka/host@R";',
                "listener.name.sasl_plaintext.sasl.kerberos.service.name": "kafka",
            },
            "SASL by GSSAPI (Kerberos) needs gssapi: pip install 'ottla[kerberos]'.",
        ),
        ({"sasl.enabled.mechanisms": "EXTERNAL"}, "listener SASL_PLAINTEXT has EXTERNAL, which cannot be served yet"),
        ({"sasl.enabled.mechanisms": ""}, "listener SASL_PLAINTEXT has none"),
        ({"sasl.enabled.mechanisms": "PLAIN"}, f"{JAAS} is missing"),
        (
            {"sasl.enabled.mechanisms": "PLAIN", JAAS: f'{PLAIN} user_a="hush"'},
            f"{JAAS} cannot be read: it does not end",
        ),
        (
            {"sasl.enabled.mechanisms": "SCRAM-SHA-256", "inter.broker.listener.name": "SASL_PLAINTEXT"},
            "sasl.mechanism.inter.broker.protocol must be included in sasl.enabled.mechanisms",
        ),
        (
            {
                "sasl.enabled.mechanisms": "SCRAM-SHA-256",
                "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256",
                "inter.broker.listener.name": "SASL_PLAINTEXT",
            },
            "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config has no username and password",
        ),
    ],
)
def test_logins_that_cannot_be(settings: dict[str, str], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    config = parse_broker_config({"listeners": "PLAINTEXT://:1,SASL_PLAINTEXT://:2", **settings})
    assert isinstance(config, BrokerConfig)
    (problem,) = login_problems(config)
    assert said in problem
    assert "hush" not in problem


@pytest.mark.spec("S2")
def test_each_listener_has_its_own_mechanisms() -> None:
    config = parse_broker_config(
        {
            "listeners": "PLAINTEXT://:1,SASL_PLAINTEXT://:2,SASL_SSL://:3",
            "sasl.enabled.mechanisms": "SCRAM-SHA-256, PLAIN",
            "listener.name.sasl_ssl.sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "listener.name.sasl_ssl.scram-sha-512.connections.max.reauth.ms": "5000",
            JAAS: f'{PLAIN} username="b" password="c" user_a="hush";',
        }
    )
    assert isinstance(config, BrokerConfig)
    found, _ = logins_of(config, "SASL_PLAINTEXT")
    assert list(found) == ["SCRAM-SHA-256", "PLAIN"]
    assert (found["PLAIN"].users, found["PLAIN"].own) == ({"a": "hush"}, Login("b", "c"))
    assert logins_of(config, "SASL_SSL")[0]["SCRAM-SHA-512"].max_reauth_ms == 5000
    assert config.warnings == []
    assert "hush" not in repr(found)


def test_a_broker_does_not_start_with_them() -> None:
    settings = {"listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0"}
    with pytest.raises(TestBrokerError, match="GSSAPI takes the broker's principal and key"):
        Broker(settings=settings).start()
