"""Clusters of both makes leave the same znodes as one of Apache Kafka alone that has played the same, byte for byte.

Different are timestamps, ids that are drawn, and ports. And where a controller of ours takes over from one that led
partitions, each of them has one leader epoch less: Apache Kafka's writes that they have no leader before it elects one
(`golden/cluster/test_recorded_failovers.py`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic
from kazoo.exceptions import NoNodeError

from interop.cluster.mixes import APACHE, ASSIGNMENT, MIXES
from support.tapped_cluster import Maker, TappedCluster
from support.waiting import wait_until

pytestmark = [pytest.mark.needs_kafka, pytest.mark.long, pytest.mark.timeout(900), pytest.mark.spec("R8", "Z3")]

ELECTION = "org.apache.kafka.tools.LeaderElectionCommand"
CONFIGS = "kafka.admin.ConfigCommand"
REQUEST_S = 60
#: No leader takes a follower out of the ISR that died before it had fetched from it: that is for the controller.
SETTINGS = {"replica.lag.time.max.ms": "120000"}
#: What differs between two clusters of Apache Kafka, and what stands for it.
DRAWN = [
    (re.compile(rb'"timestamp":("?)\d+("?)'), rb'"timestamp":\1T\2'),
    (re.compile(rb'"topic_id":"[\w-]+"'), rb'"topic_id":"ID"'),
    (re.compile(rb'^\{"version":"1","id":"[\w-]+"\}$'), rb'{"version":"1","id":"ID"}'),
    (re.compile(rb"//127\.0\.0\.1:\d+"), rb"//HOST:PORT"),
    (re.compile(rb'"port":\d+'), rb'"port":PORT'),
    # Which of the two others follows the controller that dies is up to them.
    (re.compile(rb'"brokerid":\d'), rb'"brokerid":N'),
]
#: ZooKeeper's own; and blocks of producer ids, which nobody asks for here.
NOT_KAFKAS = ("/zookeeper", "/latest_producer_id_block")
_LEADER_EPOCH = re.compile(rb'(?<="leader_epoch":)\d+')


class Left(NamedTuple):
    """What a cluster leaves."""

    #: Of each path the data, and of states of partitions the version.
    znodes: Mapping[str, tuple[bytes, int]]
    #: The states of the partitions that the controller led when it died.
    led_by_controller: Sequence[str]
    #: Who made the controller that took over then.
    successor: Maker


def play(folder: Path, makers: Sequence[Maker]) -> Left:
    """Create, change, lose and elect in a fixed order; the znodes in the end."""
    with TappedCluster(folder, makers, SETTINGS).prepared() as cluster:
        cluster.start_all()
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        for topic in ("kept", "gone"):
            settings = {"min.insync.replicas": "2", "retention.ms": "1000000"}
            wanted = NewTopic(topic, 3, replica_assignment=ASSIGNMENT, config=settings)
            admin.create_topics([wanted])[topic].result(REQUEST_S)
            cluster.wait_for_isr(topic)
        entity = ("--entity-type", "topics", "--entity-name", "kept")
        cluster.tool(CONFIGS, "--alter", *entity, "--add-config", "retention.ms=2000000")
        admin.create_partitions([NewPartitions("kept", 5, [[1, 3, 2], [2, 1, 3]])])["kept"].result(REQUEST_S)
        cluster.wait_for_isr("kept")
        for broker_id, end in ((3, "kill"), (2, "stop"), (1, "kill")):
            broker = cluster.brokers[broker_id]
            led = [f"/brokers/topics/kept/partitions/{number}/state" for number in led_by(cluster, broker_id)]
            if end == "kill":
                broker.kill9()
            else:
                broker.stop()
            for topic in ("kept", "gone"):
                cluster.wait_for_isr(topic, {1, 2, 3} - {broker_id})
            cluster.start(broker_id)
            for topic in ("kept", "gone"):
                cluster.wait_for_isr(topic)
            cluster.tool(ELECTION, "--election-type", "preferred", "--all-topic-partitions")
        # A new client: the first one asks the controller that has died, and is told so.
        later = AdminClient({"bootstrap.servers": cluster.bootstrap})
        wait_until(lambda: later.list_topics(timeout=REQUEST_S).controller_id == cluster.controller(), "the controller")
        later.delete_topics(["gone"])["gone"].result(REQUEST_S)
        wait_until(lambda: cluster.zk.exists("/brokers/topics/gone") is None, "the end of the topic")
        wait_until(lambda: not cluster.zk.get_children("/admin/delete_topics"), "the end of its deletion")
        return Left(znodes(cluster), led, cluster.brokers[cluster.controller()].maker)


def led_by(cluster: TappedCluster, broker_id: int) -> list[int]:
    """The partitions of the topic that is kept that this broker leads."""
    states = {number: cluster.partition("kept", number) for number in cluster.partitions("kept")}
    return [number for number, state in states.items() if state is not None and state["leader"] == broker_id]


def znodes(cluster: TappedCluster) -> dict[str, tuple[bytes, int]]:
    """All of Kafka's znodes."""
    found: dict[str, tuple[bytes, int]] = {}
    waiting = ["/"]
    while waiting:
        path = waiting.pop()
        try:
            data, stat = cluster.zk.get(path)
            children = cluster.zk.get_children(path)
        except NoNodeError:
            continue
        data = data or b""
        for pattern, stands_for in DRAWN:
            data = pattern.sub(stands_for, data)
        found[path] = data, stat.version if path.endswith("/state") else 0
        paths = [f"{path.rstrip('/')}/{child}" for child in children]
        waiting += [each for each in paths if not each.startswith(NOT_KAFKAS)]
    return found


@pytest.fixture(scope="module")
def of_apache(tmp_path_factory: pytest.TempPathFactory) -> Left:
    """What a cluster of Apache Kafka alone leaves."""
    return play(tmp_path_factory.mktemp("apache"), APACHE.values[0])


def one_epoch_less(state: tuple[bytes, int]) -> tuple[bytes, int]:
    """A state that was written once less, with one election less."""
    data, version = state
    return _LEADER_EPOCH.sub(lambda found: str(int(found[0]) - 1).encode(), data), version - 1


@pytest.mark.parametrize("makers", MIXES[1:])
def test_the_same_znodes(tmp_path: Path, of_apache: Left, makers: Sequence[Maker]) -> None:
    left = play(tmp_path, makers)
    found, wanted = left.znodes, dict(of_apache.znodes)
    assert left.led_by_controller == of_apache.led_by_controller
    if left.successor == "ottla":
        wanted |= {path: one_epoch_less(wanted[path]) for path in left.led_by_controller}
    differing = [
        f"{path}: {found.get(path)}, and of Apache Kafka alone {wanted.get(path)}"
        for path in sorted(found.keys() | wanted.keys())
        if found.get(path) != wanted.get(path)
    ]
    assert not differing, "\n".join(differing)
