"""Consumers in groups, against ottla and Apache Kafka: who owns what, and which callbacks are called how often."""

from __future__ import annotations

import logging
import re
import threading

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from ottla.assign.assignor import AbstractPartitionAssignor
from ottla.assign.range import RangeAssignor
from ottla.client.consumer.health import HealthCause
from ottla.client.consumer.membership import ClientState
from ottla.peer.versions import USED
from ottla.wire.apis import ApiKey
from support.recording_listener import Polled, poll_until
from support.topics import Topics

pytestmark = pytest.mark.slow

TIMEOUT_S = 60.0


def poll_until_owned(members: list[Polled], *expected: list[int]) -> None:
    """Poll until they own just that, in their order."""
    poll_until(members, lambda: [one.owned for one in members] == list(expected))


def produce(broker, topic: str, values: dict[int, list[str]]) -> None:
    """Values to partitions."""
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for partition, some in values.items():
        for value in some:
            producer.produce(topic, value.encode(), partition=partition)
    assert producer.flush(TIMEOUT_S) == 0


@pytest.mark.spec("C6", "G6")
def test_the_walk(topics, join, unique):
    topics.create(unique)
    c1 = join("c1", [unique], partition_assignment_strategy="range")
    poll_until_owned([c1], [0, 1, 2])
    c2 = join("c2", [unique], partition_assignment_strategy="range")
    poll_until_owned([c1, c2], [0, 1], [2])
    c3 = join("c3", [unique], partition_assignment_strategy="range")
    poll_until_owned([c1, c2, c3], [0], [1], [2])
    # As G6 says, less the revoke call of the first join, which consumers since Kafka 2.4 do not make.
    assert [one.listener.counts for one in (c1, c2, c3)] == [(2, 3, 0), (1, 2, 0), (0, 1, 0)]
    c4 = join("c4", [unique], partition_assignment_strategy="range")
    poll_until([c1, c2, c3, c4], lambda: c4.listener.calls == [("assigned", [])])
    poll_until_owned([c1, c2, c3, c4], [0], [1], [2], [])
    c1.close()
    poll_until_owned([c2, c3, c4], [0], [1], [2])
    c2.close()
    poll_until_owned([c3, c4], [0, 1], [2])
    c3.close()
    poll_until_owned([c4], [0, 1, 2])
    c4.close()
    assert [one.listener.counts for one in (c1, c2, c3, c4)] == [(4, 4, 0)] * 4
    assert c1.listener.calls == [
        ("assigned", [0, 1, 2]),
        ("revoked", [0, 1, 2]),
        ("assigned", [0, 1]),
        ("revoked", [0, 1]),
        ("assigned", [0]),
        ("revoked", [0]),
        ("assigned", [0]),
        ("revoked", [0]),
    ]
    assert c4.listener.calls == [
        ("assigned", []),
        ("revoked", []),
        ("assigned", [2]),
        ("revoked", [2]),
        ("assigned", [2]),
        ("revoked", [2]),
        ("assigned", [0, 1, 2]),
        ("revoked", [0, 1, 2]),
    ]


@pytest.mark.spec("G10")
def test_health_of_a_member_whose_topic_does_not_exist(topics, join, unique, caplog):
    """It is the topic that is missing, and not partitions for one more member."""
    topics.create(unique)
    missing = f"{unique}x"
    member = join("c1", [missing], allow_auto_create_topics=False)
    named = f"topic {missing} does not exist"
    poll_until([member], lambda: any(named in each.getMessage() for each in caplog.records))
    health = member.consumer.health()
    assert ([each.cause for each in health.findings], health.is_progressing) == ([HealthCause.TOPIC_MISSING], False)
    assert f"{named} at " in health.reasons[0]
    assert f"did you mean {unique}? Otherwise create it first" in health.reasons[0]
    topics.create(missing)
    poll_until_owned([member], [0, 1, 2])
    poll_until([member], lambda: not member.consumer.health().findings)
    assert len([each for each in caplog.records if named in each.getMessage()]) == 1


@pytest.mark.spec("G5")
def test_two_rebalances(topics, join, broker, unique):
    topics.create(unique)
    first = join("c1", [unique], partition_assignment_strategy="range")
    poll_until_owned([first], [0, 1, 2])
    produce(broker, unique, {0: ["a"], 1: ["b"], 2: ["c"]})
    poll_until([first], lambda: len(first.records) == 3)
    # Both others have joined before the first hears of it in a poll.
    others = [join(name, [unique], partition_assignment_strategy="range") for name in ("c2", "c3")]
    poll_until(others, lambda: all("other members" in "".join(one.consumer.health().reasons) for one in others))
    poll_until_owned([first, *others], [0], [1], [2])
    assert [one.listener.counts for one in (first, *others)] == [(1, 2, 0), (0, 1, 0), (0, 1, 0)]
    assert [one.records for one in others] == [[], []], "what was committed is not read again"


@pytest.mark.spec("C5")
def test_every_group_gets_every_record_and_one_member_of_each(topics, join, broker, facade, unique):
    topics.create(unique)
    alone = Polled(
        facade.consumer(
            bootstrap_servers=broker.bootstrap,
            group_id=f"{unique}-1",
            auto_offset_reset="earliest",
            partition_assignment_strategy="range",
        )
    )
    try:
        alone.consumer.subscribe([unique], alone.listener)
        members = [join(f"c{index}", [unique], partition_assignment_strategy="range") for index in range(3)]
        poll_until([alone, *members], lambda: alone.owned == [0, 1, 2] and all(len(one.owned) == 1 for one in members))
        produce(broker, unique, {0: ["one"], 2: ["two"], 1: ["three"]})
        poll_until([alone, *members], lambda: len(alone.records) == 3 and all(one.records for one in members))
        assert sorted(record.value for record in alone.records) == [b"one", b"three", b"two"]
        assert sorted(record.value for one in members for record in one.records) == [b"one", b"three", b"two"]
        assert [len(one.records) for one in members] == [1, 1, 1]
    finally:
        alone.close()


@pytest.mark.spec("A4", "C7")
def test_cooperative_members_keep_what_they_own(topics, join, broker, unique):
    topics.create(unique)
    strategy = {"partition_assignment_strategy": "cooperative-sticky"}
    c1, c2 = join("c1", [unique], **strategy), join("c2", [unique], **strategy)
    poll_until([c1, c2], lambda: {len(c1.owned), len(c2.owned)} == {1, 2})
    two, one = (c1, c2) if len(c1.owned) == 2 else (c2, c1)
    kept, before = list(one.owned), list(two.owned)
    for member in (c1, c2):
        member.listener.calls.clear()
    c3 = join("c3", [unique], **strategy)
    poll_until([c1, c2, c3], lambda: len(c3.owned) == 1 and len(two.owned) == 1)
    (moved,) = c3.owned
    assert one.owned == kept
    assert set(before) - set(two.owned) == {moved}
    # Only what moves is revoked, in the first of two rebalances; in both, each member is told what is new to it.
    assert [call for call in two.listener.calls if call[1]] == [("revoked", [moved])]
    assert [call for call in one.listener.calls if call[1]] == []
    # A member that is slow to ask for the first assignment, which is empty, is only told of the second one.
    assert c3.listener.calls in ([("assigned", []), ("assigned", [moved])], [("assigned", [moved])])


@pytest.mark.spec("A5")
def test_eager_to_cooperative_by_two_bounces(topics, join, unique):
    topics.create(unique, 4)
    members = [join(f"a{index}", [unique], partition_assignment_strategy="range") for index in range(2)]
    poll_until_owned(members, [0, 1], [2, 3])
    for bounce, strategies in enumerate(("cooperative-sticky,range", "cooperative-sticky")):
        for index in range(2):
            members[index].close()
            name = f"b{bounce}{index}"
            members[index] = join(name, [unique], partition_assignment_strategy=strategies)
            poll_until(members, lambda: sorted(members[0].owned + members[1].owned) == [0, 1, 2, 3])
    poll_until(members, lambda: [len(one.owned) for one in members] == [2, 2])


@pytest.mark.spec("C7")
def test_partitions_that_are_added_are_shared_out(topics, join, unique):
    topics.create(unique, 2)
    settings = {"partition_assignment_strategy": "range", "metadata_max_age_ms": 200}
    members = [join(name, [unique], **settings) for name in ("c1", "c2")]
    poll_until_owned(members, [0], [1])
    topics.add_partitions(unique, 4)
    poll_until_owned(members, [0, 1], [2, 3])


@pytest.mark.spec("C7")
def test_topics_that_match_a_pattern_come_and_go(topics, join, unique):
    topics.create(f"{unique}-a", 1)
    topics.create(f"not-{unique}", 1)
    member = join("c1", re.compile(f"{unique}-.*"), metadata_max_age_ms=200, partition_assignment_strategy="range")

    def names() -> list[str]:
        return sorted(each.topic for each in member.consumer.assignment())

    poll_until([member], lambda: names() == [f"{unique}-a"])
    topics.create(f"{unique}-b", 1)
    poll_until([member], lambda: names() == [f"{unique}-a", f"{unique}-b"])
    topics.delete(f"{unique}-a")
    poll_until([member], lambda: names() == [f"{unique}-b"])
    assert member.consumer.subscription() == {f"{unique}-b"}


@pytest.mark.spec("C1")
@pytest.mark.parametrize("excluded", [True, False])
def test_internal_topics_match_only_where_they_are_asked_for(topics, join, unique, excluded):
    topics.create(unique, 1)
    pattern = re.compile(f"{unique}|__consumer_offsets")
    # The first consumer's group makes the internal topic.
    for name in ("c1", "c2"):
        member = join(
            name, pattern, exclude_internal_topics=excluded, metadata_max_age_ms=200, auto_offset_reset="latest"
        )
        expected = {unique} if excluded else {unique, "__consumer_offsets"}
        poll_until([member], lambda: {each.topic for each in member.consumer.assignment()} == expected)  # noqa: B023
        member.close()


@pytest.mark.spec("C7")
def test_a_topic_that_is_made_after_the_subscription(topics, join, unique):
    member = join("c1", [unique], allow_auto_create_topics=False, retry_backoff_max_ms=200)
    poll_until([member], lambda: member.listener.calls == [("assigned", [])])
    topics.create(unique, 2)
    poll_until([member], lambda: member.owned == [0, 1])


@pytest.mark.spec("A5")
def test_members_with_nothing_in_common(topics, join, unique):
    topics.create(unique)
    first = join("c1", [unique], partition_assignment_strategy="range")
    poll_until_owned([first], [0, 1, 2])
    other = join("c2", [unique], partition_assignment_strategy="roundrobin")
    with pytest.raises(Exception, match="INCONSISTENT_GROUP_PROTOCOL"):
        poll_until([other], lambda: False)


class LastTakesAll(AbstractPartitionAssignor):
    """A custom assignor: the member with the greatest id gets everything."""

    name = "last-takes-all"

    def assign_partitions(self, partition_counts, subscriptions):
        assigned = {member_id: {} for member_id in subscriptions}
        assigned[max(subscriptions)] = {topic: tuple(range(count)) for topic, count in partition_counts.items()}
        return assigned


@pytest.mark.spec("A6")
def test_a_custom_assignor(topics, join, unique):
    topics.create(unique)
    named = f"{LastTakesAll.__module__}.{LastTakesAll.__qualname__}"
    members = [
        join(name, [unique], partition_assignment_strategy=given)
        for name, given in (("c1", named), ("c2", [LastTakesAll]))
    ]
    poll_until_owned(members, [], [0, 1, 2])


@pytest.mark.spec("C1")
def test_unsubscribing_leaves_the_group_at_once(topics, join, unique):
    topics.create(unique)
    members = [join(name, [unique], partition_assignment_strategy="range") for name in ("c1", "c2")]
    poll_until_owned(members, [0, 1], [2])
    members[0].consumer.unsubscribe()
    assert members[0].listener.calls[-1] == ("revoked", [0, 1])
    poll_until_owned(members[1:], [0, 1, 2])
    members[0].consumer.subscribe([unique], members[0].listener)
    poll_until_owned(members, [0, 1], [2])


@pytest.mark.spec("C7")
def test_a_changed_subscription_rebalances(topics, join, unique):
    topics.create(f"{unique}-a", 1)
    topics.create(f"{unique}-b", 1)
    member = join("c1", [f"{unique}-a"])
    poll_until([member], lambda: len(member.consumer.assignment()) == 1)
    member.consumer.subscribe([f"{unique}-b"], member.listener)
    poll_until([member], lambda: [each.topic for each in member.consumer.assignment()] == [f"{unique}-b"])


@pytest.mark.spec("G10", "G11")
def test_the_coordinator_is_found_again_while_consuming(facade, quick_server, unique, caplog):
    caplog.set_level(logging.INFO, "ottla.client.consumer")
    Topics(quick_server.bootstrap).create(unique, 1)
    consumer = facade.consumer(
        bootstrap_servers=quick_server.bootstrap,
        group_id=unique,
        heartbeat_interval_ms=100,
        auto_offset_reset="earliest",
    )
    member = Polled(consumer)
    try:
        assert state(consumer) == ClientState.DOWN
        consumer.subscribe([unique], member.listener)
        poll_until_owned([member], [0])
        assert state(consumer) == ClientState.MEMBER
        quick_server.kill9()
        poll_until([member], lambda: state(consumer) == ClientState.FINDING_COORDINATOR_AGAIN)
        assert member.owned == [0]
        quick_server.restart()
        produce(quick_server, unique, {0: ["after"]})
        poll_until([member], lambda: state(consumer) == ClientState.MEMBER and bool(member.records))
        assert member.listener.calls == [("assigned", [0])], "the group was found in the log, and goes on"
    finally:
        member.close()
    told = re.findall(r"consumer state (\w+) -> (\w+)", caplog.text)
    assert told[:3] == [("DOWN", "FINDING_COORDINATOR"), ("FINDING_COORDINATOR", "STOPPED"), ("STOPPED", "MEMBER")]
    assert ("MEMBER", "FINDING_COORDINATOR_AGAIN") in told
    assert told[-1] == ("MEMBER", "DOWN")


def state(consumer) -> ClientState:
    """What the consumer is about, by its metric."""
    return ClientState(int(consumer.metrics()["client-state"]))


class HeldBack(RangeAssignor):
    """Range, whose first assignment waits until it is let go."""

    def __init__(self) -> None:
        self.was_asked = threading.Event()
        self.let_go = threading.Event()

    def assign(self, cluster, subscriptions):
        self.was_asked.set()
        assert self.let_go.wait(TIMEOUT_S)
        return super().assign(cluster, subscriptions)


@pytest.mark.spec("G4")
@pytest.mark.parametrize("facade", ["sync"], indirect=True)
def test_three_consumers_that_join_at_once(topics, join, broker, unique):
    topics.create(unique)
    held = HeldBack()
    first = join("c1", [unique], partition_assignment_strategy=[held], heartbeat_interval_ms=5_000)
    # Its loop stands still in the assignor, and its polls with it: they have a thread of their own meanwhile.
    joined = threading.Event()
    polling = threading.Thread(target=poll_until, args=([first], joined.is_set))
    polling.start()
    assert held.was_asked.wait(TIMEOUT_S)
    others = [join(name, [unique], partition_assignment_strategy="range") for name in ("c2", "c3")]
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})

    def all_have_joined() -> bool:
        (told,) = admin.describe_consumer_groups([unique], request_timeout=TIMEOUT_S).values()
        described = told.result(TIMEOUT_S)
        return described.state.name == "PREPARING_REBALANCING" and len(described.members) == 3

    poll_until(others, all_have_joined)
    joined.set()
    held.let_go.set()
    polling.join(TIMEOUT_S)
    poll_until_owned([first, *others], [0], [1], [2])
    # The first joined twice, as its first assignment was void; its listener was told once all the same.
    assert [one.listener.counts for one in (first, *others)] == [(0, 1, 0)] * 3


@pytest.mark.parametrize("leaves", [True, False])
def test_whether_close_leaves_the_group_can_be_set(broker, topics, join, unique, leaves):
    topics.create(unique, 1)
    one = join("c1", [unique], internal_leave_group_on_close=leaves)
    poll_until_owned([one], [0])
    one.close()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    described = admin.describe_consumer_groups([unique])[unique].result(TIMEOUT_S)
    assert len(described.members) == (0 if leaves else 1)


@pytest.mark.spec("A1", "C7")
@pytest.mark.parametrize("facade", ["sync"], indirect=True)
def test_racks_do_not_make_the_metadata_look_changed(facade, quick_server, unique):
    Topics(quick_server.bootstrap).create(unique, 2)
    settings = {"client_rack": "r1", "metadata_max_age_ms": 50, "heartbeat_interval_ms": 50}
    consumer = facade.consumer(bootstrap_servers=quick_server.bootstrap, group_id=unique, **settings)
    member = Polled(consumer)
    try:
        consumer.subscribe([unique], member.listener)
        poll_until_owned([member], [0, 1])
        poll_until([member], lambda: consumer.metrics()["heartbeat-total"] >= 10)
        assert member.listener.calls == [("assigned", [0, 1])]
    finally:
        member.close()


@pytest.mark.spec("A4", "G5", "G10")
@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_who_consumes_while_others_are_waited_for(topics, join, broker, unique, strategy):
    topics.create(unique, 4)
    settings = {"partition_assignment_strategy": strategy}
    first, idle = join("c1", [unique], **settings), join("c2", [unique], **settings)
    poll_until([first, idle], lambda: [len(first.owned), len(idle.owned)] == [2, 2])
    owned = first.owned
    newcomer = join("c3", [unique], **settings)
    waiting = [HealthCause.REBALANCING]
    poll_until([first, newcomer], lambda: [each.cause for each in first.consumer.health().findings] == waiting)
    assert "waits for other members" in first.consumer.health().reasons[0]
    produce(broker, unique, {partition: ["meanwhile"] for partition in range(4)})
    if strategy == "range":
        heartbeats = newcomer.consumer.metrics()["heartbeat-total"]
        for _ in range(5):
            assert first.poll() == []
        assert (first.owned, state(first.consumer)) == ([], ClientState.STOPPED)
        assert newcomer.consumer.metrics()["heartbeat-total"] == heartbeats == 0
    else:
        poll_until([first], lambda: len(first.records) == 2)
        assert sorted(record.partition for record in first.records) == first.owned == owned
        assert state(first.consumer) == ClientState.MEMBER
    everybody = [first, idle, newcomer]
    poll_until(everybody, lambda: sorted(len(one.owned) for one in everybody) == [1, 1, 2])
    poll_until(everybody, lambda: sum(len(one.records) for one in everybody) == 4)


#: The newest versions that Apache Kafka 0.11 serves.
OF_0_11 = {
    ApiKey.JOIN_GROUP: (0, 2),
    ApiKey.SYNC_GROUP: (0, 1),
    ApiKey.HEARTBEAT: (0, 1),
    ApiKey.LEAVE_GROUP: (0, 1),
    ApiKey.OFFSET_COMMIT: (2, 3),
    ApiKey.OFFSET_FETCH: (2, 3),
    ApiKey.FIND_COORDINATOR: (1, 1),
    ApiKey.FETCH: (4, 5),
    ApiKey.METADATA: (4, 4),
    ApiKey.LIST_OFFSETS: (1, 2),
}


@pytest.mark.spec("C6", "G2")
@pytest.mark.parametrize("facade", ["sync"], indirect=True)
def test_groups_with_the_versions_of_old_brokers(topics, join, broker, unique, monkeypatch):
    for api_key, range_ in OF_0_11.items():
        monkeypatch.setitem(USED, api_key, range_)
    topics.create(unique)
    produce(broker, unique, {0: ["a"], 1: ["b"], 2: ["c"]})
    members = [join("c1", [unique], partition_assignment_strategy="range")]
    poll_until(members, lambda: len(members[0].records) == 3)
    members.append(join("c2", [unique], partition_assignment_strategy="range"))
    poll_until_owned(members, [0, 1], [2])
    members[0].close()
    poll_until_owned(members[1:], [0, 1, 2])
    assert members[1].records == [], "what the first read was committed"
    assert [one.listener.counts for one in members] == [(2, 2, 0), (1, 2, 0)]


@pytest.mark.spec("C7")
def test_subscribing_to_less_counts_while_there_are_records_to_read(topics, join, broker, unique):
    kept, left = f"{unique}-a", f"{unique}-b"
    for topic in (kept, left):
        topics.create(topic, 1)
        produce(broker, topic, {0: ["x"] * 300})
    member = join("c1", [kept, left], max_poll_records=1)
    poll_until([member], lambda: bool(member.records))
    member.consumer.subscribe([kept], member.listener)
    member.poll()  # gives up what it has
    member.records.clear()
    poll_until([member], lambda: len(member.records) >= 10)
    assert {record.topic for record in member.records} == {kept}
    assert member.consumer.assignment() == {(kept, 0)}
