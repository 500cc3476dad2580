"""A test broker that speaks SASL_PLAINTEXT alone, with the user alice in PLAIN and in both SCRAMs."""

from __future__ import annotations

from typing import Any

from ottla.client.admin import UserScramCredentialUpsertion
from ottla.client.sync import Admin
from ottla.security.scram import SCRAM_MECHANISMS
from ottla.testing import Broker

MECHANISMS = ("PLAIN", *SCRAM_MECHANISMS)
USER, PASSWORD = "alice", "alice's, secret="
_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SETTINGS = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "security.inter.broker.protocol": "SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": ",".join(MECHANISMS),
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
        f'{_MODULE} required username="admin" password="admin-secret" '
        f'user_admin="admin-secret" user_alice="{PASSWORD}";'
    ),
}


def sasl_broker(**settings: str) -> Broker:
    """Not started; its topic `t` has one partition. Alice has no SCRAM credentials yet."""
    return Broker(
        topics={"t": 1}, settings=SETTINGS | {name.replace("_", "."): each for name, each in settings.items()}
    )


def login(broker: Broker, mechanism: str = "PLAIN", user: str = USER, password: str = PASSWORD) -> dict[str, Any]:
    """Settings of our clients."""
    return {
        "bootstrap.servers": broker.bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
    }


def add_scram_user(broker: Broker, user: str = USER, password: str = PASSWORD) -> None:
    """Give a user credentials for both SCRAMs."""
    with Admin(login(broker)) as admin:
        admin.alter_user_scram_credentials(
            UserScramCredentialUpsertion(user, mechanism, password) for mechanism in SCRAM_MECHANISMS
        )
