"""Users and ACLs that are changed at one broker take effect at all of them, within a second.

The brokers log in to each other, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from ottla.client.admin import AclBinding, AclBindingFilter, UserScramCredentialDeletion, UserScramCredentialUpsertion
from ottla.client.errors import AuthenticationError
from ottla.client.sync import Admin
from ottla.security.scram import SCRAM_MECHANISMS
from ottla.testing import Cluster
from ottla.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from support.raw_client import RawClient
from support.sasl_broker import MECHANISMS, PASSWORD, SETTINGS, USER
from support.waiting import Stopwatch, wait_until

pytestmark = pytest.mark.slow
BROKERS = 3
LIMIT_S = 1.0
SHA_256, SHA_512 = SCRAM_MECHANISMS


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Its listeners want logins, and it has ACLs; admin is its super user."""
    settings = {name.replace("sasl_plaintext", "plaintext"): value for name, value in SETTINGS.items()}
    del settings["listeners"], settings["security.inter.broker.protocol"]
    settings |= {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "connection.failed.authentication.delay.ms": "10",
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:admin",
    }
    with Cluster(BROKERS, {"t": 1}, settings=settings) as cluster:
        yield cluster


def client(address: str, user: str, password: str, mechanism: str = MECHANISMS[0]) -> Admin:
    login = {"sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": password}
    return Admin({"bootstrap.servers": address, "security.protocol": "SASL_PLAINTEXT", **login})


def check_effect(change: Callable[[], object], seen: Callable[[], bool], what: str) -> None:
    change()
    watch = Stopwatch()
    wait_until(seen, what)
    assert watch.seconds() < LIMIT_S


@pytest.mark.spec("S3")
def test_acls(cluster: Cluster) -> None:
    with ExitStack() as stack:
        raw = [stack.enter_context(RawClient(int(each.split(":")[1]))) for each in cluster.bootstrap_servers.split(",")]
        for each in raw:
            each.ask(SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse, 0)
            token = f"\0{USER}\0{PASSWORD}".encode()
            each.send_bytes(len(token).to_bytes(4, "big") + token)
            assert each.receive_frame() == b""
        admin = stack.enter_context(client(cluster.bootstrap_servers, "admin", "admin-secret"))
        for _ in range(3):
            assert [each.topics() for each in raw] == [set()] * BROKERS
            check_effect(
                lambda: admin.create_acls([AclBinding("TOPIC", "t", f"User:{USER}", "DESCRIBE")]),
                lambda: all(each.topics() == {"t"} for each in raw),
                "the ACL on every broker",
            )
            check_effect(
                lambda: admin.delete_acls([AclBindingFilter("TOPIC")]),
                lambda: not any(each.topics() for each in raw),
                "the end of the ACL on every broker",
            )


@pytest.mark.spec("S2")
def test_users(cluster: Cluster) -> None:
    addresses = cluster.bootstrap_servers.split(",")

    def logins(password: str, mechanism: str = SHA_256) -> set[bool]:
        return {logs_in(address, password, mechanism) for address in addresses}

    with client(cluster.bootstrap_servers, "admin", "admin-secret") as admin:
        wait_until(lambda: len(cluster.in_sync("t")) == BROKERS, "brokers that log in to each other")
        for password in ("first", "second"):
            check_effect(
                lambda password=password: admin.alter_user_scram_credentials(
                    [UserScramCredentialUpsertion("amy", SHA_256, password)]
                ),
                lambda password=password: logins(password) == {True},
                "amy to log in at every broker",
            )
        assert logins("first") == logins("second", SHA_512) == {False}
        check_effect(
            lambda: admin.alter_user_scram_credentials([UserScramCredentialDeletion("amy", SHA_256)]),
            lambda: logins("second") == {False},
            "amy to be unknown at every broker",
        )


def logs_in(address: str, password: str, mechanism: str) -> bool:
    with client(address, "amy", password, mechanism) as admin:
        try:
            admin.list_topics()
        except AuthenticationError:
            return False
    return True
