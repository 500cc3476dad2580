"""The client against real brokers: ours and Apache Kafka's, with the same test bodies."""

from __future__ import annotations

import multiprocessing
import time

import pytest

from ottla.client.errors import BrokerError, OffsetOutOfRange, RecordTooLargeError, TopicExistsError, UnknownTopicError
from ottla.client.model import EARLIEST, LATEST, TopicPartition
from ottla.client.producer.partitioners import partition_for_key
from ottla.client.sync import Client, Producer
from ottla.records.compression import Compression
from ottla.records.record import Record
from support.java import java_command
from support.processes import run_tool
from support.waiting import wait_until


@pytest.fixture
def client(broker):
    with Client(broker.bootstrap) as client:
        yield client


@pytest.fixture
def topic(client, unique):
    client.create_topic(unique, 3)
    return unique


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def read_all(client, topic):
    partitions = [TopicPartition(topic, each) for each in client.partitions([topic])[topic]]
    ends = client.offsets_at(partitions, LATEST)
    return {
        each: [record for records in client.read_range(each, 0, end) for record in records]
        for each, end in ends.items()
    }


def test_topics(client, unique):
    client.create_topic(unique, 4, config={"retention.ms": "3600000"})
    assert unique in client.topics()
    assert client.topics(f"{unique[:-2]}.*") == [unique]
    assert client.partitions([unique]) == {unique: [0, 1, 2, 3]}
    [described] = client.describe_topics([unique]).values()
    assert all(each.leader >= 0 and each.isr == each.replicas for each in described.partitions)
    with pytest.raises(TopicExistsError, match=f"Topic '{unique}' already exists"):
        client.create_topic(unique)
    client.delete_topic(unique)
    with pytest.raises(UnknownTopicError):
        client.partitions([unique])
    with pytest.raises(UnknownTopicError):
        client.delete_topic(unique)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"partitions": 0}, "INVALID_PARTITIONS"),
        ({"replication_factor": 9}, "INVALID_REPLICATION_FACTOR"),
        ({"config": {"retention.ms": "soon"}}, "INVALID_CONFIG"),
    ],
)
def test_topics_that_are_refused(client, unique, arguments, code):
    with pytest.raises(BrokerError, match=code):
        client.create_topic(unique, **arguments)
    assert unique not in client.topics()


@pytest.mark.spec("L7")
@pytest.mark.parametrize("codec", list(Compression))
def test_what_is_sent_is_read(broker, client, topic, codec):
    start = now_ms()
    expected: dict[TopicPartition, list[Record]] = {TopicPartition(topic, each): [] for each in range(3)}
    with Producer(bootstrap_servers=broker.bootstrap, compression_type=codec.name.lower(), linger_ms=5) as producer:
        for at in range(2000):
            key = None if at % 5 == 0 else b"key-%d" % at
            value = None if at % 7 == 0 else b"value of %d " % at * (at % 30)
            headers = (("trace", b"%d" % at), ("none", None)) if at % 11 == 0 else ()
            partition = at % 3 if key is None else partition_for_key(key, 3)
            chosen = expected[TopicPartition(topic, partition)]
            chosen.append(Record(len(chosen), start + at, key, value, headers))
            producer.send(topic, value, key, partition if key is None else None, start + at, headers)
    assert read_all(client, topic) == expected


def test_ranges(broker, client, topic):
    partition = TopicPartition(topic, 0)
    start = now_ms()
    with Producer(bootstrap_servers=broker.bootstrap, batch_size=500) as producer:
        for at in range(1000):
            producer.send(topic, b"%d" % at, timestamp=start + at, partition=0)
    for first, end in ((0, 1000), (0, 1), (999, 1000), (123, 456), (500, 500)):
        records = [record for batch in client.read_range(partition, first, end, 2000) for record in batch]
        assert [record.offset for record in records] == list(range(first, end))
        rows = list(client.read_range_arrow(partition, first, end, rows_per_batch=100, fetch_max_bytes=2000))
        assert [value for batch in rows for value in batch.column("value").to_pylist()] == [
            record.value for record in records
        ]
    assert client.offsets_at([partition], EARLIEST) == {partition: 0}
    assert client.offsets_at([partition], LATEST) == {partition: 1000}
    assert client.offsets_at([partition], start + 700) == {partition: 700}
    assert client.offsets_at([partition], start + 5000) == {partition: -1}
    with pytest.raises(OffsetOutOfRange) as caught:
        list(client.read_range(partition, 2000, 3000))
    assert (caught.value.earliest, caught.value.latest) == (0, 1000)


def test_sizes_of_partitions(broker, client, topic):
    empty, filled = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        for _ in range(10):
            producer.send(topic, bytes(1_000), partition=1)
    sizes = client.partition_sizes([empty, filled, TopicPartition(f"{topic}-none", 0)])
    assert sizes[empty] == sizes[TopicPartition(f"{topic}-none", 0)] == 0
    assert 10_000 < sizes[filled] < 20_000


def test_commits(client, topic, unique):
    a, b = TopicPartition(topic, 0), TopicPartition(topic, 1)
    assert client.committed(unique, [a, b]) == {a: -1, b: -1}
    client.commit(unique, {a: 5, b: 0}, "note")
    client.commit(unique, {a: 6})
    assert client.committed(unique, [a, b]) == {a: 6, b: 0}


@pytest.mark.spec("P4")
@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_acks(broker, client, topic, acks):
    with Producer(bootstrap_servers=broker.bootstrap, acks=acks) as producer:
        futures = [producer.send(topic, b"%d" % at, b"k") for at in range(100)]
        producer.flush()
        assert [future.result(60).offset for future in futures] == ([-1] * 100 if acks == 0 else list(range(100)))
    partition = TopicPartition(topic, partition_for_key(b"k", 3))
    wait_until(lambda: client.offsets_at([partition], LATEST)[partition] == 100, "all to arrive")
    assert [each.value for each in read_all(client, topic)[partition]] == [b"%d" % at for at in range(100)]


@pytest.mark.spec("P5")
def test_records_and_batches_that_are_too_large(broker, client, unique):
    client.create_topic(unique, 1, config={"max.message.bytes": "20000"})
    with Producer(bootstrap_servers=broker.bootstrap, linger_ms=100, batch_size=200_000) as producer:
        with pytest.raises(RecordTooLargeError, match=r"max\.message\.bytes"):
            producer.send(unique, bytes(30_000)).result(60)
        futures = [producer.send(unique, b"%d" % at + bytes(1000)) for at in range(100)]
        assert [future.result(60).offset for future in futures] == list(range(100))
    [(_, read)] = read_all(client, unique).items()
    assert [record.value for record in read] == [b"%d" % at + bytes(1000) for at in range(100)]


def count_in_child(bootstrap, partition, end, counts):
    with Client(bootstrap) as client:
        counts.put(sum(len(records) for records in client.read_range(partition, 0, end)))


def test_forked_workers(broker, client, topic):
    partition = TopicPartition(topic, 0)
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        for at in range(500):
            producer.send(topic, b"%d" % at, partition=0)
    context = multiprocessing.get_context("fork")
    counts = context.Queue()
    workers = [
        context.Process(target=count_in_child, args=(broker.bootstrap, partition, 500, counts)) for _ in range(3)
    ]
    for worker in workers:
        worker.start()
    assert [counts.get(timeout=120) for _ in workers] == [500] * 3
    for worker in workers:
        worker.join(30)


@pytest.mark.needs_kafka
@pytest.mark.spec("L7")
@pytest.mark.parametrize("codec", list(Compression))
def test_javas_consumer_reads_what_we_send(broker, topic, codec):
    with Producer(bootstrap_servers=broker.bootstrap, compression_type=codec.name.lower()) as producer:
        for at in range(50):
            producer.send(topic, b"v%d " % at * 50, b"k%d" % at, partition=at % 3)
    arguments = ["--bootstrap-server", broker.bootstrap, "--topic", topic, "--from-beginning"]
    arguments += ["--max-messages", "50", "--timeout-ms", "30000", "--property", "print.key=true"]
    told = run_tool(java_command("org.apache.kafka.tools.consumer.ConsoleConsumer", *arguments)).stdout
    assert sorted(told.splitlines()) == sorted(f"k{at}\t" + f"v{at} " * 50 for at in range(50))
