"""Clients learn of a wrong password and of what else is refused; sessions are renewed.

`../test_security_matrix.py` has the logins of all clients.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaConnectionError
from confluent_kafka import KafkaError, Producer

from ottla.client import TopicPartition
from ottla.client.errors import AuthenticationError, SecurityMismatchError
from ottla.client.sync import Admin
from ottla.testing import Broker
from support.java import java_tool
from support.sasl_broker import MECHANISMS, PASSWORD, USER, add_scram_user, login, sasl_broker

pytestmark = pytest.mark.spec("S2")
each_mechanism = pytest.mark.parametrize("mechanism", MECHANISMS)
TIMEOUT_S = 60.0


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with sasl_broker() as started:
        add_scram_user(started)
        yield started


@each_mechanism
def test_a_wrong_password_ends_our_clients_at_once(broker, facade, mechanism):
    wrong = login(broker, mechanism, password="not-the-secret")
    for user in (USER, "nobody"):
        with (
            facade.admin(wrong | {"sasl.username": user}) as admin,
            pytest.raises(AuthenticationError, match=f"refuses the login of user '{user}': Authentication failed") as e,
        ):
            admin.list_topics()
        assert not e.value.retriable
        assert "not-the-secret" not in str(e.value)


def test_what_else_is_refused_to_our_clients(broker, facade):
    with (
        facade.admin(bootstrap_servers=broker.bootstrap_servers) as admin,
        pytest.raises(SecurityMismatchError, match=r"it wants a login \(PLAIN, SCRAM-SHA-256, SCRAM-SHA-512\)"),
    ):
        admin.list_topics()
    with (
        sasl_broker(sasl_enabled_mechanisms="PLAIN") as plain_only,
        facade.admin(login(plain_only, "SCRAM-SHA-256")) as admin,
        pytest.raises(AuthenticationError, match="does not take the mechanism SCRAM-SHA-256, only PLAIN"),
    ):
        admin.list_topics()
    with (
        Broker() as plaintext,
        facade.admin(login(plaintext)) as admin,
        pytest.raises(SecurityMismatchError, match=r"is a listener without SASL; set security\.protocol to PLAINTEXT"),
    ):
        admin.list_topics()


def librdkafka(broker: Broker, mechanism: str, password: str) -> tuple[list[object], list[KafkaError]]:
    """What became of a record, and the errors of the client."""
    delivered: list[object] = []
    errors: list[KafkaError] = []
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanisms": mechanism,
            "sasl.username": USER,
            "sasl.password": password,
            "error_cb": errors.append,
            "log_level": 0,
        }
    )
    producer.produce("t", b"v", on_delivery=lambda error, _: delivered.append(error))
    while not delivered and not errors:
        producer.poll(0.1)
    producer.purge()
    producer.flush(TIMEOUT_S)
    return delivered, errors


@each_mechanism
def test_confluent_kafka(broker, mechanism):
    assert librdkafka(broker, mechanism, PASSWORD) == ([None], [])
    _, errors = librdkafka(broker, mechanism, "wrong")
    assert errors[0].code() == KafkaError._AUTHENTICATION
    assert "Authentication failed" in str(errors[0])


@each_mechanism
def test_aiokafka(broker, mechanism):
    async def offset(password: str) -> int:
        producer = AIOKafkaProducer(
            bootstrap_servers=broker.bootstrap_servers,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism=mechanism,
            sasl_plain_username=USER,
            sasl_plain_password=password,
        )
        try:
            await producer.start()
            return int((await producer.send_and_wait("t", b"v")).offset)
        finally:
            await producer.stop()

    assert asyncio.run(offset(PASSWORD)) >= 0
    with pytest.raises(KafkaConnectionError):
        asyncio.run(offset("wrong"))


@pytest.mark.needs_kafka
@pytest.mark.slow
def test_javas_tools_and_clients(broker: Broker, tmp_path: Path) -> None:
    """Users made by kafka-configs.sh, which logs in by PLAIN; then they log in by SCRAM."""

    def tool(name: str, module: str, mechanism: str, user: str, password: str, *arguments: str) -> str:
        package = f"org.apache.kafka.common.security.{module.lower()}"
        jaas = f'{package}.{module}LoginModule required username="{user}" password="{password}";'
        config = tmp_path / "client.properties"
        config.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\nsasl.jaas.config={jaas}\n")
        options = ("--bootstrap-server", broker.bootstrap_servers, "--command-config", str(config))
        return java_tool(name, *options, *arguments).stdout

    added = "SCRAM-SHA-256=[iterations=8192,password=j1],SCRAM-SHA-512=[password=j2]"
    users = ("--entity-type", "users", "--entity-name", "jane")
    tool(
        "kafka.admin.ConfigCommand", "Plain", "PLAIN", "admin", "admin-secret", "--alter", "--add-config", added, *users
    )
    with Admin(login(broker)) as admin:
        (first, second) = admin.describe_user_scram_credentials(["jane"])["jane"]
    assert (first.iterations, second.iterations) == (8192, 4096)
    topics = "org.apache.kafka.tools.TopicCommand"
    assert "t" in tool(topics, "Scram", "SCRAM-SHA-512", "jane", "j2", "--list").split()


def test_sessions_are_renewed_on_their_connections(facade):
    """And requests that come meanwhile wait for it."""
    with sasl_broker(connections_max_reauth_ms="1200") as broker:
        connections = broker.server.connections
        with facade.consumer(login(broker), auto_offset_reset="earliest", fetch_max_wait_ms=100) as consumer:
            consumer.assign([TopicPartition("t", 0)])
            consumer.poll(500)
            opened, logins = connections.accepted, broker.server.authentication.successes
            consumer.poll(2_500)
            assert broker.server.authentication.successes > logins
            assert connections.accepted == opened
