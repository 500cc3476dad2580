"""OAUTHBEARER: tokens of an endpoint and without a signature at our broker, and our clients at Apache Kafka.

`../test_security_matrix.py` has the logins of all clients.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer

from ottla.client import TopicPartition
from ottla.client.errors import AuthenticationError
from ottla.security.oauth_login import CLIENT_ID, CLIENT_SECRET, ENDPOINT
from ottla.security.tokens import unsecured_token
from ottla.testing import Broker
from support.apache import ApacheKafka
from support.java import java_tool
from support.oauth import CLIENT_ID as ID
from support.oauth import CLIENT_SECRET as SECRET
from support.oauth import MODULE, Provider, Signer, jwks_broker, login, provider, unsecured_broker
from support.ports import free_port

pytestmark = pytest.mark.spec("S2")
TIMEOUT_S = 60.0


@pytest.fixture(scope="module")
def endpoint() -> Iterator[Provider]:
    with provider() as made:
        yield made


@pytest.fixture(scope="module")
def broker(endpoint: Provider) -> Iterator[Broker]:
    """Takes tokens that the endpoint signs."""
    with jwks_broker(f"{endpoint.address}/jwks") as started:
        yield started


def settings(broker: Broker) -> dict[str, str]:
    """Of librdkafka."""
    return {
        "bootstrap.servers": broker.bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanisms": "OAUTHBEARER",
        "log_level": 0,
    }


def librdkafka(more: dict[str, Any]) -> tuple[list[object], list[KafkaError]]:
    """What became of a record, and the errors of the client."""
    delivered: list[object] = []
    errors: list[KafkaError] = []
    producer = Producer(more | {"error_cb": errors.append})
    producer.produce("t", b"v", on_delivery=lambda error, _: delivered.append(error))
    while not delivered and not errors:
        producer.poll(0.1)
    producer.purge()
    producer.flush(TIMEOUT_S)
    return delivered, errors


def test_our_clients(broker: Broker, endpoint: Provider, facade: Any) -> None:
    shared = login(broker) | {ENDPOINT: f"{endpoint.address}/token", CLIENT_ID: ID, CLIENT_SECRET: SECRET}
    with facade.producer(shared) as producer:
        assert producer.send("t", b"v").result(TIMEOUT_S).offset >= 0
    with facade.consumer(shared, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition("t", 0)])
        while not consumer.poll(1000):
            pass


def test_confluent_kafka(broker: Broker, endpoint: Provider) -> None:
    """With a token of its own, with the endpoint, and with a token that another key signed."""

    def with_token(token: str) -> dict[str, Any]:
        return settings(broker) | {"oauth_cb": lambda _: (token, time.time() + 60)}

    assert librdkafka(with_token(endpoint.signers[0].token())) == ([None], [])
    oidc = {
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": ID,
        "sasl.oauthbearer.client.secret": SECRET,
        "sasl.oauthbearer.token.endpoint.url": f"{endpoint.address}/token",
    }
    assert librdkafka(settings(broker) | oidc) == ([None], [])
    _, errors = librdkafka(with_token(Signer().token()))
    assert errors[0].code() == KafkaError._AUTHENTICATION
    assert "invalid_token" in str(errors[0])


def test_librdkafkas_unsecured_tokens() -> None:
    unsecured = {
        "enable.sasl.oauthbearer.unsecure.jwt": True,
        "sasl.oauthbearer.config": "principal=carol scope=write extension_traceId=1",
    }
    with unsecured_broker('unsecuredValidatorRequiredScope="write"') as broker:
        assert librdkafka(settings(broker) | unsecured) == ([None], [])


@pytest.mark.needs_kafka
@pytest.mark.slow
def test_javas_tools(broker: Broker, endpoint: Provider, tmp_path: Path) -> None:
    """They get their token at the endpoint, as our broker does for its own login."""
    handler = "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler"
    config = tmp_path / "client.properties"
    config.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n"
        f"sasl.login.callback.handler.class={handler}\n{ENDPOINT}={endpoint.address}/token\n"
        f'sasl.jaas.config={MODULE} clientId="{ID}" clientSecret="{SECRET}" extension_traceId="1";\n'
    )
    options = ("--bootstrap-server", broker.bootstrap_servers, "--command-config", str(config))
    assert "t" in java_tool("org.apache.kafka.tools.TopicCommand", *options, "--list").stdout.split()


class KafkaWithTokens(ApacheKafka):
    """One whose listeners want a login: only its start is waited for."""

    def _port_when_started(self) -> int:
        return int("started (kafka.server.KafkaServer)" in self.server.stdout)


@pytest.fixture(scope="module")
def apache(apache_zookeeper: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Settings of clients of an Apache Kafka that takes unsecured tokens."""
    port = free_port()
    jaas = f'{MODULE} unsecuredLoginStringClaim_sub="admin" unsecuredValidatorRequiredScope="write";'
    overrides = {
        "zookeeper.connect": f"{apache_zookeeper.connect}/oauth",
        "listeners": f"SASL_PLAINTEXT://127.0.0.1:{port},PLAINTEXT://127.0.0.1:0",
        "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config": jaas,
    }
    kafka = KafkaWithTokens(tmp_path_factory.mktemp("oauth"), zookeeper=apache_zookeeper, overrides=overrides)
    try:
        kafka.start()
        yield {
            "bootstrap.servers": f"127.0.0.1:{port}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
        }
    finally:
        kafka.stop()


@pytest.mark.needs_kafka
@pytest.mark.slow
def test_our_clients_log_in_to_apache_kafka(apache: dict[str, str], facade: Any, unique: str) -> None:
    """By unsecured tokens, and sessions are renewed as they expire."""
    claims = 'unsecuredLoginStringClaim_sub="älice" unsecuredLoginListClaim_scope="|read|write"'
    more = 'unsecuredLoginLifetimeSeconds="6" unsecuredLoginExtension_traceId="1"'
    mine = apache | {"sasl.jaas.config": f"{MODULE} {claims} {more};"}
    with facade.admin(mine) as admin:
        admin.create_topic(unique)
    with facade.producer(mine) as producer, facade.consumer(mine, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(unique, 0)])
        assert not consumer.poll(7_500), "longer than a token lives"
        producer.send(unique, b"v").result(TIMEOUT_S)
        assert [record.value for record in consumer.poll(60_000)] == [b"v"]
    expired = unsecured_token({"sub": "a", "exp": time.time() - 9})
    wrong = {"sasl.login.callback.handler.class": lambda: (expired, time.time() * 2000)}
    with (
        facade.admin(apache | wrong) as admin,
        pytest.raises(AuthenticationError, match=r'\{"status":"invalid_token"\}; check the issuer'),
    ):
        admin.list_topics()
