"""`ottla transaction` beside Apache Kafka's own tool, with our broker and with Apache's: they show the same."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.client.sync import Admin, Producer
from support.apache import ApacheKafka
from support.brokers import RunningBroker
from support.command_line import ottla
from support.hanging_transactions import UNVERIFIED, hang
from support.java import java_tool
from support.ottla_server import OttlaServer

pytestmark = [pytest.mark.needs_kafka, pytest.mark.slow, pytest.mark.spec("X4")]

TOOL = "org.apache.kafka.tools.TransactionsCommand"
HOUR_MS = 3_600_000
FIRST, SECOND = 7_000, 7_001


@pytest.fixture(params=["ottla", pytest.param("apache", marks=pytest.mark.long)])
def unverified(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RunningBroker]:
    server: OttlaServer | ApacheKafka = OttlaServer(tmp_path, overrides=UNVERIFIED)
    if request.param == "apache":
        server = ApacheKafka(tmp_path, zookeeper=None, overrides=UNVERIFIED)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def theirs(broker: RunningBroker, *arguments: str) -> list[list[str]]:
    """The cells of the rows that Apache's tool shows, without headings."""
    shown = java_tool(TOOL, "--bootstrap-server", broker.bootstrap, *arguments).stdout
    return sorted(line.split() for line in shown.splitlines()[1:])


def ours(broker: RunningBroker, *arguments: str) -> list[dict[str, Any]]:
    done = ottla("transaction", *arguments, "--json", "-b", broker.bootstrap)
    return [json.loads(line) for line in done.stdout.splitlines()]


def hanging(broker: RunningBroker, topic: str) -> list[int]:
    """The producers of transactions that hang, which both find with the same epochs and offsets."""
    columns = ("topic", "partition", "producer_id", "producer_epoch", "coordinator_epoch", "start_offset")
    found = ours(broker, "find-hanging", topic)
    shown = [[str(-1 if row[each] is None else row[each]) for each in columns] for row in found]
    assert [row[: len(columns)] for row in theirs(broker, "find-hanging", "--topic", topic)] == shown
    return [row["producer_id"] for row in found]


def test_both_tools_see_and_abort_the_same(unverified: RunningBroker, unique: str) -> None:
    broker = unverified
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topic(unique, partitions=3)
    with Producer(bootstrap_servers=broker.bootstrap, transactional_id=unique) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(unique, b"open", partition=2).result()
        (row,) = ours(broker, "list", "--state", "Ongoing")
        listed = [unique, str(row["coordinator"]), str(row["producer_id"]), "Ongoing"]
        assert theirs(broker, "list") == [listed]
        (row,) = ours(broker, "describe", unique)
        (described,) = theirs(broker, "describe", "--transactional-id", unique)
        assert described[0] == str(row["coordinator"])
        assert described[-1] == f"{unique}-{row['partitions'][0]['partition']}"
        assert {str(row["producer_id"]), str(row["producer_epoch"]), str(row["timeout_ms"])} <= set(described)
        producer.abort_transaction()
    an_hour_ago_ms = round(time.time() * 1000) - HOUR_MS
    hang(broker.port, unique, 0, FIRST, timestamp_ms=an_hour_ago_ms)
    hang(broker.port, unique, 1, SECOND, timestamp_ms=an_hour_ago_ms)
    assert hanging(broker, unique) == [FIRST, SECOND]
    where = ["abort", "--topic", unique, "--start-offset", "0", "--partition"]
    theirs(broker, *where, "0")
    assert hanging(broker, unique) == [SECOND]
    assert ours(broker, *where, "1", "--yes")[0]["aborted"] is True
    assert hanging(broker, unique) == []
