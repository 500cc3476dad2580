"""The release before and this one: the folders of one opened by the other, and both in one cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic

from interop.cluster.mixes import ASSIGNMENT
from support.acknowledged_load import AcknowledgedLoad
from support.cluster_load import check_replicas, wait_until_agreed
from support.former_release import former_environment
from support.ottla_server import OttlaServer
from support.tapped_cluster import Maker, TappedCluster
from support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.spec("R1", "L3")]

TOPIC, COMPACTED, GROUP = "kept", "compacted", "readers"
RECORDS = 300
PARTITIONS = 3
COMMITTED = 42
TIMEOUT_S = 60.0
SETTINGS = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "2"}
RETENTION_MS = "123456789000"


def fill(bootstrap: str, start: int) -> None:
    """Topics with settings, records in two formats of compression, and offsets of a group."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    if start == 0:
        wanted = [
            NewTopic(TOPIC, PARTITIONS, 1, config={"retention.ms": RETENTION_MS, "segment.bytes": "4096"}),
            NewTopic(COMPACTED, 1, 1, config={"cleanup.policy": "compact"}),
        ]
        for made in admin.create_topics(wanted).values():
            made.result(TIMEOUT_S)
    for codec in ("none", "zstd"):
        producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "enable.idempotence": True})
        for number in range(start, start + RECORDS):
            producer.produce(TOPIC, f"{codec} {number}", partition=number % PARTITIONS)
            producer.produce(COMPACTED, f"{codec} {number}", key=str(number % 7))
        assert producer.flush(TIMEOUT_S) == 0
    at = [TopicPartition(TOPIC, 0, start + COMMITTED)]
    committing = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})
    committing.commit(offsets=at, asynchronous=False)
    committing.close()


def contents(bootstrap: str) -> dict[str, object]:
    """All that a user sees of it: records, settings, what is committed."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    resource = ConfigResource(ResourceType.TOPIC, TOPIC)
    described = admin.describe_configs([resource])[resource].result(TIMEOUT_S)
    asked = ConsumerGroupTopicPartitions(GROUP, [TopicPartition(TOPIC, 0)])
    committed = admin.list_consumer_group_offsets([asked])[GROUP].result(TIMEOUT_S)
    return {
        "topics": sorted(name for name in admin.list_topics(timeout=TIMEOUT_S).topics if not name.startswith("__")),
        "retention": described["retention.ms"].value,
        "committed": [each.offset for each in committed.topic_partitions],
        "records": [read(bootstrap, TOPIC, partition) for partition in range(PARTITIONS)],
    }


def read(bootstrap: str, topic: str, partition: int) -> list[tuple[int, bytes | None]]:
    """The offsets and values of a partition."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False})
    try:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), TIMEOUT_S)
        consumer.assign([TopicPartition(topic, partition, low)])
        found = [message for message in consumer.consume(high - low, TIMEOUT_S) if message.error() is None]
        return [(message.offset() or 0, message.value()) for message in found]
    finally:
        consumer.close()


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_folder_of_the_release_before_is_opened_and_goes_back(tmp_path: Path, end: str) -> None:
    """With the metadata in it: topics, settings, offsets, records; after a clean stop, and after none."""
    former = OttlaServer(tmp_path / "former", data=tmp_path / "data", overrides=SETTINGS, env=former_environment())
    present = OttlaServer(tmp_path / "present", data=tmp_path / "data", overrides=SETTINGS)
    count, before = 0, dict[str, object]()
    for server in (former, present, former, present):
        server.start()
        try:
            if count:
                assert contents(server.bootstrap) == before, f"{count} records of the releases before"
            fill(server.bootstrap, count)
            count += RECORDS
            before = contents(server.bootstrap)
            assert before["committed"] == [count - RECORDS + COMMITTED]
            if end == "stop":
                assert server.stop() == 0
        finally:
            if server.server.running:
                server.kill9()


@pytest.fixture
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TappedCluster]:
    """Three brokers on an Apache ZooKeeper, none of them started yet."""
    former_environment()  # skips here, before anything is started
    makers: tuple[Maker, ...] = request.param
    with TappedCluster(tmp_path, makers).prepared() as cluster:
        yield cluster


def create(cluster: TappedCluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    wanted = NewTopic(TOPIC, PARTITIONS, replica_assignment=ASSIGNMENT, config={"min.insync.replicas": "2"})
    admin.create_topics([wanted])[TOPIC].result(TIMEOUT_S)
    cluster.wait_for_isr(TOPIC)


@pytest.mark.needs_kafka
@pytest.mark.parametrize(
    "cluster",
    [
        pytest.param(("former", "ottla", "former"), id="former-controller"),
        pytest.param(("ottla", "former", "ottla"), id="this-controller", marks=pytest.mark.long),
    ],
    indirect=True,
)
def test_brokers_of_both_releases_replicate_for_each_other(cluster: TappedCluster) -> None:
    """Each leads for the other, and the death of the controller moves its office to the other release."""
    cluster.start_all()
    wait_until_agreed(cluster)
    create(cluster)
    with AcknowledgedLoad(cluster.bootstrap, TOPIC, PARTITIONS, clients=("librdkafka",)) as load:
        load.wait_for_more(200)
        cluster.brokers[1].kill9()
        cluster.wait_until_gone(1)
        cluster.wait_for_isr(TOPIC, {2, 3})
        load.wait_for_more()
        cluster.start(1)
        cluster.wait_for_isr(TOPIC)
        load.wait_for_more()
    load.check()
    check_replicas(cluster, TOPIC)


@pytest.mark.needs_kafka
@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("cluster", [("former", "former", "former")], ids=["former"], indirect=True)
def test_a_cluster_is_upgraded_broker_by_broker_under_load_and_goes_back(cluster: TappedCluster) -> None:
    """In order, as docs/operations.md says; with nothing lost that was acknowledged."""
    cluster.start_all()
    create(cluster)
    versions: tuple[Maker, ...] = ("ottla", "former", "ottla")
    with AcknowledgedLoad(cluster.bootstrap, TOPIC, PARTITIONS) as load:
        for maker in versions:
            for broker_id in (3, 2, 1):
                load.wait_for_more()
                cluster.replace(broker_id, maker)
                cluster.wait_for_isr(TOPIC)
            load.wait_for_more()
    load.check()
    check_replicas(cluster, TOPIC)
    wait_until(lambda: cluster.controller() in cluster.registered(), "a controller")
