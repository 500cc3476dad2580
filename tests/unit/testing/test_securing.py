"""Test brokers with TLS and logins: `tls=`, `sasl=` and the settings that they give to clients."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from ottla.client.errors import AuthenticationError
from ottla.client.sync import Admin, Producer
from ottla.testing import Broker, Cluster, TestBrokerError

pytestmark = pytest.mark.spec("U1", "S1", "S2")

USERS = {"alice": 'quo"ted\\', "bob": "b"}


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_client_logs_in_over_tls(mechanism: str) -> None:
    with Broker({"t": 1}, tls=True, sasl=USERS) as broker:
        for user in USERS:
            with Producer(broker.client_settings(user, mechanism)) as producer:
                producer.send("t", value=user.encode()).result()
        assert [each.value for each in broker.records("t")] == [b"alice", b"bob"]


def test_clients_of_others_trust_its_authority() -> None:
    from confluent_kafka.admin import AdminClient

    with Broker({"t": 1}, tls=True) as broker:
        assert broker.authority is not None
        settings = {"security.protocol": "ssl", "ssl.ca.pem": broker.authority}
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, **settings})
        assert "t" in admin.list_topics(timeout=60).topics


def test_clients_show_their_certificate() -> None:
    with Broker({"t": 1}, tls=True, settings={"ssl.client.auth": "required"}) as broker:
        settings = broker.client_settings()
        with Admin(settings) as admin:
            assert "t" in admin.list_topics()
        bare = {name: value for name, value in settings.items() if "keystore" not in name}
        with pytest.raises(AuthenticationError, match="certificate"), Admin(bare) as admin:
            admin.list_topics()


def test_a_wrong_password_is_refused() -> None:
    fast = {"connection.failed.authentication.delay.ms": 0}
    with Broker({"t": 1}, sasl=USERS, settings=fast) as broker:
        settings = broker.client_settings("alice") | {"sasl.password": "b"}
        with pytest.raises(AuthenticationError), Producer(settings) as producer:
            producer.send("t", value=b"x").result()


def test_brokers_of_a_cluster_log_in_to_each_other() -> None:
    with Cluster(2, {"t": 1}, tls=True, sasl=USERS) as cluster:
        with Producer({**cluster.client_settings("bob", "SCRAM-SHA-512"), "acks": "all"}) as producer:
            producer.send("t", value=b"x").result()
        for broker in cluster.running:
            assert cluster.wait_for_records("t", 1, broker=broker)[0].value == b"x"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"sasl": {}}, "give passwords by user"),
        ({"sasl": {"a b": "x"}}, "user 'a b': a name has letters"),
        ({"sasl": {"alice": ""}}, "user 'alice'"),
        ({"sasl": USERS, "settings": {"listeners": "PLAINTEXT://:0"}}, "leave host=, port=, tls= and sasl= out"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(TestBrokerError) as error:
        Broker(**arguments)
    assert words in str(error.value)


def test_users_and_mechanisms_are_looked_up() -> None:
    with Broker(sasl=USERS) as broker, pytest.raises(TestBrokerError, match="eve with PLAIN: the users are alice, bob"):
        broker.client_settings("eve")


def test_without_trustme_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "trustme", None)
    with pytest.raises(TestBrokerError, match=r"tls=True needs trustme: pip install 'ottla\[certificates\]'"):
        Broker(tls=True)
