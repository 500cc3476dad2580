"""Clients over TLS: records there and back, and what each failure says."""

from __future__ import annotations

import os
import pickle
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from ottla.client.configs.admin import parse_admin_config
from ottla.client.errors import AuthenticationError, ClientError, NotKafkaError, SecurityMismatchError
from ottla.client.sync import Client
from ottla.peer import diagnosis
from ottla.security.contexts import server_context
from support import odd_servers
from support.certificates import PASSWORD, authority, issue, the_authority
from support.fake_cluster import FakeCluster
from support.odd_servers import OddServers

pytestmark = [pytest.mark.spec("S1"), pytest.mark.slow]

QUICK = {
    "client.id": "c",
    "reconnect.backoff.ms": 5,
    "request.timeout.ms": 5_000,
    "retry.backoff.ms": 5,
}
MAX_LARGE_BYTES = 800_000
DOCS = (Path(__file__).parents[3] / "docs" / "client-errors.md").read_text()


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may take long to find out what an address is."""
    monkeypatch.setattr(diagnosis, "PROBE_TIMEOUT_S", 60)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("certificates")


@pytest.fixture(scope="module")
def server(folder: Path) -> dict[str, Any]:
    """The settings of a listener."""
    trust = the_authority().trust_settings(folder / "clients.pem")
    return issue(the_authority(), "server").key_settings(folder / "server.pem") | trust


@pytest.fixture(scope="module")
def client(folder: Path) -> dict[str, Any]:
    """The settings of a client that trusts it."""
    return QUICK | {"security.protocol": "SSL"} | the_authority().trust_settings(folder / "trust.pem")


@pytest.fixture(scope="module")
def alice(folder: Path) -> dict[str, Any]:
    """The settings of a client's own key."""
    return issue(the_authority(), "alice", ()).key_settings(folder / "alice.pem")


@pytest.fixture
def brokers() -> Iterator[Any]:
    """Starts a fake broker with a listener of these settings."""
    started = []

    def start(settings: dict[str, Any] | None) -> FakeCluster:
        started.append(FakeCluster(1, None if settings is None else server_context(settings)))
        return started[-1]

    yield start
    for each in started:
        each.close()


@pytest.fixture
def refusing() -> Iterator[Any]:
    """Starts a server of these settings that sends alerts, which those of asyncio do not; gives its address."""
    listening: list[socket.socket] = []

    def start(settings: dict[str, Any], after: Callable[[ssl.SSLSocket], object] = lambda sock: None) -> str:
        context, server = server_context(settings), socket.create_server(("127.0.0.1", 0))
        listening.append(server)

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with suppress(OSError), connection, context.wrap_socket(connection, server_side=True) as secured:
                    after(secured)

        threading.Thread(target=serve, daemon=True).start()
        return f"127.0.0.1:{server.getsockname()[1]}"

    yield start
    for each in listening:
        each.shutdown(socket.SHUT_RDWR)
        each.close()


@pytest.fixture
def servers() -> Iterator[OddServers]:
    started = OddServers()
    yield started
    started.close()


@pytest.mark.parametrize("protocol", ["TLSv1.2", "TLSv1.3"])
def test_records_small_and_large_go_there_and_back(
    facade: Any, brokers: Any, server: Any, client: Any, alice: Any, protocol: str
) -> None:
    fake = brokers(server | {"ssl.client.auth": "required"})
    (partition,) = fake.topic("t", 0)
    settings = client | alice | {"bootstrap.servers": f"SSL://{fake.bootstrap}", "ssl.enabled.protocols": protocol}
    values = [bytes([at]) * size for at, size in enumerate((0, 1, 17_000, MAX_LARGE_BYTES, 5))]
    with facade.producer(settings, linger_ms=0) as producer:
        for value in values:
            producer.send("t", value)
            producer.flush()
    with facade.consumer(settings, auto_offset_reset="earliest") as consumer:
        consumer.assign([partition])
        read: list[bytes] = []
        while len(read) < len(values):
            read += [record.value for record in consumer.poll(timeout_ms=10_000)]
    assert read == values


def test_a_key_store_in_pkcs12_and_one_in_settings(
    facade: Any, brokers: Any, server: Any, client: Any, folder: Path
) -> None:
    fake = brokers(server | {"ssl.client.auth": "required"})
    bob = issue(the_authority(), "bob", ())
    (folder / "bob.p12").write_bytes(bob.pkcs12())
    in_file = {"ssl.keystore.location": str(folder / "bob.p12"), "ssl.keystore.password": PASSWORD}
    in_settings = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": bob.key_pem(PASSWORD),
        "ssl.keystore.certificate.chain": bob.chain_pem,
        "ssl.key.password": PASSWORD,
    }
    for own in (in_file, in_settings):
        with facade.admin(client | own | {"bootstrap.servers": fake.bootstrap}) as admin:
            assert admin.list_topics() == []


def test_settings_reach_another_process_without_their_context(brokers: Any, server: Any, client: Any) -> None:
    """As those of Spark's tasks do."""
    fake = brokers(server)
    config = parse_admin_config(client | {"bootstrap.servers": fake.bootstrap}, {})
    copied = pickle.loads(pickle.dumps(config.client_settings))
    with Client(**{field.name: getattr(copied, field.name) for field in fields(copied)}) as connected:
        assert connected.topics() == []


def met(facade: Any, settings: dict[str, Any]) -> ClientError:
    with facade.admin(settings, default_api_timeout_ms=10_000) as admin, pytest.raises(ClientError) as raised:
        admin.list_topics()
    error, address = raised.value, settings["bootstrap.servers"]
    if isinstance(error, AuthenticationError | SecurityMismatchError) and "breaks off" not in str(error):
        message = str(error).replace(address, "broker1:9092").replace("the name 127.0.0.1", "the name broker1")
        assert f"| `{type(error).__name__}` | {message} |" in DOCS
    return error


@pytest.mark.parametrize("protocol", ["TLSv1.2", "TLSv1.3"])
def test_a_missing_client_certificate(facade: Any, refusing: Any, server: Any, client: Any, protocol: str) -> None:
    """With TLS 1.3 the broker says so only after the handshake."""
    address = refusing(server | {"ssl.client.auth": "required", "ssl.enabled.protocols": protocol})
    error = met(facade, client | {"bootstrap.servers": address})
    assert type(error) is AuthenticationError
    assert "wants a certificate of this client, which has none; set ssl.keystore.location" in str(error)


@pytest.mark.parametrize("protocol", ["TLSv1.2", "TLSv1.3"])
@pytest.mark.parametrize(
    ("expired", "message"),
    [
        (False, r"refuses the certificate of this client \(unknown ca\); have it signed by an authority"),
        (True, "says that the certificate of this client has expired; renew"),
    ],
)
def test_a_client_certificate_that_is_refused(
    facade: Any,
    refusing: Any,
    server: Any,
    client: Any,
    tmp_path: Path,
    protocol: str,
    expired: bool,
    message: str,
) -> None:
    address = refusing(server | {"ssl.client.auth": "required", "ssl.enabled.protocols": protocol})
    mallory = issue(the_authority() if expired else authority("another"), "mallory", (), expired=expired)
    settings = client | mallory.key_settings(tmp_path / "mallory.pem") | {"bootstrap.servers": address}
    with pytest.raises(AuthenticationError, match=message):
        raise met(facade, settings)


def test_each_fault_of_the_servers_certificate_has_its_cure(
    facade: Any, brokers: Any, client: Any, tmp_path: Path
) -> None:
    faults = {
        "has expired; renew it on the broker": issue(the_authority(), "old", expired=True),
        "is not for the name 127.0.0.1; connect by a name that it has": issue(the_authority(), "x", ("broker1",)),
        "is not signed by an authority that this client trusts; set ssl.truststore": issue(authority("b"), "server"),
    }
    for at, (message, issued) in enumerate(faults.items()):
        fake = brokers(issued.key_settings(tmp_path / f"{at}.pem"))
        error = met(facade, client | {"bootstrap.servers": fake.bootstrap})
        assert type(error) is AuthenticationError
        assert f"the certificate of {fake.bootstrap}" in str(error)
        assert message in str(error)
        assert not error.retriable


def test_the_host_name_is_not_checked_where_the_algorithm_is_empty(
    facade: Any, brokers: Any, client: Any, tmp_path: Path
) -> None:
    fake = brokers(issue(the_authority(), "x", ("broker1",)).key_settings(tmp_path / "key.pem"))
    settings = client | {"bootstrap.servers": fake.bootstrap, "ssl.endpoint.identification.algorithm": ""}
    with facade.admin(settings) as admin:
        assert admin.list_topics() == []


def test_no_version_in_common(facade: Any, refusing: Any, server: Any, client: Any) -> None:
    address = refusing(server | {"ssl.enabled.protocols": "TLSv1.3"})
    error = met(facade, client | {"bootstrap.servers": address, "ssl.enabled.protocols": "TLSv1.2"})
    assert "have no version of TLS in common; compare ssl.enabled.protocols on both sides" in str(error)


def test_a_listener_for_plain_text(facade: Any, brokers: Any, client: Any) -> None:
    fake = brokers(None)
    error = met(facade, client | {"bootstrap.servers": fake.bootstrap})
    assert type(error) is SecurityMismatchError
    assert "is a listener for plain text, and this client speaks TLS; set security.protocol=PLAINTEXT" in str(error)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("web", "it answers in HTTP"),
        ("zookeeper", "is a ZooKeeper, no broker"),
        ("closing", "during the TLS handshake"),
    ],
)
def test_servers_that_are_no_brokers(facade: Any, servers: OddServers, client: Any, kind: str, message: str) -> None:
    port = servers.start(getattr(odd_servers, kind))
    error = met(facade, client | {"bootstrap.servers": f"127.0.0.1:{port}"})
    assert isinstance(error, NotKafkaError)
    assert message in str(error)


def test_a_listener_with_logins_inside_of_tls(facade: Any, servers: OddServers, server: Any, client: Any) -> None:
    port = servers.start(odd_servers.sasl_listener, server_context(server))
    error = met(facade, client | {"bootstrap.servers": f"127.0.0.1:{port}"})
    assert type(error) is SecurityMismatchError
    assert "is a listener with SASL: it wants a login (PLAIN, SCRAM-SHA-256)" in str(error)


def damage(sock: ssl.SSLSocket) -> None:
    """Read a request, and answer with bytes that are not TLS."""
    sock.read(1)
    os.write(sock.fileno(), b"\x17\x03\x03\x00\x20" + bytes(32))
    sock.read()


def test_bytes_that_are_damaged_on_the_way_end_the_connection(
    facade: Any, refusing: Any, server: Any, client: Any
) -> None:
    error = met(facade, client | {"bootstrap.servers": refusing(server, damage)})
    assert "breaks off TLS (" in str(error)
