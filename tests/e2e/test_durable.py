"""Acknowledged means on the disk: `ottla.log.flush.on.ack` and `flush.messages`, beside slow, failing and cut disks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from e2e.embedded import EmbeddedBroker
from ottla.env.disk import RealDisk
from ottla.storage.log import PartitionLog
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.fetch import FetchResponse
from ottla.wire.messages.produce import PartitionProduceResponse, ProduceResponse
from support.power_loss import PowerLossDisk
from support.raw_client import FETCH_V, PRODUCE_V, RawClient, batch_of, fetch_request, produce_request, records_of
from support.waiting import Stopwatch, wait_until

pytestmark = pytest.mark.spec("L6")

STORAGE_ERROR = ErrorCode.KAFKA_STORAGE_ERROR
SEGMENTS = "*/t-0/*.log"


class DurableBroker(EmbeddedBroker):
    """A broker on a disk that can be held up and lose its power."""

    def __init__(self, folder: Path, durable: bool = True, **settings: str) -> None:
        super().__init__(folder, ottla_log_flush_on_ack=str(durable).lower(), **settings)
        self.power = PowerLossDisk(RealDisk())
        self.disk = self.power

    def log(self, topic: str = "t", index: int = 0) -> PartitionLog:
        """A partition's log, to look at."""
        partition = self.broker.partitions.get(topic, index)
        assert partition is not None
        return partition.log

    def flushes(self) -> int:
        """How often segments of t-0 were forced."""
        return sum(count for path, count in self.power.flushes.items() if "/t-0/" in path and path.endswith(".log"))

    def tree_flushes(self) -> int:
        """How often the tree's log was forced."""
        return self.power.flushes[f"{self.folder}/ottla-tree.log"]

    def wait_for_flush(self, before: int) -> None:
        wait_until(lambda: self.flushes() > before, "a flush of t-0")

    def wait_for_end(self, offset: int) -> None:
        wait_until(lambda: self.log().log_end_offset == offset, f"t-0 to reach {offset}")


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[..., DurableBroker]]:
    brokers: list[DurableBroker] = []

    def start(**settings: str | bool) -> DurableBroker:
        broker = DurableBroker(tmp_path / f"data{len(brokers)}", **settings)  # type: ignore[arg-type]
        brokers.append(broker)
        broker.start()
        return broker

    yield start
    for broker in brokers:
        broker.power.let_go()
        broker.disk.heal()
        broker.stop()


@pytest.fixture
def broker(started: Callable[..., DurableBroker]) -> DurableBroker:
    broker = started()
    with RawClient(broker.port) as client:
        assert client.create_topic("t") == 0
        assert client.produce("t", 0, batch_of(b"first")).error_code == 0
    return broker


def answer_of(client: RawClient) -> PartitionProduceResponse:
    return client.receive(ProduceResponse, PRODUCE_V).responses[0].partition_responses[0]


# When it is acknowledged


@pytest.mark.parametrize("acks", [1, -1])
def test_an_acknowledgement_waits_for_the_disk(broker: DurableBroker, acks: int) -> None:
    before = broker.flushes()
    broker.power.hold(SEGMENTS)
    with RawClient(broker.port) as producer, RawClient(broker.port) as other:
        producer.send(produce_request("t", 0, batch_of(b"second"), acks), PRODUCE_V)
        broker.wait_for_flush(before)
        assert broker.log().log_end_offset == 2
        assert other.end_offset("t", 0) == 1, "what may be lost is not shown"
        assert other.fetch("t", 0, 1, max_wait_ms=0) == (0, [])
        assert other.topics() == {"t"}, "nobody else waits for the disk"
        assert not producer.has_answer()
        broker.power.let_go()
        answer = answer_of(producer)
        assert (answer.error_code, answer.base_offset) == (0, 1)
        assert [record.value for record in other.read_all("t", 0)] == [b"first", b"second"]


def test_without_acks_nobody_waits(broker: DurableBroker) -> None:
    broker.power.hold(SEGMENTS)
    with RawClient(broker.port) as producer:
        producer.send(produce_request("t", 0, batch_of(b"second"), acks=0), PRODUCE_V)
        assert producer.topics() == {"t"}
        assert broker.log().log_end_offset == 2


def test_answers_keep_their_order(broker: DurableBroker) -> None:
    broker.power.hold(SEGMENTS)
    with RawClient(broker.port) as producer:
        before = broker.flushes()
        frames = []
        for number in range(5):
            producer.correlation_id = 100 + number
            frames.append(producer.frame(produce_request("t", 0, batch_of(b"%d" % number)), PRODUCE_V))
        producer.send_bytes(b"".join(frames))
        broker.wait_for_flush(before)
        broker.power.let_go()
        for number in range(5):
            producer.correlation_id = 100 + number
            assert answer_of(producer).base_offset == 1 + number


def test_appends_that_wait_together_are_forced_together(broker: DurableBroker) -> None:
    before = broker.flushes()
    broker.power.hold(SEGMENTS)
    clients = [RawClient(broker.port) for _ in range(9)]
    try:
        clients[0].send(produce_request("t", 0, batch_of(b"0")), PRODUCE_V)
        broker.wait_for_flush(before)
        for client in clients[1:]:
            client.send(produce_request("t", 0, batch_of(b"x")), PRODUCE_V)
        broker.wait_for_end(10)
        assert broker.flushes() == before + 1
        broker.power.let_go()
        assert sorted(answer_of(client).base_offset for client in clients) == list(range(1, 10))
        assert broker.flushes() == before + 2
    finally:
        for client in clients:
            client.close()


def test_a_fetch_that_waits_is_answered_when_the_disk_has_the_records(broker: DurableBroker) -> None:
    before = broker.flushes()
    broker.power.hold(SEGMENTS)
    with RawClient(broker.port) as producer, RawClient(broker.port) as consumer:
        consumer.send(fetch_request("t", 0, 1, max_wait_ms=20_000), FETCH_V)
        wait_until(lambda: bool(broker.broker.partitions.get("t", 0).waiting), "the fetch to wait")  # type: ignore[union-attr]
        producer.send(produce_request("t", 0, batch_of(b"second")), PRODUCE_V)
        broker.wait_for_flush(before)
        producer_waits = not producer.has_answer()
        assert producer_waits
        assert not consumer.has_answer()
        broker.power.let_go()
        found = consumer.receive(FetchResponse, FETCH_V).responses[0].partitions[0]
        assert [record.value for record in records_of(found.records, 1)] == [b"second"]


def test_the_time_a_producer_gives_is_kept(broker: DurableBroker) -> None:
    broker.power.hold(SEGMENTS)
    with RawClient(broker.port) as producer:
        request = produce_request("t", 0, batch_of(b"second"))
        request.timeout_ms = 1
        producer.send(request, PRODUCE_V)
        assert answer_of(producer).error_code == ErrorCode.REQUEST_TIMED_OUT
        broker.power.let_go()
        wait_until(lambda: producer.end_offset("t", 0) == 2, "the record to be committed all the same")


def test_a_retry_of_what_waits_waits_too(broker: DurableBroker) -> None:
    before = broker.flushes()
    batch = batch_of(b"second", producer_id=5, producer_epoch=0, base_sequence=0)
    broker.power.hold(SEGMENTS)
    with RawClient(broker.port) as gone, RawClient(broker.port) as again:
        gone.send(produce_request("t", 0, batch), PRODUCE_V)
        broker.wait_for_flush(before)
        gone.close()
        again.send(produce_request("t", 0, batch), PRODUCE_V)
        with RawClient(broker.port) as other:
            assert other.topics() == {"t"}
        assert not again.has_answer()
        broker.power.let_go()
        assert answer_of(again).base_offset == 1
        assert again.end_offset("t", 0) == 2


def test_a_topic_that_is_deleted_meanwhile(broker: DurableBroker) -> None:
    before = broker.flushes()
    broker.power.hold(SEGMENTS)
    with RawClient(broker.port) as producer, RawClient(broker.port) as other:
        producer.send(produce_request("t", 0, batch_of(b"second")), PRODUCE_V)
        broker.wait_for_flush(before)
        assert other.delete_topic("t") == 0
        assert answer_of(producer).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


# Coordinators and the tree


def test_a_commit_waits_for_the_disk(broker: DurableBroker) -> None:
    with RawClient(broker.port) as client, RawClient(broker.port) as other:
        assert client.find_coordinator("g") == 0
        assert client.commit("g", "t", 0, 1) == 0
        broker.power.hold("*/__consumer_offsets-0/*.log")
        done: list[int] = []
        committing = threading.Thread(target=lambda: done.append(client.commit("g", "t", 0, 2)))
        committing.start()
        log = broker.log("__consumer_offsets")
        wait_until(lambda: log.log_end_offset > log.high_watermark, "the commit to be in the log")
        assert other.topics() == {"__consumer_offsets", "t"}
        assert done == []
        broker.power.let_go()
        committing.join(60)
        assert done == [0]
        assert other.committed("g", "t", 0) == (0, 2)


def test_a_topic_is_made_when_the_tree_is_on_the_disk(broker: DurableBroker) -> None:
    before = broker.tree_flushes()
    broker.power.hold("*/ottla-tree.log")
    with RawClient(broker.port) as client, RawClient(broker.port) as other:
        done: list[int] = []
        creating = threading.Thread(target=lambda: done.append(client.create_topic("new")))
        creating.start()
        wait_until(lambda: broker.tree_flushes() > before, "the tree to be forced")
        assert other.topics() == {"t"}
        assert done == []
        broker.power.let_go()
        creating.join(60)
        assert done == [0]
        assert other.topics() == {"t", "new"}


# When the disk fails


def test_a_disk_that_refuses_is_reported_to_all_who_wait(
    broker: DurableBroker, caplog: pytest.LogCaptureFixture
) -> None:
    before = broker.flushes()
    broker.power.hold(SEGMENTS)
    broker.disk.fail("flush", SEGMENTS)
    with RawClient(broker.port) as one, RawClient(broker.port) as two:
        one.send(produce_request("t", 0, batch_of(b"one")), PRODUCE_V)
        broker.wait_for_flush(before)
        two.send(produce_request("t", 0, batch_of(b"two")), PRODUCE_V)
        broker.wait_for_end(3)
        broker.power.let_go()
        assert answer_of(one).error_code == STORAGE_ERROR
        assert answer_of(two).error_code == STORAGE_ERROR
        assert one.produce("t", 0, batch_of(b"three")).error_code == STORAGE_ERROR
    assert any("t-0" in message and "Input/output error" in message for message in caplog.messages)
    assert not any(record.exc_info for record in caplog.records)


def test_offsets_on_a_disk_that_refuses(broker: DurableBroker) -> None:
    with RawClient(broker.port) as client:
        assert client.find_coordinator("g") == 0
        assert client.commit("g", "t", 0, 1) == 0
        broker.disk.fail("flush", "*/__consumer_offsets-0/*.log")
        assert client.commit("g", "t", 0, 2) == ErrorCode.NOT_COORDINATOR


def test_a_tree_that_cannot_be_forced_takes_no_more(broker: DurableBroker) -> None:
    broker.disk.fail("flush", "*/ottla-tree.log", times=1)
    with RawClient(broker.port) as client:
        assert client.create_topic("new") == STORAGE_ERROR
        assert client.create_topic("new") == STORAGE_ERROR
        assert client.create_topic("other") == STORAGE_ERROR
        assert client.produce("t", 0, batch_of(b"second")).error_code == 0, "logs go on"


# When the power goes


@pytest.mark.spec("L9")
@pytest.mark.parametrize("segment_bytes", ["1073741824", "2000"], ids=["one segment", "many segments"])
def test_nothing_acknowledged_is_lost_with_the_power(
    started: Callable[..., DurableBroker], tmp_path: Path, segment_bytes: str
) -> None:
    broker = started()
    acknowledged: list[set[bytes]] = [set(), set()]
    stop = threading.Event()

    def work(number: int) -> None:
        with RawClient(broker.port) as client:
            count = 0
            while not stop.is_set():
                value = b"%d/%d" % (number, count) + b"." * 50
                index = count % 2
                if client.produce("t", index, batch_of(value), acks=1 if number % 2 else -1).error_code == 0:
                    acknowledged[index].add(value)
                count += 1

    with RawClient(broker.port) as client:
        assert client.create_topic("t", 2, segment_bytes=segment_bytes) == 0
        assert client.find_coordinator("g") == 0
    workers = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for worker in workers:
        worker.start()
    with RawClient(broker.port) as client:
        wait_until(lambda: len(acknowledged[0]) > 200, "some records")
        assert client.commit("g", "t", 0, 77) == 0
        assert client.create_topic("late") == 0
        before = [set(values) for values in acknowledged]
        broker.power.survivors(broker.folder, tmp_path / "survivors")
    stop.set()
    for worker in workers:
        worker.join(60)
    again = EmbeddedBroker(tmp_path / "survivors").start()
    try:
        with RawClient(again.port) as client:
            assert {"t", "late"} <= client.topics()
            for index, values in enumerate(before):
                found = [record.value for record in client.read_all("t", index)]
                assert len(found) == len(set(found))
                assert values <= set(found)  # type: ignore[arg-type]
            assert client.find_coordinator("g") == 0
            wait_until(lambda: client.committed("g", "t", 0) == (0, 77), "the committed offset")
    finally:
        again.stop()


def test_without_the_mode_power_takes_what_was_not_forced(
    started: Callable[..., DurableBroker], tmp_path: Path
) -> None:
    """The test's disk can lose something: else the test above would show nothing."""
    broker = started(durable=False, ottla_flush_interval_ms="3600000")
    with RawClient(broker.port) as client:
        assert client.create_topic("t") == 0
        assert client.produce("t", 0, batch_of(b"first")).error_code == 0
    broker.power.survivors(broker.folder, tmp_path / "survivors")
    assert not list((tmp_path / "survivors").glob("t-0/*.log"))


# Per topic


def test_flush_messages_holds_at_the_append(started: Callable[..., DurableBroker]) -> None:
    broker = started(durable=False, ottla_flush_interval_ms="3600000")
    with RawClient(broker.port) as producer, RawClient(broker.port) as other:
        assert producer.create_topic("t", flush_messages="3") == 0
        broker.power.hold(SEGMENTS)
        assert producer.produce("t", 0, batch_of(b"0", b"1")).base_offset == 0
        assert other.end_offset("t", 0) == 2
        assert broker.flushes() == 0
        producer.send(produce_request("t", 0, batch_of(b"2")), PRODUCE_V)
        broker.wait_for_flush(0)
        assert other.end_offset("t", 0) == 2
        assert not producer.has_answer()
        broker.power.let_go()
        assert answer_of(producer).base_offset == 2
        assert other.end_offset("t", 0) == 3
        assert producer.produce("t", 0, batch_of(b"3", b"4")).base_offset == 3
        assert broker.flushes() == 1, "counted anew after each flush"


def test_flush_ms_holds_to_the_moment(started: Callable[..., DurableBroker]) -> None:
    """The tick of the background work is a second: whoever waits for it comes too late."""
    broker = started(durable=False, ottla_flush_interval_ms="3600000")
    with RawClient(broker.port) as client:
        assert client.create_topic("t", flush_ms="50") == 0
        for turn in range(5):
            before = broker.flushes()
            begun_s, watch = time.monotonic(), Stopwatch()
            assert client.produce("t", 0, batch_of(b"x")).error_code == 0
            broker.wait_for_flush(before)
            assert watch.seconds() < 0.5, turn
            assert time.monotonic() - begun_s >= 0.049, turn
            wait_until(lambda: not broker.log().unflushed.bytes, "the flush to end")


def test_a_client_that_goes_while_it_waits_harms_nobody(broker: DurableBroker) -> None:
    before = broker.flushes()
    broker.power.hold(SEGMENTS)
    with RawClient(broker.port) as gone:
        gone.send(produce_request("t", 0, batch_of(b"second")), PRODUCE_V)
        broker.wait_for_flush(before)
    broker.power.let_go()
    with RawClient(broker.port) as client:
        wait_until(lambda: client.end_offset("t", 0) == 2, "the record")
