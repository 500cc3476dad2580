"""A ZooKeeper that Apache Kafka 3.9.1 and programs of 0.8.2.2 have used: every znode is one that `zk.layout` knows.

`kafka_tree_of_two_ages.json` is the tree of a real ZooKeeper after two brokers (ids 7 and 8, with racks and two
listeners) had made, grown, moved, set and deleted topics and taken quotas (`Changes.java`), 0.8.2.2's tools had made
and changed a topic, and while three of its high-level consumers were there. `OTTLA_RECORD=1` records it again.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from ottla.zk import layout
from support.apache import ApacheKafka, ApacheZooKeeper
from support.controller import wait_until_all_are_known
from support.java import java_tool
from support.old_consumers import OldConsumer, old_tool
from support.ottla_zookeeper import OttlaZooKeeper
from support.waiting import wait_until
from support.zk_trees import Nodes, dumped, open_tree

HERE = Path(__file__).parent
RECORDED = HERE / "kafka_tree_of_two_ages.json"

pytestmark = pytest.mark.spec("Z1")


def recorded() -> Nodes:
    return {path: (text, ephemeral) for path, (text, ephemeral) in json.loads(RECORDED.read_text()).items()}


NODES = recorded()


def through_topic(path: str, data: bytes) -> tuple[str, bytes]:
    topic = path.rpartition("/")[2]
    return layout.TopicZnode.path(topic), layout.TopicZnode.encode(layout.TopicZnode.decode(topic, data))


def through_state(path: str, data: bytes) -> tuple[str, bytes]:
    topic, partition = path.split("/")[3], int(path.split("/")[5])
    state = layout.PartitionStateZnode.decode(topic, partition, data)
    return layout.PartitionStateZnode.path(topic, partition), layout.PartitionStateZnode.encode(state)


def through_broker(path: str, data: bytes) -> tuple[str, bytes]:
    broker = layout.BrokerIdZnode.decode(int(path.rpartition("/")[2]), data)
    return layout.BrokerIdZnode.path(broker.id), layout.BrokerIdZnode.encode(broker)


def through_controller(path: str, data: bytes) -> tuple[str, bytes]:
    timestamp_ms = int(json.loads(data)["timestamp"])
    return layout.ControllerZnode.PATH, layout.ControllerZnode.encode(layout.ControllerZnode.decode(data), timestamp_ms)


def through_user(path: str, data: bytes) -> tuple[str, bytes]:
    user, _, client = path.removeprefix("/config/users/").partition("/clients/")
    znode = layout.UserConfigZnode
    name = layout.named_entity(user)
    again = znode.path(name) if not client else znode.client_path(name, layout.named_entity(client))
    return again, znode.encode(znode.decode(path, data))


def through_name(
    znode: type[layout.ClientConfigZnode] | type[layout.IpConfigZnode],
) -> Callable[[str, bytes], tuple[str, bytes]]:
    def through(path: str, data: bytes) -> tuple[str, bytes]:
        name = layout.named_entity(path.rpartition("/")[2])
        return znode.path(name), znode.encode(znode.decode(name, data))

    return through


def through_plain_name(
    znode: type[layout.TopicConfigZnode] | type[layout.BrokerConfigZnode],
) -> Callable[[str, bytes], tuple[str, bytes]]:
    def through(path: str, data: bytes) -> tuple[str, bytes]:
        name = path.rpartition("/")[2]
        return znode.path(name), znode.encode(znode.decode(name, data))

    return through


def through_change(path: str, data: bytes) -> tuple[str, bytes]:
    return path, layout.ConfigChangeZnode.encode(layout.ConfigChangeZnode.decode(path, data))


def through_consumer(path: str, data: bytes) -> tuple[str, bytes]:
    _, _, group, _, consumer = path.split("/")
    registration = layout.ConsumerIdZnode.decode(path, data)
    return layout.ConsumerIdZnode.path(group, consumer), layout.ConsumerIdZnode.encode(registration)


def through_owner(path: str, data: bytes) -> tuple[str, bytes]:
    _, _, group, _, topic, partition = path.split("/")
    thread_id = layout.PartitionOwnerZnode.decode(path, data)
    znode = layout.PartitionOwnerZnode
    return znode.path(group, topic, int(partition)), znode.encode(thread_id)


def through_offset(path: str, data: bytes) -> tuple[str, bytes]:
    _, _, group, _, topic, partition = path.split("/")
    znode = layout.ConsumerOffsetZnode
    return znode.path(group, topic, int(partition)), znode.encode(znode.decode(path, data))


THROUGH: dict[str, Callable[[str, bytes], tuple[str, bytes]]] = {
    r"/brokers/ids/\d+": through_broker,
    r"/brokers/topics/[^/]+": through_topic,
    r"/brokers/topics/[^/]+/partitions/\d+/state": through_state,
    r"/cluster/id": lambda _, data: (
        layout.ClusterIdZnode.PATH,
        layout.ClusterIdZnode.encode(layout.ClusterIdZnode.decode(data)),
    ),
    r"/config/brokers/[^/]+": through_plain_name(layout.BrokerConfigZnode),
    r"/config/changes/config_change_\d{10}": through_change,
    r"/config/clients/[^/]+": through_name(layout.ClientConfigZnode),
    r"/config/ips/[^/]+": through_name(layout.IpConfigZnode),
    r"/config/topics/[^/]+": through_plain_name(layout.TopicConfigZnode),
    r"/config/users/[^/]+(/clients/[^/]+)?": through_user,
    r"/consumers/[^/]+/ids/[^/]+": through_consumer,
    r"/consumers/[^/]+/offsets/[^/]+/\d+": through_offset,
    r"/consumers/[^/]+/owners/[^/]+/\d+": through_owner,
    r"/controller": through_controller,
    r"/controller_epoch": lambda _, data: (
        layout.ControllerEpochZnode.PATH,
        layout.ControllerEpochZnode.encode(layout.ControllerEpochZnode.decode(data)),
    ),
    r"/feature": lambda _, data: (layout.FeatureZnode.PATH, layout.FeatureZnode.encode()),
}
EPHEMERAL = re.compile(r"/controller|/brokers/ids/\d+|/consumers/[^/]+/(ids/[^/]+|owners/[^/]+/\d+)")


def with_data() -> list[str]:
    return [path for path, (text, _) in NODES.items() if text]


@pytest.mark.parametrize("path", with_data())
def test_what_is_written_is_read_and_written_again(path: str) -> None:
    text = NODES[path][0]
    assert text is not None
    through = [function for pattern, function in THROUGH.items() if re.fullmatch(pattern, path)]
    assert len(through) == 1, path
    again = through[0](path, text.encode())
    if is_of_old(text):
        assert again[0] == path
    else:
        assert again == (path, text.encode())


def is_of_old(text: str) -> bool:
    """What 0.8.2.2's tools write otherwise than brokers: topics in version 1, changes as a bare name."""
    return text.startswith(('{"version":1,"partitions"', '"'))


def test_every_kind_of_node_was_there() -> None:
    for pattern in THROUGH:
        assert any(re.fullmatch(pattern, path) for path in with_data()), pattern
    assert {text for text, _ in NODES.values() if text and is_of_old(text)} >= {'"old"'}
    assert {path for path, (_, ephemeral) in NODES.items() if ephemeral} == set(filter(EPHEMERAL.fullmatch, NODES))


def test_what_the_paths_report() -> None:
    quotas = {
        path: layout.UserConfigZnode.decode(path, (NODES[path][0] or "").encode())
        for path in NODES
        if path.startswith("/config/users/") and NODES[path][0]
    }
    assert quotas == {
        layout.UserConfigZnode.path("Åsa + Co"): {"consumer_byte_rate": "1024"},
        layout.UserConfigZnode.path(None): {"producer_byte_rate": "2048"},
        layout.UserConfigZnode.client_path("u", "c"): {"consumer_byte_rate": "3"},
        layout.UserConfigZnode.client_path("u", None): {"consumer_byte_rate": "4"},
        layout.UserConfigZnode.client_path(None, None): {"consumer_byte_rate": "5"},
    }
    consumers = {
        path.rpartition("_")[2]: layout.ConsumerIdZnode.decode(path, (text or "").encode())
        for path, (text, _) in NODES.items()
        if re.fullmatch(r"/consumers/[^/]+/ids/[^/]+", path)
    }
    assert {name: (dict(c.subscription), c.pattern) for name, c in consumers.items()} == {
        "named": ({"old": 2, "set": 1}, "static"),
        "white": ({'o/l"?d|se[t]|\\d': 2}, "white_list"),
        "black": ({"(?!old).*": 1}, "black_list"),
    }


@contextmanager
def two_brokers(folder: Path, zookeeper: ApacheZooKeeper | OttlaZooKeeper) -> Iterator[str]:
    """The brokers' addresses."""
    with ExitStack() as stack:
        stack.callback(zookeeper.stop)
        zookeeper.start()
        bootstrap = []
        listeners = {
            "listeners": "PLAINTEXT://127.0.0.1:0,INSIDE://127.0.0.1:0",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INSIDE:PLAINTEXT",
        }
        for broker_id in (7, 8):
            own = {**listeners, "broker.rack": f"r{broker_id}"}
            kafka = ApacheKafka(folder / str(broker_id), zookeeper=zookeeper, broker_id=broker_id, overrides=own)
            stack.callback(kafka.stop)
            bootstrap.append(kafka.start().bootstrap)
        wait_until_all_are_known(bootstrap)
        yield ",".join(bootstrap)


def lived(folder: Path, server: ApacheZooKeeper | OttlaZooKeeper) -> Nodes:
    """What is in ZooKeeper after all that the module's text tells of."""
    with two_brokers(folder, server) as bootstrap, ExitStack() as stack:
        zookeeper = server.connect
        java_tool(str(HERE / "Changes.java"), bootstrap)
        topics = ("kafka.admin.TopicCommand", "--zookeeper", zookeeper)
        old_tool(*topics, "--create", "--topic", "old", "--replica-assignment", "7,8", "--config", "retention.ms=1")
        old_tool(*topics, "--alter", "--topic", "old", "--partitions", "3")
        old_tool(*topics, "--alter", "--topic", "old", "--config", "retention.ms=2")
        zk = open_tree(zookeeper)
        stack.callback(zk.close)
        stack.callback(zk.stop)
        for name, subscription in (
            ("named", "old:2,set:1"),
            ("white", 'white_list:o/l"?d|se[t]|\\d:2'),
            ("black", "black_list:(?!old).*:1"),
        ):
            consumer = OldConsumer(name, folder, zookeeper=zookeeper, group=f"group-{name}", subscription=subscription)
            stack.callback(consumer.process.kill9)
        before = dumped(zk)

        def at_rest() -> Nodes | None:
            nonlocal before
            last, before = before, dumped(zk)
            wanted = [
                layout.ConsumerOffsetZnode.path(f"group-{name}", topic, number)
                for name, topic, partitions in (
                    ("named", "old", 3),
                    ("named", "set", 1),
                    ("white", "set", 1),
                    ("black", "old", 3),
                )
                for number in range(partitions)
            ]
            return before if last == before and all(path in before for path in wanted) else None

        return wait_until(at_rest, "a tree that does not change", interval_s=0.5)


def without_chance(nodes: Nodes) -> dict[str, object]:
    """The tree without ids, times, ports, and epochs that depend on who was faster."""
    free = {"topic_id", "timestamp", "id", "controller_epoch", "leader_epoch", "leader", "isr", "port", "endpoints"}
    scrubbed: dict[str, object] = {}
    for path, (text, ephemeral) in nodes.items():
        data: object = text
        if text is not None and text.startswith("{"):
            # Where the third partition of `old` goes is left to chance.
            some = {*free, "partitions"} if path == "/brokers/topics/old" else free
            data = [(name, None if name in some else value) for name, value in json.loads(text).items()]
        scrubbed[path] = (data, ephemeral)
    return scrubbed


@pytest.mark.needs_kafka
@pytest.mark.needs_082
@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("of", [ApacheZooKeeper, OttlaZooKeeper])
def test_the_recorded_tree_is_apache_kafkas(tmp_path: Path, of: type[ApacheZooKeeper] | type[OttlaZooKeeper]) -> None:
    nodes = lived(tmp_path, of(tmp_path / "zookeeper"))
    if os.environ.get("OTTLA_RECORD") and of is ApacheZooKeeper:
        RECORDED.write_text(json.dumps(nodes, indent=1, ensure_ascii=False) + "\n")
    assert without_chance(nodes) == without_chance(recorded())
