"""`ottla doctor` beside Apache Kafka: silent about what is well, and the same names for what is not."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner, Result

from ottla.cli.main import app
from ottla.client.admin.model import NewTopic
from ottla.client.model import TopicPartition
from ottla.client.sync import Admin, Consumer, Producer
from support.apache import ApacheKafka

pytestmark = [pytest.mark.spec("U2"), pytest.mark.needs_java, pytest.mark.needs_kafka]

TOPIC, GROUP = "doctor-orders", "doctor-group"
FIRST = TopicPartition(TOPIC, 0)


def doctor(kafka: ApacheKafka, *arguments: str) -> Result:
    """Other tests leave topics and groups at this broker, so only ours are looked for."""
    command = [
        "doctor",
        "-b",
        kafka.bootstrap,
        "-g",
        GROUP,
        "--data",
        str(kafka.log_dir),
        "--interval",
        "0.1",
        "--json",
    ]
    return CliRunner().invoke(app, [*command, *arguments])


def faults(kafka: ApacheKafka) -> list[str]:
    done = doctor(kafka)
    assert done.exit_code in (0, 1), done.output
    rows = map(json.loads, done.stdout.splitlines())
    return [each["fault"] for each in rows if TOPIC in each["what"] + each["where"] or GROUP in each["where"]]


def test_topics_and_groups_of_apache_kafka(apache_kafka: ApacheKafka) -> None:
    settings = {"max.message.bytes": "200000000", "unclean.leader.election.enable": "true"}
    with Admin(bootstrap_servers=apache_kafka.bootstrap) as admin:
        admin.create_topics([NewTopic(TOPIC, 1, 1, configs=settings)])
        with Producer(bootstrap_servers=apache_kafka.bootstrap) as producer:
            producer.send(TOPIC, b"one")
            producer.flush()
        with Consumer(bootstrap_servers=apache_kafka.bootstrap, group_id=GROUP) as consumer:
            consumer.commit({FIRST: 1})
        assert faults(apache_kafka) == ["messages-above-request-limit"]
        with Consumer(bootstrap_servers=apache_kafka.bootstrap, group_id=GROUP) as consumer:
            consumer.commit({FIRST: 0})
        assert faults(apache_kafka) == ["messages-above-request-limit", "lag-without-members"]
        admin.delete_groups([GROUP])
        admin.delete_topics([TOPIC])
