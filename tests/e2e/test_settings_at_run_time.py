"""Settings that change while the broker runs hold at once, and after it was killed, too."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from support.java import java_tool
from support.ottla_server import OttlaServer
from support.waiting import wait_until

pytestmark = [pytest.mark.spec("L4"), pytest.mark.slow]

CONFIGS = "kafka.admin.ConfigCommand"
TIMEOUT_S = 60.0
BROKER_ID = "7"
#: Retention is looked at often; deleted files go at once.
SETTINGS = {"log.retention.check.interval.ms": "200", "log.segment.delete.delay.ms": "0"}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[OttlaServer]:
    server = OttlaServer(tmp_path / "ottla", overrides=SETTINGS, arguments=["--id", BROKER_ID])
    try:
        yield server.start()
    finally:
        server.stop()


def fill(server: OttlaServer, topic: str, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    settings = {name.replace("_", "."): value for name, value in config.items()} | {"segment.bytes": "2000"}
    admin.create_topics([NewTopic(topic, 1, 1, config=settings)])[topic].result(TIMEOUT_S)
    producer = Producer({"bootstrap.servers": server.bootstrap, "batch.num.messages": 1})
    for _ in range(50):
        producer.produce(topic, b"x" * 500, partition=0, timestamp=1_000)
        assert producer.flush(TIMEOUT_S) == 0


def start_of(server: OttlaServer, topic: str) -> int:
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    partition = TopicPartition(topic, 0)
    offset: int = admin.list_offsets({partition: OffsetSpec.earliest()})[partition].result(TIMEOUT_S).offset
    return offset


def change(server: OttlaServer, kind: ResourceType, name: str, setting: str, value: str) -> None:
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    entry = ConfigEntry(setting, value, incremental_operation=AlterConfigOpType.SET)
    (done,) = admin.incremental_alter_configs([ConfigResource(kind, name, incremental_configs=[entry])]).values()
    done.result(TIMEOUT_S)


def segments(server: OttlaServer, topic: str) -> int:
    return len(list((server.log_dir / f"{topic}-0").glob("*.log")))


def test_a_topic_keeps_less_from_now_on(server: OttlaServer) -> None:
    fill(server, "t", retention_ms="-1")
    assert start_of(server, "t") == 0
    before = segments(server, "t")
    change(server, ResourceType.TOPIC, "t", "retention.bytes", "5000")
    wait_until(lambda: start_of(server, "t") > 0, "retention by size")
    wait_until(lambda: segments(server, "t") < before, "files to be deleted")
    change(server, ResourceType.TOPIC, "t", "retention.ms", "1000")
    wait_until(lambda: start_of(server, "t") == 50, "retention by time")


def test_the_brokers_default_reaches_topics_that_set_nothing(server: OttlaServer) -> None:
    change(server, ResourceType.BROKER, BROKER_ID, "log.retention.ms", "-1")
    fill(server, "free")
    fill(server, "bound", retention_ms="-1")
    change(server, ResourceType.BROKER, BROKER_ID, "log.retention.ms", "1000")
    wait_until(lambda: start_of(server, "free") == 50, "retention by the broker's time")
    assert start_of(server, "bound") == 0


def test_a_change_survives_a_kill(server: OttlaServer) -> None:
    fill(server, "t", retention_ms="-1")
    change(server, ResourceType.TOPIC, "t", "max.message.bytes", "777")
    change(server, ResourceType.BROKER, BROKER_ID, "log.retention.ms", "12345678")
    server.kill9()
    server.restart()
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    (described,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, "t")]).values()
    found = described.result(TIMEOUT_S)
    assert (found["max.message.bytes"].value, found["retention.ms"].value) == ("777", "-1")
    assert [one.value for one in found["retention.ms"].synonyms.values()][1] == "12345678"


def test_a_refusal_changes_nothing(server: OttlaServer) -> None:
    fill(server, "t", retention_ms="-1")
    with pytest.raises(KafkaException, match="Value must be at least -1"):
        change(server, ResourceType.TOPIC, "t", "retention.ms", "-5")
    assert start_of(server, "t") == 0


@pytest.mark.needs_kafka
def test_apaches_tool_changes_and_describes(server: OttlaServer) -> None:
    fill(server, "t")

    def configs(*arguments: str) -> str:
        return java_tool(CONFIGS, "--bootstrap-server", server.bootstrap, *arguments).stdout

    topic = ("--entity-type", "topics", "--entity-name", "t")
    told = configs("--alter", *topic, "--add-config", "retention.ms=99999,cleanup.policy=[compact,delete]")
    assert "Completed updating config for topic t" in told
    told = configs("--describe", *topic)
    assert "retention.ms=99999 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=99999" in told
    assert "cleanup.policy=compact,delete" in told
    configs("--alter", *topic, "--delete-config", "retention.ms")
    assert "retention.ms" not in configs("--describe", *topic)
    brokers = ("--entity-type", "brokers", "--entity-default")
    configs("--alter", *brokers, "--add-config", "message.max.bytes=7777")
    assert "message.max.bytes=7777 sensitive=false" in configs("--describe", *brokers)
    with pytest.raises((AssertionError, subprocess.CalledProcessError), match=r"Unknown topic config|InvalidConf"):
        configs("--alter", *topic, "--add-config", "nonsense=1")
