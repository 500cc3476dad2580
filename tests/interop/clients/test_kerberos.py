"""SASL by GSSAPI in a realm of its own: our brokers and clients, and our clients at Apache Kafka.

`../test_security_matrix.py` has the logins of all clients.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.client.errors import AuthenticationError
from ottla.client.sync import Admin
from ottla.testing import Broker, Cluster, TestBrokerError
from support.apache import ApacheKafka
from support.java import QUICK_START
from support.kerberos import HOST, MODULE, REALM, Realm, broker_settings, login, realm
from support.ports import free_port
from support.waiting import wait_until

pytestmark = [pytest.mark.spec("S2"), pytest.mark.needs_kerberos]


@pytest.fixture(scope="module")
def kerberos(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realm]:
    with realm(tmp_path_factory.mktemp("realm")) as made:
        yield made


@pytest.fixture(scope="module")
def cluster(kerberos: Realm) -> Iterator[Cluster]:
    """Two brokers that log in to each other. Rules make BOB of team/bob, and no name of team/eve."""
    more = {
        "sasl.kerberos.principal.to.local.rules": "RULE:[2:$2](bob)s/(.*)/$1/U,RULE:[1:$1],RULE:[2:$1](kafka)",
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:kafka;User:ann;User:BOB",
        "default.replication.factor": "2",
    }
    with Cluster(2, {"t": 1}, settings=broker_settings(kerberos) | more) as started:
        yield started


def topics(cluster: Cluster, jaas: str, **more: str) -> set[str]:
    settings = login(cluster.bootstrap_servers, jaas) | {name.replace("_", "."): text for name, text in more.items()}
    with Admin(settings) as admin:
        return set(admin.list_topics())


def test_brokers_log_in_to_each_other(cluster: Cluster) -> None:
    wait_until(lambda: len(cluster.in_sync("t")) == 2, "a follower that fetches")


def test_rules_make_names(cluster: Cluster, kerberos: Realm, caplog: pytest.LogCaptureFixture) -> None:
    assert "t" in topics(cluster, kerberos.jaas("team/bob"))
    with pytest.raises(AuthenticationError, match=r"the login of user 'team/eve@OTTLA.TEST': .*compare its key"):
        topics(cluster, kerberos.jaas("team/eve"))
    assert "no rules apply to team/eve@OTTLA.TEST, rules RULE:[2:$2](bob)" in caplog.text


def test_tickets_of_a_cache(cluster: Cluster, kerberos: Realm, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a file, and of the default cache."""
    tickets = kerberos.tickets("ann")
    assert "t" in topics(cluster, f'{MODULE} required useTicketCache=true ticketCache="{tickets}";')
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tickets}")
    assert "t" in topics(cluster, f"{MODULE} required useTicketCache=true;")


def test_what_kerberos_refuses(cluster: Cluster, kerberos: Realm) -> None:
    jaas = kerberos.jaas("ann")
    with pytest.raises(AuthenticationError, match=f"gets no ticket for other@{HOST}: Kerberos: .*not found"):
        topics(cluster, jaas, sasl_kerberos_service_name="other")
    with pytest.raises(AuthenticationError, match="Kerberos: "):
        topics(cluster, f'{MODULE} required useKeyTab=true keyTab="/missing" principal="none@{REALM}";')


def test_a_broker_without_its_key_does_not_start(kerberos: Realm) -> None:
    name = "listener.name.plaintext.gssapi.sasl.jaas.config"
    settings = broker_settings(kerberos)
    settings[name] = settings[name].replace('principal="kafka/', 'principal="other/')
    with pytest.raises(TestBrokerError, match=f"the key of other/{HOST}@{REALM} cannot be read from keyTab"):
        Broker(settings=settings).start()


class KafkaWithTickets(ApacheKafka):
    """One whose listener wants a login: only its start is waited for."""

    def _port_when_started(self) -> int:
        return int("started (kafka.server.KafkaServer)" in self.server.stdout)


@pytest.mark.needs_kafka
@pytest.mark.slow
def test_our_clients_log_in_to_apache_kafka(
    apache_zookeeper: Any, kerberos: Realm, unique: str, tmp_path: Path
) -> None:
    port = free_port()
    settings = broker_settings(kerberos) | {
        "zookeeper.connect": f"{apache_zookeeper.connect}/{unique}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{port}",
    }
    options = (*QUICK_START, f"-Djava.security.krb5.conf={kerberos.environment['KRB5_CONFIG']}")
    kafka = KafkaWithTickets(tmp_path, zookeeper=apache_zookeeper, overrides=settings, jvm_options=options)
    try:
        kafka.start()
        with Admin(login(f"{HOST}:{port}", kerberos.jaas("ann"))) as admin:
            admin.create_topic(unique)
            assert unique in admin.list_topics()
    finally:
        kafka.stop()
