"""Apache Kafka's listeners with TLS and with SASL, met by clients in plain text: each is told by what it is."""

from __future__ import annotations

import shutil

import pytest

from ottla.client.errors import SecurityMismatchError
from support import odd_servers
from support.apache import ApacheKafka
from support.ports import free_port

pytestmark = [pytest.mark.slow, pytest.mark.needs_kafka]

MODULE = "org.apache.kafka.common.security"


class SecuredKafka(ApacheKafka):
    """One with several listeners, of which the harness would ask whichever it finds: only the start is waited for."""

    def _port_when_started(self) -> int:
        return int("started (kafka.server.KafkaServer)" in self.server.stdout)


@pytest.fixture(scope="module")
def secured(tmp_path_factory, apache_zookeeper):
    """The addresses of a listener with TLS and of one with SASL."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate")
    folder = tmp_path_factory.mktemp("secured")
    odd_servers.tls_context(folder)
    pem = folder / "keystore.pem"
    pem.write_text((folder / "key.pem").read_text() + (folder / "cert.pem").read_text())
    tls, sasl = free_port(), free_port()
    overrides = {
        "zookeeper.connect": f"{apache_zookeeper.connect}/secured",
        "listeners": f"SSL://127.0.0.1:{tls},SASL_PLAINTEXT://127.0.0.1:{sasl},PLAINTEXT://127.0.0.1:0",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(pem),
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
            f'{MODULE}.plain.PlainLoginModule required username="a" password="b" user_a="b";'
        ),
        "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": f"{MODULE}.scram.ScramLoginModule required;",
    }
    broker = SecuredKafka(folder / "broker", zookeeper=apache_zookeeper, overrides=overrides)
    try:
        broker.start()
        yield {"tls": f"127.0.0.1:{tls}", "sasl": f"127.0.0.1:{sasl}"}
    finally:
        broker.stop()


@pytest.mark.parametrize(
    ("listener", "told"),
    [
        ("tls", r"is a listener for TLS, and this client speaks plain text only"),
        ("sasl", r"is a listener with SASL: it wants a login \((PLAIN, SCRAM-SHA-256|SCRAM-SHA-256, PLAIN)\)"),
    ],
)
def test_listeners_that_want_more_than_plain_text(secured, facade, listener, told):
    settings = {"bootstrap.servers": secured[listener]}
    with (
        facade.admin(settings) as admin,
        pytest.raises(SecurityMismatchError, match=told),
    ):
        admin.list_topics()
    with (
        facade.producer(settings) as producer,
        pytest.raises(SecurityMismatchError, match=told),
    ):
        producer.send("t", b"v")
