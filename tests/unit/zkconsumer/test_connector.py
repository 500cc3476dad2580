"""Connectors over fake brokers: real sockets, a tree in memory."""

from __future__ import annotations

import gc
import os
import random
import signal
import sys
import threading
import time
from contextlib import suppress

import pytest

from ottla.client.errors import (
    ClientClosedError,
    ForkedError,
    IllegalStateError,
    InvalidArgumentError,
    InvalidConfigError,
)
from ottla.client.model import OffsetAndMetadata, TopicPartition
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.zk.layout import PartitionOwnerZnode
from ottla.zkconsumer import async_connector, chunk_queue
from ottla.zkconsumer.commits import OffsetsNotCommittedError
from ottla.zkconsumer.connector import ZooKeeperUnreachableError, create_connector
from ottla.zkconsumer.rebalancer import ConsumerRebalanceFailedError
from ottla.zkconsumer.streams import ConsumerTimeoutError
from ottla.zkconsumer.topic_filters import Blacklist, Whitelist
from support.ports import free_port
from support.waiting import Stopwatch, wait_until

pytestmark = [pytest.mark.spec("Z4"), pytest.mark.filterwarnings("error")]

P, Q = TopicPartition("t", 0), TopicPartition("t", 1)


def offset_in_zookeeper(group, partition, topic="t"):
    data = group.tree.data(f"/consumers/g/offsets/{topic}/{partition}")
    return None if data is None else int(data)


def test_five_queues_and_five_streams(group):
    group.topic("topic1", 0, 1, 2)
    group.topic("topic2", 0, 0, 0)
    connector = group.connect()
    streams = connector.create_message_streams({"topic1": 2, "topic2": 3})
    assert {topic: len(of_topic) for topic, of_topic in streams.items()} == {"topic1": 2, "topic2": 3}
    assert len({id(stream.queue) for of_topic in streams.values() for stream in of_topic}) == 5
    threads = {partition: thread[-2:] for partition, thread in group.owners("topic1").items()}
    assert threads == {0: "-0", 1: "-0", 2: "-1"}
    assert all(thread.startswith(connector.consumer_id) for thread in group.owners("topic2").values())


def test_records_of_all_partitions_in_their_order(group, read):
    for partition in group.topic("t", 0, 1, 2):
        group.fakes.fill(partition, 50)
    streams = group.connect().create_message_streams({"t": 2})["t"]
    readers = [read(stream) for stream in streams]
    assert {partition for partition, _ in readers[0].wait_for(100)} == {0, 1}
    assert readers[1].wait_for(50) == [(2, offset) for offset in range(50)]
    for number in (0, 1):
        assert [offset for partition, offset in readers[0].found if partition == number] == list(range(50))


def test_decoders(group):
    group.topic("t", 0)
    group.fakes.fill(P, 10, size=0)
    (stream,) = group.connect().create_message_streams({"t": 1}, "StringDeserializer", int)["t"]
    first = next(iter(stream))
    assert (first.key, first.value) == ("k0", 0)


def next_or_none(records):
    """The next record; None where none came within consumer.timeout.ms."""
    with suppress(ConsumerTimeoutError):
        return next(records)


def test_more_threads_than_partitions(group):
    group.topic("t", 0)
    group.fakes.fill(P, 10)
    streams = group.connect(consumer_timeout_ms=100).create_message_streams({"t": 2})["t"]
    records = iter(streams[0])
    for _ in range(10):
        wait_until(lambda: next_or_none(records), "a record")
    with pytest.raises(ConsumerTimeoutError):
        next(iter(streams[1]))


def test_streams_are_made_once(group):
    group.topic("t", 0)
    connector = group.connect()
    for wrong in ({}, {"t": 0}, {"t": True}, {"t": "2"}):
        with pytest.raises(InvalidArgumentError):
            connector.create_message_streams(wrong)
    with pytest.raises(InvalidArgumentError, match="Whitelist"):
        connector.create_message_streams_by_filter("t")
    with pytest.raises(InvalidArgumentError, match="not a regular expression"):
        Whitelist("(")
    connector.create_message_streams({"t": 1})
    with pytest.raises(IllegalStateError, match="once"):
        connector.create_message_streams({"t": 1})
    with pytest.raises(IllegalStateError, match="once"):
        connector.create_message_streams_by_filter(Blacklist("u"))
    with pytest.raises(IllegalStateError, match="before"):
        connector.set_rebalance_listener(object())


@pytest.mark.spec("Z5")
def test_offsets_in_zookeeper_where_reading_goes_on(group, read):
    group.topic("t", 0)
    group.fakes.fill(P, 100)
    connector = group.connect(auto_commit_enable=False)
    iterator = iter(connector.create_message_streams({"t": 1})["t"][0])
    for _ in range(42):
        next(iterator)
    connector.commit_offsets()
    assert offset_in_zookeeper(group, 0) == 42
    next(iterator)
    connector.shutdown()
    assert offset_in_zookeeper(group, 0) == 42
    reader = read(group.connect().create_message_streams({"t": 1})["t"][0])
    assert reader.wait_for(58)[0] == (0, 42)


@pytest.mark.spec("Z5")
def test_offsets_in_kafka_and_in_both(group):
    group.topic("t", 0, 1)
    group.fakes.fill(P, 20)
    connector = group.connect(offsets_storage="kafka", dual_commit_enabled=False)
    iterator = iter(connector.create_message_streams({"t": 1})["t"][0])
    next(iterator)
    connector.commit_offsets()
    assert group.fakes.committed == {P: 1, Q: 0}  # the second has nothing, and is read from its beginning
    assert offset_in_zookeeper(group, 0) is None
    connector.shutdown()
    connector = group.connect(offsets_storage="kafka")
    iterator = iter(connector.create_message_streams({"t": 1})["t"][0])
    assert next(iterator).offset == 1
    connector.shutdown()
    assert group.fakes.committed[P] == offset_in_zookeeper(group, 0) == 2


def test_explicit_offsets_per_partition(group):
    group.topic("t", 0, 1)
    group.fakes.fill(P, 20)
    connector = group.connect(offsets_storage="kafka", auto_commit_enable=False)
    connector.create_message_streams({"t": 1})
    connector.commit_offsets({P: 7, Q: OffsetAndMetadata(3, "why")})
    assert group.fakes.committed == {P: 7, Q: 3}
    for wrong in (-1, "7", None):
        with pytest.raises(InvalidArgumentError, match="numbers from 0 on"):
            connector.commit_offsets({P: wrong})


def test_commits_are_tried_again(group):
    group.topic("t", 0)
    connector = group.connect(offsets_storage="kafka", auto_commit_enable=False)
    connector.create_message_streams({"t": 1})
    faults = group.fakes.faults[ApiKey.OFFSET_COMMIT]
    faults.extend([ErrorCode.OFFSET_METADATA_TOO_LARGE] * 5)
    connector.commit_offsets({P: 7})
    assert group.fakes.committed == {P: 7}
    faults.append(ErrorCode.OFFSET_METADATA_TOO_LARGE)
    with pytest.raises(OffsetsNotCommittedError):
        connector.commit_offsets({P: 8}, retry_on_failure=False)
    faults.clear()
    connector.commit_offsets({P: 8})


@pytest.mark.spec("Z5")
def test_auto_commit(group, read):
    group.topic("t", 0)
    group.fakes.fill(P, 10)
    connector = group.connect(auto_commit_interval_ms=20)
    read(connector.create_message_streams({"t": 1})["t"][0]).wait_for(10)
    wait_until(lambda: offset_in_zookeeper(group, 0) == 10, "the auto-commit")


@pytest.mark.spec("Z6")
def test_a_second_consumer_takes_its_share_and_gives_it_back(group, read):
    group.topic("t", 0, 1)
    for partition in (P, Q):
        group.fakes.fill(partition, 100)
    first = group.connect()
    reader = read(first.create_message_streams({"t": 1})["t"][0])
    reader.wait_for(200)
    second = group.connect()
    other = read(second.create_message_streams({"t": 1})["t"][0])
    wait_until(lambda: len(set(group.owners().values())) == 2, "two owners")
    for partition in (P, Q):
        group.fakes.fill(partition, 100)
    reader.wait_for(300)
    other.wait_for(100)
    second.shutdown()
    other.join()
    wait_until(lambda: len(group.owners()) == 2 and len(set(group.owners().values())) == 1, "one owner")
    for partition in (P, Q):
        group.fakes.fill(partition, 100)
    reader.wait_for(500)
    assert sorted(reader.found + other.found) == [(number, offset) for number in (0, 1) for offset in range(300)]


@pytest.mark.spec("Z6")
def test_a_new_session_registers_again_and_reads_on(group, read):
    group.topic("t", 0)
    group.fakes.fill(P, 10)
    connector = group.connect()
    reader = read(connector.create_message_streams({"t": 1})["t"][0])
    reader.wait_for(10)
    group.sessions[connector.consumer_id].expire()
    wait_until(lambda: group.owners(), "the claim in the new session")
    assert group.tree.children("/consumers/g/ids") == [connector.consumer_id]
    group.fakes.fill(P, 10)
    wait_until(lambda: (0, 19) in reader.found, "the newer records")


@pytest.mark.spec("Z7")
def test_a_partition_moves_to_another_leader_with_its_offsets(group, read):
    group.topic("t", 0)
    group.fakes.fill(P, 10)
    reader = read(group.connect().create_message_streams({"t": 1})["t"][0])
    reader.wait_for(10)
    group.fakes.leaders[P] = -1
    group.fakes.fill(P, 10)
    wait_until(lambda: len(group.fakes.requests_of(ApiKey.METADATA)) > 5, "looks for a leader")
    group.fakes.leaders[P] = 2
    assert reader.wait_for(20) == [(0, offset) for offset in range(20)]


@pytest.mark.spec("Z7")
@pytest.mark.slow
def test_brokers_come_back_at_other_addresses(group, read):
    group.topic("t", 0)
    group.fakes.fill(P, 10)
    reader = read(group.connect().create_message_streams({"t": 1})["t"][0])
    reader.wait_for(10)
    for node in list(group.fakes.ports):
        group.fakes.stop(node)
    group.fakes.ports.clear()
    group.fakes.advertised.clear()
    group.fakes.start(0)
    group.tree.brokers(group.fakes.ports)
    group.fakes.fill(P, 10)
    assert reader.wait_for(20) == [(0, offset) for offset in range(20)]


@pytest.mark.spec("Z7")
@pytest.mark.parametrize(("reset", "first"), [("smallest", 5), ("largest", 20)])
def test_an_offset_that_is_not_in_the_log(group, read, reset, first):
    group.topic("t", 0)
    group.fakes.fill(P, 20)
    group.fakes.logs[P].start = 5
    connector = group.connect(auto_commit_enable=False)
    connector.create_message_streams({"t": 1})
    connector.commit_offsets({P: 1000})
    connector.shutdown()
    fetches_before = len(group.fakes.requests_of(ApiKey.FETCH))  # The first consumer may have come to that offset, too.
    reader = read(group.connect(auto_offset_reset=reset).create_message_streams({"t": 1})["t"][0])
    wait_until(
        lambda: any(
            each.fetch_offset == first
            for request in group.fakes.requests_of(ApiKey.FETCH)[fetches_before:]
            for topic in request.topics
            for each in topic.partitions
        ),
        "a fetch from there",
    )
    group.fakes.fill(P, 10)
    wait_until(lambda: (0, 29) in reader.found, "records")
    assert reader.found[0] == (0, first)


@pytest.mark.spec("Z7")
def test_partitions_whose_queue_is_full_are_not_fetched(group, read):
    group.topic("t", 0, 0)
    group.fakes.fill(P, 100)
    group.fakes.fill(Q, 100)
    connector = group.connect(fetch_message_max_bytes=300, queued_max_message_chunks=2)
    full, other = connector.create_message_streams({"t": 2})["t"]
    reader = read(other)
    reader.wait_for(100)  # though nobody reads the first one
    assert 2 <= len(full.queue) <= 3
    before = len(group.fakes.requests_of(ApiKey.FETCH))
    group.fakes.fill(Q, 100)
    reader.wait_for(200)
    later = [
        each.partition
        for request in group.fakes.requests_of(ApiKey.FETCH)[before:]
        for topic in request.topics
        for each in topic.partitions
    ]
    assert set(later) == {1}
    read(full).wait_for(100)


@pytest.mark.spec("Z7")
def test_several_fetchers_per_broker(group, read):
    for partition in group.topic("t", 0, 0, 0, 0):
        group.fakes.fill(partition, 20)
    reader = read(group.connect(num_consumer_fetchers=2).create_message_streams({"t": 1})["t"][0])
    reader.wait_for(80)
    found = {
        tuple(sorted(each.partition for topic in request.topics for each in topic.partitions))
        for request in group.fakes.requests_of(ApiKey.FETCH)
    }
    assert found == {(0, 2), (1, 3)}


@pytest.mark.spec("C7")
def test_filters_take_new_topics(group, read):
    group.topic("a1", 0)
    group.fakes.fill(TopicPartition("a1", 0), 10)
    streams = group.connect().create_message_streams_by_filter(Whitelist("a.*"), 2)
    readers = [read(stream) for stream in streams]
    wait_until(lambda: sum(len(reader.found) for reader in readers) == 10, "records of the first topic")
    (a2,) = group.fakes.topic("a2", 1)
    group.fakes.fill(a2, 10)
    group.tree.topic("a2", 1)
    wait_until(lambda: sum(len(reader.found) for reader in readers) == 20, "records of the new topic")


@pytest.mark.spec("Z6")
def test_the_rebalance_listener_may_block_and_commit(group):
    group.topic("t", 0, 1)
    calls = []

    class Listener:
        def before_releasing_partitions(self, owned):
            calls.append((threading.current_thread().name, "releasing", owned))
            if owned:
                connector.commit_offsets({P: 77})
                calls.append(offset_in_zookeeper(group, 0))

        def before_starting_fetchers(self, consumer, assignment):
            calls.append((threading.current_thread().name, "starting", consumer, assignment))

    connector = group.connect(auto_commit_enable=False)
    connector.set_rebalance_listener(Listener())
    connector.create_message_streams({"t": 1})
    mine = f"{connector.consumer_id}-0"
    assert calls == [
        ("g-watcher", "releasing", {}),
        ("g-watcher", "starting", connector.consumer_id, {"t": {0: mine, 1: mine}}),
    ]
    calls.clear()
    group.tree.topic("t", 3)
    wait_until(lambda: len(calls) >= 3, "the listener's calls")
    assert calls[:2] == [("g-watcher", "releasing", {"t": {0, 1}}), 77]


def seconds_to_shut_down(connector):
    watch = Stopwatch()
    connector.shutdown()
    return watch.seconds()


def test_shutdown_while_a_stream_is_read(group, read):
    group.topic("t", 0)
    group.fakes.fill(P, 10)
    connector = group.connect()
    reader = read(connector.create_message_streams({"t": 1})["t"][0])
    reader.wait_for(10)
    assert seconds_to_shut_down(connector) < 1
    reader.join()
    assert reader.error is None
    assert offset_in_zookeeper(group, 0) == 10
    assert group.owners() == {}
    assert group.tree.children("/consumers/g/ids") == []
    connector.shutdown()
    with pytest.raises(ClientClosedError):
        connector.commit_offsets()
    with pytest.raises(ClientClosedError):
        connector.create_message_streams({"t": 1})


@pytest.mark.slow
@pytest.mark.interrupts
def test_shutdown_in_a_handler_of_signals_of_the_thread_that_reads(group):
    group.topic("t", 0)
    group.fakes.fill(P, 20_000, per_batch=100)
    chance = random.Random(3)
    longest_s = 0.0

    def on_signal(number, frame):
        nonlocal longest_s
        longest_s = max(longest_s, seconds_to_shut_down(connector))

    # Not SIGALRM: its timer is the one that ends a test that hangs.
    before = signal.signal(signal.SIGUSR1, on_signal)
    reader = threading.get_ident()
    try:
        for _ in range(10):
            connector = group.connect(auto_commit_enable=False)
            (stream,) = connector.create_message_streams({"t": 1})["t"]
            next(iter(stream))
            timer = threading.Timer(chance.uniform(0.0001, 0.02), signal.pthread_kill, (reader, signal.SIGUSR1))
            timer.start()
            for _ in stream:
                pass
            timer.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert 0 < longest_s < 5


def test_shutdown_in_a_handler_of_a_signal_that_a_wait_does_not_notice(group):
    """As where it comes just before the wait: the reading thread's system call is not interrupted."""
    group.topic("t", 0)
    group.fakes.fill(P, 10)
    connector = group.connect()
    (stream,) = connector.create_message_streams({"t": 1})["t"]
    found = [next(iter(stream)).offset for _ in range(10)]
    handled = threading.Event()
    in_time = []

    def on_signal(number, frame):
        handled.set()
        connector.shutdown()

    def interrupt():
        wait_until(lambda: is_waiting(reader), "the reading thread's wait")
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
        in_time.append(handled.wait(5))
        if not handled.is_set():
            signal.pthread_kill(reader, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, on_signal)
    reader = threading.get_ident()
    try:
        thread = threading.Thread(target=interrupt)
        thread.start()
        found += [each.offset for each in stream]
        thread.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert in_time == [True]
    assert found == list(range(10))


def is_waiting(thread_id):
    """Whether a thread asks a queue of chunks for the next one."""
    frame = sys._current_frames()[thread_id]
    return frame.f_code.co_filename == chunk_queue.__file__


def test_shutdown_before_anything(group):
    assert seconds_to_shut_down(group.connect()) < 1


def test_shutdown_in_the_middle_of_the_first_rebalance(group):
    group.topic("t", 0)
    group.tree.hold(PartitionOwnerZnode.path("g", "t", 0), b"somebody-0")
    connector = group.connect()
    problems = []

    def create():
        try:
            connector.create_message_streams({"t": 1})
        except ClientClosedError as error:
            problems.append(error)

    thread = threading.Thread(target=create)
    thread.start()
    wait_until(lambda: connector._connector.counters.conflicts > 0, "a conflict")
    assert seconds_to_shut_down(connector) < 1
    thread.join(60)
    assert len(problems) == 1


@pytest.fixture
def impatient(monkeypatch):
    """Neither the last commit nor the end of the session is waited for long."""
    monkeypatch.setattr(async_connector, "LAST_COMMIT_S", 0.2)
    monkeypatch.setattr(async_connector, "LEAVE_S", 0.2)


@pytest.mark.slow
def test_shutdown_waits_for_a_slow_zookeeper(group, read):
    group.topic("t", 0)
    group.fakes.fill(P, 10)
    connector = group.connect()
    read(connector.create_message_streams({"t": 1})["t"][0]).wait_for(10)
    group.tree.thread.call(lambda: time.sleep(0.5))  # sleep: nothing else is to happen there
    connector.shutdown()
    assert offset_in_zookeeper(group, 0) == 10
    assert group.owners() == {}


@pytest.mark.slow
@pytest.mark.usefixtures("impatient")
def test_shutdown_while_zookeeper_does_not_answer(group):
    group.topic("t", 0)
    connector = group.connect()
    connector.create_message_streams({"t": 1})
    group.tree.answers = False
    assert seconds_to_shut_down(connector) < 1


@pytest.mark.slow
@pytest.mark.usefixtures("impatient")
def test_shutdown_while_brokers_hang(group, read, faults):
    group.topic("t", 0)
    group.fakes.fill(P, 10)
    connector = group.connect(offsets_storage="kafka")
    reader = read(connector.create_message_streams({"t": 1})["t"][0])
    reader.wait_for(10)
    for api_key in (ApiKey.OFFSET_COMMIT, ApiKey.FETCH, ApiKey.FIND_COORDINATOR, ApiKey.METADATA):
        group.fakes.faults[api_key].extend([faults["SILENT"]] * 100)
    assert seconds_to_shut_down(connector) < 1
    reader.join()


def test_shutdown_in_and_beside_a_listener_that_blocks(group):
    group.topic("t", 0)
    entered, leave = threading.Event(), threading.Event()

    class Listener:
        def before_releasing_partitions(self, owned):
            if owned:
                entered.set()
                leave.wait(30)

    connector = group.connect()
    connector.set_rebalance_listener(Listener())
    connector.create_message_streams({"t": 1})
    group.tree.topic("t", 2)
    assert entered.wait(60)
    assert seconds_to_shut_down(connector) < 1
    leave.set()

    class Stopping:
        def before_starting_fetchers(self, consumer, assignment):
            other.shutdown()

    other = group.connect()
    other.set_rebalance_listener(Stopping())
    with pytest.raises(ClientClosedError):
        other.create_message_streams({"t": 1})


def test_a_rebalance_that_fails_is_reported(group):
    group.topic("t", 0)
    group.connect().create_message_streams({"t": 1})
    other = group.connect(partition_assignment_strategy="roundrobin", rebalance_max_retries=2)
    with pytest.raises(ConsumerRebalanceFailedError, match=r"2 tries .*same topics"):
        other.create_message_streams({"u": 1})


@pytest.mark.slow
def test_no_zookeeper():
    address = f"127.0.0.1:{free_port()}"
    with pytest.raises(ZooKeeperUnreachableError, match=r"zookeeper\.connect"):
        create_connector(group_id="g", zookeeper_connect=address, zookeeper_connection_timeout_ms=200)


def test_an_address_that_makes_no_sense():
    with pytest.raises(InvalidConfigError, match=r"zookeeper\.connect=127.0.0.1:port"):
        create_connector(group_id="g", zookeeper_connect="127.0.0.1:port")


def test_who_reads_a_stream_keeps_the_connector(group):
    group.topic("t", 0)
    group.fakes.fill(P, 10)
    iterator = iter(group.connect().create_message_streams({"t": 1})["t"][0])
    group.connectors.clear()
    gc.collect()
    assert [next(iterator).offset for _ in range(10)] == list(range(10))
    with pytest.warns(ResourceWarning, match="dropped without close"):  # noqa: PT031
        del iterator
        gc.collect()
    wait_until(lambda: not group.tree.children("/consumers/g/ids"), "its leave")


def test_a_connector_that_nobody_has_any_more_leaves_its_group(group):
    group.topic("t", 0)
    group.connect().create_message_streams({"t": 1})
    assert group.owners()
    with pytest.warns(ResourceWarning, match="dropped without close"):  # noqa: PT031
        group.connectors.clear()
        gc.collect()
    wait_until(lambda: not group.owners() and not group.tree.children("/consumers/g/ids"), "its leave")


def test_a_forked_process_is_reported(group):
    group.topic("t", 0)
    connector = group.connect()
    (stream,) = connector.create_message_streams({"t": 1})["t"]
    child = os.fork()
    if child == 0:
        code = 1
        try:
            for call in (connector.commit_offsets, lambda: next(iter(stream))):
                with pytest.raises(ForkedError):
                    call()
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.spec("Z7")
def test_a_fetch_that_waits_does_not_hold_up_what_comes_after_a_rebalance(group, read):
    group.topic("t", 0)
    reader = read(group.connect(fetch_wait_max_ms=8000).create_message_streams({"t": 1})["t"][0])
    wait_until(lambda: group.fakes.requests_of(ApiKey.FETCH), "a fetch that waits")
    group.fakes.topic("t", 0, 0)
    group.fakes.fill(Q, 10)
    watch = Stopwatch()
    group.tree.topic("t", 2)
    reader.wait_for(10)
    assert watch.seconds() < 4


@pytest.mark.spec("Z7")
def test_that_no_broker_is_alive_is_reported_once_and_not_at_every_look(group, read, caplog):
    group.topic("t", 0)
    group.fakes.fill(P, 10)
    connector = group.connect(refresh_leader_backoff_ms=5)
    read(connector.create_message_streams({"t": 1})["t"][0]).wait_for(10)
    with caplog.at_level("INFO", "ottla.zkconsumer"):
        group.tree.brokers({})
        group.fakes.leaders[P] = -1
        wait_until(lambda: sum("no broker is alive" in each for each in caplog.messages) > 5, "looks for a broker")
    told = [each for each in caplog.records if "no broker is alive" in each.message and each.levelname == "WARNING"]
    assert len(told) == 1


@pytest.mark.spec("Z7")
def test_a_partition_that_may_not_be_read_is_reported_once(group, caplog):
    group.topic("t", 0)
    group.fakes.fill(P, 10)
    group.fakes.faults[ApiKey.FETCH].extend([ErrorCode.TOPIC_AUTHORIZATION_FAILED] * 4)
    with caplog.at_level("INFO", "ottla.zkconsumer"):
        stream = group.connect(refresh_leader_backoff_ms=5).create_message_streams({"t": 1})["t"][0]
        assert next(iter(stream)).offset == 0
    told = [each.levelname for each in caplog.records if "TOPIC_AUTHORIZATION_FAILED" in each.message]
    assert told == ["WARNING", "INFO", "INFO", "INFO"]
