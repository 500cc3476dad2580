"""The high-level consumer against real brokers and a real ZooKeeper: the examples, offsets, filters, trouble."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from interop.zkconsumer.conftest import Cluster, Consumer, Group
from ottla.client.group_offsets import NO_GENERATION
from ottla.client.model import TopicPartition
from ottla.client.sync import Admin
from ottla.zkconsumer import Whitelist
from ottla.zkconsumer.counters import RebalanceCounters, RebalanceStep
from support.java import PROJECT
from support.processes import ServerProcess
from support.waiting import Stopwatch, wait_until

pytestmark = [pytest.mark.needs_kafka, pytest.mark.slow, pytest.mark.spec("Z4", "Z6")]


def test_five_queues_and_five_streams(cluster: Cluster, group: Group, unique: str) -> None:
    first, second = f"{unique}-1", f"{unique}-2"
    for topic in (first, second):
        cluster.create(topic, 3)
    consumer = group.connect(consumer_id="c1")
    streams = consumer.connector.create_message_streams({first: 2, second: 3})
    assert [len(streams[topic]) for topic in (first, second)] == [2, 3]
    assert group.owners(first) == {0: "c1-0", 1: "c1-0", 2: "c1-1"}
    assert group.owners(second) == {0: "c1-0", 1: "c1-1", 2: "c1-2"}
    data, _ = group.zk.get(f"/consumers/{group.name}/ids/{consumer.id}")
    assert data.startswith(f'{{"version":1,"subscription":{{"{first}":2,"{second}":3}},"pattern":"static"'.encode())


@pytest.mark.spec("C5")
def test_every_group_gets_every_record_and_one_member_of_it_each(
    cluster: Cluster, groups: Callable[[str], Group], unique: str
) -> None:
    cluster.create(unique, 3)
    one, three = groups(f"{unique}-one"), groups(f"{unique}-three")
    single = one.start({unique: 1})
    several = [three.start({unique: 1}, consumer_id=f"c{number}") for number in (1, 2, 3)]
    three.wait_until_owned_by(unique, {0: "c1-0", 1: "c2-0", 2: "c3-0"})
    cluster.produce(unique, 3, 3, first=1)
    wait_until(lambda: single.values == [1, 2, 3], "all three in one group")
    wait_until(lambda: [each.values for each in several] == [[3], [1], [2]], "one each in the other")


@pytest.mark.spec("C6")
def test_the_walk(cluster: Cluster, group: Group, unique: str) -> None:
    cluster.create(unique, 3)
    one, two, three, four = (f"c{number}-0" for number in (1, 2, 3, 4))
    walk = [
        {0: one, 1: one, 2: one},
        {0: one, 1: one, 2: two},
        {0: one, 1: two, 2: three},
        {0: one, 1: two, 2: three},
    ]
    consumers: list[Consumer] = []
    changes: list[int] = []

    def settle(owners: dict[int, str]) -> None:
        """Each change of the group is one rebalance of each of its consumers, and one call of each that succeeds."""
        group.wait_until_owned_by(unique, owners)
        living = [(each, count) for each, count in zip(consumers, changes, strict=True) if count]
        wait_until(
            lambda: all(each.calls.count("starting") == count for each, count in living),
            lambda: f"calls {[(each.calls, count) for each, count in living]}",
        )

    for number, owners in enumerate(walk, 1):
        consumers.append(group.start({unique: 1}, consumer_id=f"c{number}"))
        changes = [count + 1 for count in changes] + [1]
        settle(owners)
    after = [{0: two, 1: three, 2: four}, {0: three, 1: three, 2: four}, {0: four, 1: four, 2: four}]
    for number, owners in enumerate(after):
        consumers[number].close()
        changes = [count + 1 if at > number else 0 for at, count in enumerate(changes)]
        settle(owners)
    cluster.produce(unique, 3, 30)
    wait_until(lambda: consumers[3].values == list(range(30)), "the last one to read all")
    assert [each.calls.count("starting") for each in consumers] == [4, 4, 4, 4]
    # A try that meets a partition that is still held releases in vain, and is made again.
    assert all(each.calls.count("releasing") >= 4 for each in consumers)


@pytest.mark.spec("A7")
def test_two_consumers_of_two_threads_share_five_partitions(cluster: Cluster, group: Group, unique: str) -> None:
    cluster.create(unique, 5)
    for name in ("c1", "c2"):
        group.start({unique: 2}, consumer_id=name)
    group.wait_until_owned_by(unique, {0: "c1-0", 1: "c1-0", 2: "c1-1", 3: "c2-0", 4: "c2-1"})


@pytest.mark.spec("Z5", "C3")
@pytest.mark.parametrize("storage", ["zookeeper", "kafka", "dual"])
def test_reading_goes_on_where_it_was_committed(cluster: Cluster, group: Group, unique: str, storage: str) -> None:
    cluster.create(unique, 2)
    cluster.produce(unique, 2, 100)
    settings = {"offsets_storage": "zookeeper" if storage == "zookeeper" else "kafka"}
    if storage == "kafka":
        settings["dual_commit_enabled"] = "false"
    first = group.start({unique: 1}, **settings)
    wait_until(lambda: first.values == list(range(100)), "all to be read")
    first.close()
    assert group.offsets(unique, 2) == ([None, None] if storage == "kafka" else [50, 50])
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        in_kafka = admin.list_group_offsets(group.name)
    partitions = [TopicPartition(unique, each) for each in (0, 1)]
    found = [in_kafka[each].offset if each in in_kafka else NO_GENERATION for each in partitions]
    assert found == ([-1, -1] if storage == "zookeeper" else [50, 50])
    cluster.produce(unique, 2, 10, first=100)
    second = group.start({unique: 1}, **settings)
    wait_until(lambda: second.values == list(range(100, 110)), "the rest, and no more")


@pytest.mark.spec("C7")
def test_a_topic_that_a_filter_takes_and_partitions_that_are_added(cluster: Cluster, group: Group, unique: str) -> None:
    old, new, other = (f"{unique}-{name}" for name in ("old", "new", "other"))
    cluster.create(old, 1)
    consumer = group.connect()
    consumer.read(consumer.connector.create_message_streams_by_filter(Whitelist(f"{unique}-(old|new)"), 2))
    for topic in (new, other):
        cluster.create(topic, 1)
    cluster.grow(old, 3)
    cluster.produce(old, 3, 30)
    cluster.produce(new, 1, 10, first=30)
    cluster.produce(other, 1, 10, first=100)
    wait_until(lambda: consumer.values == list(range(40)), lambda: f"both topics, not {consumer.values}")


def expire(cluster: Cluster, consumer: Consumer) -> None:
    """End the consumer's session from outside, as if ZooKeeper had not heard of it for too long."""
    client_id = consumer.connector._connector._services.zk._client.client_id
    thief = KazooClient(hosts=cluster.zookeeper, client_id=client_id)
    thief.start()
    thief.stop()  # which ends the session that both have
    thief.close()


def test_a_session_that_expires(cluster: Cluster, group: Group, unique: str) -> None:
    cluster.create(unique, 4)
    first, second = (group.start({unique: 1}, consumer_id=name) for name in ("c1", "c2"))
    owners = {0: "c1-0", 1: "c1-0", 2: "c2-0", 3: "c2-0"}
    group.wait_until_owned_by(unique, owners)
    cluster.produce(unique, 4, 40)
    wait_until(lambda: first.values + second.values and len(first.got) + len(second.got) >= 40, "all to be read")
    expire(cluster, first)
    wait_until(lambda: first.calls.count("starting") >= 2, "the rebalance in the new session")
    group.wait_until_owned_by(unique, owners)
    assert len(group.members()) == 2
    cluster.produce(unique, 4, 40, first=40)
    wait_until(lambda: set(first.values) | set(second.values) == set(range(80)), "both to read on")


@pytest.mark.parametrize("step", list(RebalanceStep), ids=lambda step: step.name.lower())
def test_a_session_that_expires_in_the_middle_of_a_rebalance(
    cluster: Cluster, group: Group, unique: str, step: RebalanceStep
) -> None:
    cluster.create(unique, 3)
    first = group.start({unique: 1}, consumer_id="c1")
    second = group.connect(consumer_id="c2")
    expired: list[RebalanceStep] = []

    class Expiring(RebalanceCounters):
        def step(self, now: RebalanceStep) -> None:
            if now is step and not expired:
                expired.append(now)
                expire(cluster, second)  # the rebalance continues before it learns of it

    second.connector._connector.counters = Expiring()
    second.read(second.connector.create_message_streams({unique: 1})[unique])
    group.wait_until_owned_by(unique, {0: "c1-0", 1: "c1-0", 2: "c2-0"})
    assert expired == [step]
    cluster.produce(unique, 3, 30)
    wait_until(lambda: sorted(first.values + second.values) == list(range(30)), "each record to be read once")


def test_shutdown_is_quick(cluster: Cluster, group: Group, unique: str) -> None:
    cluster.create(unique, 1)
    cluster.produce(unique, 1, 10)
    consumer = group.start({unique: 1})
    wait_until(lambda: len(consumer.got) == 10, "all to be read")
    watch = Stopwatch()
    consumer.close()
    assert watch.seconds() < 5
    assert group.members() == []
    assert group.owners(unique) == {}
    assert group.offsets(unique, 1) == [10]


def test_the_example(cluster: Cluster, group: Group, unique: str, outputs: Path) -> None:
    cluster.create(unique, 2)
    cluster.produce(unique, 2, 20)
    command = [sys.executable, str(PROJECT / "examples" / "high_level_consumer.py"), cluster.zookeeper, group.name]

    def read(name: str, values: range) -> None:
        process = ServerProcess(name, [*command, unique, "2"], outputs)
        process.wait_until_ready(lambda: process.stdout.count("\n") >= len(values), 60)
        assert process.terminate() == 0
        assert sorted(int(line.split()[3]) for line in process.stdout.splitlines()) == list(values)
        assert "owns [0, 1]" in process.stderr

    read("first", range(20))
    cluster.produce(unique, 2, 10, first=20)
    read("second", range(20, 30))
