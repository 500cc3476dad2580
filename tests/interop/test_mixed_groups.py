"""Groups whose members are clients of many makes, while members come and go: who owns what, and what is consumed."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from support.group_members import GroupMember, double_owners, skipped
from support.ottla_server import OttlaServer
from support.waiting import wait_until

pytestmark = [
    pytest.mark.needs_kafka,
    pytest.mark.needs_members,
    pytest.mark.slow,
    pytest.mark.timeout(900),
]

PARTITIONS = 12
SESSION_MS = 10_000
#: Members in Java, Go and Node start together, on a busy machine too.
SETTLED_TIMEOUT_S = 150.0
TIMEOUT_S = 60.0
#: A record for every partition this often, at most this many times.
PRODUCE_EVERY_S = 0.05
MOST_ROUNDS = 4_000

EAGER = ["ottla", "java", "librdkafka", "kafka-python", "aiokafka", "franz-go", "kafkajs"]
COOPERATIVE = ["ottla", "java", "librdkafka", "kafka-python", "franz-go"]
#: librdkafka and kafka-python refuse an eager and a cooperative assignor in one configuration; franz-go before 1.17
#: loses partitions at the change from one to the other (FINDINGS.md).
BOUNCING = ["java", "ottla", "java", "ottla"]


class Load:
    """Produces to every partition in turn until it is stopped."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
        self._topic = topic
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        for _ in range(MOST_ROUNDS):
            for partition in range(PARTITIONS):
                self._producer.produce(self._topic, b"x", partition=partition)
            self._producer.poll(0)
            if self._stopped.wait(PRODUCE_EVERY_S):
                break

    def stop(self) -> None:
        """End, with everything delivered."""
        self._stopped.set()
        self._thread.join()
        assert self._producer.flush(TIMEOUT_S) == 0


class Group:
    """The group under test: its members, those that left included."""

    def __init__(self, bootstrap: str, topic: str, folder: Path) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.name = f"{topic}-group"
        self.admin = AdminClient({"bootstrap.servers": bootstrap})
        self.alive: list[GroupMember] = []
        self.all: list[GroupMember] = []
        self._folder = folder

    def start(self, client: str, assignors: Sequence[str]) -> GroupMember:
        """Another member."""
        member = GroupMember(
            client,
            f"{client}-{len(self.all)}",
            self._folder,
            bootstrap=self.bootstrap,
            group=self.name,
            topic=self.topic,
            assignors=assignors,
            session_ms=SESSION_MS,
        )
        self.alive.append(member)
        self.all.append(member)
        return member

    def leave(self, member: GroupMember) -> None:
        """A member goes of itself."""
        self.alive.remove(member)
        member.leave()

    def kill9(self, member: GroupMember) -> None:
        """A member dies."""
        self.alive.remove(member)
        member.kill9()

    def settled(self) -> bool:
        """Whether the group is stable with the living members, and they own every partition once."""
        for member in self.alive:
            assert member.running, f"it ended: {member.story()}"
        owned = [partition for member in self.alive for partition in member.owned()]
        if sorted(owned) != list(range(PARTITIONS)):
            return False
        (told,) = self.admin.describe_consumer_groups([self.name], request_timeout=TIMEOUT_S).values()
        described = told.result(TIMEOUT_S)
        return bool(described.state.name == "STABLE" and len(described.members) == len(self.alive))

    def wait_until_settled(self) -> None:
        """Come to rest."""
        wait_until(self.settled, lambda: "the group to settle:\n" + self.story(), SETTLED_TIMEOUT_S, 0.2)

    def committed(self) -> dict[int, int]:
        """The committed offset of each partition, 0 where there is none."""
        asked = ConsumerGroupTopicPartitions(self.name, [TopicPartition(self.topic, one) for one in range(PARTITIONS)])
        (told,) = self.admin.list_consumer_group_offsets([asked], request_timeout=TIMEOUT_S).values()
        return {one.partition: max(one.offset, 0) for one in told.result(TIMEOUT_S).topic_partitions}

    def story(self) -> str:
        """What all members told, for failures."""
        return "\n".join(member.story() for member in self.all)


@pytest.fixture
def group(ottla_server: OttlaServer, unique: str, tmp_path: Path) -> Iterator[Group]:
    made = Group(ottla_server.bootstrap, unique, tmp_path / "members")
    made.admin.create_topics([NewTopic(unique, PARTITIONS, 1)])[unique].result(TIMEOUT_S)
    try:
        yield made
    finally:
        for member in made.all:
            member.kill9()


@pytest.fixture
def load(group: Group) -> Iterator[Load]:
    made = Load(group.bootstrap, group.topic)
    try:
        yield made
    finally:
        made.stop()


def ends(group: Group) -> dict[int, int]:
    """The end of each partition."""
    consumer = Consumer({"bootstrap.servers": group.bootstrap, "group.id": "none"})
    try:
        topic = group.topic
        marks = {
            one: consumer.get_watermark_offsets(TopicPartition(topic, one), TIMEOUT_S) for one in range(PARTITIONS)
        }
        return {partition: end for partition, (_, end) in marks.items()}
    finally:
        consumer.close()


def check_all(group: Group, load: Load) -> None:
    """At the end: all is consumed and committed, nothing was skipped, nothing was owned twice; then all leave."""
    load.stop()
    expected = ends(group)
    assert min(expected.values()) > 0
    wait_until(
        lambda: group.committed() == expected,
        lambda: "everything to be committed:\n" + group.story(),
        SETTLED_TIMEOUT_S,
        0.2,
    )
    assert skipped(group.all, expected) == {}
    for member in list(group.alive):
        group.leave(member)
    assert double_owners(group.all) == []


@pytest.mark.spec("A1", "C7", "G9", "G10")
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 6))])
def test_eager_members_of_all_clients_through_churn(group: Group, load: Load, seed: int) -> None:
    chance = random.Random(seed)
    for client in chance.sample(EAGER, len(EAGER)):
        group.start(client, ["range"])
    group.wait_until_settled()
    before = group.committed()
    leaver, killed, frozen = chance.sample(group.alive, 3)
    group.leave(leaver)
    group.kill9(killed)
    frozen.freeze()
    group.alive.remove(frozen)
    group.start(chance.choice(EAGER), ["range"])
    group.wait_until_settled()
    frozen.thaw()
    group.alive.append(frozen)
    for member in (leaver, killed):
        group.start(member.client, ["range"])
    group.wait_until_settled()
    after = group.committed()
    assert all(after[partition] >= before[partition] for partition in before)
    check_all(group, load)


@pytest.mark.spec("A4", "A5")
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 6))])
def test_eager_to_cooperative_by_two_bounces(group: Group, load: Load, seed: int) -> None:
    chance = random.Random(seed)
    members = [group.start(client, ["range"]) for client in BOUNCING]
    group.wait_until_settled()
    for assignors in (["cooperative-sticky", "range"], ["cooperative-sticky"]):
        for member in chance.sample(members, len(members)):
            group.leave(member)
            members[members.index(member)] = group.start(member.client, assignors)
        group.wait_until_settled()
    check_all(group, load)


@pytest.mark.spec("A4")
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 6))])
def test_cooperative_members_through_churn(group: Group, load: Load, seed: int) -> None:
    chance = random.Random(seed)
    members = [group.start(client, ["cooperative-sticky"]) for client in chance.sample(COOPERATIVE, len(COOPERATIVE))]
    group.wait_until_settled()
    killed, leaver, *staying = chance.sample(members, len(members))
    kept = {member: member.owned() for member in staying}
    group.kill9(killed)
    group.wait_until_settled()
    # Cooperative and sticky: nobody who stays gave anything up, before the newcomers are there.
    assert all(member.owned() >= owned for member, owned in kept.items())
    group.leave(leaver)
    for client in (killed.client, leaver.client):
        group.start(client, ["cooperative-sticky"])
    group.wait_until_settled()
    check_all(group, load)
