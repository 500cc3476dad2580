"""A SASL_SSL listener: TLS, then a login, which alone says who the client is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from ottla.broker.dispatch import BEFORE_AUTHENTICATION
from ottla.broker.served import SERVED
from ottla.client.errors import AuthenticationError, BrokerError
from ottla.client.sync import Admin
from ottla.net.connection import Principal
from ottla.testing import Broker
from ottla.wire.apis import API
from ottla.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from support.certificates import issue, the_authority
from support.framed_socket import Disconnected
from support.raw_client import RawClient
from support.sasl_broker import PASSWORD, SETTINGS, USER, login
from support.wired_connection import client_context

pytestmark = [pytest.mark.spec("S1"), pytest.mark.spec("S2")]
JAAS = SETTINGS["listener.name.sasl_plaintext.plain.sasl.jaas.config"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sasl_ssl")


@pytest.fixture(scope="module")
def broker(folder: Path) -> Iterator[Broker]:
    """With TLS and logins between brokers, too, and with ACLs: only admin may do everything."""
    settings = {
        "listeners": "SASL_SSL://127.0.0.1:0",
        "security.inter.broker.protocol": "SASL_SSL",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": JAAS,
        "listener.name.sasl_ssl.ssl.client.auth": "requested",
        "ssl.endpoint.identification.algorithm": "",
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:admin;User:CN=admin",
        "sasl.server.max.receive.size": "5000",
    }
    keys = issue(the_authority(), "localhost").key_settings(folder / "broker.pem")
    with Broker(settings=settings | keys | the_authority().trust_settings(folder / "ca.pem")) as broker:
        yield broker


@pytest.fixture
def client(broker: Broker) -> Iterator[RawClient]:
    client = RawClient(broker.port)
    shown = issue(the_authority(), "admin", ())
    client.socket = client_context(shown).wrap_socket(client.socket, server_hostname="localhost")
    yield client
    client.close()


def is_closed(client: RawClient) -> bool:
    try:
        client.receive_frame()
    except (Disconnected, OSError):
        return True
    return False


@pytest.mark.parametrize("key", sorted(SERVED.keys() - BEFORE_AUTHENTICATION))
def test_a_certificate_is_no_login(client: RawClient, key: int) -> None:
    with suppress(Disconnected, OSError):
        client.send(API[key].request(), SERVED[key].max_version)
    assert is_closed(client)


def test_large_requests_need_a_login(client: RawClient) -> None:
    client.send_bytes((5001).to_bytes(4, "big"))
    assert is_closed(client)


def test_the_principal_comes_from_the_login(broker: Broker, client: RawClient) -> None:
    handshake = client.ask(SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse, 0)
    assert handshake.error_code == 0
    token = f"\0{USER}\0{PASSWORD}".encode()
    client.send_bytes(len(token).to_bytes(4, "big") + token)
    assert client.receive_frame() == b""
    principals = {each.principal for each in broker.server.connections.snapshot()}
    assert Principal("User", USER) in principals
    assert not {each for each in principals if each is not None and "CN" in each.name}
    again = client.ask(SaslAuthenticateRequest(auth_bytes=token), SaslAuthenticateResponse, 2)
    assert again.error_code != 0


def test_acls_are_asked_about_the_user(broker: Broker, folder: Path) -> None:
    trust = the_authority().trust_settings(folder / "ca.pem") | {"ssl.endpoint.identification.algorithm": ""}
    shared = {"security.protocol": "SASL_SSL"} | trust
    with Admin(login(broker, user="admin", password="admin-secret") | shared) as admin:
        admin.create_topic("t")
        assert "t" in admin.list_topics()
    with Admin(login(broker) | shared) as admin:
        assert "t" not in admin.list_topics()
        with pytest.raises(BrokerError, match="AUTHORIZATION_FAILED"):
            admin.create_topic("u")
    with Admin(login(broker, password="wrong") | shared) as admin, pytest.raises(AuthenticationError):
        admin.list_topics()
