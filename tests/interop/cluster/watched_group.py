"""Groups of ottla's consumer, kafka-python and librdkafka in a cluster for tests, whose coordinator is killed."""

from __future__ import annotations

import random
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

import confluent_kafka
import kafka

import ottla.client.sync
from ottla.client.consumer.listener import ConsumerRebalanceListener
from ottla.client.errors import ClientError
from ottla.client.model import TopicPartition
from ottla.testing import Cluster
from ottla.testing.groups import SeenGroup, see_group
from support.waiting import wait_until

TOPIC, PARTITIONS, GROUP = "t", 6, "g"
OFFSETS_TOPIC = "__consumer_offsets"
POLL_S = 0.1
#: A poll of kafka-python must not end while its consumer joins a group: FINDINGS.md. Records end it at once.
LONG_POLL_MS = 10_000
SESSION_MS = 6_000
HEARTBEAT_MS = 300
#: Time for a group to settle, for each kill.
SETTLED_S = 120.0
SETTINGS = {"offsets.topic.num.partitions": "1", "group.initial.rebalance.delay.ms": "0"}


class Ledger:
    """Who owns what, as the members are told, and what was committed. It notes what must not be."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owners: dict[int, str] = {}
        #: The highest committed offset that was acknowledged, of each partition.
        self.acknowledged: dict[int, int] = {}
        #: When each member began the last of its commits that was acknowledged, and how many were.
        self.latest: dict[str, float] = {}
        self.commits = 0
        self.wrong: list[str] = []

    def assigned(self, member: str, partitions: Iterable[int]) -> None:
        with self._lock:
            for partition in partitions:
                other = self._owners.setdefault(partition, member)
                if other != member:
                    self.wrong.append(f"{partition} is assigned to {member}, and {other} has not given it up")
                    self._owners[partition] = member

    def revoked(self, member: str, partitions: Iterable[int]) -> None:
        with self._lock:
            for partition in partitions:
                if self._owners.get(partition) == member:
                    del self._owners[partition]

    def committed(self, member: str, offsets: dict[int, int], began_at: float) -> None:
        with self._lock:
            self.commits += 1
            self.latest[member] = began_at
            for partition, offset in offsets.items():
                self.acknowledged[partition] = max(offset, self.acknowledged.get(partition, 0))

    def began(self, member: str, partition: int, offset: int) -> None:
        """A new owner begins at this offset: not before what was acknowledged, or a commit is lost."""
        with self._lock:
            known = self.acknowledged.get(partition, 0)
            if offset < known:
                self.wrong.append(f"{member} begins {partition} at {offset}, though {known} was committed")

    def owners(self) -> dict[int, str]:
        with self._lock:
            return dict(self._owners)


class Member(ABC):
    """A consumer in a thread of its own: polls, and commits what it has had."""

    def __init__(self, name: str, bootstrap: str, ledger: Ledger) -> None:
        self.name = name
        self.bootstrap = bootstrap
        self.ledger = ledger
        self.failure: BaseException | None = None
        #: How often a poll has raised what a poll should not.
        self.raised = 0
        self._is_ending = False
        #: The next offset of each partition that it has had records of since it owns it.
        self._next: dict[int, int] = {}
        self.consumer = self.make(bootstrap)
        self._thread = threading.Thread(target=self._run, name=name)
        self._thread.start()

    def close(self) -> None:
        self._is_ending = True
        self._thread.join(SETTLED_S)
        assert not self._thread.is_alive(), self.name

    def _run(self) -> None:
        try:
            while not self._is_ending:
                for partition, offset in self.poll():
                    if partition not in self._next:
                        self.ledger.began(self.name, partition, offset)
                    self._next[partition] = offset + 1
                offsets, began_at = dict(self._next), time.monotonic()
                if offsets and self.commit(offsets):
                    self.ledger.committed(self.name, offsets, began_at)
        except BaseException as error:
            self.failure = error
            raise
        finally:
            self.consumer.close()

    def on_assigned(self, partitions: Iterable[Any]) -> None:
        self.ledger.assigned(self.name, [each.partition for each in partitions])

    def on_revoked(self, partitions: Iterable[Any]) -> None:
        gone = [each.partition for each in partitions]
        for partition in gone:
            self._next.pop(partition, None)
        self.ledger.revoked(self.name, gone)

    @abstractmethod
    def make(self, bootstrap: str) -> Any: ...

    @abstractmethod
    def poll(self) -> list[tuple[int, int]]:
        """Partition and offset of each record."""

    @abstractmethod
    def commit(self, offsets: dict[int, int]) -> bool:
        """Whether the commit was acknowledged."""


class OttlaMember(Member):
    """The consumer of this project."""

    def make(self, bootstrap: str) -> Any:
        member = self

        class Listener(ConsumerRebalanceListener):
            def on_partitions_assigned(self, partitions: Any) -> None:
                member.on_assigned(partitions)

            def on_partitions_revoked(self, partitions: Any) -> None:
                member.on_revoked(partitions)

        consumer = ottla.client.sync.Consumer(
            bootstrap_servers=bootstrap,
            group_id=GROUP,
            client_id=self.name,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            partition_assignment_strategy="range",
        )
        consumer.subscribe([TOPIC], Listener())
        return consumer

    def poll(self) -> list[tuple[int, int]]:
        return [(each.partition, each.offset) for each in self.consumer.poll(int(POLL_S * 1000))]

    def commit(self, offsets: dict[int, int]) -> bool:
        try:
            self.consumer.commit({TopicPartition(TOPIC, partition): offset for partition, offset in offsets.items()})
        except ClientError:
            return False
        return True


class KafkaPythonMember(Member):
    """kafka-python."""

    def make(self, bootstrap: str) -> Any:
        member = self

        class Listener(kafka.ConsumerRebalanceListener):  # type: ignore[misc]
            def on_partitions_assigned(self, assigned: Any) -> None:
                member.on_assigned(assigned)

            def on_partitions_revoked(self, revoked: Any) -> None:
                member.on_revoked(revoked)

        consumer = kafka.KafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=GROUP,
            client_id=self.name,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            partition_assignment_strategy=[kafka.coordinator.assignors.range.RangePartitionAssignor],
        )
        consumer.subscribe([TOPIC], listener=Listener())
        return consumer

    def poll(self) -> list[tuple[int, int]]:
        try:
            found = self.consumer.poll(timeout_ms=LONG_POLL_MS)
        except kafka.errors.UnknownBrokerIdError:
            # It may stand still afterwards: FINDINGS.md. Another one takes its place, as a program would have it.
            self.raised += 1
            self.consumer.close()
            self.on_revoked([kafka.TopicPartition(TOPIC, each) for each in range(PARTITIONS)])
            self.consumer = self.make(self.bootstrap)
            return []
        return [(each.partition, each.offset) for records in found.values() for each in records]

    def commit(self, offsets: dict[int, int]) -> bool:
        given = {
            kafka.TopicPartition(TOPIC, partition): kafka.OffsetAndMetadata(offset, "", -1)
            for partition, offset in offsets.items()
        }
        try:
            self.consumer.commit(given, timeout_ms=5_000)
        except kafka.errors.KafkaError:
            return False
        return True


class ConfluentMember(Member):
    """librdkafka."""

    def make(self, bootstrap: str) -> Any:
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": GROUP,
                "client.id": self.name,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": SESSION_MS,
                "heartbeat.interval.ms": HEARTBEAT_MS,
                "partition.assignment.strategy": "range",
                "reconnect.backoff.max.ms": 500,
            }
        )
        consumer.subscribe(
            [TOPIC],
            on_assign=lambda _, partitions: self.on_assigned(partitions),
            on_revoke=lambda _, partitions: self.on_revoked(partitions),
            on_lost=lambda _, partitions: self.on_revoked(partitions),
        )
        return consumer

    def poll(self) -> list[tuple[int, int]]:
        found = self.consumer.consume(500, POLL_S)
        return [(each.partition(), each.offset()) for each in found if each.error() is None]

    def commit(self, offsets: dict[int, int]) -> bool:
        given = [confluent_kafka.TopicPartition(TOPIC, partition, offset) for partition, offset in offsets.items()]
        try:
            done = self.consumer.commit(offsets=given, asynchronous=False)
        except confluent_kafka.KafkaException:
            return False
        return all(each.error is None for each in done)


KINDS: tuple[type[Member], ...] = (OttlaMember, KafkaPythonMember, ConfluentMember)


class Feed:
    """A producer that keeps records coming to all partitions."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="feed")
        self._thread.start()

    def _run(self) -> None:
        with ottla.client.sync.Producer(bootstrap_servers=self._bootstrap, acks="all") as producer:
            while not self._ending.wait(0.05):  # sleep: the pace of the records
                for partition in range(PARTITIONS):
                    with suppress(ClientError):
                        producer.send(TOPIC, b"record", partition=partition)

    def close(self) -> None:
        self._ending.set()
        self._thread.join(SETTLED_S)


class WatchedGroup:
    """A group in a cluster, with a feed of records, and what is known of both."""

    def __init__(self, cluster: Cluster, kinds: Sequence[type[Member]]) -> None:
        self.cluster = cluster
        cluster.create_topic(TOPIC, PARTITIONS)
        self.ledger = Ledger()
        self.feed = Feed(cluster.bootstrap_servers)
        self.members: list[Member] = []
        self._made = 0
        for kind in kinds:
            self.add(kind)

    def close(self) -> None:
        for member in self.members:
            member.close()
        self.feed.close()

    def coordinator(self) -> int:
        return self.cluster.wait_for_leader(OFFSETS_TOPIC)

    def seen(self) -> SeenGroup | None:
        at = self.cluster.leader(OFFSETS_TOPIC)
        if at is None or at not in self.cluster.running:
            return None
        return self.cluster._running.call(see_group, self.cluster.broker(at), GROUP)

    def settle(self) -> float:
        """Seconds until each partition has an owner, each member has committed, and the group is stable."""
        began_at = time.monotonic()

        def is_settled() -> bool:
            assert not self.ledger.wrong, self.ledger.wrong
            assert not any(member.failure for member in self.members), [member.failure for member in self.members]
            group = self.seen()
            latest = self.ledger.latest
            return (
                group is not None
                and group.state == "Stable"
                and len(group.members) == len(self.members)
                and len(self.ledger.owners()) == PARTITIONS
                and all(latest.get(each.name, 0) > began_at for each in self.members)
            )

        wait_until(is_settled, lambda: f"the group to settle: {self.described(began_at)}", SETTLED_S)
        return time.monotonic() - began_at

    def described(self, began_at: float) -> str:
        """What a reader has to know when the group does not settle."""
        latest = self.ledger.latest
        waiting = [
            f"{each.name} (raised {each.raised})" for each in self.members if latest.get(each.name, 0) < began_at
        ]
        return f"no commit of {', '.join(waiting) or 'nobody'}; owners {self.ledger.owners()}; {self.seen()}"

    def add(self, kind: type[Member]) -> Member:
        """A member more."""
        self._made += 1
        member = kind(f"{kind.__name__}-{self._made}", self.cluster.bootstrap_servers, self.ledger)
        self.members.append(member)
        return member

    def replace_one(self, chance: random.Random) -> None:
        """A member leaves, and another of its kind comes: the group rebalances twice, and nobody waits for that."""
        gone = self.members.pop(chance.randrange(len(self.members)))
        gone.close()
        self.add(type(gone))

    def check_commits(self) -> None:
        """What was acknowledged is there."""
        known = dict(self.ledger.acknowledged)
        group = self.seen()
        assert group is not None
        lost = {partition: at for partition, at in known.items() if group.committed.get((TOPIC, partition), -1) < at}
        assert not lost, f"acknowledged: {known}, there: {group.committed}"
