"""Three members of a group on a network that misbehaves: together they read everything, and commits never go back."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import pytest

from interop.clients.test_consumer_faults import COMMIT_EVERY, SETTINGS, fill
from interop.clients.topics import committed, create_topic, group_size
from ottla.client import ConsumerRebalanceListener, TopicPartition
from ottla.client.errors import ClientError, CommitFailedError, RebalanceInProgressError
from support.client_facades import Facade
from support.proxied import ProxiedBroker
from support.proxy import SeededPlan

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.spec("C1", "C3", "G10")]

PARTITIONS = 3
MEMBERS = 3
LONGEST_S = 100.0
EVERYDAY_SEEDS = {"ottla": 2, "apache": 0}
LONG_SEEDS = 25
ASSIGNORS = ("range", "cooperative-sticky")


class Shared:
    """What all members together read, and what is known to be committed."""

    def __init__(self) -> None:
        self.next: dict[int, int] = dict.fromkeys(range(PARTITIONS), 0)
        self.committed: dict[int, int] = dict.fromkeys(range(PARTITIONS), 0)


class Member(ConsumerRebalanceListener):
    """One of them, which objects to a record that is not the one to come."""

    def __init__(self, shared: Shared, consumer: Any, topic: str) -> None:
        self._shared = shared
        self.consumer = consumer
        #: The next offset of what it owns; None where it may begin again.
        self._next: dict[int, int | None] = {}
        self._polls = 0
        consumer.subscribe([topic], listener=self)

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """Each begins where the group's commits say."""
        self._next |= dict.fromkeys((each.partition for each in partitions), None)

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """What is given up is not read any more."""
        for each in partitions:
            self._next.pop(each.partition, None)

    def poll(self) -> None:
        """Read a little, commit at times."""
        for record in self.consumer.poll(20):
            self._read(record)
        self._polls += 1
        if self._polls % COMMIT_EVERY == 0:
            self._commit()

    def _read(self, record: Any) -> None:
        partition, shared = record.partition, self._shared
        expected = self._next[partition]
        if expected is None:
            assert shared.committed[partition] <= record.offset <= shared.next[partition]
        else:
            assert record.offset == expected
        self._next[partition] = record.offset + 1
        shared.next[partition] = max(shared.next[partition], record.offset + 1)

    def _commit(self) -> None:
        reached = {partition: offset for partition, offset in self._next.items() if offset is not None}
        try:
            self.consumer.commit()
        except (CommitFailedError, RebalanceInProgressError):
            return
        except ClientError as error:
            if not error.retriable:
                raise
            return
        for partition, offset in reached.items():
            self._shared.committed[partition] = max(self._shared.committed[partition], offset)

    @property
    def owned(self) -> list[int]:
        """The numbers of its partitions."""
        return [each.partition for each in self.consumer.assignment()]


def plans(side: str) -> list[object]:
    """The seeds of one side, those beyond the everyday ones marked long."""
    everyday = EVERYDAY_SEEDS[side]
    beyond = [pytest.param(side, seed, marks=pytest.mark.long) for seed in range(everyday, LONG_SEEDS)]
    return [pytest.param(side, seed) for seed in range(everyday)] + beyond


@pytest.mark.needs_kafka
@pytest.mark.parametrize(("proxied", "seed"), plans("ottla") + plans("apache"), indirect=["proxied"])
def test_together_they_read_everything_and_settle(proxied: ProxiedBroker, unique: str, seed: int) -> None:
    topic = create_topic(proxied.direct, unique, PARTITIONS)
    count = fill(proxied.direct, topic)
    ends = dict.fromkeys(range(PARTITIONS), count // PARTITIONS)
    facades = [Facade("asyncio" if (seed + number) % 2 else "sync") for number in range(MEMBERS)]
    settings = {
        **SETTINGS,
        "bootstrap.servers": proxied.bootstrap,
        "group.id": unique,
        "partition.assignment.strategy": ASSIGNORS[seed // 2 % 2],
    }
    shared = Shared()
    consumers = [facade.consumer(settings) for facade in facades]
    try:
        members = [Member(shared, consumer, topic) for consumer in consumers]
        for member in members:  # a first contact that is refused is an error by intention
            member.consumer.partitions_for(topic)
        proxied.proxy.begin(SeededPlan(seed, chance=0.08, most=15))
        deadline = time.monotonic() + LONGEST_S
        while (
            shared.next != ends
            or shared.committed != ends
            or sorted(one for member in members for one in member.owned) != list(range(PARTITIONS))
        ):
            assert time.monotonic() < deadline, (shared.next, shared.committed, [member.owned for member in members])
            for member in members:
                member.poll()
        assert proxied.proxy.faults, "nothing happened"
        proxied.proxy.heal()
        assert committed(proxied.direct, unique, topic, PARTITIONS) == ends
    finally:
        proxied.proxy.heal()
        for consumer in consumers:
            consumer.close()
        for facade in facades:
            facade.close()
    assert group_size(proxied.direct, unique) == 0
