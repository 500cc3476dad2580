"""The same work done with our broker and with Apache Kafka, on one Apache ZooKeeper: the trees are compared."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)
from kazoo.client import KazooClient

from ottla.zk.layout import ConsumerOffsetZnode
from support.apache import ApacheKafka, ApacheZooKeeper
from support.java import java_tool
from support.old_consumers import OldConsumer, old_tool
from support.ottla_server import OttlaServer
from support.waiting import wait_until
from support.zk_clusters import Cluster
from support.zk_trees import Nodes, dumped, open_tree

pytestmark = [
    pytest.mark.needs_kafka,
    pytest.mark.needs_082,
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.timeout(600),
    pytest.mark.spec("Z1", "Z2"),
]

BOTH = {
    "broker.rack": "r1",
    "group.initial.rebalance.delay.ms": "0",
    "num.partitions": "3",
    "offsets.topic.num.partitions": "2",
    "zookeeper.session.timeout.ms": "6000",
}


@pytest.fixture
def clusters(apache_zookeeper: ApacheZooKeeper, tmp_path: Path) -> Iterator[tuple[Cluster, Cluster]]:
    """Our broker and Apache Kafka, of the same id and the same settings, each with a chroot of its own."""
    ours, theirs = (f"{apache_zookeeper.connect}/same-tree-{name}" for name in ("ottla", "apache"))
    server = OttlaServer(tmp_path / "ottla", overrides=BOTH, arguments=["--id", "1", "--zookeeper", ours])
    kafka = ApacheKafka(tmp_path, zookeeper=apache_zookeeper, overrides={**BOTH, "zookeeper.connect": theirs})
    try:
        yield Cluster(server.start().bootstrap, ours), Cluster(kafka.start().bootstrap, theirs)
    finally:
        server.stop()
        kafka.stop()


def made(admin: AdminClient) -> None:
    """Topics made, grown, set, deleted."""
    configs = {"cleanup.policy": "compact", "retention.ms": "1", "segment.bytes": "99999"}
    topics = [
        NewTopic("plain", 2, 1),
        NewTopic("wide", 14, 1),
        NewTopic("default"),
        NewTopic("configured", 1, 1, config=configs),
        NewTopic("assigned", 2, replica_assignment=[[1], [1]]),
        NewTopic("gone", 1, 1),
    ]
    for made_topic in admin.create_topics(topics).values():
        made_topic.result(120)
    for grown in admin.create_partitions([NewPartitions("plain", 5)]).values():
        grown.result(120)
    for kind, name, key, value in (
        (ResourceType.TOPIC, "plain", "flush.ms", "7"),
        (ResourceType.TOPIC, "plain", "retention.ms", "8"),
        (ResourceType.BROKER, "1", "log.cleaner.threads", "1"),
    ):
        change = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(kind, name, incremental_configs=[change])
        for done in admin.incremental_alter_configs([resource]).values():
            done.result(120)
    for deleted in admin.delete_topics(["gone"]).values():
        deleted.result(120)


def used(bootstrap: str) -> None:
    """A producer with an id, a topic made by a client, and a group of the coordinator."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    producer.produce("plain", b"x", partition=0)
    producer.produce("made-by-a-producer", b"x")
    assert producer.flush(120) == 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "of-the-coordinator"})
    consumer.commit(offsets=[TopicPartition("plain", 0, 1)], asynchronous=False)
    consumer.close()


@contextmanager
def lived(cluster: Cluster, folder: Path) -> Iterator[KazooClient]:
    """Everything done; as long as it lasts a consumer of 0.8.2.2 is there."""
    made(AdminClient({"bootstrap.servers": cluster.bootstrap}))
    used(cluster.bootstrap)
    everyone = ("--entity-type", "brokers", "--entity-default", "--alter", "--add-config", "log.retention.ms=9000000")
    java_tool("kafka.admin.ConfigCommand", "--bootstrap-server", cluster.bootstrap, *everyone)
    topics = ("kafka.admin.TopicCommand", "--zookeeper", cluster.zookeeper)
    old_tool(*topics, "--create", "--topic", "old", "--partitions", "2", "--replication-factor", "1")
    old_tool(*topics, "--create", "--topic", "old-gone", "--partitions", "1", "--replication-factor", "1")
    with ExitStack() as stack:
        zk = open_tree(cluster.zookeeper)
        stack.callback(zk.close)
        stack.callback(zk.stop)
        state = "/brokers/topics/old-gone/partitions/0/state"
        wait_until(lambda: zk.exists(state) is not None, "a leader of the topic")
        old_tool(*topics, "--delete", "--topic", "old-gone")
        wait_until(lambda: not zk.get_children("/admin/delete_topics"), "the topic to be deleted")
        old_tool(*topics, "--alter", "--topic", "old", "--config", "retention.ms=2")
        consumer = OldConsumer(
            "named", folder, zookeeper=cluster.zookeeper, group="of-zookeeper", subscription="old:2,plain:1"
        )
        stack.callback(consumer.process.kill9)
        wanted = [("old", 0), ("old", 1), *(("plain", number) for number in range(5))]
        paths = [ConsumerOffsetZnode.path("of-zookeeper", topic, number) for topic, number in wanted]
        wait_until(lambda: all(zk.exists(path) is not None for path in paths), "offsets in ZooKeeper")
        wait_until(lambda: zk.get(ConsumerOffsetZnode.path("of-zookeeper", "plain", 0))[0] == b"1", "what is consumed")
        yield zk


def without_chance(nodes: Nodes) -> dict[str, object]:
    """The tree without ids, times and ports."""
    free = {"topic_id", "timestamp", "id", "port", "endpoints"}
    scrubbed: dict[str, object] = {}
    for path, (text, ephemeral) in nodes.items():
        data: object = text
        if text is not None and text.startswith("{"):
            data = [(name, None if name in free else json.dumps(value)) for name, value in json.loads(text).items()]
        scrubbed[path] = (data, ephemeral)
    return scrubbed


def test_the_same_work_leaves_the_same_tree(clusters: tuple[Cluster, Cluster], tmp_path: Path) -> None:
    trees = []
    for number, cluster in enumerate(clusters):
        with lived(cluster, tmp_path / f"consumer-{number}") as zk:
            trees.append(without_chance(dumped(zk)))
    ours, theirs = trees
    assert sorted(ours) == sorted(theirs)
    assert {path: node for path, node in ours.items() if node != theirs[path]} == {}
