"""Delegation tokens of a broker of Apache Kafka and one of ottla in a cluster: each makes and changes the other's."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from ottla.client.admin import DelegationToken
from ottla.client.errors import AuthenticationError, BrokerError
from ottla.client.sync import Admin
from ottla.zk.layout import DelegationTokenChangeZnode, DelegationTokenZnode
from support.apache import ApacheKafka, ApacheZooKeeper
from support.java import java_tool
from support.ottla_server import OttlaServer
from support.ports import free_port
from support.waiting import wait_until

pytestmark = [pytest.mark.needs_kafka, pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.spec("S2", "R8")]
MODULE = "org.apache.kafka.common.security"
USERS = ("alice", "bob")
TOOL = "org.apache.kafka.tools.DelegationTokenCommand"


class SecuredKafka(ApacheKafka):
    """With several listeners, of which the harness would ask whichever it finds: only the start is waited for."""

    def _port_when_started(self) -> int:
        return int("started (kafka.server.KafkaServer)" in self.server.stdout)


def login(port: int, user: str) -> dict[str, Any]:
    jaas = f'{MODULE}.plain.PlainLoginModule required username="{user}" password="{user}-secret";'
    shared = {"bootstrap.servers": f"127.0.0.1:{port}", "security.protocol": "SASL_PLAINTEXT"}
    return shared | {"sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas}


def by_token(port: int, token: DelegationToken, mechanism: str) -> dict[str, Any]:
    jaas = f'{MODULE}.scram.ScramLoginModule required username="{token.token_id}" '
    jaas += f'password="{token.hmac_as_base64}" tokenauth="true";'
    return login(port, "") | {"sasl.mechanism": mechanism, "sasl.jaas.config": jaas}


def logs_in(settings: dict[str, Any]) -> bool:
    with Admin(settings) as admin:
        try:
            admin.describe_cluster()
        except AuthenticationError:
            return False
        with pytest.raises(BrokerError) as caught:
            admin.describe_delegation_token()
        assert caught.value.name == "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED"
    return True


def error_of(call: Callable[..., object], *arguments: Any, **options: Any) -> str:
    try:
        call(*arguments, **options)
    except BrokerError as error:
        return error.name
    return "NONE"


def errors(alice: Admin, bob: Admin, token: DelegationToken) -> list[str]:
    """What is refused: a token of alice that bob may not renew."""
    return [
        error_of(bob.renew_delegation_token, token.hmac),
        error_of(bob.expire_delegation_token, token.hmac),
        error_of(alice.renew_delegation_token, b"unknown"),
        error_of(alice.create_delegation_token, renewers=["Group:ops"]),
        error_of(alice.expire_delegation_token, token.hmac, expiry_time_period_ms=0),
    ]


def test_tokens_of_a_mixed_cluster(tmp_path: Path, apache_zookeeper: ApacheZooKeeper) -> None:
    ports = {1: free_port(), 2: free_port()}
    connect = f"{apache_zookeeper.connect}/mixed-tokens"
    known = " ".join(f'user_{user}="{user}-secret"' for user in USERS)

    def overrides(broker_id: int) -> dict[str, str]:
        return {
            "broker.id": str(broker_id),
            "zookeeper.connect": connect,
            "listeners": f"PLAINTEXT://127.0.0.1:{free_port()},SASL_PLAINTEXT://127.0.0.1:{ports[broker_id]}",
            "inter.broker.listener.name": "PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{MODULE}.plain.PlainLoginModule required {known};",
            "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": f"{MODULE}.scram.ScramLoginModule required;",
            "listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config": f"{MODULE}.scram.ScramLoginModule required;",
            "delegation.token.secret.key": "of-the-cluster",
        }

    apache = SecuredKafka(tmp_path / "apache", zookeeper=apache_zookeeper, overrides=overrides(1))
    ottla = OttlaServer(tmp_path / "ottla", overrides=overrides(2))
    zk = KazooClient(connect)
    admins: dict[tuple[int, str], Admin] = {}
    try:
        apache.start()
        ottla.start()
        zk.start()
        admins |= {(at, user): Admin(login(port, user)) for at, port in ports.items() for user in USERS}
        for maker, other in ((1, 2), (2, 1)):
            alice, bob = admins[maker, "alice"], admins[maker, "bob"]
            there, bob_there = admins[other, "alice"], admins[other, "bob"]
            token = alice.create_delegation_token(owner="User:carol", renewers=["User:alice"], max_lifetime_ms=600_000)
            wait_until(lambda t=token, a=there: t in a.describe_delegation_token(["User:carol"]), "the token there")
            assert alice.describe_delegation_token() == there.describe_delegation_token()
            assert bob.describe_delegation_token() == bob_there.describe_delegation_token()
            for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
                for port in ports.values():
                    assert logs_in(by_token(port, token, mechanism))
            renewed_ms = there.renew_delegation_token(token.hmac, renew_time_period_ms=300_000)
            wait_until(
                lambda a=alice, at=renewed_ms: (
                    at in [each.expiry_timestamp_ms for each in a.describe_delegation_token()]
                ),
                "the renewal",
            )
            path = DelegationTokenZnode.path(token.token_id)
            data, _ = zk.get(path)
            assert DelegationTokenZnode.encode(DelegationTokenZnode.decode(path, data)) == data
            found = errors(alice, bob, token)
            assert found == [
                "DELEGATION_TOKEN_OWNER_MISMATCH",
                "DELEGATION_TOKEN_OWNER_MISMATCH",
                "DELEGATION_TOKEN_NOT_FOUND",
                "INVALID_PRINCIPAL_TYPE",
                "NONE",
            ]
            wait_until(
                lambda a=there, at=renewed_ms: a.describe_delegation_token()[0].expiry_timestamp_ms < at, "the expiry"
            )
            assert error_of(there.renew_delegation_token, token.hmac) == "DELEGATION_TOKEN_EXPIRED"
            there.expire_delegation_token(token.hmac)
            assert zk.exists(path) is None
            wait_until(lambda a=alice, t=token: error_of(a.renew_delegation_token, t.hmac).endswith("FOUND"), "the end")
            changes = DelegationTokenChangeZnode.ROOT
            assert {zk.get(f"{changes}/{name}")[0] for name in zk.get_children(changes)} >= {token.token_id.encode()}
        kafkas_tool(ports[2], tmp_path, admins[2, "alice"])
    finally:
        for admin in admins.values():
            admin.close()
        zk.stop()
        zk.close()
        ottla.stop()
        apache.stop()
        shutil.rmtree(tmp_path / "apache", ignore_errors=True)


def kafkas_tool(port: int, folder: Path, alice: Admin) -> None:
    """Java's own client makes a token."""
    config = folder / "client.properties"
    config.write_text("".join(f"{name}={value}\n" for name, value in login(port, "alice").items()))
    options = ("--bootstrap-server", f"127.0.0.1:{port}", "--command-config", str(config))
    made = ("--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob")
    told = java_tool(TOOL, *options, *made).stdout
    (token,) = alice.describe_delegation_token()
    assert token.renewers == ("User:bob",)
    assert token.token_id in told
    assert token.hmac_as_base64 in told
