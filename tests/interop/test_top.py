"""`ottla top` beside Apache Kafka, whose brokers keep no evidence of rebalances."""

from __future__ import annotations

import json
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import Consumer
from typer.testing import CliRunner

from ottla.cli.main import app
from ottla.client.admin.model import NewTopic
from ottla.client.sync import Admin, Producer
from support.brokers import RunningBroker
from support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.needs_kafka, pytest.mark.spec("U2")]

RECORDS = 10


def look(bootstrap: str) -> Any:
    done = CliRunner().invoke(app, ["top", "--once", "--json", "--interval", "0.1", "-b", bootstrap])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_brokers_topics_and_groups(apache_kafka: RunningBroker, unique: str) -> None:
    bootstrap = apache_kafka.bootstrap
    with Admin(bootstrap_servers=bootstrap) as admin, Producer(bootstrap_servers=bootstrap) as producer:
        admin.create_topics([NewTopic(unique, 2)])
        for number in range(RECORDS):
            producer.send(unique, b"record", partition=number % 2)
    settings = {"bootstrap.servers": bootstrap, "group.id": unique, "auto.offset.reset": "earliest", "log_level": 0}
    with closing(Consumer({**settings, "enable.auto.commit": False})) as consumer:
        consumer.subscribe([unique])
        read = [wait_until(lambda: consumer.poll(0.1), "a record")]
        assert read[0].error() is None
        consumer.commit(message=read[0], asynchronous=False)
        row = look(bootstrap)
    [topic] = [each for each in row["topics"] if each["topic"] == unique]
    assert (topic["partitions"], topic["records_per_s"], topic["under_replicated"]) == (2, 0, 0)
    assert topic["size_bytes"] > 0
    [group] = [each for each in row["groups"] if each["group"] == unique]
    assert (group["state"], group["member_count"], group["consumed_per_s"]) == ("Stable", 1, 0)
    assert group["lag"] == RECORDS // 2 - read[0].offset() - 1
    assert [(each["state"], each["problem"]) for each in row["brokers"]] == [("up", None)]
    assert row["rebalances"] is None
