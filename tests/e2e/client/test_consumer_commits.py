"""What consumers commit when, and what becomes of it: C3 against ottla and Apache Kafka."""

from __future__ import annotations

import asyncio
import signal

import pytest
from confluent_kafka import Producer

from ottla.client import OffsetAndMetadata, TopicPartition
from ottla.client.errors import (
    ClientTimeoutError,
    CommitFailedError,
    RebalanceInProgressError,
    RebalanceListenerError,
    WakeupError,
)
from support.recording_listener import Polled, RecordingListener, poll_until
from support.topics import Topics
from support.waiting import Stopwatch

pytestmark = [pytest.mark.slow, pytest.mark.spec("C3")]

TIMEOUT_S = 60.0
RANGE = {"partition_assignment_strategy": "range"}


@pytest.fixture
def filled(topics, broker, unique):
    """A topic of one partition with ten records."""
    topics.create(unique, 1)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(10):
        producer.produce(unique, str(number).encode(), partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    return TopicPartition(unique, 0)


def read(member: Polled, count: int) -> list[int]:
    """Offsets, until there are that many."""
    poll_until([member], lambda: len(member.records) >= count)
    return [record.offset for record in member.records]


def test_closing_commits_what_was_polled(join, filled):
    first = join("c1", [filled.topic], max_poll_records=4)
    assert read(first, 4) == [0, 1, 2, 3]
    first.close()
    second = join("c2", [filled.topic], max_poll_records=2)
    assert read(second, 2) == [4, 5]


def test_nothing_is_committed_by_itself_without_auto_commit(join, filled):
    first = join("c1", [filled.topic], enable_auto_commit=False)
    read(first, 10)
    first.close()
    assert read(join("c2", [filled.topic]), 10) == list(range(10))


def test_auto_commit_at_intervals_covers_what_earlier_polls_gave(join, filled):
    member = join("c1", [filled.topic], auto_commit_interval_ms=50, max_poll_records=4)
    read(member, 10)
    committed = lambda: member.consumer.committed([filled])[filled]  # noqa: E731
    poll_until([member], lambda: (found := committed()) is not None and found.offset == 10)


def test_a_rebalance_commits_first_and_nothing_is_read_twice(join, filled):
    first = join("c1", [filled.topic], max_poll_records=5, **RANGE)
    assert read(first, 5) == [0, 1, 2, 3, 4]
    first.consumer.pause([filled])
    # Its id is less than the first's, so it is given the only partition.
    second = join("a1", [filled.topic], **RANGE)
    poll_until([first, second], lambda: len(second.records) == 5 and len(first.listener.calls) == 3)
    assert [record.offset for record in second.records] == [5, 6, 7, 8, 9]
    assert first.listener.counts == (1, 2, 0)


def test_sync_commits_of_everything_or_of_given_offsets(join, filled):
    member = join("c1", [filled.topic], enable_auto_commit=False, max_poll_records=4)
    assert member.consumer.committed([filled]) == {filled: None}
    read(member, 4)
    member.consumer.commit()
    found = member.consumer.committed([filled])[filled]
    assert (found.offset, found.metadata, found.leader_epoch) == (4, "", 0)
    member.consumer.commit({filled: OffsetAndMetadata(2, "from here", 0)})
    assert member.consumer.committed([filled]) == {filled: OffsetAndMetadata(2, "from here", 0)}


def test_async_commits_call_back_in_order_in_a_later_call(join, filled):
    member = join("c1", [filled.topic], enable_auto_commit=False)
    read(member, 10)
    calls = []
    for offset in range(1, 8):
        member.consumer.commit_async({filled: offset}, lambda offsets, error: calls.append((offsets, error)))
    assert calls == []
    member.consumer.commit({filled: 8})
    assert [(offsets[filled].offset, error) for offsets, error in calls] == [(offset, None) for offset in range(1, 8)]
    assert member.consumer.committed([filled])[filled].offset == 8


def test_committing_for_assigned_partitions(facade, broker, filled, unique):
    with facade.consumer(bootstrap_servers=broker.bootstrap, group_id=unique, auto_offset_reset="earliest") as consumer:
        consumer.assign([filled])
        member = Polled(consumer)
        read(member, 10)
        consumer.commit()
        assert consumer.committed([filled])[filled].offset == 10
    with facade.consumer(bootstrap_servers=broker.bootstrap, group_id=unique, auto_offset_reset="earliest") as consumer:
        consumer.assign([filled])
        assert consumer.position(filled) == 10


def test_assigning_other_partitions_commits_those_that_go(facade, broker, topics, filled, unique):
    topics.create(f"{unique}-other", 1)
    settings = {"group_id": unique, "auto_offset_reset": "earliest", "auto_commit_interval_ms": 60_000}
    with facade.consumer(bootstrap_servers=broker.bootstrap, **settings) as consumer:
        consumer.assign([filled])
        member = Polled(consumer)
        read(member, 10)
        consumer.assign([TopicPartition(f"{unique}-other", 0)])
        poll_until([member], lambda: consumer.committed([filled])[filled] is not None)
        assert consumer.committed([filled])[filled].offset == 10


@pytest.mark.spec("G10", "C7")
def test_who_does_not_poll_in_time_has_lost_its_partitions(join, filled):
    late = join("c1", [filled.topic], enable_auto_commit=False, max_poll_interval_ms=1000, max_poll_records=4)
    read(late, 4)
    other = join("c2", [filled.topic])
    # All is read before `late` comes back, as that may get the partition again.
    poll_until([other], lambda: other.owned == [0] and len(other.records) >= 10)
    with pytest.raises(CommitFailedError, match=r"max\.poll\.interval\.ms"):
        late.consumer.commit()
    assert late.listener.counts == (0, 1, 0), "the listener is told by the next poll"
    poll_until([late, other], lambda: late.listener.counts[1] == 2)
    assert late.listener.calls[:2] == [("assigned", [0]), ("lost", [0])]
    assert [record.offset for record in other.records] == list(range(10))


@pytest.mark.spec("G10")
def test_who_waits_in_poll_is_alive(join, filled):
    # A busy machine may hold the member up for as long as its first interval, not for the last.
    for interval_ms in (300, 3_000, 30_000):
        member = join("c1", [filled.topic], max_poll_interval_ms=interval_ms, enable_auto_commit=False)
        read(member, 10)
        found = member.consumer.poll(2 * interval_ms + 100)
        if member.listener.calls == [("assigned", [0])]:
            break
        member.close()
    assert not found
    assert member.listener.calls == [("assigned", [0])]


@pytest.mark.spec("G2")
def test_a_static_member_comes_back_without_a_rebalance(join, filled):
    first = join("c1", [filled.topic], group_instance_id="one")
    poll_until([first], lambda: first.owned == [0])
    other = join("c2", [filled.topic], group_instance_id="two")
    poll_until([first, other], lambda: first.owned == [0] and other.listener.calls == [("assigned", [])])
    first.close()
    again = join("c3", [filled.topic], group_instance_id="one")
    poll_until([again, other], lambda: again.owned == [0])
    assert other.listener.calls == [("assigned", [])]


@pytest.mark.spec("G2", "G10")
def test_the_earlier_of_two_with_one_instance_id_is_fenced(join, filled):
    first = join("c1", [filled.topic], group_instance_id="one")
    poll_until([first], lambda: first.owned == [0])
    second = join("c2", [filled.topic], group_instance_id="one")
    poll_until([second], lambda: second.owned == [0])
    with pytest.raises(Exception, match="FENCED_INSTANCE_ID"):
        poll_until([first, second], lambda: False)
    with pytest.raises(Exception, match=r"group\.instance\.id"):
        first.poll()
    second.poll()
    assert second.owned == [0]


class Failing(RecordingListener):
    """Fails when it is given partitions."""

    def on_partitions_assigned(self, partitions):
        super().on_partitions_assigned(partitions)
        raise RuntimeError("broken")


@pytest.mark.spec("C7")
def test_an_error_of_the_listener_comes_out_of_poll_after_the_rebalance(join, filled):
    member = join("c1", [filled.topic], Failing())
    with pytest.raises(RebalanceListenerError, match="broken") as raised:
        poll_until([member], lambda: False)
    assert isinstance(raised.value.__cause__, RuntimeError)
    assert member.owned == [0]
    assert len(read(member, 10)) == 10
    assert member.listener.counts == (0, 1, 0)


class Slow(RecordingListener):
    """Its methods are coroutines."""

    async def on_partitions_assigned(self, partitions):
        super().on_partitions_assigned(partitions)


class Interrupted(RecordingListener):
    """Its first call is interrupted by `wakeup`; the second one seeks."""

    consumer = None
    partition = None

    async def on_partitions_assigned(self, partitions):
        super().on_partitions_assigned(partitions)
        if len(self.calls) == 1:
            self.consumer.wakeup()
            await asyncio.Event().wait()
        self.consumer.seek(self.partition, 7)


@pytest.mark.spec("C2", "C4")
def test_a_call_of_the_listener_that_is_interrupted_is_made_again(join, filled):
    listener = Interrupted()
    listener.partition = filled
    member = join("c1", [filled.topic], listener)
    listener.consumer = getattr(member.consumer, "client", None) or member.consumer._async
    with pytest.raises(WakeupError):
        poll_until([member], lambda: False)
    assert read(member, 3) == [7, 8, 9]
    assert listener.calls == [("assigned", [0]), ("assigned", [0])]


def test_methods_of_the_listener_may_be_coroutines(join, filled):
    member = join("c1", [filled.topic], Slow())
    poll_until([member], lambda: member.owned == [0])
    assert member.listener.calls == [("assigned", [0])]


@pytest.mark.spec("C1")
def test_closing_takes_no_longer_than_a_second_where_the_broker_hangs(facade, quick_server, unique):
    consumer = facade.consumer(bootstrap_servers=quick_server.bootstrap, group_id=unique)
    member = Polled(consumer)
    consumer.subscribe([unique], member.listener)
    poll_until([member], lambda: bool(member.listener.calls))
    quick_server.server.signal(signal.SIGSTOP)
    try:
        watch = Stopwatch()
        consumer.close()
        assert watch.seconds() < 5
    finally:
        quick_server.server.signal(signal.SIGCONT)


@pytest.mark.spec("C4", "C7")
def test_the_listener_may_use_the_consumer(facade, broker, filled, unique):
    consumer = facade.consumer(
        bootstrap_servers=broker.bootstrap, group_id=unique, auto_offset_reset="earliest", enable_auto_commit=False
    )
    inner = getattr(consumer, "client", consumer)  # the one with an event loop is used in its loop
    seen = {}

    class Blocking(RecordingListener):
        def on_partitions_assigned(self, partitions):
            super().on_partitions_assigned(partitions)
            seen["position"] = inner.position(filled)
            seen["committed"] = inner.committed(partitions)
            inner.seek(filled, 7)

        def on_partitions_revoked(self, partitions):
            super().on_partitions_revoked(partitions)
            inner.commit()

    class Awaiting(RecordingListener):
        async def on_partitions_assigned(self, partitions):
            super().on_partitions_assigned(partitions)
            seen["position"] = await inner.position(filled)
            seen["committed"] = await inner.committed(partitions)
            inner.seek(filled, 7)

        async def on_partitions_revoked(self, partitions):
            super().on_partitions_revoked(partitions)
            await inner.commit()

    member = Polled(consumer, Awaiting() if facade.is_async else Blocking())
    try:
        consumer.subscribe([filled.topic], member.listener)
        assert read(member, 3) == [7, 8, 9]
        assert seen == {"position": 0, "committed": {filled: None}}
        consumer.unsubscribe()
        assert member.listener.calls == [("assigned", [0]), ("revoked", [0])]
        assert consumer.committed([filled])[filled].offset == 10
    finally:
        member.close()


def test_commits_in_the_middle_of_a_rebalance(join, filled):
    first = join("c1", [filled.topic], enable_auto_commit=False, **RANGE)
    idle = join("c2", [filled.topic], enable_auto_commit=False, **RANGE)
    poll_until([first, idle], lambda: bool(idle.listener.calls) and len(first.records) >= 10)
    poll_until([first, idle], lambda: first.consumer.health().state == "member")
    second = join("a1", [filled.topic], enable_auto_commit=False, **RANGE)
    poll_until([second], lambda: first.consumer.metrics()["rejoin-needed"] == 1)
    # Told of the rebalance by a heartbeat, it is what it was until its next poll, and may commit.
    first.consumer.commit({filled: 4})
    poll_until([first, second], lambda: first.consumer.health().state == "stopped")
    with pytest.raises(RebalanceInProgressError, match="poll until it is over"):
        first.consumer.commit({filled: 5})
    errors = []
    first.consumer.commit_async({filled: 6}, lambda offsets, error: errors.append(type(error)))
    poll_until([first, second, idle], lambda: (first.owned, idle.owned, second.owned) == ([], [], [0]))
    assert errors == [RebalanceInProgressError]
    poll_until([second], lambda: len(second.records) == 6)
    assert [record.offset for record in second.records] == [4, 5, 6, 7, 8, 9]


@pytest.mark.spec("C3", "A4")
@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_partitions_that_move_repeat_no_record(topics, join, broker, unique, strategy):
    topics.create(unique, 4)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
    settings = {"partition_assignment_strategy": strategy, "max_poll_records": 7, "auto_commit_interval_ms": 60_000}
    sent = 0

    def going_on(members: list[Polled], condition) -> None:
        """Produce and poll until the condition holds."""

        def send_some() -> bool:
            nonlocal sent
            for partition in range(4):
                producer.produce(unique, b"x", partition=partition)
            sent += 4
            producer.poll(0)
            return condition()

        poll_until(members, send_some)

    members = [join("c1", [unique], **settings)]
    going_on(members, lambda: len(members[0].records) >= 40)
    for name, expected in (("c2", [2, 2]), ("c3", [1, 1, 2])):
        members.append(join(name, [unique], **settings))
        going_on(members, lambda expected=expected: sorted(len(one.owned) for one in members) == expected)
    going_on(members, lambda: all(len(one.records) >= 20 for one in members))
    left = members.pop(0)
    left.close()
    going_on(members, lambda: sorted(len(one.owned) for one in members) == [2, 2])
    assert producer.flush(TIMEOUT_S) == 0
    everybody = [left, *members]
    poll_until(members, lambda: sum(len(one.records) for one in everybody) >= sent)
    seen = [(record.partition, record.offset) for one in everybody for record in one.records]
    assert len(set(seen)) == sent
    assert len(seen) == sent, "no record twice, none missing"


@pytest.mark.spec("G10")
def test_commits_while_the_coordinator_is_gone(facade, quick_server, unique):
    Topics(quick_server.bootstrap).create(unique, 1)
    partition, calls = TopicPartition(unique, 0), []
    consumer = facade.consumer(
        bootstrap_servers=quick_server.bootstrap, group_id=unique, heartbeat_interval_ms=100, enable_auto_commit=False
    )
    member = Polled(consumer)
    try:
        consumer.subscribe([unique], member.listener)
        poll_until([member], lambda: member.owned == [0])
        quick_server.kill9()
        with pytest.raises(ClientTimeoutError, match="committing offsets of group"):
            consumer.commit({partition: 0}, timeout_ms=300)
        consumer.commit_async({partition: 0}, lambda offsets, error: calls.append((offsets[partition].offset, error)))
        quick_server.restart()
        poll_until([member], lambda: bool(calls))
        assert calls == [(0, None)]
        assert consumer.committed([partition]) == {partition: OffsetAndMetadata(0)}
        assert member.listener.calls == [("assigned", [0])]
    finally:
        member.close()
