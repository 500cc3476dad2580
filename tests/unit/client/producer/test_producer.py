from __future__ import annotations

import asyncio
import threading
import time

import pytest

from ottla.client import Producer as AsyncProducer
from ottla.client import ProducerRecord, RecordMetadata
from ottla.client.errors import (
    ClientClosedError,
    ClientTimeoutError,
    InvalidArgumentError,
    RecordTooLargeError,
    UnknownTopicError,
)
from ottla.client.producer.accumulator import RECORD_OVERHEAD
from ottla.client.producer.delegate import Wait
from ottla.client.sync import Producer
from ottla.records.batch import BATCH_OVERHEAD, parse_batch_header
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from support.fake_cluster import DROP, SILENT
from support.quick_settings import QUICK_PRODUCER
from support.waiting import wait_until


def values(fake, partition):
    return [record.value for record in fake.logs[partition].records()]


@pytest.mark.spec("P1")
def test_a_record_goes_out_and_its_future_and_callback_report_where(fake):
    [p] = fake.topic("t", 0)
    told = []
    with Producer(bootstrap_servers=fake.bootstrap, **QUICK_PRODUCER) as producer:
        first = producer.send("t", b"value", b"key", headers=[("h", b"1")], timestamp=5)
        assert first.result(60) == RecordMetadata("t", 0, 0, 5, 3, 5)
        second = producer.send(ProducerRecord("t", b"other"), lambda *both: told.append(both))
        metadata = second.result(60)
        assert told == [(metadata, None)]
        assert (metadata.offset, metadata.serialized_key_size) == (1, -1)
        assert second.done()
        assert second.exception() is None
    assert [(r.key, r.value, r.headers) for r in fake.logs[p].records()] == [
        (b"key", b"value", (("h", b"1"),)),
        (None, b"other", ()),
    ]


@pytest.mark.spec("P1")
def test_the_same_with_an_event_loop(fake):
    fake.topic("t", 0)

    async def work():
        told = []
        async with AsyncProducer({"bootstrap.servers": fake.bootstrap}, **QUICK_PRODUCER) as producer:
            futures = [
                await producer.send("t", b"%d" % at, callback=lambda *both: told.append(both)) for at in range(50)
            ]
            found = await asyncio.gather(*futures)
            assert [each.offset for each in found] == list(range(50))
            assert told == [(each, None) for each in found]
            assert [each.partition for each in await producer.partitions_for("t")] == [0]

    asyncio.run(work())


@pytest.mark.spec("P1")
def test_a_record_is_sent_at_once_where_nothing_is_on_its_way(fake):
    [p] = fake.topic("t", 0)

    async def work():
        async with AsyncProducer(bootstrap_servers=fake.bootstrap, linger_ms=0, **QUICK_PRODUCER) as producer:
            await (await producer.send("t", b"0"))
            sent = producer.metrics()["request-total"]
            await producer.send("t", b"1")
            assert producer.metrics()["request-total"] == sent + 1, "without a turn of the loop"
            rest = [await producer.send("t", b"%d" % at) for at in range(2, 6)]
            assert producer.metrics()["request-total"] == sent + 1, "the others wait for the next turn, together"
            assert [each.offset for each in await asyncio.gather(*rest)] == [2, 3, 4, 5]
            assert producer.metrics()["request-total"] == sent + 2

    asyncio.run(work())
    assert values(fake, p) == [b"%d" % at for at in range(6)]


@pytest.mark.spec("P1")
def test_a_callback_that_sends_does_so_when_the_answer_is_worked_off(fake):
    partitions = fake.topic("t", 0, 0)

    async def work():
        async with AsyncProducer(bootstrap_servers=fake.bootstrap, linger_ms=0, **QUICK_PRODUCER) as producer:
            more = []

            def again(metadata, error):
                assert error is None
                try:
                    producer.send("t", b"more", partition=metadata.partition).send(None)
                except StopIteration as taken:
                    more.append(taken.value)

            await (await producer.send("t", b"first", partition=0))
            last = [await producer.send("t", b"x", partition=at % 2, callback=again) for at in range(20)]
            await asyncio.gather(*last)
            await asyncio.gather(*more)

    asyncio.run(work())
    assert [values(fake, each) for each in partitions] == [
        [b"first", *[b"x"] * 10, *[b"more"] * 10],
        [*[b"x"] * 10, *[b"more"] * 10],
    ]


@pytest.mark.spec("P1")
def test_records_of_a_partition_keep_their_order_and_flush_waits_for_them(fakes):
    partitions = fakes.topic("t", 0, 1, 2)
    with Producer(bootstrap_servers=fakes.bootstrap, batch_size=500, **QUICK_PRODUCER) as producer:
        futures = [producer.send("t", b"%d" % at, partition=at % 3) for at in range(600)]
        producer.flush()
        assert all(future.done() for future in futures)
    for number, partition in enumerate(partitions):
        assert values(fakes, partition) == [b"%d" % at for at in range(number, 600, 3)]


@pytest.mark.slow
def test_what_cannot_be_sent_is_refused_at_once(fake):
    fake.topic("t", 0)
    with Producer(bootstrap_servers=fake.bootstrap, max_request_size=1000, **QUICK_PRODUCER) as producer:
        for wrong in ({"value": "text"}, {"key": 5}, {"timestamp": -1}, {"partition": 7}, {"headers": [("a", "b")]}):
            with pytest.raises(InvalidArgumentError):
                producer.send("t", **wrong)
        with pytest.raises(RecordTooLargeError):
            producer.send("t", bytes(2000))
        assert producer.send("t", bytearray(b"fits")).result(60).offset == 0
    with pytest.raises(ClientClosedError, match="closed"):
        producer.send("t", b"v")
    producer.close()


@pytest.mark.parametrize("key", [None, bytes(10)])
def test_a_record_may_be_just_as_large_as_a_request(fake, key):
    fake.topic("t", 0)
    overhead = BATCH_OVERHEAD + RECORD_OVERHEAD + 2 + (-1 if key is None else len(key))
    with Producer(bootstrap_servers=fake.bootstrap, max_request_size=1000, **QUICK_PRODUCER) as producer:
        assert producer.send("t", bytes(1000 - overhead), key).result(60).offset == 0
        with pytest.raises(RecordTooLargeError, match="1001"):
            producer.send("t", bytes(1001 - overhead), key)


@pytest.mark.slow
def test_a_topic_that_is_not_there_is_waited_for_as_long_as_max_block_ms_says(fake, facade, caplog):
    fake.topic("there", 0)
    settings = {**QUICK_PRODUCER, "max_block_ms": 1000}
    begun = time.monotonic()
    with facade.producer(bootstrap_servers=fake.bootstrap, **settings) as producer:
        for call in (
            lambda: producer.send("Where", b"v"),
            lambda: producer.partitions_for("Where"),
            lambda: producer.send_many([(None, b"v")], "Where"),
        ):
            with pytest.raises(UnknownTopicError, match="did you mean there"):
                call()
    assert time.monotonic() - begun > 2.9


@pytest.mark.slow
def test_a_topic_that_is_created_meanwhile_is_found(fake, facade, caplog):
    def create():
        wait_until(lambda: "asked for again for max.block.ms" in caplog.text, "the warning")
        fake.topic("late", 0)

    creating = threading.Thread(target=create)
    creating.start()
    with facade.producer(bootstrap_servers=fake.bootstrap, **{**QUICK_PRODUCER, "max_block_ms": 20_000}) as producer:
        future = producer.send("late", b"v")
        producer.flush()
        assert future.result().offset == 0
    creating.join()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sync", "asyncio"])
def test_the_time_that_a_send_had_is_reported_as_it_was_given(fake, kind):
    fake.faults[ApiKey.METADATA] += [DROP] * 1000
    settings = {"bootstrap_servers": fake.bootstrap, **QUICK_PRODUCER, "max_block_ms": 300}

    async def waiting():
        async with AsyncProducer(**settings) as producer:
            await producer.send("t", b"1")

    def blocking():
        with Producer(**settings) as producer:
            producer.send("t", b"1")

    with pytest.raises(ClientTimeoutError, match=r"(within 300 ms|max\.block\.ms \(300\))"):
        blocking() if kind == "sync" else asyncio.run(waiting())


def test_a_send_that_has_waited_before_names_its_whole_time(fake):
    fake.faults[ApiKey.METADATA] += [DROP] * 1000

    async def waiting():
        async with AsyncProducer(
            **{"bootstrap_servers": fake.bootstrap, **QUICK_PRODUCER, "max_block_ms": 300}
        ) as producer:
            await producer._block(Wait.TOPIC, "t", 60)

    with pytest.raises(ClientTimeoutError, match=r"(within 300 ms|max\.block\.ms \(300\))"):
        asyncio.run(waiting())


def test_futures_with_the_functions_of_asyncio(fake):
    fake.topic("t", 0, 0)

    async def work():
        async with AsyncProducer(bootstrap_servers=fake.bootstrap, linger_ms=5, **QUICK_PRODUCER) as producer:
            futures = [await producer.send("t", b"%d" % at, partition=at % 2) for at in range(100)]
            done, pending = await asyncio.wait(futures, timeout=60)
            assert (done, pending) == (set(futures), set())
            assert (await asyncio.wait(futures))[0] == done  # those that are done already
            offsets = [each.offset for each in await asyncio.gather(*futures)]
            assert sorted(offsets) == sorted([*range(50)] * 2)
            assert (await asyncio.wait_for(await producer.send("t", b"v", partition=0), 10)).offset == 50
            fake.faults[ApiKey.PRODUCE].append(ErrorCode.INVALID_RECORD)
            refused, other = await producer.send("t", b"v", partition=0), await producer.send("t", b"v", partition=0)
            done, _ = await asyncio.wait([refused, other], return_when=asyncio.FIRST_EXCEPTION, timeout=60)
            assert refused in done
            assert refused.exception().code == ErrorCode.INVALID_RECORD
            assert not refused.cancelled()
            await asyncio.wait([other])
            fake.faults[ApiKey.PRODUCE].append(SILENT)
            late = await producer.send("t", b"v")
            done, pending = await asyncio.wait([late], timeout=0.05)
            assert (done, pending) == (set(), {late})
            assert late.remove_done_callback(print) == 0
            late.add_done_callback(print)
            assert late.remove_done_callback(print) == 1
            await producer.abort()

    asyncio.run(work())


def test_the_blocking_producers_futures_in_a_loop(fake):
    fake.topic("t", 0)

    async def work():
        with Producer(bootstrap_servers=fake.bootstrap, linger_ms=5, **QUICK_PRODUCER) as producer:
            loop, thread = asyncio.get_running_loop(), threading.get_ident()
            futures = [producer.send("t", b"%d" % at) for at in range(100)]
            called = loop.create_future()
            futures[-1].add_done_callback(lambda each: called.set_result((each, threading.get_ident())))
            done, pending = await asyncio.wait(futures, timeout=60)
            assert (len(done), len(pending)) == (100, 0)
            assert await called == (futures[-1], thread)
            assert [each.offset for each in await asyncio.gather(*futures)] == [*range(100)]

    asyncio.run(work())


@pytest.mark.spec("P2")
@pytest.mark.parametrize(("batch_size", "per_batch"), [(0, 1), (1, 1), (61, 1), (62, 1), (90, 1), (150, 2), (316, 6)])
def test_small_batches_are_as_small_as_batch_size_says(fake, facade, batch_size, per_batch):
    [p] = fake.topic("t", 0)
    with facade.producer(
        bootstrap_servers=fake.bootstrap, batch_size=batch_size, linger_ms=40_000, **QUICK_PRODUCER
    ) as producer:
        for _ in range(12):
            producer.send("t", bytes(34))  # 40 bytes as a record
    counts = [parse_batch_header(batch).records_count for batch in fake.logs[p].batches]
    assert counts == [per_batch] * (12 // per_batch)


@pytest.mark.spec("P2")
def test_a_full_batch_does_not_linger(fake, facade):
    fake.topic("t", 0)
    settings = {"batch_size": 0, "linger_ms": 60_000, "delivery_timeout_ms": 120_000}
    with facade.producer(bootstrap_servers=fake.bootstrap, **{**QUICK_PRODUCER, **settings}) as producer:
        future = producer.send("t", b"v")
        wait_until(future.done, "the record")
