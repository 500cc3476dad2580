"""Transactions of ottla's producers, with its own broker and Apache Kafka: whole or not at all, once, and fenced."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from interop.clients.topics import create_topic
from interop.clients.topics import reader as other_reader
from ottla.client import Consumer, OffsetAndMetadata, Producer, TopicPartition
from ottla.client.errors import (
    BrokerError,
    ProducerFencedError,
    RecordTooLargeError,
    TransactionAbortableError,
    TransactionAbortedError,
)
from support.brokers import RunningBroker
from support.client_facades import Facade
from support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.spec("P6")]

TIMEOUT_S = 60.0
CONSUMER = {
    "auto.offset.reset": "earliest",
    "enable.auto.commit": False,
    "fetch.max.wait.ms": 100,
    "isolation.level": "read_committed",
}


def assert_committed(bootstrap: str, facade: Facade, topic: str, expected: list[list[bytes]]) -> None:
    """A read_committed consumer gets these values from the partitions, and no others.

    It may have to wait: a commit is answered before its markers are written.
    """
    values: list[list[bytes]] = [[] for _ in expected]
    with facade.consumer({**CONSUMER, "bootstrap.servers": bootstrap}) as consumer:
        consumer.assign([TopicPartition(topic, number) for number in range(len(expected))])

        def is_read() -> bool:
            for record in consumer.poll(100):
                values[record.partition].append(record.value)
            return sum(map(len, values)) >= sum(map(len, expected))

        wait_until(is_read, "everything is read", TIMEOUT_S)
        assert values == expected
        assert list(consumer.poll(300)) == []


def transacted(facade: Facade, broker: RunningBroker, name: str, **settings: Any) -> Any:
    """A producer with this transactional id."""
    return facade.producer({"bootstrap.servers": broker.bootstrap, "transactional.id": name}, **settings)


def test_commit_and_abort(broker: RunningBroker, facade: Facade, unique: str) -> None:
    topic = create_topic(broker.bootstrap, unique, 3)
    with transacted(facade, broker, unique, compression_type="zstd", batch_size=500) as producer:
        producer.init_transactions()
        for number in range(6):
            producer.begin_transaction()
            for at in range(30):
                producer.send(topic, b"%d.%d" % (number, at), partition=at % 3)
            (producer.commit_transaction if number % 2 == 0 else producer.abort_transaction)()
        producer.begin_transaction()
        producer.send(topic, b"open", partition=0).result(TIMEOUT_S)
        whole = [[b"%d.%d" % (number, at) for number in (0, 2, 4) for at in range(30) if at % 3 == p] for p in range(3)]
        assert_committed(broker.bootstrap, facade, topic, whole)
        producer.commit_transaction()
    assert_committed(broker.bootstrap, facade, topic, [[*whole[0], b"open"], *whole[1:]])
    with other_reader(broker.bootstrap, unique) as consumer:  # librdkafka reads committed records only
        consumer.subscribe([topic])
        assert len(consumer.consume(91, TIMEOUT_S)) == 91


def test_many_records_at_once(broker: RunningBroker, facade: Facade, unique: str) -> None:
    topic = create_topic(broker.bootstrap, unique)
    with transacted(facade, broker, unique) as producer:
        producer.init_transactions()
        for kept in (False, True):
            producer.begin_transaction()
            producer.send_many([(None, b"%d" % at) for at in range(5000)], topic)
            (producer.commit_transaction if kept else producer.abort_transaction)()
    assert_committed(broker.bootstrap, facade, topic, [[b"%d" % at for at in range(5000)]])


def test_consume_transform_produce(broker: RunningBroker, facade: Facade, unique: str) -> None:
    source = create_topic(broker.bootstrap, f"{unique}-in", 2)
    target = create_topic(broker.bootstrap, f"{unique}-out")
    with facade.producer({"bootstrap.servers": broker.bootstrap}) as producer:
        for at in range(200):
            producer.send(source, b"%d" % at, partition=at % 2)
        producer.flush()
    settings = {**CONSUMER, "bootstrap.servers": broker.bootstrap, "group.id": unique, "max.poll.records": 17}
    for turn in range(4):  # each stops in the middle of a transaction, but for the last
        with transacted(facade, broker, unique) as producer, facade.consumer(settings) as consumer:
            consumer.subscribe([source])
            producer.init_transactions()
            done = 0
            while done < 3 or (turn == 3 and sum(_positions(consumer, source)) < 200):
                records = list(consumer.poll(200))
                if not records:
                    continue
                producer.begin_transaction()
                for record in records:
                    producer.send(target, b"%s!" % record.value)
                producer.send_offsets_to_transaction(consumer.positions(), consumer)
                producer.commit_transaction()
                done += 1
            if turn < 3:
                producer.begin_transaction()
                producer.send(target, b"lost").result(TIMEOUT_S)
                ahead = {each: OffsetAndMetadata(at.offset + 1) for each, at in consumer.positions().items()}
                producer.send_offsets_to_transaction(ahead, consumer.group_metadata())
    values = []
    with facade.consumer({**CONSUMER, "bootstrap.servers": broker.bootstrap}) as consumer:
        consumer.assign([TopicPartition(target, 0)])

        def is_read() -> bool:
            values.extend(record.value for record in consumer.poll(100))
            return len(values) >= 200

        wait_until(is_read, "everything is read", TIMEOUT_S)
        assert sorted(values, key=lambda value: int(value[:-1])) == [b"%d!" % at for at in range(200)]
        assert list(consumer.poll(300)) == []


def _positions(consumer: Any, topic: str) -> list[int]:
    positions = consumer.positions()
    return [positions[each].offset if each in positions else 0 for each in (TopicPartition(topic, p) for p in (0, 1))]


def test_a_zombie_is_fenced(broker: RunningBroker, facade: Facade, unique: str) -> None:
    topic = create_topic(broker.bootstrap, unique)
    with transacted(facade, broker, unique) as newer:
        older = transacted(facade, broker, unique)
        older.init_transactions()
        older.begin_transaction()
        older.send(topic, b"lost").result(TIMEOUT_S)
        newer.init_transactions()
        with pytest.raises(ProducerFencedError, match=r"another producer with this transactional\.id has begun"):
            older.commit_transaction()
        with pytest.raises(ProducerFencedError):
            older.begin_transaction()
        older.close()
        newer.begin_transaction()
        newer.send(topic, b"kept")
        newer.commit_transaction()
    assert_committed(broker.bootstrap, facade, topic, [[b"kept"]])


def test_a_zombie_that_goes_on_sending_is_fenced(broker: RunningBroker, facade: Facade, unique: str) -> None:
    """The leader knows the newer epoch only; the coordinator says that it is another producer's."""
    topic = create_topic(broker.bootstrap, unique)
    with transacted(facade, broker, unique) as newer:
        older = transacted(facade, broker, unique)
        older.init_transactions()
        older.begin_transaction()
        older.send(topic, b"lost").result(TIMEOUT_S)
        newer.init_transactions()
        newer.begin_transaction()
        newer.send(topic, b"kept").result(TIMEOUT_S)
        refused = older.send(topic, b"lost")
        with pytest.raises(BrokerError):
            refused.result(TIMEOUT_S)
        with pytest.raises(TransactionAbortableError):
            older.commit_transaction()
        with pytest.raises(ProducerFencedError):
            older.abort_transaction()
        older.close()
        newer.commit_transaction()
    assert_committed(broker.bootstrap, facade, topic, [[b"kept"]])


def test_a_transaction_that_lost_a_record_is_aborted_and_the_next_one_goes_on(
    broker: RunningBroker, facade: Facade, unique: str
) -> None:
    topic = create_topic(broker.bootstrap, unique, config={"max.message.bytes": "1000"})
    with transacted(facade, broker, unique) as producer:
        producer.init_transactions()
        for number in range(3):
            producer.begin_transaction()
            producer.send(topic, b"lost").result(TIMEOUT_S)
            with pytest.raises(RecordTooLargeError):
                producer.send(topic, bytes(2000)).result(TIMEOUT_S)
            with pytest.raises(TransactionAbortableError, match="too large"):
                producer.send(topic, b"lost")
            with pytest.raises(TransactionAbortableError, match="too large"):
                producer.commit_transaction()
            producer.abort_transaction()
            producer.begin_transaction()
            producer.send(topic, b"%d" % number)
            producer.commit_transaction()
    assert_committed(broker.bootstrap, facade, topic, [[b"0", b"1", b"2"]])


def test_records_that_wait_are_given_up_by_an_abort(broker: RunningBroker, facade: Facade, unique: str) -> None:
    topic = create_topic(broker.bootstrap, unique)
    with transacted(facade, broker, unique, linger_ms=60_000) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        future = producer.send(topic, b"lost")
        producer.abort_transaction()
        with pytest.raises(TransactionAbortedError):
            future.result(TIMEOUT_S)
        producer.begin_transaction()
        producer.send(topic, b"kept")
        producer.commit_transaction()
    assert_committed(broker.bootstrap, facade, topic, [[b"kept"]])


def test_offsets_of_a_member_that_has_left_are_refused(broker: RunningBroker, facade: Facade, unique: str) -> None:
    topic = create_topic(broker.bootstrap, unique)
    p = TopicPartition(topic, 0)
    settings = {**CONSUMER, "bootstrap.servers": broker.bootstrap, "group.id": unique}
    with facade.consumer(settings) as consumer:
        consumer.subscribe([topic])
        wait_until(lambda: consumer.poll(100) is not None and bool(consumer.assignment()), "the assignment", TIMEOUT_S)
        former = consumer.group_metadata()
    with transacted(facade, broker, unique) as producer, facade.consumer(settings) as consumer:
        consumer.subscribe([topic])
        wait_until(lambda: consumer.poll(100) is not None and bool(consumer.assignment()), "the assignment", TIMEOUT_S)
        producer.init_transactions()
        producer.begin_transaction()
        with pytest.raises(TransactionAbortableError, match=r"UNKNOWN_MEMBER_ID|ILLEGAL_GENERATION"):
            producer.send_offsets_to_transaction({p: 7}, former)
        producer.abort_transaction()
        producer.begin_transaction()
        producer.send_offsets_to_transaction({p: 5}, consumer)
        producer.commit_transaction()
        wait_until(lambda: consumer.committed([p])[p] == OffsetAndMetadata(5), "the commit", TIMEOUT_S)


def test_the_context_of_an_asyncio_producer(broker: RunningBroker, unique: str) -> None:
    source = create_topic(broker.bootstrap, f"{unique}-in")
    target = create_topic(broker.bootstrap, f"{unique}-out")
    servers = {"bootstrap.servers": broker.bootstrap}

    async def pass_on(consumer: Any, producer: Any, *, fails: bool) -> int:
        records = await consumer.poll(200)
        async with producer.transaction(consumer):
            for record in records:
                await producer.send(target, record.value)
            if fails and records:
                raise ZeroDivisionError
        return len(records)

    async def pass_on_until(consumer: Any, producer: Any, count: int, *, fails: bool) -> None:
        done = 0
        while done < count:
            done += await pass_on(consumer, producer, fails=fails)

    async def work() -> None:
        async with Producer(servers) as producer:
            for at in range(50):
                await producer.send(source, b"%d" % at)
        for fails in (True, False):
            async with (
                asyncio.timeout(TIMEOUT_S),
                Producer({**servers, "transactional.id": unique}) as producer,
                Consumer({**CONSUMER, **servers, "group.id": unique, "max.poll.records": 10}) as consumer,
            ):
                await consumer.subscribe([source])
                if fails:
                    with pytest.raises(ZeroDivisionError):
                        await pass_on_until(consumer, producer, 50, fails=True)
                else:
                    await pass_on_until(consumer, producer, 50, fails=False)

    asyncio.run(work())
    facade = Facade("sync")
    assert_committed(broker.bootstrap, facade, target, [[b"%d" % at for at in range(50)]])


def test_the_context_of_a_blocking_producer(broker: RunningBroker, unique: str) -> None:
    facade = Facade("sync")
    topic = create_topic(broker.bootstrap, unique)
    with transacted(facade, broker, unique) as producer:

        def fail() -> None:
            with producer.transaction():
                producer.send(topic, b"lost").result(TIMEOUT_S)
                raise ZeroDivisionError

        with producer.transaction() as same:
            assert same is producer
            producer.send(topic, b"kept")
        with pytest.raises(ZeroDivisionError):
            fail()
        with producer.transaction():
            producer.send(topic, b"kept, too")
    assert_committed(broker.bootstrap, facade, topic, [[b"kept", b"kept, too"]])
