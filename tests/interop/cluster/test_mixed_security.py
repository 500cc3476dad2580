"""A broker of Apache Kafka and one of ottla that know each other by TLS, certificates and logins, with ACLs."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from confluent_kafka.cimpl import NewTopic

from support.apache import ApacheZooKeeper
from support.certificates import issue, the_authority
from support.command_line import ottla
from support.ottla_server import OttlaServer
from support.ports import free_port
from support.secured_listeners import SecuredKafka
from support.waiting import wait_until

pytestmark = [
    pytest.mark.needs_kafka,
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.spec("S1", "S2", "S3", "R8"),
]
MECHANISM = "SCRAM-SHA-256"
DENIED = KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_brokers_of_both_kinds_log_in_to_each_other_and_decide_alike(
    tmp_path: Path, apache_zookeeper: ApacheZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    ports = {1: free_port(), 2: free_port()}
    zookeeper = f"{apache_zookeeper.connect}/mixed-security"
    for user in ("admin", "ann"):
        monkeypatch.setenv("OTTLA_USER_PASSWORD", f"{user}-secret")
        made = ottla("user", "create", user, "-m", MECHANISM, "-z", zookeeper)
        assert made.exit_code == 0, made.output

    def overrides(broker_id: int) -> dict[str, str]:
        module = "org.apache.kafka.common.security.scram.ScramLoginModule"
        return {
            "broker.id": str(broker_id),
            "zookeeper.connect": zookeeper,
            "listeners": f"SASL_SSL://127.0.0.1:{ports[broker_id]}",
            "inter.broker.listener.name": "SASL_SSL",
            "listener.name.sasl_ssl.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": MECHANISM,
            "sasl.mechanism.inter.broker.protocol": MECHANISM,
            "listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config": (
                f'{module} required username="admin" password="admin-secret";'
            ),
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": "User:admin",
            "offsets.topic.replication.factor": "1",
            **issue(the_authority(), f"broker{broker_id}").key_settings(tmp_path / f"{broker_id}.pem"),
            **the_authority().trust_settings(tmp_path / "ca.pem"),
        }

    def client(user: str) -> dict[str, str]:
        return {
            "bootstrap.servers": f"127.0.0.1:{ports[1]},127.0.0.1:{ports[2]}",
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(tmp_path / "ca.pem"),
            "ssl.certificate.location": str(tmp_path / "1.pem"),
            "ssl.key.location": str(tmp_path / "1.pem"),
            "sasl.mechanisms": MECHANISM,
            "sasl.username": user,
            "sasl.password": f"{user}-secret",
        }

    def failures(user: str, records: int = 2) -> list[int | None]:
        """What became of records sent in turns to both brokers' partitions."""
        found: dict[int, int | None] = {}
        producer = Producer({**client(user), "acks": "all", "message.timeout.ms": "60000"})
        for number in range(records):

            def note(error: KafkaError | None, _: object, number: int = number) -> None:
                found[number] = error and error.code()

            producer.produce("t", b"x" * 10_000, partition=number % 2, on_delivery=note)
        assert producer.flush(120) == 0
        return [found[number] for number in range(records)]

    apache = SecuredKafka(tmp_path / "apache", zookeeper=apache_zookeeper, overrides=overrides(1))
    ours = OttlaServer(tmp_path / "ottla", overrides=overrides(2))
    try:
        apache.start()
        ours.start()
        admin = AdminClient(client("admin"))
        wait_until(lambda: len(admin.list_topics(timeout=60).brokers) == 2, "both brokers")
        topic = NewTopic("t", 2, replica_assignment=[[1, 2], [2, 1]], config={"min.insync.replicas": "2"})
        admin.create_topics([topic])["t"].result(60)
        # Each is the leader of one partition, and the other's follower.
        assert failures("admin", 200) == [None] * 200
        leaders = {each.id: each.leader for each in admin.list_topics("t", timeout=60).topics["t"].partitions.values()}
        assert leaders == {0: 1, 1: 2}

        def set_acl(permission: AclPermissionType) -> None:
            pattern = (ResourceType.TOPIC, "t", ResourcePatternType.PREFIXED)
            acl = AclBinding(*pattern, "User:ann", "*", AclOperation.WRITE, permission)
            admin.create_acls([acl])[acl].result(60)

        assert failures("ann") == [DENIED, DENIED]
        set_acl(AclPermissionType.ALLOW)
        wait_until(lambda: failures("ann") == [None, None], "both brokers allow it")
        set_acl(AclPermissionType.DENY)
        wait_until(lambda: failures("ann") == [DENIED, DENIED], "both brokers deny it")
    finally:
        ours.stop()
        apache.stop()
        shutil.rmtree(tmp_path / "apache", ignore_errors=True)
