"""Compacted topics under a running broker: a topic of ours, and the offsets of groups."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from support.ottla_server import OttlaServer
from support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.spec("L5")]

TOPIC = "state"
TIMEOUT_S = 60.0
SETTINGS = {
    "log.cleaner.backoff.ms": "100",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.segment.delete.delay.ms": "100",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.segment.bytes": "3000",
}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[OttlaServer]:
    server = OttlaServer(tmp_path / "ottla", overrides=SETTINGS)
    server.start()
    yield server
    server.stop()


def size_of(folder: Path) -> int:
    sizes = []
    for path in folder.glob("*.log"):
        # It may be replaced at any moment.
        with suppress(FileNotFoundError):
            sizes.append(path.stat().st_size)
    return sum(sizes)


def everything(server: OttlaServer) -> list[tuple[int, bytes, bytes | None]]:
    settings = {"bootstrap.servers": server.bootstrap, "group.id": "reader", "enable.partition.eof": True}
    consumer = Consumer({**settings, "check.crcs": True})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    found = []
    while (message := consumer.poll(TIMEOUT_S)) is not None:
        if message.error():
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            break
        found.append((message.offset(), message.key(), message.value()))
    consumer.close()
    return found


def test_a_topic_shrinks_to_its_newest_values(server: OttlaServer) -> None:
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    config = {"cleanup.policy": "compact", "segment.bytes": "20000"}
    admin.create_topics([NewTopic(TOPIC, 1, 1, config=config)])[TOPIC].result(TIMEOUT_S)
    producer = Producer({"bootstrap.servers": server.bootstrap, "batch.num.messages": 20, "linger.ms": 1})
    newest: dict[bytes, bytes] = {}
    for number in range(4000):
        key, value = f"key-{number * 7 % 50}".encode(), f"value {number} ".encode() * 3
        producer.produce(TOPIC, value, key)
        newest[key] = value
        if number % 100 == 0:
            assert producer.flush(TIMEOUT_S) == 0
    assert producer.flush(TIMEOUT_S) == 0
    folder = server.log_dir / f"{TOPIC}-0"
    checkpoint = server.log_dir / "cleaner-offset-checkpoint"
    wait_until(lambda: checkpoint.exists() and f"{TOPIC} 0 3" in checkpoint.read_text(), "the cleaner's checkpoint")
    wait_until(lambda: size_of(folder) < 40_000, "a small folder")
    wait_until(lambda: not list(folder.glob("*.deleted")), "the old files to go")
    found = everything(server)
    assert {key: value for _, key, value in found} == newest
    assert [offset for offset, _, _ in found] == sorted({offset for offset, _, _ in found})
    assert len(found) < 1000
    server.kill9()
    server.restart()
    assert everything(server) == found


def test_settings_change_while_the_broker_runs(tmp_path: Path) -> None:
    server = OttlaServer(tmp_path / "ottla", overrides={"log.cleaner.backoff.ms": "3600000"})
    try:
        server.start()
        admin = AdminClient({"bootstrap.servers": server.bootstrap})
        config = {"cleanup.policy": "compact", "segment.bytes": "5000", "min.cleanable.dirty.ratio": "1"}
        admin.create_topics([NewTopic(TOPIC, 1, 1, config=config)])[TOPIC].result(TIMEOUT_S)
        producer = Producer({"bootstrap.servers": server.bootstrap, "batch.num.messages": 10})
        for number in range(500):
            producer.produce(TOPIC, b"x" * 100, b"%d" % (number % 5))
        assert producer.flush(TIMEOUT_S) == 0
        size = size_of(server.log_dir / f"{TOPIC}-0")
        change(admin, ResourceType.TOPIC, TOPIC, "min.cleanable.dirty.ratio", "0.1")
        change(admin, ResourceType.BROKER, broker_id(admin), "log.cleaner.backoff.ms", "100")
        wait_until(lambda: size_of(server.log_dir / f"{TOPIC}-0") < size // 3, "a small folder")
        server.kill9()
        server.restart()
        assert len(everything(server)) < 500
    finally:
        server.stop()


def broker_id(admin: AdminClient) -> str:
    return str(next(iter(admin.list_topics(timeout=TIMEOUT_S).brokers)))


def change(admin: AdminClient, kind: ResourceType, name: str, setting: str, value: str) -> None:
    entry = ConfigEntry(setting, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(kind, name, incremental_configs=[entry])
    for done in admin.incremental_alter_configs([resource]).values():
        done.result(TIMEOUT_S)


@pytest.mark.spec("C3")
def test_the_offsets_topic_stays_small(server: OttlaServer) -> None:
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(TIMEOUT_S)
    groups = ["kept", "deleted"]
    consumers = [Consumer({"bootstrap.servers": server.bootstrap, "group.id": group}) for group in groups]
    for number in range(150):
        for consumer in consumers:
            consumer.commit(offsets=[TopicPartition(TOPIC, 0, number)], asynchronous=False)
    for consumer in consumers:
        consumer.close()
    admin.delete_consumer_groups(["deleted"])["deleted"].result(TIMEOUT_S)
    folder = server.log_dir / "__consumer_offsets-0"
    wait_until(lambda: size_of(folder) < 8_000, lambda: f"a small folder, now {size_of(folder)} bytes")
    server.kill9()
    server.restart()
    for group, expected in (("kept", 149), ("deleted", -1001)):
        consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": group})
        (found,) = consumer.committed([TopicPartition(TOPIC, 0)], TIMEOUT_S)
        assert found.offset == expected
        consumer.close()
