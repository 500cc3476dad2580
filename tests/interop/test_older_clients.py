"""Java clients from 0.8.2 to 4.1, each reading what others wrote and what it wrote itself; librdkafka's fallbacks."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from interop.both_brokers import made, topic_id_when_usable
from interop.raw import RawConnection
from interop.test_raw_legacy import at_zero, sets
from ottla.records.batch import parse_batch_header
from ottla.records.record import Record, decode_batch
from support.brokers import RunningBroker
from support.java import older_client_command
from support.processes import run_tool
from support.waiting import wait_until

pytestmark = [pytest.mark.needs_kafka, pytest.mark.needs_older, pytest.mark.spec("L7")]

OLDER = Path(__file__).with_name("older")
VERSIONS = [
    "0.9.0.1",
    "0.10.0.1",
    "0.10.2.2",
    "0.11.0.3",
    "1.1.1",
    "2.0.1",
    "2.4.1",
    "2.8.2",
    "3.4.1",
    "4.0.0",
    "4.1.0",
]
CODECS = ["none", "gzip", "snappy", "lz4"]
ZSTD_SINCE = (2, 1)
RECORDS = 20


def codecs_of(version: str) -> list[str]:
    """The compressions that clients of this version know."""
    major, minor = (int(part) for part in version.split(".")[:2])
    return [*CODECS, "zstd"] if (major, minor) >= ZSTD_SINCE else CODECS


def fill(raw: RawConnection, topic: str, codecs: list[str]) -> list[Record]:
    """Make the topic and put records in it as a client of today does, headers and all; what is in it then."""
    wait_until(lambda: made(raw, {"name": topic, "num_partitions": 1, "replication_factor": 1}), f"topic {topic}")
    topic_id_when_usable(raw, topic)
    written: list[Record] = []
    for codec in codecs:
        for variant in ("mixed", "headers", "empty"):
            batch = at_zero(sets()[f"set-2-{codec}-create-{variant}"])
            data = [{"name": topic, "partition_data": [{"index": 0, "records": batch}]}]
            answer = raw.request("Produce", 9, transactional_id=None, acks=-1, timeout_ms=20_000, topic_data=data)
            assert answer["responses"][0]["partition_responses"][0]["error_code"] == 0
            written += decode_batch(batch, parse_batch_header(batch))
    return written


def java_hash(data: bytes) -> int:
    """`Arrays.hashCode` of a byte array."""
    number = 1
    for byte in data:
        number = (31 * number + (byte - 256 if byte > 127 else byte)) & 0xFFFFFFFF
    return number - (1 << 32) if number >> 31 else number


def as_java_prints(data: bytes | None) -> str:
    return "-" if data is None else f"{len(data)}:{java_hash(data)}"


def sent_by_client(codec: str) -> list[tuple[bytes | None, bytes | None]]:
    """What `Client.java` produces with a codec."""
    return [
        (
            None if i % 3 == 1 else f"{codec}{i}".encode(),
            None if i % 5 == 4 else f"value {i} ".encode() * (1 + 100 * (i % 4)),
        )
        for i in range(RECORDS)
    ]


def lines(how: str, content: list[tuple[bytes | None, bytes | None]]) -> list[str]:
    return [f"{how} {at} {as_java_prints(key)} {as_java_prints(value)}" for at, (key, value) in enumerate(content)]


@pytest.mark.parametrize("version", VERSIONS)
def test_java_clients_of_all_ages(broker: RunningBroker, raw: RawConnection, unique: str, version: str) -> None:
    codecs = codecs_of(version)
    content = [(record.key, record.value) for record in fill(raw, unique, codecs)]
    before = len(content)
    told = run_tool(
        older_client_command(version, str(OLDER / "Client.java"), broker.bootstrap, unique, *codecs), timeout_s=60
    ).stdout.splitlines()
    for codec in codecs:
        content += sent_by_client(codec)
    produced = [f"produced {codec} {before + RECORDS * (at + 1) - 1}" for at, codec in enumerate(codecs)]
    assert told == [*produced, *lines("alone", content), *lines("group", content), f"committed {len(content)}"]


def test_java_and_scala_clients_of_0_8_2(broker: RunningBroker, raw: RawConnection, unique: str) -> None:
    content = [(record.key, record.value) for record in fill(raw, unique, CODECS)]
    host, _, port = broker.bootstrap.rpartition(":")
    command = older_client_command("0.8.2.2", str(OLDER / "Client082.java"), host, port, unique, *CODECS)
    told = run_tool(command, timeout_s=60).stdout.splitlines()
    for codec in CODECS:
        content += sent_by_client(codec) * 2
    assert [line for line in told if line.startswith("alone")] == lines("alone", content)
    assert f"produced by Scala {CODECS[-1]}" in told


@pytest.mark.parametrize("fallback", ["0.8.2.2", "0.9.0.1", "0.10.0.1"])
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4"])
def test_librdkafka_set_for_an_old_broker(
    broker: RunningBroker, raw: RawConnection, unique: str, fallback: str, codec: str
) -> None:
    content = [(record.key, record.value) for record in fill(raw, unique, [codec])]
    old = {
        "bootstrap.servers": broker.bootstrap,
        "api.version.request": False,
        "broker.version.fallback": fallback,
    }
    producer = Producer({**old, "compression.codec": codec, "linger.ms": 20, "enable.idempotence": False})
    for key, value in sent_by_client(codec):
        producer.produce(unique, key=key, value=value, partition=0)
    assert producer.flush(120) == 0
    content += sent_by_client(codec)
    consumer = Consumer({**old, "group.id": unique, "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(unique, 0, 0)])
        got: list[tuple[bytes | None, bytes | None]] = []

        def all_read() -> bool:
            for message in consumer.consume(100, 0.5):
                assert message.error() is None, message.error()
                got.append((message.key(), message.value()))
            return len(got) >= len(content)

        wait_until(all_read, "all records")
        assert got == content
    finally:
        consumer.close()
