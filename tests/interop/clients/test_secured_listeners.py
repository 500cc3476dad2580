"""Apache Kafka's listeners with TLS and with SASL: clients that fit them, and those that do not."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from ottla.client.admin import NewTopic, ScramCredentialInfo, UserScramCredentialUpsertion
from ottla.client.errors import AuthenticationError, SecurityMismatchError
from ottla.client.model import TopicPartition
from ottla.client.sync import Admin
from ottla.security.scram import SCRAM_MECHANISMS, credential_of, salted_password
from ottla.zk.layout import UserConfigZnode
from support.certificates import authority, issue, the_authority
from support.ports import free_port
from support.sasl_broker import PASSWORD, USER
from support.secured_listeners import LISTENERS, WAYS, SecuredKafka, Way, broker_settings, round_trip
from support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.needs_kafka]

MODULE = "org.apache.kafka.common.security"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("secured")


@pytest.fixture(scope="module")
def secured(folder, apache_zookeeper):
    """The addresses of its listeners, one for each protocol and one that wants certificates of clients."""
    ports = {name: free_port() for name in LISTENERS}
    overrides = broker_settings(folder, ports) | {
        "zookeeper.connect": f"{apache_zookeeper.connect}/secured",
        "connections.max.reauth.ms": "1300",
    }
    broker = SecuredKafka(folder / "broker", zookeeper=apache_zookeeper, overrides=overrides)
    try:
        broker.start()
        addresses = {name: f"127.0.0.1:{port}" for name, port in ports.items()}
        add_users(folder, addresses["SASL_PLAINTEXT"])
        yield addresses | {"zookeeper": overrides["zookeeper.connect"]}
    finally:
        broker.stop()


def add_users(folder: Path, address: str) -> None:
    """Give the user of all ways its SCRAM credentials, which the broker hears of a moment later."""
    with Admin(Way("SASL_PLAINTEXT", "PLAIN").settings(folder, address)) as admin:
        made = [UserScramCredentialUpsertion(USER, mechanism, PASSWORD) for mechanism in SCRAM_MECHANISMS]
        admin.alter_user_scram_credentials(made)

    def logs_in(mechanism: str) -> bool:
        with Admin(Way("SASL_PLAINTEXT", mechanism).settings(folder, address)) as admin, suppress(AuthenticationError):
            admin.list_topics()
            return True
        return False

    for each in SCRAM_MECHANISMS:
        wait_until(partial(logs_in, each), f"the user of {each}")


@pytest.fixture
def settings(secured, folder: Path):
    """The settings of a client for one of the listeners."""

    def of(listener: str, **more: Any) -> dict[str, Any]:
        return Way(listener).settings(folder, secured[listener]) | more

    return of


@pytest.mark.parametrize(
    ("listener", "told"),
    [
        ("SSL", r"is a listener for TLS, and this client speaks plain text"),
        ("SASL_PLAINTEXT", r"is a listener with SASL: it wants a login \([A-Z0-9, -]+\)"),
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


@pytest.mark.spec("S1")
@pytest.mark.parametrize("protocol", ["TLSv1.2", "TLSv1.3"])
def test_clients_with_a_certificate_produce_and_consume(settings, facade, folder, protocol):
    alice = issue(the_authority(), "alice", ()).key_settings(folder / "alice.pem")
    shared = settings("CERTIFIED") | alice | {"ssl.enabled.protocols": protocol}
    topic = f"t-{facade.kind}-{protocol}"
    values = [bytes([at]) * size for at, size in enumerate((0, 10, 20_000, 900_000))]
    with facade.admin(shared) as admin:
        admin.create_topics([NewTopic(topic, 1, 1)])
    with facade.producer(shared) as producer:
        for value in values:
            producer.send(topic, value)
        producer.flush()
    with facade.consumer(shared, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        read: list[bytes] = []
        while len(read) < len(values):
            read += [record.value for record in consumer.poll(timeout_ms=10_000)]
    assert read == values


@pytest.mark.spec("S1")
def test_each_mistake_in_tls_says_what_helps(settings, secured, facade, folder):
    other, mallory = authority("another"), issue(authority("third"), "mallory", ())
    certified = settings("CERTIFIED")
    del certified["ssl.keystore.location"]
    mistakes = {
        "is not signed by an authority that this client trusts": settings("SSL")
        | other.trust_settings(folder / "other.pem"),
        "wants a certificate of this client, which has none": certified,
        "refuses the certificate of this client": certified | mallory.key_settings(folder / "mallory.pem"),
    }
    for message, wrong in mistakes.items():
        with facade.admin(wrong) as admin, pytest.raises(AuthenticationError, match=message):
            admin.list_topics()
    with (
        facade.admin(settings("SSL") | {"bootstrap.servers": secured["SASL_PLAINTEXT"]}) as admin,
        pytest.raises(SecurityMismatchError, match="is a listener for plain text, and this client speaks TLS"),
    ):
        admin.list_topics()


@pytest.mark.spec("S1", "S2")
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
def test_our_clients_produce_and_consume_at_each_listener(secured, facade, folder, way):
    value = f"{facade.kind} {way.name}".encode()
    assert round_trip(facade, way.settings(folder, secured[way.listener]), way.topic, value) == value


@pytest.mark.spec("S2")
def test_our_clients_log_in_to_apache_kafka(secured, facade, unique):
    """By PLAIN, and by SCRAM as a user made by our admin client; sessions are renewed meanwhile."""
    login = {"bootstrap.servers": secured["SASL_PLAINTEXT"], "security.protocol": "SASL_PLAINTEXT"}
    jaas = f'{MODULE}.plain.PlainLoginModule required username="admin" password="admin-secret";'
    salt = b"salt-of-this-test-"
    scram = login | {"sasl.mechanism": "SCRAM-SHA-256", "sasl.username": unique, "sasl.password": "secret"}
    with facade.admin(login | {"sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas}) as admin:
        made = UserScramCredentialUpsertion(unique, "SCRAM-SHA-256", "secret", 4096, salt)
        admin.alter_user_scram_credentials([made])
        admin.create_topic(unique)
        assert admin.describe_user_scram_credentials([unique]) == {unique: [ScramCredentialInfo("SCRAM-SHA-256", 4096)]}
    zookeeper = KazooClient(secured["zookeeper"])
    zookeeper.start(timeout=60)
    text, _ = zookeeper.get(UserConfigZnode.path(unique))
    zookeeper.stop()
    zookeeper.close()
    ours = credential_of("SCRAM-SHA-256", salted_password("SCRAM-SHA-256", "secret", salt, 4096), salt, 4096)
    assert UserConfigZnode.decode("", text) == {"SCRAM-SHA-256": ours.to_text()}
    with (
        facade.producer(scram, acks="all") as producer,
        facade.consumer(scram, auto_offset_reset="earliest") as consumer,
    ):
        consumer.assign([TopicPartition(unique, 0)])
        assert not consumer.poll(3_000), "several sessions long"
        producer.send(unique, b"v").result(60)
        assert [record.value for record in consumer.poll(60_000)] == [b"v"]
    with (
        facade.admin(scram | {"sasl.password": "wrong"}) as admin,
        pytest.raises(AuthenticationError, match=f"refuses the login of user '{unique}': Authentication failed during"),
    ):
        admin.list_topics()
