"""Log folders in the formats 0 and 1, as Apache Kafka writes them when told to: served by us as by Apache Kafka."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from interop.both_brokers import BrokerPair, Each, made, topic_id_when_usable
from interop.raw import RawConnection
from interop.test_raw_legacy import decoded, fetching
from interop.wire_json import Definitions
from support.apache import ApacheKafka, ApacheZooKeeper
from support.java import java_tool
from support.ottla_server import OttlaServer
from support.waiting import wait_until

pytestmark = [pytest.mark.needs_kafka, pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.spec("L3", "L7")]

TOPIC, GROUP = "old", "readers"
CODECS = ["none", "gzip", "snappy", "lz4"]
PER_CODEC = 60
T = 1_700_000_000_000
FORMATS = {0: "0.9.0", 1: "0.10.2"}
SETTINGS = {"offsets.topic.num.partitions": "1", "group.initial.rebalance.delay.ms": "0"}


@pytest.fixture
def brokers(
    tmp_path: Path, apache_zookeeper: ApacheZooKeeper, definitions: Definitions
) -> Iterator[Callable[[int], tuple[BrokerPair, OttlaServer]]]:
    """Fills a folder in an old format, and serves one copy of it with our broker and one with Apache Kafka."""
    running: list[ApacheKafka | OttlaServer] = []
    connections: list[RawConnection] = []

    def serve(magic: int) -> tuple[BrokerPair, OttlaServer]:
        old = {"inter.broker.protocol.version": "2.8", "log.message.format.version": FORMATS[magic]}
        connect = f"{apache_zookeeper.connect}/old-{tmp_path.name}"
        overrides = {**SETTINGS, **old, "zookeeper.connect": connect}
        apache = ApacheKafka(tmp_path / "apache", zookeeper=apache_zookeeper, overrides=overrides)
        running.append(apache.start())
        connections.append(RawConnection(apache.bootstrap, definitions))
        fill(apache, connections[-1])
        apache.stop()
        data = tmp_path / "ours"
        shutil.copytree(apache.log_dir, data)
        ottla = OttlaServer(tmp_path / "ottla", data=data, overrides=SETTINGS)
        running.append(ottla.start())
        apache.overrides = {name: value for name, value in overrides.items() if name not in old}
        apache.start()
        connections.extend(RawConnection(one.bootstrap, definitions) for one in (ottla, apache))
        return BrokerPair(*connections[-2:]), ottla

    yield serve
    for connection in connections:
        connection.close()
    for one in running:
        one.stop()


def fill(apache: ApacheKafka, raw: RawConnection) -> None:
    settings = [{"name": "segment.bytes", "value": "6000"}, {"name": "index.interval.bytes", "value": "400"}]
    topic = {"name": TOPIC, "num_partitions": 1, "replication_factor": 1, "configs": settings}
    wait_until(lambda: made(raw, topic), "the topic")
    topic_id_when_usable(raw, TOPIC)
    number = 0
    for codec in CODECS:
        producer = Producer(
            {"bootstrap.servers": apache.bootstrap, "compression.type": codec, "batch.num.messages": 7, "linger.ms": 5}
        )
        for _ in range(PER_CODEC):
            value = f"{codec} {number} ".encode() * (1 + number % 30)
            key = None if number % 4 == 3 else f"k{number}".encode()
            producer.produce(TOPIC, value, key=key, timestamp=T + 10 * number)
            number += 1
        assert producer.flush(120) == 0
    consumer = Consumer({"bootstrap.servers": apache.bootstrap, "group.id": GROUP, "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition(TOPIC, 0, 123, metadata="so far")], asynchronous=False)
    consumer.close()


@pytest.mark.parametrize("magic", FORMATS)
def test_an_old_directory_is_served_as_by_apache_kafka(brokers: Any, magic: int) -> None:
    pair, ottla = brokers(magic)
    ids = Each(*(topic_id_when_usable(one, TOPIC) for one in (pair.ours, pair.theirs)))
    end = PER_CODEC * len(CODECS)
    for version in (0, 1, 2, 3, 4, 11, 13, 17):
        read = [read_all(one, version, side, end) for one, side in ((pair.ours, ids.ours), (pair.theirs, ids.theirs))]
        assert read[0] == read[1], version
        assert [offset for offset, *_ in read[0]] == list(range(end))
    for timestamp in (-1, -2, 0, T - 1, T, T + 5, T + 10 * PER_CODEC, T + 10 * end - 10, T + 10 * end):
        for version in (1, 7):
            partition = {"partition_index": 0, "timestamp": timestamp}
            pair.check_alike("ListOffsets", version, replica_id=-1, topics=[{"name": TOPIC, "partitions": [partition]}])
    pair.check_alike(
        "ListOffsets", 7, replica_id=-1, topics=[{"name": TOPIC, "partitions": [{**partition, "timestamp": -3}]}]
    )
    wanted = [{"name": TOPIC, "partition_indexes": [0]}]
    committed = pair.check_alike("OffsetFetch", 5, group_id=GROUP, topics=wanted)
    assert committed["topics"][0]["partitions"][0]["committed_offset"] == 123
    life_goes_on(ottla, end)


def read_all(raw: RawConnection, version: int, topic_id: Any, end: int) -> list[tuple[int, int, bytes | None, Any]]:
    """All records by fetches of this version: offset, timestamp, key, value."""
    found: list[tuple[int, int, bytes | None, Any]] = []
    offset = 0
    while offset < end:
        answer = raw.request("Fetch", version, **fetching(version, TOPIC, topic_id, offset, 5000))
        (partition,) = answer["responses"][0]["partitions"]
        assert partition["error_code"] == 0
        records = [record for _, batch in decoded(partition["records"]) for record in batch]
        records = [record for record in records if record.offset >= offset]
        assert records, offset
        found += [(record.offset, record.timestamp, record.key, record.value) for record in records]
        offset = records[-1].offset + 1
    return found


def life_goes_on(ottla: OttlaServer, end: int) -> None:
    """More records, in today's format; a client reads over the seam; killed and started again; Apache's tool agrees."""
    producer = Producer({"bootstrap.servers": ottla.bootstrap})
    for number in range(50):
        producer.produce(TOPIC, f"new {number}".encode() * 20)
    assert producer.flush(120) == 0
    ottla.kill9()
    ottla.restart()
    consumer = Consumer({"bootstrap.servers": ottla.bootstrap, "group.id": "after", "check.crcs": True})
    try:
        consumer.assign([TopicPartition(TOPIC, 0, end - 30)])
        values: list[bytes] = []

        def all_read() -> bool:
            values.extend(message.value() for message in consumer.consume(200, 0.5))
            return len(values) >= 80

        wait_until(all_read, "all records")
    finally:
        consumer.close()
    assert values[30:] == [f"new {number}".encode() * 20 for number in range(50)]
    logs = ",".join(str(path) for path in sorted((ottla.log_dir / f"{TOPIC}-0").glob("*.log")))
    told = java_tool("kafka.tools.DumpLogSegments", "--deep-iteration", "--files", logs).stdout
    assert "isvalid: false" not in told
    assert "Found" not in told
