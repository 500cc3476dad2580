"""Loops that are busy, sockets that are full, memory that runs out: records are delivered, or it is told why not."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from ottla.client import Producer as AsyncProducer
from ottla.client.errors import ClientError, ClientTimeoutError, DeliveryError
from ottla.client.model import TopicPartition
from ottla.client.producer import batch as batches
from ottla.client.producer.batch import ProducerBatch, split_batch
from ottla.client.sync import Producer
from ottla.records.record import decode_columns
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from support.quick_settings import QUICK_PRODUCER
from support.waiting import wait_until


def values(fake, partition):
    return [record.value for record in fake.logs[partition].records()]


@pytest.mark.slow
@pytest.mark.spec("P5")
@pytest.mark.parametrize("late", ["request", "delivery"])
def test_answers_that_came_while_the_loop_was_busy_are_not_late(fake, late):
    [p] = fake.topic("t", 0)
    settings = {"request_timeout_ms": 1000, "delivery_timeout_ms": 1100 if late == "delivery" else 8000}

    async def work():
        async with AsyncProducer(
            bootstrap_servers=fake.bootstrap, enable_idempotence=False, **{**QUICK_PRODUCER, **settings}
        ) as producer:
            await (await producer.send("t", b"first"))
            futures = [await producer.send("t", b"1")]
            await asyncio.sleep(0)  # sleep: it goes out
            await asyncio.sleep(0)  # sleep: it goes out
            wait_until(lambda: len(values(fake, p)) == 2, "the broker to answer")
            time.sleep(1.5)  # sleep: the user's code keeps the loop busy # noqa: ASYNC251
            futures.append(await producer.send("t", b"2"))
            return [(await future).offset for future in futures]

    assert asyncio.run(work()) == [1, 2]
    assert values(fake, p) == [b"first", b"1", b"2"]


@pytest.mark.slow
@pytest.mark.spec("P1", "P4")
def test_with_acks_0_a_record_is_done_when_the_socket_has_it(fake):
    [p] = fake.topic("t", 0)
    producer = Producer(bootstrap_servers=fake.bootstrap, acks=0, batch_size=100_000, **QUICK_PRODUCER)
    producer.send("t", b"first").result(60)
    goes_on = threading.Event()
    fake._loop.call_soon_threadsafe(goes_on.wait)  # the broker reads nothing meanwhile
    for _ in range(200):
        producer.send("t", bytes(50_000))
    with pytest.raises(ClientTimeoutError):
        producer.flush(timeout_ms=50)
    goes_on.set()
    producer.close()
    wait_until(lambda: len(values(fake, p)) == 201, "all to be read")


@pytest.mark.spec("P4")
@pytest.mark.parametrize("kind", ["sync", "asyncio"])
def test_who_never_waits_learns_of_the_topic_all_the_same(fake, kind):
    fake.topic("t", 0)
    settings: dict[str, Any] = {"bootstrap_servers": fake.bootstrap, **QUICK_PRODUCER, "max_block_ms": 0}

    def blocking():
        with Producer(**settings) as producer:
            sent = []

            def send():
                try:
                    sent.append(producer.send("t", b"v"))
                except ClientTimeoutError as error:
                    assert "topic t was not known after max.block.ms (0)" in str(error)  # noqa: PT017
                return sent

            wait_until(send, "the topic to be known")
            return sent[0].result(60).offset

    async def waiting():
        async with AsyncProducer(**settings) as producer, asyncio.timeout(60):
            while True:
                try:
                    return (await (await producer.send("t", b"v"))).offset
                except ClientTimeoutError:
                    await asyncio.sleep(0.001)  # sleep: the lookup goes on

    assert (blocking() if kind == "sync" else asyncio.run(waiting())) == 0


@pytest.mark.spec("P5")
def test_a_batch_that_cannot_be_made_says_so_and_the_others_go_on(fake, monkeypatch):
    partitions = fake.topic("t", 0, 0)
    finish = batches.finish_batch

    def fail_once(*arguments: Any, **options: Any) -> Any:
        monkeypatch.setattr(batches, "finish_batch", finish)
        raise MemoryError("no more")

    with Producer(
        bootstrap_servers=fake.bootstrap, compression_type="gzip", linger_ms=20, **QUICK_PRODUCER
    ) as producer:
        producer.send("t", b"v", partition=1).result(60)
        monkeypatch.setattr(batches, "finish_batch", fail_once)
        futures = [producer.send("t", b"v", partition=at) for at in (0, 1)]
        error = futures[0].exception(60)
        assert isinstance(error, ClientError)
        assert "1 records for t-0 cannot be made a batch (compression.type=gzip" in str(error)
        assert "MemoryError: no more" in str(error)
        assert futures[1].result(60).offset == 1
        assert producer.send("t", b"w", partition=0).result(60).offset == 0
    assert [len(values(fake, each)) for each in partitions] == [1, 2]


@pytest.mark.spec("P5")
def test_no_record_is_left_out_of_a_batch_that_is_split():
    whole = ProducerBatch(TopicPartition("t", 0), 10_000, 10_000, 0.0, threading.Lock())
    stamps = [0] * 40 + [2**60] + [0] * 39
    for stamp in stamps:
        whole.builder.append(stamp, None, None)
    whole.close()
    parts = split_batch(whole, threading.Lock())
    assert [part.record_count for part in parts] == [40, 40]
    found = decode_columns(parts[1].builder.payload(), 40)
    assert [parts[1].builder.base_timestamp + delta for delta in found.timestamp_deltas] == stamps[40:]


@pytest.mark.spec("P5")
def test_without_a_producer_id_each_record_has_its_own_time_and_learns_why(virtual_fake):
    virtual_fake.topic("t", 0, 0)
    virtual_fake.faults[ApiKey.INIT_PRODUCER_ID].extend([ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 1000)
    settings = {**QUICK_PRODUCER, "request_timeout_ms": 3000, "delivery_timeout_ms": 3000}

    async def work():
        async with AsyncProducer(
            bootstrap_servers=virtual_fake.bootstrap, environment=virtual_fake.environment, **settings
        ) as producer:
            first = await producer.send("t", b"v", partition=0)
            await asyncio.sleep(1.5)  # sleep: virtual; half of its time
            second = await producer.send("t", b"v", partition=1)
            with pytest.raises(ClientError, match="COORDINATOR_LOAD_IN_PROGRESS"):
                await first
            assert not second.done()
            virtual_fake.faults[ApiKey.INIT_PRODUCER_ID].clear()
            assert (await second).offset == 0

    virtual_fake.run_to_end(work())


@pytest.mark.spec("P1")
def test_a_future_is_awaited_in_another_loop(fake):
    fake.topic("t", 0)
    stepped_by = []

    async def elsewhere(future):
        return (await future).offset

    async def work():
        async with AsyncProducer(bootstrap_servers=fake.bootstrap, **QUICK_PRODUCER) as producer:
            await (await producer.send("t", b"first"))
            sender = producer._delegate._sender
            run_once = sender.run_once
            sender.run_once = lambda: (stepped_by.append(threading.get_ident()), run_once())[1]
            future = await producer.send("t", b"v")
            return await asyncio.to_thread(asyncio.run, elsewhere(future))

    assert asyncio.run(work()) == 1
    assert set(stepped_by) <= {threading.get_ident()}


@pytest.mark.spec("P1", "P4")
def test_whoever_waits_in_vain_is_reported_what_holds_the_records_up(fake):
    fake.topic("t", 0)
    fake.faults[ApiKey.PRODUCE].extend([ErrorCode.NONE, *[ErrorCode.NOT_ENOUGH_REPLICAS] * 10_000])
    settings = {**QUICK_PRODUCER, "batch_size": 1000, "buffer_memory": 1000, "max_block_ms": 1000}
    producer = Producer(bootstrap_servers=fake.bootstrap, **settings)
    producer.send("t", b"v").result(60)
    future = producer.send("t", bytes(800))
    wait_until(lambda: producer.metrics()["record-retry-total"] > 0, "a second attempt")
    why = r"\(t-0 waits: t-0 at broker 0: .*\(NOT_ENOUGH_REPLICAS\).*\)$"
    with pytest.raises(ClientTimeoutError, match=why):
        producer.flush(timeout_ms=10)
    with pytest.raises(ClientTimeoutError, match=why):
        producer.send("t", bytes(800))
    assert producer.metrics()["buffer-exhausted-total"] == 1
    with pytest.raises(DeliveryError, match=why):
        producer.close(timeout_ms=10)
    assert "NOT_ENOUGH_REPLICAS" in str(future.exception(0))


@pytest.mark.slow
def test_a_topic_that_is_gone_is_not_asked_for_over_and_over(fake):
    [p] = fake.topic("t", 0)
    [other] = fake.topic("other", 0)

    async def work():
        async with AsyncProducer(bootstrap_servers=fake.bootstrap, **QUICK_PRODUCER) as producer:
            await (await producer.send("t", b"v"))
            await (await producer.send("other", b"v"))
            del fake.leaders[p]
            producer._delegate.cluster.metadata.expire()
            async with asyncio.timeout(60):
                while "t" in producer._delegate.cluster.metadata.topics:
                    await (await producer.send("other", b"v"))
            before = len(fake.requests_of(ApiKey.METADATA))
            for _ in range(20):
                await asyncio.sleep(0.01)  # sleep: more than retry.backoff.ms
                await (await producer.send("other", b"v"))
            return len(fake.requests_of(ApiKey.METADATA)) - before

    assert asyncio.run(work()) <= 2
    assert len(values(fake, other)) > 20
