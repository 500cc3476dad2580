"""Apache Kafka's tools of 0.8.2.2, which write the tree themselves, against a broker over each kind of tree."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from interop.zookeeper.brokers.test_in_the_tree import partitions, read, send, setting
from support.old_consumers import old_tool
from support.ottla_server import OttlaServer
from support.waiting import wait_until

pytestmark = [pytest.mark.needs_082, pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.spec("Z1", "Z2")]


def test_over_a_zookeeper(serve: Callable[..., OttlaServer], address: str) -> None:
    check_topics_are_made_shown_altered_and_deleted(serve(overrides={"broker.id": "7"}), address)


def test_over_the_broker_s_own_tree(tmp_path: Path) -> None:
    server = OttlaServer(tmp_path, arguments=["--zookeeper-port", "0", "--id", "7"])
    server.start()
    try:
        address = re.findall(r"ZooKeeper clients on ([^\s,]+)", server.server.stdout)[-1]
        check_topics_are_made_shown_altered_and_deleted(server, address)
    finally:
        server.stop()


def check_topics_are_made_shown_altered_and_deleted(server: OttlaServer, address: str) -> None:
    def tool(*arguments: str) -> str:
        return old_tool("kafka.admin.TopicCommand", "--zookeeper", address, *arguments).stdout

    made = tool(
        "--create", "--topic", "old", "--partitions", "2", "--replication-factor", "1", "--config", "retention.ms=77000"
    )
    assert 'Created topic "old"' in made
    wait_until(lambda: partitions(server, "old") == 2, "the topic")
    assert setting(server, "old", "retention.ms") == "77000"
    send(server, "old", "x", partition=1)
    assert tool("--list").split() == ["old"]
    shown = tool("--describe", "--topic", "old")
    assert re.search(r"Partition: 1\s+Leader: 7\s+Replicas: 7\s+Isr: 7", shown), shown
    tool("--alter", "--topic", "old", "--partitions", "3", "--config", "retention.ms=88000")
    wait_until(lambda: partitions(server, "old") == 3, "the third partition")
    wait_until(lambda: setting(server, "old", "retention.ms") == "88000", "the setting")
    send(server, "old", "y", partition=2)
    assert read(server, "old", 2) == ["x", "y"]
    tool("--delete", "--topic", "old")
    wait_until(lambda: partitions(server, "old") == 0, "the deletion")
    assert "old" not in tool("--list").split()
    assert "Traceback" not in server.server.stderr
