"""What one client compresses every other one reads: all codecs, all clients, one topic each."""

from __future__ import annotations

import asyncio
from pathlib import Path

import kafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka.codec import has_lz4, has_snappy, has_zstd

from support.brokers import RunningBroker
from support.java import java_tool, kcat_executable
from support.processes import run_tool

pytestmark = [pytest.mark.needs_kafka, pytest.mark.needs_kcat]

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
KAFKA_PYTHON_HAS = {"none": True, "gzip": True, "snappy": has_snappy(), "lz4": has_lz4(), "zstd": has_zstd()}
COUNT = 200

CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
CONSOLE_PRODUCER = "kafka.tools.ConsoleProducer"


def lines_of(client: str) -> list[str]:
    """Lines that compress well, and a few that do not."""
    return [f"{client} {number} " + "repeated " * (number % 50) for number in range(COUNT)]


def produce_all(bootstrap: str, topic: str, codec: str) -> list[str]:
    """Produce with every client; gives their names."""
    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec})
    for line in lines_of("confluent"):
        producer.produce(topic, line.encode(), partition=0)
    assert producer.flush(120) == 0
    text = "".join(f"{line}\n" for line in lines_of("kcat"))
    run_tool([str(kcat_executable()), "-b", bootstrap, "-P", "-t", topic, "-p", "0", "-z", codec], stdin=text)
    asyncio.run(produce_with_aiokafka(bootstrap, topic, codec))
    text = "".join(f"{line}\n" for line in lines_of("java"))
    options = ("--topic", topic, "--compression-codec", codec)
    java_tool(CONSOLE_PRODUCER, "--bootstrap-server", bootstrap, *options, stdin=text)
    names = ["confluent", "kcat", "aiokafka", "java"]
    if KAFKA_PYTHON_HAS[codec]:
        with_kafka_python(bootstrap, topic, codec)
        names.append("kafka-python")
    return names


async def produce_with_aiokafka(bootstrap: str, topic: str, codec: str) -> None:
    kind = None if codec == "none" else codec
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, compression_type=kind, linger_ms=20) as producer:
        sent = [await producer.send(topic, line.encode(), partition=0) for line in lines_of("aiokafka")]
        await asyncio.gather(*sent)


def with_kafka_python(bootstrap: str, topic: str, codec: str) -> None:
    kind = None if codec == "none" else codec
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, compression_type=kind, linger_ms=20)
    for line in lines_of("kafka-python"):
        producer.send(topic, line.encode(), partition=0)
    producer.flush(120)
    producer.close()


def check(got: list[str], names: list[str], reader: str) -> None:
    for name in names:
        mine = [line for line in got if line.startswith(f"{name} ")]
        assert mine == lines_of(name), f"{reader} reads what {name} wrote"


def read_with_confluent(bootstrap: str, topic: str, count: int) -> list[str]:
    # The CRC is checked on the way.
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "check.crcs": True})
    consumer.assign([TopicPartition(topic, 0, 0)])
    got: list[str] = []
    while len(got) < count:
        messages = consumer.consume(count - len(got), 20)
        assert messages
        assert not [message.error() for message in messages if message.error()]
        got += [message.value().decode() for message in messages]
    consumer.close()
    return got


async def read_with_aiokafka(bootstrap: str, topic: str, count: int) -> list[str]:
    async with AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        async with asyncio.timeout(20):
            return [(await consumer.getone()).value.decode() for _ in range(count)]


def read_with_kafka_python(bootstrap: str, topic: str, count: int) -> list[str]:
    consumer = kafka.KafkaConsumer(
        topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest", check_crcs=True, consumer_timeout_ms=20_000
    )
    got = [next(consumer).value.decode() for _ in range(count)]
    consumer.close()
    return got


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.spec("L2", "L7")
def test_every_client_reads_every_other(broker: RunningBroker, unique: str, codec: str, tmp_path: Path) -> None:
    names = produce_all(broker.bootstrap, unique, codec)
    count = COUNT * len(names)
    check(read_with_confluent(broker.bootstrap, unique, count), names, "confluent")
    check(asyncio.run(read_with_aiokafka(broker.bootstrap, unique, count)), names, "aiokafka")
    if KAFKA_PYTHON_HAS[codec]:
        check(read_with_kafka_python(broker.bootstrap, unique, count), names, "kafka-python")
    command = [str(kcat_executable()), "-b", broker.bootstrap, "-C", "-t", unique, "-o", "beginning", "-e", "-q"]
    check(run_tool(command).stdout.splitlines(), names, "kcat")
    options = ("--topic", unique, "--from-beginning", "--max-messages", str(count), "--timeout-ms", "20000")
    told = java_tool(CONSOLE_CONSUMER, "--bootstrap-server", broker.bootstrap, *options).stdout
    check(told.splitlines(), names, "java")
