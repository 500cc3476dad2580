"""Clients of many makes at each kind of listener, by each login that they have: all produce, and read it back."""

from __future__ import annotations

import asyncio
import importlib
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AiokafkaPartition
from aiokafka.abc import AbstractTokenProvider as AioTokenProvider
from confluent_kafka import Consumer, Message, Producer
from confluent_kafka import TopicPartition as ConfluentPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as KafkaPythonPartition
from kafka.net.sasl.oauth import AbstractTokenProvider

from ottla.client.admin import AclBinding, UserScramCredentialUpsertion
from ottla.client.sync import Admin
from ottla.security.scram import SCRAM_MECHANISMS
from ottla.testing import Broker
from support.group_members import MEMBERS, built_members
from support.java import java_command, older_client_command
from support.kerberos import HOST, realm
from support.processes import run_tool
from support.sasl_broker import PASSWORD, USER
from support.secured_listeners import (
    AUTHORITY_FILE,
    KERBEROS_WAYS,
    PRINCIPALS,
    TOKEN_FILE,
    TOKEN_LIFE_S,
    WAYS,
    Way,
    broker_settings,
    kerberos_settings,
    round_trip,
)

pytestmark = pytest.mark.spec("S1", "S2", "S3")
KERBEROS = pytest.mark.needs_kerberos
TIMEOUT_S = 60.0


class Place:
    """A broker with all listeners, and the files of its clients."""

    def __init__(self, folder: Path, addresses: dict[str, str]) -> None:
        self.folder = folder
        self.addresses = addresses

    def authority(self) -> str:
        return str(self.folder / AUTHORITY_FILE)

    def token(self) -> str:
        return (self.folder / TOKEN_FILE).read_text()


@contextmanager
def started(folder: Path, more: Mapping[str, str], host: str) -> Iterator[Place]:
    """A broker with ACLs: each principal has its topic."""
    acls = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer", "super.users": "User:admin"}
    with Broker(dict.fromkeys(PRINCIPALS, 1), settings={**broker_settings(folder, {}), **acls, **more}) as broker:
        addresses = {each.listener_name: each.address.replace("127.0.0.1", host) for each in broker.server.listening}
        login = Way("SASL_PLAINTEXT", "PLAIN").settings(folder, addresses["SASL_PLAINTEXT"])
        with Admin(login | {"sasl.username": "admin", "sasl.password": "admin-secret"}) as admin:
            admin.alter_user_scram_credentials(
                UserScramCredentialUpsertion(USER, each, PASSWORD) for each in SCRAM_MECHANISMS
            )
            bindings = [AclBinding("TOPIC", topic, principal, "ALL") for topic, principal in PRINCIPALS.items()]
            admin.create_acls([*bindings, AclBinding("GROUP", "*", "User:*", "READ")])
        yield Place(folder, addresses)


@pytest.fixture(scope="module")
def with_passwords_and_tokens(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with started(tmp_path_factory.mktemp("matrix"), {}, "127.0.0.1") as place:
        yield place


@pytest.fixture(scope="module")
def with_tickets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """The user's key tab is in the folder, and its tickets are those of this process."""
    folder = tmp_path_factory.mktemp("kerberos")
    with realm(folder) as made, pytest.MonkeyPatch.context() as patch:
        patch.setenv("KRB5CCNAME", f"FILE:{made.tickets(USER)}")
        # It looked for the package when it was imported, before `realm` made it known.
        patch.setattr("aiokafka.conn.gssapi", importlib.import_module("gssapi"))
        with started(folder, kerberos_settings(made), HOST) as place:
            yield place


@pytest.fixture
def place_of(request: pytest.FixtureRequest) -> Callable[[Way], Place]:
    """The broker that a way leads to. Kerberos has one of its own, because only whole runs have a KDC."""

    def of(way: Way) -> Place:
        found: Place = request.getfixturevalue("with_tickets" if way in KERBEROS_WAYS else "with_passwords_and_tokens")
        return found

    return of


def cell(way: Way, *client: Callable[..., Any]) -> Any:
    """The parameters of one test."""
    marks = [KERBEROS] if way in KERBEROS_WAYS else []
    return pytest.param(*client, way, marks=marks, id="-".join([*(each.__name__ for each in client), way.name]))


@pytest.mark.parametrize("way", [cell(way) for way in WAYS + KERBEROS_WAYS])
def test_our_clients(place_of: Callable[[Way], Place], facade: Any, way: Way) -> None:
    place = place_of(way)
    settings = way.settings(place.folder, place.addresses[way.listener])
    assert round_trip(facade, settings, way.topic, way.name.encode()) == way.name.encode()


def librdkafka(place: Place, way: Way, value: bytes) -> bytes | None:
    settings: dict[str, Any] = {
        "bootstrap.servers": place.addresses[way.listener],
        "security.protocol": way.protocol,
        "group.id": "g",
    }
    if way.protocol.endswith("SSL"):
        settings["ssl.ca.location"] = place.authority()
    if way.certificate:
        own = str(place.folder / way.certificate)
        settings |= {"ssl.certificate.location": own, "ssl.key.location": own}
    if way.mechanism == "OAUTHBEARER":
        settings |= {
            "sasl.mechanisms": way.mechanism,
            "oauth_cb": lambda _: (place.token(), time.time() + TOKEN_LIFE_S),
        }
    elif way.mechanism:
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


class Tokens(AbstractTokenProvider):
    """For kafka-python."""

    def __init__(self, place: Place) -> None:
        self.place = place

    def token(self) -> str:
        return self.place.token()


class AioTokens(AioTokenProvider):
    """The same for aiokafka."""

    def __init__(self, place: Place) -> None:
        self.place = place

    async def token(self) -> str:
        return self.place.token()


def kafka_python(place: Place, way: Way, value: bytes) -> bytes:
    settings: dict[str, Any] = {
        "bootstrap_servers": place.addresses[way.listener],
        "security_protocol": way.protocol,
        "ssl_cafile": place.authority(),
        "ssl_certfile": str(place.folder / way.certificate) if way.certificate else None,
        "sasl_mechanism": way.mechanism or None,
        "sasl_plain_username": USER,
        "sasl_plain_password": PASSWORD,
        "sasl_oauth_token_provider": Tokens(place),
        "sasl_kerberos_service_name": "kafka",
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
        settings["sasl_oauth_token_provider"] = AioTokens(place)

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


#: Not librdkafka by GSSAPI: confluent-kafka's wheels have it without Cyrus SASL, which would bring that.
CLIENTS_IN_PYTHON: dict[Callable[[Place, Way, bytes], bytes | None], list[Way]] = {
    librdkafka: WAYS,
    kafka_python: WAYS + KERBEROS_WAYS,
    aiokafka: WAYS + KERBEROS_WAYS,
}


@pytest.mark.parametrize(
    ("client", "way"), [cell(way, client) for client, ways in CLIENTS_IN_PYTHON.items() for way in ways]
)
def test_clients_in_python(
    place_of: Callable[[Way], Place], client: Callable[[Place, Way, bytes], bytes | None], way: Way
) -> None:
    value = f"{client.__name__} {way.name}".encode()
    assert client(place_of(way), way, value) == value


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


# Not KafkaJS by GSSAPI: it has PLAIN, SCRAM, OAUTHBEARER and the login of AWS.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "ways"),
    [
        pytest.param("java-3.9", WAYS, marks=pytest.mark.needs_kafka, id="java-3.9"),
        pytest.param("java-2.0", WAYS, marks=pytest.mark.needs_older, id="java-2.0"),
        pytest.param("franz-go", WAYS, marks=pytest.mark.needs_members, id="franz-go"),
        pytest.param("kafkajs", WAYS, marks=pytest.mark.needs_members, id="kafkajs"),
        pytest.param("java-3.9", KERBEROS_WAYS, marks=[KERBEROS, pytest.mark.needs_kafka], id="java-3.9-GSSAPI"),
        pytest.param("java-2.0", KERBEROS_WAYS, marks=[KERBEROS, pytest.mark.needs_older], id="java-2.0-GSSAPI"),
        pytest.param("franz-go", KERBEROS_WAYS, marks=[KERBEROS, pytest.mark.needs_members], id="franz-go-GSSAPI"),
    ],
)
def test_clients_in_other_languages(place_of: Callable[[Way], Place], program: str, ways: list[Way]) -> None:
    """Each in one process for all listeners of a broker."""
    place = place_of(ways[0])
    values = [f"{program}-{way.name}" for way in ways]
    listeners = [
        ",".join((value, place.addresses[way.listener], way.topic, way.protocol, way.mechanism, way.certificate))
        for value, way in zip(values, ways, strict=True)
    ]
    done = run_tool([*PROGRAMS[program](), str(place.folder), USER, PASSWORD, *listeners])
    assert done.stdout.splitlines() == values, done.stderr
