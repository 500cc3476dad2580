"""Groups of which some members are Apache Kafka's high-level consumers of 0.8.2.2 and some are ours."""

from __future__ import annotations

import random
import re
import signal
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from kazoo.client import KazooClient

from interop.zkconsumer.conftest import Consumer, Group
from ottla.assign.threads import THREAD_ASSIGNORS, ConsumerThread
from ottla.zkconsumer import Blacklist, Whitelist
from support.old_consumers import OldConsumer
from support.waiting import wait_until
from support.zk_clusters import Cluster
from support.zk_trees import Nodes, dumped

pytestmark = [
    pytest.mark.needs_kafka,
    pytest.mark.needs_082,
    pytest.mark.slow,
    pytest.mark.spec("Z4", "Z6", "A7"),
]

Member = Consumer | OldConsumer


class MixedGroup:
    """A group and its members of both makes, which are called as the test says."""

    def __init__(self, cluster: Cluster, name: str, zk: KazooClient, start_old: Callable[..., OldConsumer]) -> None:
        self.name = name
        self.cluster = cluster
        self.ours = Group(self.cluster, name, zk)
        self.start_old = start_old

    def start(self, make: str, name: str, topic: str, threads: int = 1, **settings: str) -> Member:
        """A member that reads this many streams of a topic; settings by Kafka's names with underscores."""
        if make == "ours":
            return self.ours.start({topic: threads}, consumer_id=name, auto_commit_interval_ms=200, **settings)
        named = {key.replace("_", "."): value for key, value in settings.items()}
        return self.start_old(name, group=self.name, subscription=f"{topic}:{threads}", settings=named)

    def wait_until_owned_by(self, topic: str, partitions: int, *threads: str) -> None:
        """Until the partitions are divided among these threads as `range` does it."""
        self.ours.wait_until_owned_by(topic, dict(enumerate(_ranged(partitions, sorted(threads)))))


def _ranged(partitions: int, threads: list[str]) -> list[str]:
    each, more = divmod(partitions, len(threads))
    return [thread for at, thread in enumerate(threads) for _ in range(each + (at < more))]


def values(*members: Member) -> list[int]:
    """All that they got, in order."""
    found: list[int] = []
    for member in members:
        found += member.values if isinstance(member, Consumer) else [int(got.value) for got in member.got()]
    return sorted(found)


@pytest.fixture
def group(
    cluster: Cluster, unique: str, zk: KazooClient, old_consumer: Callable[..., OldConsumer]
) -> Iterator[MixedGroup]:
    """A group of the test's own."""
    made = MixedGroup(cluster, f"{unique}-group", zk, old_consumer)
    yield made
    made.ours.close()


def test_both_share_partitions_by_threads_and_offsets(group: MixedGroup, unique: str) -> None:
    group.cluster.create(unique, 5)
    theirs = group.start("theirs", "c1", unique, 2)
    ours = group.start("ours", "c2", unique, 2)
    group.ours.wait_until_owned_by(unique, {0: "c1-0", 1: "c1-0", 2: "c1-1", 3: "c2-0", 4: "c2-1"})
    group.cluster.produce(unique, 5, 100)
    wait_until(lambda: values(theirs, ours) == list(range(100)), "both to read all, each its part")
    assert {partition for partition, _, _ in ours.got} == {3, 4}
    assert {got.partition for got in theirs.got()} == {0, 1, 2}
    theirs.close()
    group.ours.wait_until_owned_by(unique, {0: "c2-0", 1: "c2-0", 2: "c2-0", 3: "c2-1", 4: "c2-1"})
    group.cluster.produce(unique, 5, 50, first=100)
    wait_until(lambda: values(theirs, ours) == list(range(150)), "ours to go on where theirs had come to")
    wait_until(lambda: group.ours.offsets(unique, 5) == [30] * 5, "ours to commit")
    again = group.start("theirs", "c3", unique)
    wait_until(lambda: "c3-0" in group.ours.owners(unique).values(), "theirs to be back")
    ours.close()
    group.wait_until_owned_by(unique, 5, "c3-0")
    group.cluster.produce(unique, 5, 50, first=150)
    wait_until(lambda: values(theirs, ours, again) == list(range(200)), "theirs to go on where ours had come to")


@pytest.mark.long
@pytest.mark.parametrize("storage", ["kafka", "dual"])
@pytest.mark.parametrize("makes", [("theirs", "ours"), ("ours", "theirs")])
def test_one_goes_on_with_the_others_offsets_in_kafka(
    group: MixedGroup, unique: str, storage: str, makes: tuple[str, str]
) -> None:
    group.cluster.create(unique, 3)
    group.cluster.produce(unique, 3, 30)
    settings = {"offsets_storage": "kafka", "dual_commit_enabled": str(storage == "dual").lower()}
    first = group.start(makes[0], "c1", unique, **settings)
    wait_until(lambda: values(first) == list(range(30)), "all to be read")
    first.close()
    assert group.ours.offsets(unique, 3) == ([10] * 3 if storage == "dual" else [None] * 3)
    second = group.start(makes[1], "c2", unique, **settings)
    group.cluster.produce(unique, 3, 30, first=30)
    wait_until(lambda: values(second) == list(range(30, 60)), "the rest to be read, and no more")


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("strategy", ["range", "roundrobin"])
def test_members_come_go_and_are_killed(group: MixedGroup, unique: str, strategy: str) -> None:
    """At rest every partition has one owner, and nothing is lost."""
    partitions, rounds = 7, 8
    chance = random.Random(f"mixed {strategy}")
    group.cluster.create(unique, partitions)
    living: dict[str, Member] = {}
    all_of_them: list[Member] = []
    produced = 0
    for number in range(rounds):
        if len(living) >= 3 or (living and chance.random() < 0.3):
            name = chance.choice(sorted(living))
            gone = living.pop(name)
            if isinstance(gone, OldConsumer) and chance.random() < 0.5:
                gone.process.kill9()
            else:
                gone.close()
        if len(living) < 3:
            name = f"c{number}"
            make = ("ours", "theirs")[number % 2]
            living[name] = group.start(make, name, unique, 2, partition_assignment_strategy=strategy)
            all_of_them.append(living[name])
        group.cluster.produce(unique, partitions, 70, first=produced)
        produced += 70
        expected = {f"{name}-{thread}" for name in living for thread in range(2)}
        wait_until(
            lambda expected=expected: is_at_rest(group.ours.owners(unique), partitions, expected),
            lambda expected=expected: f"each of {partitions} owned, among {expected}: {group.ours.owners(unique)}",
        )
        wait_until(
            lambda produced=produced: set(values(*all_of_them)) == set(range(produced)), "all to be read at least once"
        )


def is_at_rest(owners: dict[int, str], partitions: int, threads: set[str]) -> bool:
    """Whether each partition has an owner that lives, and all have as many as the others, but for one."""
    counts = Counter(owners.values())
    shares = {counts[thread] for thread in threads}
    return len(owners) == partitions and set(counts) <= threads and max(shares) - min(shares) <= 1


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_session_that_expires_in_its_sleep(group: MixedGroup, unique: str) -> None:
    """Theirs sleeps longer than its session lasts; ours takes its partitions, and gives some back when it wakes."""
    group.cluster.create(unique, 4)
    theirs = group.start("theirs", "c1", unique)
    ours = group.start("ours", "c2", unique)
    shared = {0: "c1-0", 1: "c1-0", 2: "c2-0", 3: "c2-0"}
    group.ours.wait_until_owned_by(unique, shared)
    group.cluster.produce(unique, 4, 20)
    wait_until(lambda: values(theirs, ours) == list(range(20)), "both to read all")
    theirs.process.signal(signal.SIGSTOP)
    try:
        group.ours.wait_until_owned_by(unique, dict.fromkeys(range(4), "c2-0"))
        group.cluster.produce(unique, 4, 20, first=20)
        wait_until(lambda: set(range(20, 40)) <= set(values(ours)), "ours to read all")
    finally:
        theirs.process.signal(signal.SIGCONT)
    group.ours.wait_until_owned_by(unique, shared)
    group.cluster.produce(unique, 4, 20, first=40)
    wait_until(lambda: set(values(theirs, ours)) == set(range(60)), "both to read all again")
    assert {partition for partition, _, value in ours.got if value >= 40} == {2, 3}


@pytest.mark.long
@pytest.mark.parametrize("kind", ["white_list", "black_list"])
def test_filters_of_both_take_the_same_topics(group: MixedGroup, unique: str, kind: str, old_consumer) -> None:
    topics = [f"{unique}-{name}" for name in ("a", "b", "other")]
    group.cluster.create(topics[0], 2)
    pattern = f"{unique}-[a-m].*" if kind == "white_list" else f"(?!{unique}-[a-m]).*"
    theirs = old_consumer("c1", group=group.name, subscription=f"{kind}:{pattern}:1")
    connected = group.ours.connect(consumer_id="c2")
    topic_filter = Whitelist(pattern) if kind == "white_list" else Blacklist(pattern)
    connected.read(connected.connector.create_message_streams_by_filter(topic_filter, 1))
    for topic in topics[1:]:
        group.cluster.create(topic, 2)
    for topic in topics[:2]:
        group.ours.wait_until_owned_by(topic, {0: "c1-0", 1: "c2-0"})
    for number, topic in enumerate(topics):
        group.cluster.produce(topic, 2, 10, first=10 * number)
    wait_until(lambda: values(theirs, connected) == list(range(20)), "what the filters take")
    assert group.ours.owners(topics[2]) == {}


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("strategy", ["range", "roundrobin"])
def test_both_divide_many_topics_among_many_threads_alike(group: MixedGroup, unique: str, strategy: str) -> None:
    """Names and numbers of threads are sorted as text, topics mixed by their hashes; who differs fights for ever."""
    partitions = {f"{unique}-a": 13, f"{unique}-B": 3, f"{unique}-c": 8}
    for topic, count in partitions.items():
        group.cluster.create(topic, count)
    # Round robin demands the same number of threads for all.
    threads = (
        dict.fromkeys(partitions, 11) if strategy == "roundrobin" else dict(zip(partitions, (11, 2, 3), strict=True))
    )
    subscription = ",".join(f"{topic}:{count}" for topic, count in threads.items())
    settings = {"partition.assignment.strategy": strategy}
    group.start_old("m10", group=group.name, subscription=subscription, settings=settings)
    for name in ("B", "m9", "a_b"):
        group.ours.start(threads, consumer_id=name, partition_assignment_strategy=strategy)
    group.start_old("m1", group=group.name, subscription=subscription, settings=settings)
    consumers = [f"{group.name}_{name}" for name in ("m10", "B", "m9", "a_b", "m1")]
    of_topics = {
        topic: [ConsumerThread(consumer, number) for consumer in consumers for number in range(count)]
        for topic, count in threads.items()
    }
    assigned = THREAD_ASSIGNORS[strategy]({topic: range(count) for topic, count in partitions.items()}, of_topics)
    for topic in partitions:
        owned = {number: str(thread) for thread, taken in assigned.items() for number in taken.get(topic, ())}
        group.ours.wait_until_owned_by(
            topic, {number: owned[number].removeprefix(f"{group.name}_") for number in sorted(owned)}
        )


@pytest.mark.long
@pytest.mark.parametrize("kind", ["static", "white_list"])
def test_both_leave_the_same_nodes(group: MixedGroup, unique: str, kind: str) -> None:
    group.cluster.create(unique, 3)
    group.cluster.produce(unique, 3, 6)
    other = Group(group.cluster, f"{unique}-other", group.ours.zk)
    pattern = f"{unique}|none/.*"
    subscription = f"{unique}:2" if kind == "static" else f"white_list:{pattern}:2"
    group.start_old("c", group=group.name, subscription=subscription)
    ours = other.connect(consumer_id="c", auto_commit_interval_ms=200)
    if kind == "static":
        made = ours.connector.create_message_streams({unique: 2})[unique]
    else:
        made = ours.connector.create_message_streams_by_filter(Whitelist(pattern), 2)
    ours.read(made)
    try:
        for each in (group.ours, other):
            wait_until(lambda each=each: each.offsets(unique, 3) == [2, 2, 2], "the offsets of all")
            each.wait_until_owned_by(unique, {0: "c-0", 1: "c-0", 2: "c-1"})
        theirs, mine = (nodes_of(dumped(group.ours.zk), each.name) for each in (group.ours, other))
        assert theirs == mine
    finally:
        other.close()


def nodes_of(nodes: Nodes, group: str) -> dict[str, tuple[str | None, bool]]:
    """What is below the group's node, without its name and times."""
    start = f"/consumers/{group}"
    return {
        path.replace(group, "group"): (
            re.sub(r'("timestamp":")\d+', r"\1", text.replace(group, "group")) if text is not None else None,
            ephemeral,
        )
        for path, (text, ephemeral) in nodes.items()
        if path == start or path.startswith(f"{start}/")
    }
