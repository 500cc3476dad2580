"""What goes wrong, and who is in the way: the same for both kinds of consumer unless a test says otherwise."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time

import pytest

import ottla.client
import ottla.client.sync
from ottla.client.consumer.completed_fetch import CompletedFetch
from ottla.client.consumer.fetcher import EXPLAIN_TIMEOUT_MS
from ottla.client.errors import (
    BrokerError,
    ClientClosedError,
    ClientError,
    ConcurrentUseError,
    CorruptBatchError,
    InvalidOffsetError,
    LogTruncationError,
    NoOffsetForPartitionError,
    OffsetOutOfRange,
    RecordDeserializationError,
    WakeupError,
)
from ottla.client.model import OffsetAndMetadata, TopicPartition
from ottla.records.batch import CRC_AT
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.fetch import FetchResponse
from ottla.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from support.fake_cluster import DROP, SILENT
from support.ports import free_port
from support.waiting import Stopwatch, wait_until

pytestmark = pytest.mark.usefixtures("patient")

SOON_S = 5.0


def offsets(records):
    return [record.offset for record in records]


def read(consumer, count, passes=()):
    found = []
    deadline = time.monotonic() + 60
    while len(found) < count and time.monotonic() < deadline:
        with contextlib.suppress(passes):
            found += consumer.poll(200)
    return found


def poll_until_raised(consumer, kind):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            consumer.poll(200)
        except kind as error:
            return error
    raise AssertionError(f"{kind.__name__} is not raised")


@pytest.mark.spec("C1")
def test_a_leader_that_moves(fakes, open_consumer):
    [p] = fakes.topic("t", 0)
    fakes.fill(p, 10)
    consumer = open_consumer()
    consumer.assign([p])
    assert offsets(read(consumer, 10)) == list(range(10))
    fakes.leaders[p] = 2
    fakes.fill(p, 10)
    assert offsets(read(consumer, 10)) == list(range(10, 20))


@pytest.mark.spec("C1")
@pytest.mark.parametrize("fault", [DROP, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.FENCED_LEADER_EPOCH])
def test_faults_that_pass(fakes, open_consumer, fault):
    [p] = fakes.topic("t", 0)
    fakes.fill(p, 10)
    fakes.faults[ApiKey.FETCH] += [fault, fault]
    consumer = open_consumer()
    consumer.assign([p])
    assert offsets(read(consumer, 10)) == list(range(10))


@pytest.mark.spec("C1")
@pytest.mark.parametrize("code", [ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH])
def test_a_session_that_is_lost(fakes, open_consumer, code):
    [p] = fakes.topic("t", 0)
    fakes.fill(p, 10)
    fakes.faults[ApiKey.FETCH].append(lambda request: FetchResponse(error_code=code))
    consumer = open_consumer()
    consumer.assign([p])
    assert offsets(read(consumer, 10)) == list(range(10))


@pytest.mark.spec("C1")
def test_an_offset_out_of_range(fakes, open_consumer):
    [p] = fakes.topic("t", 0)
    fakes.fill(p, 10)
    consumer = open_consumer()
    consumer.assign([p])
    consumer.seek(p, 500)
    assert offsets(read(consumer, 10)) == list(range(10))
    strict = open_consumer(auto_offset_reset="none")
    strict.assign([p])
    error = poll_until_raised(strict, NoOffsetForPartitionError)
    assert error.partitions == {p}
    strict.seek(p, 500)
    out = poll_until_raised(strict, OffsetOutOfRange)
    assert (out.offset, out.earliest, out.latest, out.partitions) == (500, 0, 10, {p})
    assert isinstance(out, InvalidOffsetError)
    strict.seek(p, OffsetAndMetadata(8))
    assert offsets(read(strict, 2)) == [8, 9]


@pytest.mark.slow
@pytest.mark.spec("C1")
def test_a_partition_out_of_range_does_not_hold_up_the_others(fakes, open_consumer):
    p, q = fakes.topic("t", 0, 0)
    fakes.fill(q, 20)
    fakes.faults[ApiKey.LIST_OFFSETS] += [SILENT] * 10
    consumer = open_consumer(auto_offset_reset="none", request_timeout_ms=1000)
    consumer.assign([p, q])
    consumer.seek(p, 500)
    consumer.seek(q, 0)
    assert offsets(read(consumer, 20)) == list(range(20))
    fakes.fill(q, 10)
    assert offsets(read(consumer, 10)) == list(range(20, 30)), "it is not found out yet which offsets the other has"
    out = poll_until_raised(consumer, OffsetOutOfRange)
    assert (out.partitions, out.offset, out.earliest) == ({p}, 500, None)
    fakes.faults[ApiKey.LIST_OFFSETS].clear()
    fakes.fill(q, 10)
    found = read(consumer, 10, passes=OffsetOutOfRange)
    assert offsets(found) == list(range(30, 40)), "it is raised again and again, and the others go on"


@pytest.mark.spec("C1")
def test_a_partition_out_of_range_that_is_sought_elsewhere_does_not_wait(fakes, open_consumer):
    [p] = fakes.topic("t", 0)
    fakes.fill(p, 10)
    fakes.faults[ApiKey.LIST_OFFSETS] += [SILENT] * 10
    consumer = open_consumer(auto_offset_reset="none")
    consumer.assign([p])
    consumer.seek(p, 500)
    wait_until(lambda: consumer.poll(10) or fakes.requests_of(ApiKey.LIST_OFFSETS), "the look at the offsets")
    consumer.seek(p, 3)
    watch = Stopwatch()
    assert offsets(read(consumer, 7)) == list(range(3, 10))
    assert watch.seconds() < EXPLAIN_TIMEOUT_MS / 1000


@pytest.mark.spec("C1")
def test_a_record_that_cannot_be_deserialized(fakes, open_consumer):
    [p] = fakes.topic("t", 0)
    fakes.fill(p, 10, size=0)

    def number(data):
        if data == b"5":
            raise ValueError("five")
        return int(data)

    consumer = open_consumer(value_deserializer=number)
    consumer.assign([p])
    assert [record.value for record in read(consumer, 5)] == [0, 1, 2, 3, 4]
    error = poll_until_raised(consumer, RecordDeserializationError)
    assert (error.partition, error.offset) == (p, 5)
    assert consumer.position(p) == 5
    consumer.seek(p, 6)
    assert [record.value for record in read(consumer, 4)] == [6, 7, 8, 9]


@pytest.mark.spec("C1")
def test_a_damaged_batch(fakes, open_consumer):
    [p] = fakes.topic("t", 0)
    fakes.fill(p, 30)
    damaged = bytearray(fakes.logs[p].batches[1])
    damaged[CRC_AT] ^= 1
    fakes.logs[p].batches[1] = bytes(damaged)
    consumer = open_consumer()
    consumer.assign([p])
    assert offsets(read(consumer, 10)) == list(range(10))
    assert "seek to 20" in str(poll_until_raised(consumer, CorruptBatchError))
    consumer.seek(p, 20)
    assert offsets(read(consumer, 10)) == list(range(20, 30))
    unchecked = open_consumer(check_crcs=False)
    unchecked.assign([p])
    assert offsets(read(unchecked, 30)) == list(range(30))


@pytest.mark.spec("C1")
def test_an_answer_that_breaks_what_takes_it_in_is_reported_and_holds_up_no_others(fakes, open_consumer, monkeypatch):
    p, q = fakes.topic("t", 0, 0)
    fakes.fill(p, 10)
    fakes.fill(q, 10)

    def fetch(partition, state, seeks, offset, data, *rest):
        if partition == p and data:
            raise ValueError("broken")
        return CompletedFetch(partition, state, seeks, offset, data, *rest)

    monkeypatch.setattr("ottla.client.consumer.fetcher.CompletedFetch", fetch)
    consumer = open_consumer()
    consumer.assign([p, q])
    assert {record.partition for record in read(consumer, 10, passes=ClientError)} == {1}
    assert "t-0 cannot be taken in" in str(poll_until_raised(consumer, ClientError))


@pytest.mark.spec("C1")
def test_a_refusal_reaches_the_caller(fakes, open_consumer):
    [p] = fakes.topic("t", 0)
    fakes.fill(p, 10)
    fakes.faults[ApiKey.FETCH].append(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    consumer = open_consumer()
    consumer.assign([p])
    assert poll_until_raised(consumer, BrokerError).code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert offsets(read(consumer, 10)) == list(range(10))


@pytest.mark.spec("C1")
def test_a_follower_is_read_from_and_left_when_it_fails(fakes, open_consumer):
    [p] = fakes.topic("t", 0)
    fakes.fill(p, 20)
    requests = []

    def fetch(node, request, code):
        requests.append((node, request.rack_id))
        if node == 0 and len(requests) == 1:
            answer = original(node, request, code)
            data = answer.responses[0].partitions[0]
            data.preferred_read_replica, data.records = 1, b""
            return answer
        if node == 1:
            if len([each for each in requests if each[0] == 1]) > 1:
                return DROP
            fakes.leaders[p] = 1
            try:
                return original(node, request, code)
            finally:
                fakes.leaders[p] = 0
        return original(node, request, code)

    original = fakes.on_fetch
    fakes.on_fetch = fetch
    consumer = open_consumer(client_rack="here")
    consumer.assign([p])
    assert offsets(read(consumer, 20)) == list(range(20))
    assert requests[:2] == [(0, "here"), (1, "here")]
    fakes.fill(p, 10)
    assert offsets(read(consumer, 10)) == list(range(20, 30))
    assert {node for node, _ in requests[2:]} == {0, 1}


@pytest.mark.spec("C1", "R2")
def test_a_follower_that_lacks_the_offset_sends_the_consumer_back_to_the_leader(fakes, open_consumer):
    """Without a reset: the leader knows whether the offset is there."""
    [p] = fakes.topic("t", 0)
    fakes.fill(p, 20)
    fakes.nearest[p, "here"] = 1
    fakes.visible_ends[1, p] = 10
    consumer = open_consumer(client_rack="here", auto_offset_reset="earliest")
    consumer.assign([p])
    consumer.seek(p, 15)
    assert offsets(read(consumer, 5)) == list(range(15, 20))
    assert {request.rack_id for request in fakes.requests_of(ApiKey.FETCH)} == {"here", ""}


@pytest.mark.spec("C1", "R2")
def test_a_leader_that_names_a_dead_follower_still_gives_records(fakes, open_consumer):
    """It names it until the broker's session has ended; Apache's consumer stands still till then."""
    [p] = fakes.topic("t", 0)
    fakes.fill(p, 20)
    fakes.nearest[p, "here"] = 1
    original = fakes.on_fetch
    fakes.on_fetch = lambda node, request, code: DROP if node == 1 else original(node, request, code)
    consumer = open_consumer(client_rack="here", metadata_max_age_ms=600_000)
    consumer.assign([p])
    assert offsets(read(consumer, 20)) == list(range(20))
    fakes.fill(p, 10)
    assert offsets(read(consumer, 10)) == list(range(20, 30))


@pytest.mark.spec("C1", "R2")
def test_a_follower_that_the_metadata_does_not_have_is_not_asked_for_again_and_again(fakes, open_consumer):
    """It has come back since the metadata were received."""
    [p] = fakes.topic("t", 0)
    fakes.fill(p, 20)
    fakes.nearest[p, "here"] = 77
    consumer = open_consumer(client_rack="here")
    consumer.assign([p])
    assert offsets(read(consumer, 20)) == list(range(20))
    assert len(fakes.requests_of(ApiKey.FETCH)) < 20


@pytest.mark.spec("C1", "R2")
def test_a_follower_is_read_while_it_is_named(fakes, open_consumer):
    [p] = fakes.topic("t", 0)
    fakes.fill(p, 20)
    fakes.nearest[p, "here"] = 1
    fakes.visible_ends[1, p] = 10
    consumer = open_consumer(client_rack="here")
    consumer.assign([p])
    assert offsets(read(consumer, 10)) == list(range(10))
    assert consumer.metrics()["preferred-read-replica{topic=t,partition=0}"] == 1
    assert not consumer.poll(100), "what the follower does not know to be committed is not read elsewhere"
    fakes.visible_ends[1, p] = 20
    assert offsets(read(consumer, 10)) == list(range(10, 20))


def epoch_end(partition, end_offset, epoch):
    result = EpochEndOffset(partition=partition.partition, leader_epoch=epoch, end_offset=end_offset)
    return OffsetForLeaderEpochResponse(topics=[OffsetForLeaderTopicResult(topic=partition.topic, partitions=[result])])


@pytest.mark.spec("C1")
@pytest.mark.parametrize("reset", ["earliest", "none"])
def test_a_truncated_log(fakes, open_consumer, reset):
    [p] = fakes.topic("t", 0)
    fakes.fill(p, 20)
    fakes.leader_epochs[p] = 3
    fakes.on_offset_for_leader_epoch = lambda node, request, code: epoch_end(p, 15, 2)
    consumer = open_consumer(auto_offset_reset=reset)
    consumer.assign([p])
    consumer.seek(p, OffsetAndMetadata(18, "", 2))
    if reset == "none":
        error = poll_until_raised(consumer, LogTruncationError)
        assert error.divergent_offsets == {p: OffsetAndMetadata(15, "", 2)}
        assert error.positions == {p: OffsetAndMetadata(18, "", 2)}
        consumer.seek(p, error.divergent_offsets[p].offset)
    assert offsets(read(consumer, 5)) == [15, 16, 17, 18, 19]
    assert fakes.requests_of(ApiKey.OFFSET_FOR_LEADER_EPOCH)[0].topics[0].partitions[0].leader_epoch == 2


@pytest.mark.spec("C1")
def test_nobody_is_asked_while_a_partition_has_no_leader(fakes, open_consumer):
    [p] = fakes.topic("t", -1)
    consumer = open_consumer(retry_backoff_max_ms=20)
    consumer.assign([p])
    started, watch = time.monotonic(), Stopwatch()
    assert not consumer.poll(150)
    assert watch.seconds() < SOON_S
    assert time.monotonic() - started > 0.14
    assert fakes.requests_of(ApiKey.FETCH) == []
    fakes.leaders[p] = 1
    fakes.fill(p, 10)
    assert offsets(read(consumer, 10)) == list(range(10))


@pytest.mark.spec("C1")
def test_poll_comes_back_in_time_whatever_the_broker_does(fakes, open_consumer):
    [p] = fakes.topic("t", 0)
    fakes.faults[ApiKey.METADATA].append(SILENT)
    consumer = open_consumer()
    consumer.assign([p])
    started, watch = time.monotonic(), Stopwatch()
    assert not consumer.poll(100)
    assert watch.seconds() < SOON_S
    assert time.monotonic() - started > 0.09
    assert not consumer.poll(0)


@pytest.mark.spec("C1")
def test_an_address_where_nobody_listens(open_consumer):
    consumer = open_consumer(bootstrap_servers=f"127.0.0.1:{free_port()}")
    consumer.assign([TopicPartition("t", 0)])
    assert "check that the broker runs" in str(poll_until_raised(consumer, ClientError))


@pytest.mark.spec("C1")
def test_wakeup_ends_the_poll_that_waits_or_else_the_next(fakes, open_consumer):
    [p] = fakes.topic("t", 0)
    consumer = open_consumer()
    consumer.assign([p])
    consumer.wakeup()
    with pytest.raises(WakeupError):
        consumer.poll(60_000)
    assert not consumer.poll(10)
    timer = threading.Timer(0.1, consumer.wakeup)
    timer.start()
    with pytest.raises(WakeupError):
        consumer.poll(60_000)
    timer.join()
    fakes.fill(p, 10)
    assert offsets(read(consumer, 10)) == list(range(10))


@pytest.mark.spec("C1")
@pytest.mark.parametrize("turns", range(5))
def test_a_second_wakeup_is_like_one(fakes, turns):
    [p] = fakes.topic("t", 0)

    async def main():
        problems = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: problems.append(context))
        async with ottla.client.Consumer(bootstrap_servers=fakes.bootstrap, fetch_max_wait_ms=20) as consumer:
            await consumer.assign([p])
            assert not await consumer.poll(10)
            waiting = asyncio.create_task(consumer.poll(60_000))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            consumer.wakeup()
            for _ in range(turns):
                await asyncio.sleep(0)
            consumer.wakeup()
            with pytest.raises(WakeupError):
                await waiting
        assert problems == []

    asyncio.run(main())


@pytest.mark.spec("C2")
def test_after_close_nothing_works(fakes, open_consumer):
    [p] = fakes.topic("t", 0)
    consumer = open_consumer()
    consumer.assign([p])
    consumer.close()
    consumer.close()
    for call in (
        lambda: consumer.poll(0),
        lambda: consumer.poll_arrow(0),
        lambda: consumer.seek(p, 0),
        lambda: consumer.position(p),
        lambda: consumer.assign([p]),
        consumer.assignment,
        consumer.paused,
    ):
        with pytest.raises(ClientClosedError, match="closed"):
            call()
    assert list(consumer) == []


@pytest.mark.spec("C1")
def test_close_does_not_wait_for_a_broker_that_hangs(fakes, open_consumer):
    [p] = fakes.topic("t", 0)
    fakes.faults[ApiKey.FETCH].append(SILENT)
    consumer = open_consumer()
    consumer.assign([p])
    assert not consumer.poll(50)
    watch = Stopwatch()
    consumer.close()
    assert watch.seconds() < 1


@pytest.mark.spec("C2")
def test_two_threads_in_one_consumer(fakes):
    [p] = fakes.topic("t", 0)
    with ottla.client.sync.Consumer(bootstrap_servers=fakes.bootstrap, fetch_max_wait_ms=20) as consumer:
        consumer.assign([p])
        raised = []

        def wait():
            try:
                consumer.poll(60_000)
            except WakeupError as error:
                raised.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        wait_until(lambda: fakes.requests_of(ApiKey.FETCH), "the first fetch")
        for call in (lambda: consumer.poll(0), consumer.close, consumer.assignment, lambda: consumer.seek(p, 0)):
            with pytest.raises(ConcurrentUseError, match=r"another thread .* only wakeup"):
                call()
        consumer.wakeup()
        thread.join(60)
        assert len(raised) == 1
        assert not consumer.poll(0)


@pytest.mark.spec("C2")
def test_two_tasks_in_one_consumer(fakes):
    [p] = fakes.topic("t", 0)

    async def main():
        async with ottla.client.Consumer(bootstrap_servers=fakes.bootstrap, fetch_max_wait_ms=20) as consumer:
            await consumer.assign([p])
            waiting = asyncio.create_task(consumer.poll(60_000))
            await asyncio.sleep(0)
            with pytest.raises(ConcurrentUseError, match=r"another task .* only wakeup"):
                await consumer.poll(0)
            with pytest.raises(ConcurrentUseError):
                consumer.pause([p])
            consumer.wakeup()
            with pytest.raises(WakeupError):
                await waiting
            cancelled = asyncio.create_task(consumer.poll(60_000))
            await asyncio.sleep(0.05)  # sleep: in the midst of waiting, wherever that is
            cancelled.cancel()
            with pytest.raises(asyncio.CancelledError):
                await cancelled
            fakes.fill(p, 10)
            consumer.seek(p, 0)
            assert len(await consumer.poll(5000)) == 10

    asyncio.run(main())


@pytest.mark.spec("C2")
def test_a_forked_child_is_reported(fakes):
    [p] = fakes.topic("t", 0)
    with ottla.client.sync.Consumer(bootstrap_servers=fakes.bootstrap) as consumer:
        consumer.assign([p])
        child = os.fork()
        if child == 0:
            try:
                consumer.poll(0)
            except ClientClosedError as error:
                os._exit(0 if "process" in str(error) else 2)
            except BaseException:
                os._exit(3)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.spec("C1")
def test_an_interrupted_poll_loses_nothing(fakes, monkeypatch):
    [p] = fakes.topic("t", 0)
    fakes.fill(p, 30)
    settings = {"bootstrap_servers": fakes.bootstrap, "auto_offset_reset": "earliest", "max_poll_records": 7}
    with ottla.client.sync.Consumer(**settings) as consumer:
        consumer.assign([p])
        found = offsets(consumer.poll(5000))
        collect = consumer._delegate.collector.collect

        def interrupted(*args, **options):
            collect(*args, **options)
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(consumer._delegate.collector, "collect", interrupted)
            for _ in range(5):
                with pytest.raises(KeyboardInterrupt):
                    consumer.poll(5000)
        assert consumer.position(p) == len(found)
        found += offsets(read(consumer, 30 - len(found)))
        assert found == list(range(30))
