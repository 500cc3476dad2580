"""An Apache Kafka broker that has our server for its ZooKeeper."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.apache import ApacheKafka
from support.ottla_zookeeper import OttlaZooKeeper
from support.waiting import wait_until
from support.zk_trees import open_tree

pytestmark = [pytest.mark.spec("Z2"), pytest.mark.needs_kafka, pytest.mark.slow, pytest.mark.timeout(600)]


def test_a_broker_lives_on_our_server_through_its_death(tmp_path: Path) -> None:
    zookeeper = OttlaZooKeeper(tmp_path / "zookeeper").start()
    # The session is to outlive the server's death.
    kafka = ApacheKafka(tmp_path / "kafka", zookeeper=zookeeper)
    client = open_tree(zookeeper.connect)
    try:
        kafka.start()
        create_topic(kafka, "first")
        assert len(client.get_children("/brokers/topics/first/partitions")) == 3
        registered = client.get("/brokers/ids/1")[1]
        zookeeper.server.kill9()
        zookeeper.start()
        wait_until(lambda: client.connected, "the client to come back")
        assert client.get("/brokers/ids/1")[1] == registered, "the broker's session went on"
        create_topic(kafka, "second")
        # As its tools of old did it.
        client.create("/admin/delete_topics/first")
        wait_until(lambda: client.get_children("/brokers/topics") == ["second"], "the topic to go")
        kafka.kill9()
        wait_until(lambda: client.get_children("/brokers/ids") == [], "the broker's session to expire")
    finally:
        client.stop()
        client.close()
        kafka.stop()
        zookeeper.stop()


def create_topic(kafka: ApacheKafka, name: str) -> None:
    kafka.tool("org.apache.kafka.tools.TopicCommand", "--create", "--topic", name, "--partitions", "3")
