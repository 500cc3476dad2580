"""A broker with TLS listeners beside a plaintext one, in this process."""

from __future__ import annotations

import logging
import socket
import ssl
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ottla.broker.control.interbroker import BrokerConnector
from ottla.client import TopicPartition
from ottla.client.sync import Consumer, Producer
from ottla.config.broker import BrokerConfig, parse_broker_config
from ottla.env.environment import Environment
from ottla.env.secret_files import version_of
from ottla.net.connection import Connection
from ottla.testing import Broker, Cluster, TestBrokerError
from ottla.wire.errors import ErrorCode
from support.certificates import Issued, authority, issue, the_authority
from support.command_line import ottla_at
from support.framed_socket import Disconnected
from support.raw_client import RawClient, batch_of
from support.waiting import wait_until
from support.wired_connection import client_context

pytestmark = [pytest.mark.spec("S1"), pytest.mark.slow]

LISTENERS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0,MUTUAL://127.0.0.1:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,MUTUAL:SSL",
    "listener.name.mutual.ssl.client.auth": "required",
    "listener.name.mutual.ssl.principal.mapping.rules": "RULE:^CN=(.*?),.*$/$1/U",
}


def tls_settings(folder: Path) -> dict[str, str]:
    keys = issue(the_authority(), "localhost").key_settings(folder / "broker.pem")
    return {**LISTENERS, **keys, **the_authority().trust_settings(folder / "ca.pem")}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tls")


@pytest.fixture(scope="module")
def broker(folder: Path) -> Iterator[Broker]:
    with Broker({"t": 1}, settings=tls_settings(folder), data=folder / "data") as broker:
        yield broker


def port_of(broker: Broker, listener: str) -> int:
    return next(each.port for each in broker.server.listening if each.listener_name == listener)


def tls_client(broker: Broker, listener: str = "SSL", shown: Issued | None = None) -> RawClient:
    client = RawClient(port_of(broker, listener))
    try:
        client.socket = client_context(shown).wrap_socket(client.socket, server_hostname="localhost")
    except OSError:
        client.close()
        raise
    return client


def principals(broker: Broker) -> set[str]:
    """Those of the open connections."""
    found = broker._running.call(lambda: [str(each.principal) for each in broker.server.connections.snapshot()])
    return set(found)


def test_large_produces_and_fetches_over_tls_are_whole(broker: Broker) -> None:
    values = [bytes([number]) * 900_000 for number in range(8)]
    with tls_client(broker) as client, RawClient(port_of(broker, "PLAINTEXT")) as plain:
        assert client.create_topic("large") == ErrorCode.NONE
        for value in values:
            assert client.produce("large", 0, batch_of(value)).error_code == ErrorCode.NONE
        assert [record.value for record in client.read_all("large", 0)] == values
        assert [record.value for record in plain.read_all("large", 0)] == values
        assert principals(broker) == {"User:ANONYMOUS"}


def test_the_principal_is_the_name_in_the_certificate(broker: Broker) -> None:
    with tls_client(broker, "MUTUAL", issue(the_authority(), "ann")) as client:
        assert client.produce("t", 0, batch_of(b"x")).error_code == ErrorCode.NONE
        assert "User:ANN" in principals(broker)


@pytest.mark.parametrize("shown", [None, issue(authority("other"), "eve")])
def test_a_client_without_a_trusted_certificate_is_refused(
    broker: Broker, caplog: pytest.LogCaptureFixture, shown: Issued | None
) -> None:
    with tls_client(broker, "SSL") as other:
        # In TLS 1.3 the client's handshake is over before the broker has seen its certificate.
        with pytest.raises((OSError, Disconnected)), tls_client(broker, "MUTUAL", shown) as client:
            client.metadata()
        assert other.metadata().brokers, "other connections work"
    (line,) = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
    assert "at listener MUTUAL: its TLS handshake failed: the client" in line


def test_protocols_that_do_not_fit_end_with_one_line(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    with RawClient(port_of(broker, "SSL")) as client, pytest.raises(Disconnected):
        client.metadata()
    with pytest.raises(OSError):
        tls_client(broker, "PLAINTEXT")
    lines = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(lines) == 2
    assert "the client does not speak TLS" in lines[0]
    assert "this looks like TLS sent to a plaintext listener" in lines[1]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of kafka-python's own dependencies
def test_kafka_python_speaks_tls(broker: Broker, folder: Path) -> None:
    from kafka import KafkaConsumer, KafkaProducer

    settings = {
        "bootstrap_servers": f"localhost:{port_of(broker, 'SSL')}",
        "security_protocol": "SSL",
        "ssl_cafile": str(folder / "ca.pem"),
    }
    broker.create_topic("kp")
    producer = KafkaProducer(**settings)
    for number in range(100):
        producer.send("kp", b"%d" % number * 1000)
    producer.flush()
    producer.close()
    consumer = KafkaConsumer("kp", auto_offset_reset="earliest", consumer_timeout_ms=30_000, **settings)
    assert [next(consumer).value for _ in range(100)] == [b"%d" % number * 1000 for number in range(100)]
    consumer.close()


def test_librdkafka_speaks_tls_with_its_own_certificate(broker: Broker, folder: Path) -> None:
    from confluent_kafka import Consumer, Producer

    ann = issue(the_authority(), "ann")
    settings = {
        "bootstrap.servers": f"localhost:{port_of(broker, 'MUTUAL')}",
        "security.protocol": "ssl",
        "ssl.ca.location": str(folder / "ca.pem"),
        "ssl.certificate.pem": ann.certificate_pem,
        "ssl.key.pem": ann.key_pem(),
    }
    broker.create_topic("rd")
    producer = Producer({**settings, "linger.ms": 0})
    for number in range(100):
        producer.produce("rd", b"%d" % number * 1000)
    assert producer.flush(60) == 0
    consumer = Consumer({**settings, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["rd"])
    found: list[bytes] = []
    while len(found) < 100:
        found += [message.value() for message in consumer.consume(100, 1) if message.error() is None]
    assert found == [b"%d" % number * 1000 for number in range(100)]
    assert "User:ANN" in principals(broker)
    consumer.close()


def certificate_of(broker: Broker, listener: str = "SSL") -> bytes | None:
    with tls_client(broker, listener) as client:
        assert isinstance(client.socket, ssl.SSLSocket)
        return client.socket.getpeercert(binary_form=True)


def test_certificates_change_while_the_broker_runs(broker: Broker, folder: Path) -> None:
    new, name = issue(the_authority(), "localhost"), "listener.name.ssl.ssl.keystore.location"
    new.key_settings(folder / "new.pem")
    with tls_client(broker) as before:
        assert change(broker, {name: str(folder / "new.pem")}) is None
        assert certificate_of(broker) == new.der
        assert before.metadata().brokers, "connections stay open"
        newest = issue(the_authority(), "localhost")
        newest.key_settings(folder / "new.pem")
        assert change(broker, {name: str(folder / "new.pem")}) is None
        assert certificate_of(broker) == newest.der, "the file has changed, and not the setting"
        problem = change(broker, {name: str(folder / "missing.pem")})
        assert problem is not None
        assert "missing.pem" in problem
        assert certificate_of(broker) == newest.der
        assert change(broker, {}) is None
        assert certificate_of(broker) not in (new.der, newest.der)


def test_certificates_change_under_load_without_a_lost_connection(broker: Broker, folder: Path) -> None:
    settings = {
        "bootstrap.servers": f"localhost:{port_of(broker, 'SSL')}",
        "security.protocol": "SSL",
        **the_authority().trust_settings(folder / "ca.pem"),
    }
    broker.create_topic("load")
    stop, sent, read = threading.Event(), [], []

    def load() -> None:
        with Producer(settings, linger_ms=0) as producer, Consumer(settings, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition("load", 0)])
            while not stop.is_set() or len(read) < len(sent):
                if not stop.is_set():
                    sent.append(producer.send("load", b"%d" % len(sent) * 1000))
                read.extend(record.value for record in consumer.poll(timeout_ms=20))

    def opened() -> set[Connection]:
        return set(broker._running.call(broker.server.connections.snapshot))

    name, path = "listener.name.ssl.ssl.keystore.location", folder / "load.pem"
    with ThreadPoolExecutor(1) as pool:
        loading = pool.submit(load)
        wait_until(lambda: read or loading.done(), "the load")
        before = opened()
        try:
            for _ in range(4):
                new, count = issue(the_authority(), "localhost"), len(read)
                new.key_settings(path)
                assert change(broker, {name: str(path)}) is None
                assert certificate_of(broker) == new.der
                wait_until(lambda count=count: len(read) > count + 20 or loading.done(), "records")
            assert before <= opened(), "no connection was lost"
        finally:
            stop.set()
            change(broker, {})
        loading.result()
    assert [each.result(60).offset for each in sent] == list(range(len(sent)))
    assert read == [b"%d" % number * 1000 for number in range(len(sent))]


def test_a_file_that_changes_is_used_without_a_change_of_settings(folder: Path, tmp_path: Path) -> None:
    keys = tmp_path / "own.pem"
    first, second = issue(the_authority(), "localhost"), issue(the_authority(), "localhost")
    with Broker(
        settings={**LISTENERS, **first.key_settings(keys), **the_authority().trust_settings(folder / "ca.pem")}
    ) as broker:
        assert certificate_of(broker) == first.der
        keys.write_text("half")
        wait_until(lambda: version_of(str(keys)) in broker.server.listener_tls._seen[1], "a look at the file")
        assert certificate_of(broker) == first.der
        second.key_settings(keys)
        wait_until(lambda: certificate_of(broker) == second.der, "the second certificate")
        (expiry,) = {each.expires_ms for each in broker.server.listener_tls.terms.values()}
        assert expiry == int(second.certificate.not_valid_after_utc.timestamp() * 1000)


def test_a_certificate_that_expires_soon_is_warned_about(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Broker(tls=folder / "broker.pem"):
        pass
    (line,) = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
    assert line.startswith("listener SSL: its certificate expires on 20")


def change(broker: Broker, wanted: dict[str, str]) -> str | None:
    """Set these settings while the broker runs; returns why it refuses them."""
    settings = broker.server.dynamic_settings
    refusal = broker._running.run(settings.change(lambda present: wanted, per_broker=True, validate_only=False))
    return None if refusal is None else refusal.message


@pytest.mark.parametrize(
    ("settings", "cause"),
    [
        ({}, "listener SSL: a listener for TLS has no certificate"),
        ({"ssl.keystore.location": "/missing.p12"}, "/missing.p12"),
        ({"listener.name.mutual.ssl.principal.mapping.rules": "RULE:x"}, "'RULE:x' is not a rule"),
    ],
)
def test_a_listener_that_cannot_speak_tls_refuses_to_start(folder: Path, settings: dict[str, str], cause: str) -> None:
    keys = {} if "rule" not in cause else issue(the_authority(), "localhost").key_settings(folder / "other.pem")
    with pytest.raises(TestBrokerError) as raised, Broker(settings={**LISTENERS, **keys, **settings}):
        pass
    assert cause in str(raised.value)


def test_half_a_handshake_holds_up_nothing(broker: Broker) -> None:
    with socket.create_connection(("127.0.0.1", port_of(broker, "SSL"))) as half:
        half.sendall(b"\x16\x03\x01\x02\x00")
        with tls_client(broker) as client:
            assert client.metadata().brokers
            assert "None" in principals(broker), "it has no principal yet"


def test_brokers_speak_tls_to_each_other(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:SSL",
        "inter.broker.listener.name": "PLAINTEXT",
        "ssl.client.auth": "required",
        **issue(the_authority(), "localhost").key_settings(folder / "each.pem"),
        **the_authority().trust_settings(folder / "ca.pem"),
    }
    with Cluster(3, settings=settings, topics={"t": {"partitions": 3, "min_insync_replicas": 3}}) as cluster:
        leader = cluster.leader("t")
        with RawClient(cluster.broker(leader).listening[0].port) as client:
            shown = client_context(issue(the_authority(), "ann"))
            client.socket = shown.wrap_socket(client.socket, server_hostname="localhost")
            produced = client.produce("t", 0, batch_of(b"x" * 100_000), acks=-1)
        assert produced.error_code == ErrorCode.NONE
    assert [record.message for record in caplog.records if record.levelno >= logging.ERROR] == []


@pytest.mark.parametrize("settings", [{}, {"ssl.endpoint.identification.algorithm": ""}])
def test_brokers_check_the_names_of_each_other_unless_that_is_switched_off(
    folder: Path, settings: dict[str, str]
) -> None:
    config = parse_broker_config({**tls_settings(folder), "inter.broker.listener.name": "SSL", **settings})
    assert isinstance(config, BrokerConfig)
    connector = BrokerConnector(1, config, Environment())
    assert connector._settings.tls is not None
    context = connector._settings.tls.context
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname is not bool(settings)


def test_a_test_broker_with_tls(folder: Path) -> None:
    from ottla.client.sync import Producer

    issue(the_authority(), "localhost").key_settings(folder / "test.pem")
    settings = {"security.protocol": "SSL", **the_authority().trust_settings(folder / "ca.pem")}
    with Broker({"t": 1}, tls=folder / "test.pem") as broker:
        with Producer({"bootstrap.servers": broker.bootstrap_servers, **settings}) as producer:
            producer.send("t", b"x").result(60)
        assert [record.value for record in broker.records("t")] == [b"x"]


@pytest.mark.spec("S2", "S6")
def test_a_store_with_another_password_is_taken_while_the_broker_runs(folder: Path) -> None:
    """With `ottla config set`, whose output does not show the password."""
    settings = tls_settings(folder) | {"password.encoder.secret": "s3cret"}
    second = issue(the_authority(), "localhost")
    (folder / "second.p12").write_bytes(second.pkcs12("hunter2"))
    prefix = "listener.name.ssl.ssl.keystore."
    wanted = [f"{prefix}location={folder / 'second.p12'}", f"{prefix}password=hunter2"]
    with Broker(settings=settings) as broker:
        done = ottla_at(broker, "config", "set", "--broker", "1", *wanted, "--yes")
        assert done.exit_code == 0, done.output
        assert certificate_of(broker) == second.der
        described = ottla_at(broker, "config", "describe", "--broker", "1", "--json")
        assert f"{prefix}password" in described.output
        assert "hunter2" not in done.output + described.output
    with Broker(settings=tls_settings(folder)) as broker:
        done = ottla_at(broker, "config", "set", "--broker", "1", *wanted, "--yes")
        assert done.exit_code == 1
        assert "Password encoder secret not configured" in done.output
        assert "hunter2" not in done.output
