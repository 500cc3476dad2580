"""One log folder, used in turn by Apache Kafka (with ZooKeeper) and by our log: each takes over what the other left."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.env.clock import SystemClock
from ottla.env.disk import RealDisk
from ottla.env.executor import InlineExecutor
from ottla.storage.checkpoints import (
    CLEAN_SHUTDOWN_FILE,
    PARTITION_METADATA_FILE,
    RECOVERY_POINT_FILE,
    decode_offsets,
    encode_partition_metadata,
)
from ottla.storage.leader_epochs import LEADER_EPOCH_FILE
from ottla.storage.log import PartitionLog
from ottla.storage.lookups import offset_for_timestamp
from ottla.storage.manager import LogManager
from support.apache import ApacheKafka, ApacheZooKeeper
from support.storage_logs import append, log_config, of_records, read_all, records
from support.storage_managers import was_clean
from support.waiting import wait_until
from support.zk_trees import open_tree

pytestmark = [pytest.mark.needs_kafka, pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.spec("L3", "L9")]

TOPIC = "travellers"
SETTINGS = {"segment.bytes": "60000", "index.interval.bytes": "1024", "segment.index.bytes": "4096"}


@pytest.fixture
def kafka(tmp_path: Path, apache_zookeeper: ApacheZooKeeper) -> Iterator[ApacheKafka]:
    """A broker of our own, for its folder; not started."""
    overrides = {
        "zookeeper.connect": f"{apache_zookeeper.connect}/folders-{tmp_path.name}",
        "zookeeper.session.timeout.ms": "1500",
    }
    broker = ApacheKafka(tmp_path / "apache", zookeeper=apache_zookeeper, broker_id=5, overrides=overrides)
    try:
        yield broker
    finally:
        broker.stop()


def produce(kafka: ApacheKafka, first: int, count: int, codec: str) -> list[tuple[bytes, bytes]]:
    pairs = [(b"key-%d" % number, (b"value-%d-" % number) * 8) for number in range(first, first + count)]
    producer = Producer(
        {
            "bootstrap.servers": kafka.bootstrap,
            "enable.idempotence": True,
            "compression.type": codec,
            "batch.num.messages": 20,
            "linger.ms": 2,
            "log_level": 0,
        }
    )
    for key, value in pairs:
        producer.produce(TOPIC, value, key, partition=0)
    assert producer.flush(120) == 0
    return pairs


def wait_until_forgotten(kafka: ApacheKafka) -> None:
    """ZooKeeper lets the broker's id go when the session of the killed process ends."""
    client = open_tree(kafka.overrides["zookeeper.connect"])
    try:
        wait_until(lambda: not client.exists(f"/brokers/ids/{kafka.broker_id}"), "the killed broker's session to end")
    finally:
        client.stop()
        client.close()


def consume(kafka: ApacheKafka, count: int) -> list[tuple[bytes | None, bytes | None]]:
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "g", "check.crcs": True})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    found: list[tuple[bytes | None, bytes | None]] = []
    while len(found) < count:
        messages = consumer.consume(count - len(found), 20)
        assert messages, f"only {len(found)} of {count}"
        for message in messages:
            if message.error():
                raise KafkaException(message.error())
            found.append((message.key(), message.value()))
    consumer.close()
    return found


def unopened_manager(kafka: ApacheKafka) -> LogManager:
    return LogManager(
        RealDisk(),
        SystemClock(),
        InlineExecutor(),
        [str(kafka.log_dir)],
        lambda topic: log_config(
            **{name.replace(".", "_"): value for name, value in SETTINGS.items()} if topic == TOPIC else {}
        ),
    )


def our_manager(kafka: ApacheKafka) -> LogManager:
    manager = unopened_manager(kafka)
    assert manager.open() is None
    return manager


def pairs_of(log: PartitionLog) -> list[tuple[bytes | None, bytes | None]]:
    return [(record.key, record.value) for record in read_all(log)]


def test_there_and_back(kafka: ApacheKafka) -> None:
    kafka.start()
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(TOPIC, 2, 1, config=SETTINGS)])[TOPIC].result(120)
    pairs = produce(kafka, 0, 3000, "none")
    refusal = unopened_manager(kafka).open()
    assert refusal is not None
    assert "Failed to acquire lock on file .lock" in refusal.message
    kafka.stop()

    shutdown = (kafka.log_dir / CLEAN_SHUTDOWN_FILE).read_bytes()
    manager = our_manager(kafka)
    assert was_clean(manager)
    assert json.loads(shutdown) == {"version": 0, "brokerEpoch": json.loads(shutdown)["brokerEpoch"]}
    assert manager.notes == []
    assert manager.directories.stored_identity.broker_id == 5
    cluster_id = manager.directories.stored_identity.cluster_id
    assert cluster_id is not None
    found = {(partition.topic, partition.partition): partition.topic_id for partition in manager.found}
    assert set(found) == {(TOPIC, 0), (TOPIC, 1)}
    assert found[TOPIC, 0] == found[TOPIC, 1] is not None
    log = manager.get(TOPIC, 0)
    assert log is not None
    assert log.topic_id is not None
    assert (Path(log.directory) / PARTITION_METADATA_FILE).read_bytes() == encode_partition_metadata(log.topic_id)
    assert (Path(log.directory) / LEADER_EPOCH_FILE).read_bytes() == log.epochs.encode()
    assert len(log.segments) > 5
    assert pairs_of(log) == pairs
    assert len(log.producers) == 1
    assert log.leader_epoch == 0
    ours = records(4, size=100)
    append(log, of_records(ours), leader_epoch=0)
    pairs += [(record.key, record.value) for record in ours]
    assert manager.directories.claim(cluster_id, 5) is None
    manager.close()

    kafka.start()
    assert consume(kafka, len(pairs)) == pairs
    pairs += produce(kafka, 3000, 2000, "lz4")
    kafka.kill9()
    wait_until_forgotten(kafka)

    recovery = (kafka.log_dir / RECOVERY_POINT_FILE).read_bytes()
    assert decode_offsets(recovery, "")[TOPIC, 0] < len(pairs)
    index = max((kafka.log_dir / f"{TOPIC}-0").glob("*.index"))
    assert index.stat().st_size == 4096, "the index of a killed broker is preallocated"
    manager = our_manager(kafka)
    assert not was_clean(manager)
    log = manager.get(TOPIC, 0)
    assert log is not None
    assert pairs_of(log) == pairs
    assert len(log.producers) == 2
    assert offset_for_timestamp(log, 0) is not None
    ours = records(6, size=100, first=50)
    append(log, of_records(ours), leader_epoch=log.leader_epoch)
    pairs += [(record.key, record.value) for record in ours]
    manager.close()

    kafka.start()
    assert consume(kafka, len(pairs)) == pairs
    told = kafka.server.stdout
    assert "orrupt" not in told, [line for line in told.splitlines() if "orrupt" in line]
    assert "ecovering unflushed" not in told
    assert "rebuilding index" not in told
