"""What ottla's producers send is what its consumers and others read: of every form, with every compression."""

from __future__ import annotations

import re
import threading
import time
from typing import Any

import pytest
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import Producer as ConfluentProducer

from interop.clients.topics import add_partitions, create_topic, group_size, reader
from ottla.client import ConsumerRebalanceListener, OffsetAndMetadata, ProducerRecord, TopicPartition
from ottla.client.errors import ClientError, WakeupError
from support.brokers import RunningBroker
from support.client_facades import Facade
from support.waiting import Stopwatch, wait_until

pytestmark = [pytest.mark.slow]

TIMEOUT_S = 60.0
T0 = 1_700_000_000_000
MANY_PARTITIONS = 50
METADATA_AGE_MS = 300
LARGE_BYTES = 900_000
CONSUMER = {
    "auto.offset.reset": "earliest",
    "enable.auto.commit": False,
    "fetch.max.wait.ms": 100,
    "heartbeat.interval.ms": 100,
    "metadata.max.age.ms": METADATA_AGE_MS,
}


def read(consumer: Any, count: int) -> list[Any]:
    """So many records, or those that came in time."""
    found: list[Any] = []
    deadline = time.monotonic() + TIMEOUT_S
    while len(found) < count and time.monotonic() < deadline:
        found += consumer.poll(200)
    return found


def poll_until(consumer: Any, condition: Any, what: str) -> list[Any]:
    """Poll until the condition holds; what came."""
    found: list[Any] = []

    def holds() -> bool:
        found.extend(consumer.poll(20))
        return bool(condition())

    wait_until(holds, what, TIMEOUT_S)
    return found


def records_of_every_form(topic: str) -> list[ProducerRecord[bytes, bytes]]:
    """Nulls, empties, headers of all kinds, timestamps, some larger ones."""
    keys = [None, b"", b"key", b"k" * 300]
    values = [None, b"", b"value", bytes(range(256)) * 40]
    headers: list[list[tuple[str, bytes | None]]] = [[], [("a", b"1"), ("a", None), ("", b""), ("ü", b"\xff")]]
    forms = [(key, value, head) for key in keys for value in values for head in headers]
    return [ProducerRecord(topic, value, key, 0, T0 + at, head) for at, (key, value, head) in enumerate(forms)]


@pytest.mark.spec("P1", "P4", "L7")
@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_of_every_form(broker: RunningBroker, facade: Facade, unique: str, compression: str) -> None:
    topic = create_topic(broker.bootstrap, unique)
    sent = records_of_every_form(topic)
    settings = {"bootstrap.servers": broker.bootstrap, "compression.type": compression, "linger.ms": 5}
    with facade.producer(settings) as producer:
        futures = [producer.send(record) for record in sent]
        places = [future.result(TIMEOUT_S) for future in futures]
    assert [(place.offset, place.timestamp) for place in places] == [(at, T0 + at) for at in range(len(sent))]

    expected = [(one.timestamp, one.key, one.value, list(one.headers)) for one in sent]
    with facade.consumer({**CONSUMER, "bootstrap.servers": broker.bootstrap}) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        got = read(consumer, len(sent))
    assert [(one.timestamp, one.key, one.value, list(one.headers)) for one in got] == expected
    with reader(broker.bootstrap) as other:
        subscribe_all(other, topic)
        seen = other.consume(len(sent), TIMEOUT_S)
    assert [(one.timestamp()[1], one.key(), one.value(), one.headers() or []) for one in seen] == expected


def subscribe_all(consumer: ConfluentConsumer, topic: str) -> None:
    from confluent_kafka import TopicPartition as Theirs

    consumer.assign([Theirs(topic, 0, 0)])


@pytest.mark.spec("P1", "C1")
def test_large_records_and_many_partitions(broker: RunningBroker, facade: Facade, unique: str) -> None:
    topic = create_topic(broker.bootstrap, unique, MANY_PARTITIONS)
    large = b"\x05" * LARGE_BYTES
    with facade.producer({"bootstrap.servers": broker.bootstrap}) as producer:
        futures = [producer.send(topic, b"%d" % one, partition=one) for one in range(MANY_PARTITIONS)]
        futures.append(producer.send(topic, large, partition=7))
        producer.flush()
        assert {future.result(0).partition for future in futures} == set(range(MANY_PARTITIONS))
    with facade.consumer({**CONSUMER, "bootstrap.servers": broker.bootstrap, "max.partition.fetch.bytes": 1000}) as c:
        c.assign([TopicPartition(topic, one) for one in range(MANY_PARTITIONS)])
        got = read(c, MANY_PARTITIONS + 1)
    small = {(one.partition, one.value) for one in got if len(one.value) < LARGE_BYTES}
    assert small == {(one, b"%d" % one) for one in range(MANY_PARTITIONS)}
    assert [one.partition for one in got if one.value == large] == [7]


@pytest.mark.spec("C3")
def test_commits_and_what_they_promise(broker: RunningBroker, facade: Facade, unique: str) -> None:
    topic = create_topic(broker.bootstrap, unique)
    with facade.producer({"bootstrap.servers": broker.bootstrap}) as producer:
        for number in range(10):
            producer.send(topic, b"%d" % number)
    partition = TopicPartition(topic, 0)
    settings = {**CONSUMER, "bootstrap.servers": broker.bootstrap, "group.id": unique, "max.poll.records": 4}
    told: list[Any] = []
    with facade.consumer(settings) as consumer:
        consumer.subscribe([topic])
        first = read(consumer, 4)
        assert [one.offset for one in first] == [0, 1, 2, 3]
        assert consumer.committed([partition]) == {partition: None}
        consumer.commit()
        assert consumer.committed([partition])[partition].offset == 4
        for offset in (1, 2, 3):
            consumer.commit_async(
                {partition: OffsetAndMetadata(offset, "mine")}, lambda offsets, error: told.append((offsets, error))
            )
        poll_until(consumer, lambda: len(told) == 3, "three callbacks")
        assert [offsets[partition].offset for offsets, _ in told] == [1, 2, 3]
        assert [error for _, error in told] == [None] * 3
        assert consumer.committed([partition])[partition] == OffsetAndMetadata(3, "mine")
    with facade.consumer(settings) as consumer:
        consumer.subscribe([topic])
        assert [one.offset for one in read(consumer, 4)] == [3, 4, 5, 6], "what is not committed comes again"


@pytest.mark.spec("C1", "G9")
def test_who_closes_or_unsubscribes_leaves_at_once(broker: RunningBroker, facade: Facade, unique: str) -> None:
    topic = create_topic(broker.bootstrap, unique, 4)
    settings = {**CONSUMER, "bootstrap.servers": broker.bootstrap, "group.id": unique, "session.timeout.ms": 300_000}
    other = Facade("sync")
    leaver = facade.consumer(settings)
    with other.consumer(settings) as stayer:
        stayer.subscribe([topic])
        poll_until(stayer, lambda: len(stayer.assignment()) == 4, "all partitions")
        for leave in ("unsubscribe", "close"):
            join_beside(leaver, stayer, topic)
            watch = Stopwatch()
            getattr(leaver, leave)()
            poll_until(stayer, lambda: len(stayer.assignment()) == 4, "the partitions of the one that left")
            assert watch.seconds() < 100, "far less than its session"
    assert group_size(broker.bootstrap, unique) == 0


def join_beside(joiner: Any, stayer: Any, topic: str) -> None:
    """Another member joins: both poll until each owns half."""
    joiner.subscribe([topic])

    def shared() -> bool:
        joiner.poll(20)
        return len(joiner.assignment()) == 2 == len(stayer.assignment())

    poll_until(stayer, shared, "two partitions each")


@pytest.mark.spec("C2")
def test_wakeup_ends_a_poll(broker: RunningBroker, facade: Facade, unique: str) -> None:
    topic = create_topic(broker.bootstrap, unique)
    with facade.consumer({**CONSUMER, "bootstrap.servers": broker.bootstrap}) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.poll(100)
        waker = threading.Timer(0.1, consumer.client.wakeup if facade.is_async else consumer.wakeup)
        waker.start()
        watch = Stopwatch()
        with pytest.raises(WakeupError):
            consumer.poll(300_000)
        assert watch.seconds() < 100
        waker.join()
        assert list(consumer.poll(50)) == [], "once"


class Told(ConsumerRebalanceListener):
    """Remembers the partitions that were assigned."""

    def __init__(self) -> None:
        self.assigned: list[tuple[str, int]] = []

    def on_partitions_assigned(self, partitions: Any) -> None:
        self.assigned += [(each.topic, each.partition) for each in partitions]


@pytest.mark.spec("C7")
def test_new_topics_of_a_pattern_and_new_partitions_are_noticed(
    broker: RunningBroker, facade: Facade, unique: str
) -> None:
    first = create_topic(broker.bootstrap, f"{unique}-1")
    told = Told()
    settings = {**CONSUMER, "bootstrap.servers": broker.bootstrap, "group.id": unique}
    with facade.consumer(settings) as consumer:
        consumer.subscribe(re.compile(re.escape(unique) + "-[0-9]"), told)
        poll_until(consumer, lambda: told.assigned, "the first topic")
        second = create_topic(broker.bootstrap, f"{unique}-2")
        poll_until(consumer, lambda: (second, 0) in told.assigned, "the second topic")
        add_partitions(broker.bootstrap, first, 2)
        poll_until(consumer, lambda: (first, 1) in told.assigned, "the new partition")
        theirs = ConfluentProducer({"bootstrap.servers": broker.bootstrap})
        theirs.produce(first, b"there", partition=1)
        assert theirs.flush(TIMEOUT_S) == 0
        assert [(one.partition, one.value) for one in read(consumer, 1)] == [(1, b"there")]


@pytest.mark.spec("C1")
def test_offsets_for_times(broker: RunningBroker, facade: Facade, unique: str) -> None:
    topic = create_topic(broker.bootstrap, unique, 2)
    with facade.producer({"bootstrap.servers": broker.bootstrap}) as producer:
        for number in range(10):
            producer.send(topic, b"", partition=0, timestamp=T0 + number * 1000)
    zero, one = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with facade.consumer({**CONSUMER, "bootstrap.servers": broker.bootstrap}) as consumer:
        found = consumer.offsets_for_times({zero: T0 + 2500, one: T0})
        assert (found[zero].offset, found[zero].timestamp, found[one]) == (3, T0 + 3000, None)
        assert consumer.offsets_for_times({zero: T0 + 9001})[zero] is None
        with pytest.raises(ClientError, match="milliseconds"):
            consumer.offsets_for_times({zero: -5})


@pytest.mark.needs_kafka
@pytest.mark.spec("P6")
def test_transactions_of_others(apache_kafka: RunningBroker, facade: Facade, unique: str) -> None:
    topic = create_topic(apache_kafka.bootstrap, unique)
    theirs = ConfluentProducer({"bootstrap.servers": apache_kafka.bootstrap, "transactional.id": unique})
    theirs.init_transactions(TIMEOUT_S)
    for number in range(6):
        theirs.begin_transaction()
        for part in range(3):
            theirs.produce(topic, b"%d.%d" % (number, part))
        assert theirs.flush(TIMEOUT_S) == 0
        theirs.commit_transaction(TIMEOUT_S) if number % 2 == 0 else theirs.abort_transaction(TIMEOUT_S)
    theirs.begin_transaction()
    theirs.produce(topic, b"open")
    assert theirs.flush(TIMEOUT_S) == 0
    whole = [b"%d.%d" % (number, part) for number in (0, 2, 4) for part in range(3)]
    settings = {**CONSUMER, "bootstrap.servers": apache_kafka.bootstrap}
    with facade.consumer({**settings, "isolation.level": "read_committed"}) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        assert [one.value for one in read(consumer, len(whole))] == whole
        assert list(consumer.poll(300)) == [], "the open one is not told"
        assert consumer.end_offsets([TopicPartition(topic, 0)]) == {TopicPartition(topic, 0): 24}
        theirs.commit_transaction(TIMEOUT_S)
        assert [one.value for one in read(consumer, 1)] == [b"open"]
    with facade.consumer(settings) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        assert len(read(consumer, 19)) == 19
