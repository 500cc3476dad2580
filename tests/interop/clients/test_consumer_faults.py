"""Consumers of a group on a network that misbehaves: no loss, no reorder, commits and positions are right."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import pytest
from confluent_kafka import Producer

from interop.clients.topics import committed, create_topic, group_size
from ottla.client import ConsumerRebalanceListener, TopicPartition
from ottla.client.errors import ClientError, CommitFailedError, RebalanceInProgressError
from support.client_facades import Facade
from support.proxied import ProxiedBroker
from support.proxy import SeededPlan

pytestmark = [pytest.mark.slow, pytest.mark.spec("C1", "C3", "G10")]

PARTITIONS = 3
COUNT = 450
LONGEST_S = 200.0
COMMIT_EVERY = 3
EVERYDAY_SEEDS = {"ottla": 8, "apache": 4}
LONG_SEEDS = 100
#: Small fetches and polls, little patience.
SETTINGS = {
    "auto.offset.reset": "earliest",
    "enable.auto.commit": False,
    "fetch.max.wait.ms": 50,
    "max.partition.fetch.bytes": 200,
    "max.poll.records": 8,
    "request.timeout.ms": 1000,
    "socket.connection.setup.timeout.ms": 700,
    "session.timeout.ms": 3000,
    # An answer to JoinGroup is waited for this much and five seconds longer, as by Java's consumer.
    "max.poll.interval.ms": 3000,
    "heartbeat.interval.ms": 100,
    "retry.backoff.ms": 20,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 100,
    "default.api.timeout.ms": 60_000,
}


class Account(ConsumerRebalanceListener):
    """What was read and what is known to be committed; objects to a record that is not the one to come."""

    def __init__(self) -> None:
        #: The next offset of each partition; as long as a partition is new, anything that skips nothing will do.
        self.next: dict[int, int] = dict.fromkeys(range(PARTITIONS), 0)
        self.committed: dict[int, int] = dict.fromkeys(range(PARTITIONS), 0)
        self.new: set[int] = set()
        self.values: dict[int, set[bytes]] = {partition: set() for partition in range(PARTITIONS)}

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """Note which may begin again."""
        self.new |= {each.partition for each in partitions}

    def read(self, record: Any) -> None:
        """One more record."""
        partition = record.partition
        if partition in self.new:
            self.new.discard(partition)
            assert self.committed[partition] <= record.offset <= self.next[partition]
        else:
            assert record.offset == self.next[partition]
        self.next[partition] = record.offset + 1
        self.values[partition].add(record.value)

    @property
    def is_done(self) -> bool:
        """Whether everything was read, from then on in one piece."""
        return all(offset == COUNT // PARTITIONS for offset in self.next.values())


def fill(bootstrap: str, topic: str) -> int:
    """Records whose values are their numbers, in batches of ten; how many."""
    producer = Producer({"bootstrap.servers": bootstrap, "batch.num.messages": 10})
    for number in range(COUNT):
        producer.produce(topic, b"%06d" % number, partition=number % PARTITIONS)
        if number % 10 == 9:
            producer.poll(0)
    assert producer.flush(120) == 0
    return COUNT


def plans(side: str) -> list[object]:
    """The seeds of one side, those beyond the everyday ones marked long."""
    everyday = EVERYDAY_SEEDS[side]
    beyond = [pytest.param(side, seed, marks=pytest.mark.long) for seed in range(everyday, LONG_SEEDS)]
    return [pytest.param(side, seed) for seed in range(everyday)] + beyond


def read_all(consumer: Any, account: Account) -> None:
    """Poll and commit until everything was read and its commit acknowledged."""
    deadline = time.monotonic() + LONGEST_S
    polls = 0
    while not (account.is_done and account.committed == account.next):
        assert time.monotonic() < deadline, (account.next, account.committed)
        for record in consumer.poll(200):
            account.read(record)
        polls += 1
        if polls % COMMIT_EVERY == 0 or account.is_done:
            commit(consumer, account)


def commit(consumer: Any, account: Account) -> None:
    """What was read is committed, or the group continued without this member, which it is told."""
    owned = {each.partition for each in consumer.assignment()} - account.new
    reached = {partition: account.next[partition] for partition in owned}
    try:
        consumer.commit()
    except CommitFailedError:
        return
    except ClientError as error:
        if not error.retriable and not isinstance(error, RebalanceInProgressError):
            raise
        return
    account.committed |= reached


@pytest.mark.needs_kafka
@pytest.mark.parametrize(("proxied", "seed"), plans("ottla") + plans("apache"), indirect=["proxied"])
def test_no_loss_order_positions_commits(proxied: ProxiedBroker, unique: str, seed: int) -> None:
    topic = create_topic(proxied.direct, unique, PARTITIONS)
    fill(proxied.direct, topic)
    proxied.proxy.begin(SeededPlan(seed, chance=0.12, most=12))
    facade = Facade("asyncio" if seed % 2 else "sync")
    account = Account()
    consumer = facade.consumer({**SETTINGS, "bootstrap.servers": proxied.bootstrap, "group.id": unique})
    try:
        consumer.subscribe([topic], listener=account)
        read_all(consumer, account)
        positions = {each.partition: consumer.position(each) for each in consumer.assignment()}
        proxied.proxy.heal()
        assert proxied.proxy.faults, "nothing happened"
        assert positions == account.next
        assert committed(proxied.direct, unique, topic, PARTITIONS) == account.next
    finally:
        proxied.proxy.heal()
        consumer.close()
        facade.close()

    assert sorted(b"".join(sorted(values)) for values in account.values.values()) == sorted(
        b"".join(b"%06d" % number for number in range(partition, COUNT, PARTITIONS)) for partition in range(PARTITIONS)
    )
    assert group_size(proxied.direct, unique) == 0, "it left the group"
