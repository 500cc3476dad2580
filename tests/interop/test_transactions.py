"""Transactions of other projects' clients: committed, aborted, fenced, timed out, and through a kill of the broker."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing import Cluster
from support.brokers import RunningBroker
from support.java import java_tool
from support.ottla_server import OttlaServer
from support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.spec("P6"), pytest.mark.spec("X1"), pytest.mark.spec("X2")]

TIMEOUT_S = 60.0
PARTITIONS = 2
PRODUCER_PERF = "org.apache.kafka.tools.ProducerPerformance"
COPIER = "org.apache.kafka.tools.TransactionalMessageCopier"
TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"


def make_topics(bootstrap: str, *names: str, replicas: int = 1, partitions: int = PARTITIONS) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics([NewTopic(name, partitions, replicas) for name in names]).values():
        made.result(TIMEOUT_S)


def producer(bootstrap: str, name: str, **settings: object) -> Producer:
    """A transactional producer, ready for its first transaction."""
    more = {key.replace("_", "."): value for key, value in settings.items()}
    made = Producer({"bootstrap.servers": bootstrap, "transactional.id": name, "linger.ms": 0, **more})
    made.init_transactions(TIMEOUT_S)
    return made


def write(writer: Producer, topic: str, *values: str) -> None:
    """Records of the open transaction, which the broker then has."""
    for number, value in enumerate(values):
        writer.produce(topic, value.encode(), partition=number % PARTITIONS)
    assert writer.flush(TIMEOUT_S) == 0


def transact(writer: Producer, topic: str, *values: str, is_commit: bool = True) -> None:
    writer.begin_transaction()
    write(writer, topic, *values)
    (writer.commit_transaction if is_commit else writer.abort_transaction)(TIMEOUT_S)


@pytest.fixture
def reader(unique: str) -> Iterator[Callable[..., Consumer]]:
    """Makes consumers that read everything from the start, closed in the end."""
    made: list[Consumer] = []

    def make(bootstrap: str, topic: str, isolation_level: str = "read_committed", group: str = "") -> Consumer:
        settings = {
            "bootstrap.servers": bootstrap,
            "group.id": group or f"{unique}-{len(made)}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": isolation_level,
        }
        made.append(Consumer(settings))
        made[-1].subscribe([topic])
        return made[-1]

    yield make
    for each in made:
        each.close()


def polled(consumer: Consumer, count: int) -> list[Message]:
    """The next records."""
    found: list[Message] = []
    end = time.monotonic() + TIMEOUT_S
    while len(found) < count and time.monotonic() < end:
        found += [each for each in consumer.consume(count - len(found), 0.5) if each.error() is None]
    return found


def values(consumer: Consumer, count: int) -> list[str]:
    return sorted((each.value() or b"").decode() for each in polled(consumer, count))


def test_readers_see_what_was_committed(broker: RunningBroker, reader: Callable[..., Consumer], unique: str) -> None:
    make_topics(broker.bootstrap, unique)
    writer = producer(broker.bootstrap, unique)
    transact(writer, unique, "a1", "a2", "a3", is_commit=False)
    transact(writer, unique, "b1", "b2", "b3")
    transact(writer, unique, "c1", "c2", is_commit=False)
    transact(writer, unique, "d1", "d2")
    assert values(reader(broker.bootstrap, unique), 5) == ["b1", "b2", "b3", "d1", "d2"]
    everything = values(reader(broker.bootstrap, unique, "read_uncommitted"), 10)
    assert everything == ["a1", "a2", "a3", "b1", "b2", "b3", "c1", "c2", "d1", "d2"]


def test_positions_are_committed_with_what_was_made_of_them(
    broker: RunningBroker, reader: Callable[..., Consumer], unique: str
) -> None:
    output = f"{unique}-out"
    make_topics(broker.bootstrap, unique, output)
    plain = Producer({"bootstrap.servers": broker.bootstrap})
    write(plain, unique, *(f"{number}" for number in range(6)))
    group = f"{unique}-group"
    consumer = reader(broker.bootstrap, unique, group=group)
    writer = producer(broker.bootstrap, unique)
    wanted = [TopicPartition(unique, index) for index in range(PARTITIONS)]
    taken = polled(consumer, 6)
    for is_commit in (False, True):
        writer.begin_transaction()
        write(writer, output, *(f"{is_commit} {(each.value() or b'').decode()}" for each in taken))
        positions = consumer.position(wanted)
        writer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), TIMEOUT_S)
        (writer.commit_transaction if is_commit else writer.abort_transaction)(TIMEOUT_S)
        committed = sum(max(each.offset, 0) for each in consumer.committed(wanted, TIMEOUT_S))
        assert committed == (6 if is_commit else 0)
    made = values(reader(broker.bootstrap, output), 6)
    assert made == [f"True {number}" for number in range(6)]


def test_a_zombie_is_fenced(broker: RunningBroker, reader: Callable[..., Consumer], unique: str) -> None:
    make_topics(broker.bootstrap, unique)
    zombie = producer(broker.bootstrap, unique)
    zombie.begin_transaction()
    write(zombie, unique, "zombie")
    heir = producer(broker.bootstrap, unique)
    with pytest.raises(KafkaException) as raised:
        zombie.commit_transaction(TIMEOUT_S)
    assert raised.value.args[0].code() == KafkaError._FENCED
    transact(heir, unique, "heir")
    assert values(reader(broker.bootstrap, unique), 1) == ["heir"]


def test_a_transaction_that_takes_too_long_is_aborted(
    broker: RunningBroker, reader: Callable[..., Consumer], unique: str
) -> None:
    make_topics(broker.bootstrap, unique)
    slow = producer(broker.bootstrap, unique, transaction_timeout_ms=1000)
    slow.begin_transaction()
    write(slow, unique, "late")
    # Nothing behind it is read before it has ended.
    write(Producer({"bootstrap.servers": broker.bootstrap}), unique, "behind")
    assert values(reader(broker.bootstrap, unique), 1) == ["behind"]
    with pytest.raises(KafkaException) as raised:
        slow.commit_transaction(TIMEOUT_S)
    assert raised.value.args[0].code() == KafkaError._FENCED


def test_a_transaction_goes_on_after_a_kill_of_the_broker(
    tmp_path: Path, reader: Callable[..., Consumer], unique: str
) -> None:
    server = OttlaServer(tmp_path)
    server.start()
    try:
        make_topics(server.bootstrap, unique)
        writer = producer(server.bootstrap, unique)
        transact(writer, unique, "a1", is_commit=False)
        writer.begin_transaction()
        write(writer, unique, "b1", "b2")
        server.kill9()
        server.start()
        write(writer, unique, "b3", "b4")
        writer.commit_transaction(TIMEOUT_S)
        assert values(reader(server.bootstrap, unique), 4) == ["b1", "b2", "b3", "b4"]
        transact(producer(server.bootstrap, unique), unique, "c1")
        assert values(reader(server.bootstrap, unique), 5) == ["b1", "b2", "b3", "b4", "c1"]
    finally:
        server.stop()


def test_coordinators_and_leaders_are_different_brokers(reader: Callable[..., Consumer], unique: str) -> None:
    with Cluster(3) as cluster:
        bootstrap = cluster.bootstrap_servers
        make_topics(bootstrap, unique, replicas=3)
        kept = []
        for number in range(4):
            writer = producer(bootstrap, f"{unique}-{number}")
            transact(writer, unique, f"a{number}", f"a{number}'", is_commit=False)
            transact(writer, unique, f"b{number}", f"b{number}'")
            kept += [f"b{number}", f"b{number}'"]
        assert values(reader(bootstrap, unique), 8) == sorted(kept)
        assert len(values(reader(bootstrap, unique, "read_uncommitted"), 16)) == 16


@pytest.mark.needs_kafka
def test_java_writes_copies_and_lists(broker: RunningBroker, reader: Callable[..., Consumer], unique: str) -> None:
    output = f"{unique}-out"
    make_topics(broker.bootstrap, unique, output, partitions=1)
    given = ["--producer-props", f"bootstrap.servers={broker.bootstrap}", "--transactional-id", f"{unique}-perf"]
    sizes = ["--num-records", "300", "--record-size", "10", "--throughput", "1000", "--transaction-duration-ms", "50"]
    done = java_tool(PRODUCER_PERF, "--topic", unique, *sizes, *given)
    assert "300 records sent" in done.stdout
    assert len(polled(reader(broker.bootstrap, unique), 300)) == 300
    where = ["--broker-list", broker.bootstrap, "--input-topic", unique, "--input-partition", "0"]
    how = ["--consumer-group", f"{unique}-group", "--transactional-id", f"{unique}-copy", "--use-group-metadata"]
    size = ["--transaction-size", "40", "--max-messages", "300", "--enable-random-aborts"]
    java_tool(COPIER, *where, *how, *size, "--output-topic", output)
    assert len(polled(reader(broker.bootstrap, output), 300)) == 300
    listed = java_tool(TRANSACTIONS, "--bootstrap-server", broker.bootstrap, "list").stdout
    assert re.search(rf"{unique}-perf\s+\d+\s+\d+\s+CompleteCommit", listed)
    wait_until(lambda: "Complete" in described(broker, f"{unique}-copy"), "the markers")


def described(broker: RunningBroker, name: str) -> str:
    arguments = ["--bootstrap-server", broker.bootstrap, "describe", "--transactional-id", name]
    return java_tool(TRANSACTIONS, *arguments).stdout
