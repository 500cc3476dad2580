"""Transactional producers on a network that misbehaves: each transaction is there whole, once, or not at all."""

from __future__ import annotations

import random
from typing import Any

import pytest

from interop.clients.topics import create_topic
from ottla.assign.assignor import GroupMetadata
from ottla.client import OffsetAndMetadata, TopicPartition
from ottla.client.errors import ClientTimeoutError, TransactionAbortableError
from ottla.client.sync import Consumer
from support.client_facades import Facade
from support.proxied import ProxiedBroker
from support.proxy import SeededPlan
from support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.needs_kafka, pytest.mark.spec("P6", "X3")]

PARTITIONS = 3
COUNT = 300
TIMEOUT_S = 200.0
LONGEST_TRANSACTION = 15
#: Little patience: deliveries, offsets and commits run out of time now and then.
SETTINGS = {
    "batch.size": 200,
    "request.timeout.ms": 700,
    "socket.connection.setup.timeout.ms": 700,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 100,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 100,
    "delivery.timeout.ms": 2500,
    "max.block.ms": 3000,
}


def called_until_done(method: Any) -> None:
    """Call a method of transactions again for as long as it runs out of time."""
    while True:
        try:
            method()
        except ClientTimeoutError:
            continue
        return


class Writer:
    """Writes numbers in transactions, some of them aborted, with the count of what is committed as an offset."""

    def __init__(self, producer: Any, topic: str, group: str, seed: int) -> None:
        self._producer = producer
        self._topic = topic
        self._group = GroupMetadata(group, -1, "")
        self._rng = random.Random(seed)
        self.aborts = 0

    def run(self) -> None:
        called_until_done(self._producer.init_transactions)
        position = 0
        while position < COUNT:
            following = min(position + self._rng.randint(1, LONGEST_TRANSACTION), COUNT)
            try:
                self._producer.begin_transaction()
                for number in range(position, following):
                    self._producer.send(self._topic, b"%06d" % number, partition=number % PARTITIONS)
                progress = {TopicPartition(self._topic, 0): OffsetAndMetadata(following)}
                self._producer.send_offsets_to_transaction(progress, self._group)
                if self._rng.random() < 0.2:
                    called_until_done(self._producer.abort_transaction)
                    continue
                called_until_done(self._producer.commit_transaction)
            except (TransactionAbortableError, ClientTimeoutError):  # of commit, send_offsets; of send
                self.aborts += 1
                called_until_done(self._producer.abort_transaction)
            else:
                position = following


EVERYDAY_SEEDS = 4
LONG_SEEDS = 60


@pytest.mark.parametrize(
    "seed",
    [
        *range(EVERYDAY_SEEDS),
        *(pytest.param(each, marks=pytest.mark.long) for each in range(EVERYDAY_SEEDS, LONG_SEEDS)),
    ],
)
def test_whole_once_or_not_at_all(proxied_kafka: ProxiedBroker, unique: str, seed: int) -> None:
    proxied_kafka.proxy.heal()
    topic = create_topic(proxied_kafka.direct, unique, PARTITIONS)
    facade = Facade("asyncio" if seed % 2 else "sync")
    settings = {**SETTINGS, "bootstrap.servers": proxied_kafka.bootstrap, "transactional.id": unique}
    producer = facade.producer(settings)
    writer = Writer(producer, topic, unique, seed)
    proxied_kafka.proxy.begin(SeededPlan(seed, chance=0.1, most=6))
    try:
        writer.run()
    finally:
        producer.close()
        facade.close()
        proxied_kafka.proxy.heal()
    assert proxied_kafka.proxy.faults, "nothing happened"

    values: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
    reading = {
        "bootstrap.servers": proxied_kafka.direct,
        "group.id": unique,
        "isolation.level": "read_committed",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    with Consumer(reading) as consumer:
        partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        consumer.assign(partitions)
        consumer.seek_to_beginning(partitions)

        def is_read() -> bool:
            for record in consumer.poll(100):
                values[record.partition].append(record.value)
            return sum(map(len, values)) >= COUNT

        wait_until(is_read, "everything is read", TIMEOUT_S)
        numbers = [b"%06d" % number for number in range(COUNT)]
        assert values == [numbers[number::PARTITIONS] for number in range(PARTITIONS)]
        assert list(consumer.poll(300)) == []
        assert consumer.committed(partitions)[partitions[0]] == OffsetAndMetadata(COUNT)
