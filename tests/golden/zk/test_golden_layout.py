"""Znodes are those of Apache Kafka 3.9.1 in ZooKeeper mode.

`kafka_3_9_tree.json` is the tree of a real ZooKeeper after a broker of it (id 7, rack r1, `num.partitions=3`) had
started, made, altered and deleted topics, given out a producer id and served a group: path to data, ephemeral, version.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from ottla.broker.control.coordination import ClusterSession
from ottla.broker.control.plane import ControlPlane
from ottla.broker.control.startup import Startup
from ottla.cluster.controller_events import TopicCreated
from ottla.cluster.topics import GROUP_METADATA_TOPIC, TopicSpec
from ottla.config.broker import BrokerConfig, parse_broker_config
from ottla.config.listeners import Endpoint
from ottla.env.clock import VirtualClock
from ottla.env.randomness import Randomness
from ottla.testing.disk_memory import MemoryDisk
from ottla.zk import layout
from ottla.zk.client import LocalClient
from ottla.zk.store import TreeStore
from ottla.zk.tree import Create, Tree

NODES: dict[str, tuple[str | None, bool, int]] = {
    path: tuple(node)
    for path, node in json.loads((Path(__file__).parent / "kafka_3_9_tree.json").read_text())["nodes"].items()
}
pytestmark = pytest.mark.spec("Z1")
#: Topics that a ZooKeeper-mode broker makes of an assignment to brokers that do not exist; we refuse them.
WITHOUT_LEADER = ("z13", "z17", "z19")


def data(path: str) -> bytes:
    text = NODES[path][0]
    assert text is not None
    return text.encode()


def paths(prefix: str, depth: int) -> list[str]:
    return [path for path in NODES if path.startswith(prefix) and path.count("/") == depth]


def test_broker_registration() -> None:
    found = data("/brokers/ids/7")
    broker = layout.BrokerIdZnode.decode(7, found)
    assert broker.endpoints == (Endpoint("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 52192),)
    assert (broker.rack, broker.jmx_port) == ("r1", -1)
    assert layout.BrokerIdZnode.encode(broker) == found


@pytest.mark.parametrize("path", paths("/brokers/topics/", 3))
def test_topic(path: str) -> None:
    topic = path.rpartition("/")[2]
    assert layout.TopicZnode.path(topic) == path
    assignment = layout.TopicZnode.decode(topic, data(path))
    assert assignment.topic_id is not None
    again = json.loads(layout.TopicZnode.encode(assignment))
    assert again == json.loads(data(path))
    assert list(again) == list(json.loads(data(path)))


@pytest.mark.parametrize("path", [path for path in NODES if path.endswith("/state")])
def test_partition_state(path: str) -> None:
    _, _, _, topic, _, partition, _ = path.split("/")
    assert layout.PartitionStateZnode.path(topic, int(partition)) == path
    state = layout.PartitionStateZnode.decode(topic, int(partition), data(path))
    assert layout.PartitionStateZnode.encode(state) == data(path)


@pytest.mark.parametrize("path", paths("/config/topics/", 3))
def test_topic_config(path: str) -> None:
    topic = path.rpartition("/")[2]
    assert layout.TopicConfigZnode.path(topic) == path
    config = layout.TopicConfigZnode.decode(topic, data(path))
    assert layout.TopicConfigZnode.encode(config) == data(path)


def test_single_nodes() -> None:
    found = data(layout.ControllerZnode.PATH)
    timestamp_ms = int(json.loads(found)["timestamp"])
    assert layout.ControllerZnode.encode(layout.ControllerZnode.decode(found), timestamp_ms) == found
    epoch = layout.ControllerEpochZnode.decode(data(layout.ControllerEpochZnode.PATH))
    assert layout.ControllerEpochZnode.encode(epoch) == data(layout.ControllerEpochZnode.PATH)
    cluster_id = layout.ClusterIdZnode.decode(data(layout.ClusterIdZnode.PATH))
    assert layout.ClusterIdZnode.encode(cluster_id) == data(layout.ClusterIdZnode.PATH)
    assert layout.FeatureZnode.encode() == data(layout.FeatureZnode.PATH)
    block = layout.ProducerIdBlockZnode.decode(data(layout.ProducerIdBlockZnode.PATH))
    assert block == layout.ProducerIdBlock(7, 0, 999)
    assert layout.ProducerIdBlockZnode.encode(block) == data(layout.ProducerIdBlockZnode.PATH)


def configured() -> BrokerConfig:
    config = parse_broker_config(
        {"broker.id": "7", "broker.rack": "r1", "num.partitions": "3", "offsets.topic.num.partitions": "2"}
    )
    assert isinstance(config, BrokerConfig)
    return config


def control_plane(store: TreeStore) -> ControlPlane:
    endpoint = Endpoint("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 52192)
    return ControlPlane(
        ClusterSession(LocalClient(store)),
        configured(),
        broker_id=7,
        endpoints=[endpoint],
        clock=VirtualClock(1_700_000_000_000),
        randomness=Randomness(1),
    )


async def same_life() -> Tree:
    """What was done with the real broker, done with ours."""
    store = TreeStore.open(MemoryDisk(), "/t", VirtualClock(1))
    topics = control_plane(store)
    assert await Startup(topics).start() is None
    assignments = {0: [7], 1: [7]}
    configs = {"cleanup.policy": "compact,delete", "segment.bytes": "1048576", "retention.ms": "1000"}
    for spec in (
        TopicSpec("plain", 2, 1),
        TopicSpec("configured", 1, 1, configs=configs),
        TopicSpec("assigned", assignments=assignments),
        TopicSpec("defaults"),
        TopicSpec("a.b_c", 1, 1),
        TopicSpec("todelete", 1, 1),
    ):
        made = await topics.admin.create_topic(spec)
        assert isinstance(made, TopicCreated)
    assert await topics.admin.create_partitions("plain", 4) is None
    assert await topics.admin.delete_topic("todelete") is None
    assert await topics.admin.ensure_topic("autocreated") is None
    assert await topics.admin.ensure_topic(GROUP_METADATA_TOPIC) is None
    assert await topics.producer_ids.next() == 0
    altered = await topics.topic_configs.change("plain", lambda _: {"retention.ms": "12345"}, validate_only=False)
    assert altered is None
    return store.tree


def without_chance(path: str, text: str | None) -> object:
    """A node's data without ids and times."""
    if text is None or not text.startswith("{"):
        return text
    value = json.loads(text)
    for key in ("topic_id", "timestamp"):
        if key in value:
            value[key] = "any"
    if path == "/cluster/id":
        value["id"] = "any"
    return list(value.items())


def test_the_same_life_leaves_the_same_tree() -> None:
    tree = asyncio.run(same_life())
    ours = {
        path: (without_chance(path, node.data.decode() if node.data is not None else None), node.ephemeral_owner != 0)
        for path, node in tree.nodes.items()
    }
    theirs = {
        path: (without_chance(path, text), ephemeral)
        for path, (text, ephemeral, _) in NODES.items()
        if path.rpartition("/")[2] not in WITHOUT_LEADER
    }
    assert ours == theirs


def test_we_take_over_the_tree_that_kafka_left() -> None:
    async def scenario() -> None:
        store = TreeStore.open(MemoryDisk(), "/t", VirtualClock(1))
        kept = [(path, node) for path, node in sorted(NODES.items()) if not node[1] and path != "/"]
        store.execute([Create(path, text.encode() if text is not None else None) for path, (text, _, _) in kept], 1)
        topics = control_plane(store)
        assert await Startup(topics).start() is None
        assert topics.cluster_id == json.loads(data("/cluster/id"))["id"]
        assert set(topics.image.topics) == {path.rpartition("/")[2] for path in paths("/brokers/topics/", 3)}
        plain = topics.image.topics["plain"]
        assert [partition.leader for partition in plain.partitions] == [7] * 4
        assert topics.image.topics["z13"].partitions[0].leader == -1
        assert await topics.producer_ids.next() == 1000
        assert layout.ControllerEpochZnode.decode(store.tree.get("/controller_epoch").data) == 2

    asyncio.run(scenario())
