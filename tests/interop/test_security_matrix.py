"""Clients of many makes at each kind of listener, by each login that they have: all produce, and read it back."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AiokafkaPartition
from confluent_kafka import Consumer, Message, Producer
from confluent_kafka import TopicPartition as ConfluentPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as KafkaPythonPartition

from ottla.client.admin import AclBinding, UserScramCredentialUpsertion
from ottla.client.sync import Admin
from ottla.security.scram import SCRAM_MECHANISMS
from ottla.testing import Broker
from support.group_members import MEMBERS, built_members
from support.java import java_command, older_client_command
from support.processes import run_tool
from support.sasl_broker import PASSWORD, USER
from support.secured_listeners import (
    AUTHORITY_FILE,
    PRINCIPALS,
    WAYS,
    Way,
    broker_settings,
    round_trip,
)

pytestmark = pytest.mark.spec("S1", "S2", "S3")
TIMEOUT_S = 60.0


class Place:
    """A broker with all listeners, and the files of its clients."""

    def __init__(self, folder: Path, addresses: dict[str, str]) -> None:
        self.folder = folder
        self.addresses = addresses

    def authority(self) -> str:
        return str(self.folder / AUTHORITY_FILE)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """With ACLs: each principal has its topic."""
    folder = tmp_path_factory.mktemp("matrix")
    settings = broker_settings(folder, {}) | {
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:admin",
    }
    with Broker(dict.fromkeys(PRINCIPALS, 1), settings=settings) as broker:
        addresses = {each.listener_name: each.address for each in broker.server.listening}
        login = Way("SASL_PLAINTEXT", "PLAIN").settings(folder, addresses["SASL_PLAINTEXT"])
        with Admin(login | {"sasl.username": "admin", "sasl.password": "admin-secret"}) as admin:
            admin.alter_user_scram_credentials(
                UserScramCredentialUpsertion(USER, each, PASSWORD) for each in SCRAM_MECHANISMS
            )
            acls = [AclBinding("TOPIC", topic, principal, "ALL") for topic, principal in PRINCIPALS.items()]
            admin.create_acls([*acls, AclBinding("GROUP", "*", "User:*", "READ")])
        yield Place(folder, addresses)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
def test_our_clients(place: Place, facade: Any, way: Way) -> None:
    settings = way.settings(place.folder, place.addresses[way.listener])
    assert round_trip(facade, settings, way.topic, way.name.encode()) == way.name.encode()


def librdkafka(place: Place, way: Way, value: bytes) -> bytes | None:
    settings = {"bootstrap.servers": place.addresses[way.listener], "security.protocol": way.protocol, "group.id": "g"}
    if way.protocol.endswith("SSL"):
        settings["ssl.ca.location"] = place.authority()
    if way.certificate:
        own = str(place.folder / way.certificate)
        settings |= {"ssl.certificate.location": own, "ssl.key.location": own}
    if way.mechanism:
        settings |= {"sasl.mechanisms": way.mechanism, "sasl.username": USER, "sasl.password": PASSWORD}
    sent: list[Message] = []
    producer = Producer({**settings, "enable.idempotence": True})
    producer.produce(way.topic, value, on_delivery=lambda _, message: sent.append(message))
    producer.flush(TIMEOUT_S)
    consumer = Consumer(settings)
    try:
        consumer.assign([ConfluentPartition(way.topic, 0, sent[0].offset())])
        message = consumer.poll(TIMEOUT_S)
        return None if message is None else message.value()
    finally:
        consumer.close()


def kafka_python(place: Place, way: Way, value: bytes) -> bytes:
    settings: dict[str, Any] = {
        "bootstrap_servers": place.addresses[way.listener],
        "security_protocol": way.protocol,
        "ssl_cafile": place.authority(),
        "ssl_certfile": str(place.folder / way.certificate) if way.certificate else None,
        "sasl_mechanism": way.mechanism or None,
        "sasl_plain_username": USER,
        "sasl_plain_password": PASSWORD,
    }
    producer = KafkaProducer(**settings)
    sent = producer.send(way.topic, value).get(TIMEOUT_S)
    producer.close()
    consumer = KafkaConsumer(**settings)
    partition = KafkaPythonPartition(way.topic, 0)
    consumer.assign([partition])
    consumer.seek(partition, sent.offset)
    try:
        found: bytes = next(consumer).value
        return found
    finally:
        consumer.close()


def aiokafka(place: Place, way: Way, value: bytes) -> bytes | None:
    settings: dict[str, Any] = {"bootstrap_servers": place.addresses[way.listener], "security_protocol": way.protocol}
    if way.protocol.endswith("SSL"):
        settings["ssl_context"] = context = ssl.create_default_context(cafile=place.authority())
        if way.certificate:
            context.load_cert_chain(place.folder / way.certificate)
    if way.mechanism:
        settings |= {"sasl_mechanism": way.mechanism, "sasl_plain_username": USER, "sasl_plain_password": PASSWORD}

    async def read_back() -> bytes | None:
        async with AIOKafkaProducer(**settings, enable_idempotence=True) as producer:
            sent = await producer.send_and_wait(way.topic, value)
        async with AIOKafkaConsumer(**settings) as consumer:
            partition = AiokafkaPartition(way.topic, 0)
            consumer.assign([partition])
            consumer.seek(partition, sent.offset)
            found: bytes | None = (await consumer.getone()).value
            return found

    return asyncio.run(read_back())


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
@pytest.mark.parametrize("client", [librdkafka, kafka_python, aiokafka])
def test_clients_in_python(place: Place, client: Callable[[Place, Way, bytes], bytes | None], way: Way) -> None:
    value = f"{client.__name__} {way.name}".encode()
    assert client(place, way, value) == value


def members() -> Path:
    found = built_members()
    assert found is not None
    return found


PROGRAMS: dict[str, Callable[[], list[str]]] = {
    "java-3.9": lambda: java_command(str(MEMBERS / "RoundTrips.java")),
    "java-2.0": lambda: older_client_command("2.0.1", str(MEMBERS / "RoundTrips.java")),
    "franz-go": lambda: [str(members() / "franz-go"), "round-trips"],
    "kafkajs": lambda: ["node", str(members() / "round_trips.js")],
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "program",
    [
        pytest.param("java-3.9", marks=pytest.mark.needs_kafka),
        pytest.param("java-2.0", marks=pytest.mark.needs_older),
        pytest.param("franz-go", marks=pytest.mark.needs_members),
        pytest.param("kafkajs", marks=pytest.mark.needs_members),
    ],
)
def test_clients_in_other_languages(place: Place, program: str) -> None:
    """Each in one process for all listeners."""
    values = [f"{program}-{way.name}" for way in WAYS]
    listeners = [
        ",".join((value, place.addresses[way.listener], way.topic, way.protocol, way.mechanism, way.certificate))
        for value, way in zip(values, WAYS, strict=True)
    ]
    done = run_tool([*PROGRAMS[program](), str(place.folder), USER, PASSWORD, *listeners])
    assert done.stdout.splitlines() == values, done.stderr
