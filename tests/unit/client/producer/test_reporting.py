"""Who is told of a record that was not delivered, and that user's code cannot keep others from being told."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

import pytest

from ottla.client import Producer as AsyncProducer
from ottla.client import ProducerRecord
from ottla.client.errors import ClientClosedError, DeliveryError, ForkedError
from ottla.client.sync import Producer
from ottla.records.batch import parse_batch_header
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from support.quick_settings import QUICK_PRODUCER
from support.waiting import wait_until

REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED

pytestmark = pytest.mark.spec("P1")


def values(fake, partition):
    return [record.value for record in fake.logs[partition].records()]


@pytest.fixture
def producer(fake):
    with Producer(bootstrap_servers=fake.bootstrap, linger_ms=20, **QUICK_PRODUCER) as producer:
        yield producer


def test_the_first_send_after_partitions_for_is_sent(fake):
    fake.topic("t", 0)

    async def work() -> int:
        async with AsyncProducer(bootstrap_servers=fake.bootstrap, **QUICK_PRODUCER) as producer, asyncio.timeout(60):
            await producer.partitions_for("t")
            return (await (await producer.send("t", b"v"))).offset

    assert asyncio.run(work()) == 0


def raises(error):
    def callback(*_: Any) -> None:
        raise error("mine")

    return callback


@pytest.mark.parametrize("error", [ValueError, asyncio.CancelledError, SystemExit])
@pytest.mark.parametrize("how", ["callback", "add_done_callback"])
def test_callbacks_that_raise_disturb_nobody(fake, producer, error, how, caplog):
    fake.topic("t", 0, 0)
    told = []
    futures = []
    for partition in (0, 1, 0, 1):
        future = producer.send("t", b"v", partition=partition, callback=raises(error) if how == "callback" else None)
        if how == "add_done_callback":
            future.add_done_callback(raises(error))
        producer.send("t", b"w", partition=partition, callback=lambda m, e: told.append(m))
        futures.append(future)
    assert [future.result(60).offset for future in futures] == [0, 0, 2, 2]
    wait_until(lambda: len(told) == 4, "the other callbacks")
    wait_until(lambda: caplog.text.count("the callback of a record failed") == 4, "what was raised to be logged")
    future.add_done_callback(raises(error))


def test_futures_of_many_that_nobody_asks_are_reported_by_flush(fake, producer):
    fake.topic("t", 0)
    fake.faults[ApiKey.PRODUCE].extend([REFUSED, ErrorCode.NONE, REFUSED])
    producer.send_many([(None, b"1"), (None, b"2")], "t")
    with pytest.raises(DeliveryError, match="2 records were not acknowledged"):
        producer.flush()
    producer.send_many([(None, b"3")], "t")
    producer.flush()
    with pytest.raises(DeliveryError, match="1 of 1"):
        producer.send_many([(None, b"4")], "t").result(60)
    producer.flush()


class Looking:
    """An interceptor that only looks."""

    def __init__(self):
        self.errors = []

    def on_acknowledgement(self, metadata, error):
        self.errors.append(error)


def test_interceptors_are_no_receivers_of_errors(fake):
    fake.topic("t", 0)
    looking = Looking()
    with Producer(bootstrap_servers=fake.bootstrap, interceptor_classes=[looking], **QUICK_PRODUCER) as producer:
        fake.faults[ApiKey.PRODUCE].extend([REFUSED, REFUSED])
        producer.send("t", b"1")
        with pytest.raises(DeliveryError, match="1 records"):
            producer.flush()
        producer.send("t", b"2", callback=lambda *_: None)
        producer.flush()
    assert [error.code for error in looking.errors] == [REFUSED, REFUSED]


class Confused:
    """An interceptor that gives what is no record."""

    def on_send(self, record):
        return (record.topic, b"x")


def test_an_interceptor_that_gives_no_record_is_passed_over(fake, caplog):
    [p] = fake.topic("t", 0)
    with Producer(bootstrap_servers=fake.bootstrap, interceptor_classes=[Confused()], **QUICK_PRODUCER) as producer:
        producer.send("t", b"v").result(60)
    assert values(fake, p) == [b"v"]
    assert "on_send of interceptor Confused failed" in caplog.text


def test_who_awaits_a_record_of_a_batch_that_is_split_is_who_is_notified(fake):
    fake.topic("t", 0)

    def refuse(request):
        [data] = request.topic_data[0].partition_data
        alone = parse_batch_header(data.records).records_count == 1
        return fake.on_produce(0, request, REFUSED if alone else ErrorCode.MESSAGE_TOO_LARGE)

    async def work():
        async with AsyncProducer(bootstrap_servers=fake.bootstrap, linger_ms=40_000, **QUICK_PRODUCER) as producer:
            futures = [await producer.send("t", b"%d" % at) for at in range(2)]
            fake.faults[ApiKey.PRODUCE].extend([refuse] * 3)
            flushing = asyncio.create_task(producer.flush())
            errors = await asyncio.gather(*futures, return_exceptions=True)
            await flushing
            return [error.code for error in errors]

    assert asyncio.run(work()) == [REFUSED, REFUSED]


def test_close_reports_earlier_failures_too(fake, faults):
    fake.topic("t", 0)
    producer = Producer(bootstrap_servers=fake.bootstrap, linger_ms=1000, **QUICK_PRODUCER)
    fake.faults[ApiKey.PRODUCE].append(REFUSED)
    for _ in range(3):
        producer.send("t", b"v")
    wait_until(lambda: producer.metrics()["record-error-total"] == 3, "the broker to refuse")
    fake.faults[ApiKey.PRODUCE].extend([faults["SILENT"]] * 5)
    producer.send("t", b"v")
    with pytest.raises(DeliveryError, match="4 records were not acknowledged") as told:
        producer.close(timeout_ms=50)
    assert (told.value.count, len(told.value.causes)) == (4, 2)


class Unwilling:
    """A partitioner and serializer that cannot be closed."""

    def partition(self, *_):
        return 0

    def serialize(self, topic, headers, data):
        return data

    def close(self):
        raise ValueError("mine")


@pytest.mark.parametrize("setting", ["partitioner_class", "value_serializer"])
def test_users_code_that_cannot_be_closed_does_not_keep_the_producer_open(fake, setting, caplog):
    fake.topic("t", 0)
    producer = Producer(bootstrap_servers=fake.bootstrap, **QUICK_PRODUCER, **{setting: Unwilling()})
    producer.send("t", b"v").result(60)
    producer.close()
    assert producer._thread.is_closed
    assert "Unwilling failed" in caplog.text


def test_a_future_of_the_parent_process_is_not_waited_for(fake, faults):
    fake.topic("t", 0)
    settings = {**QUICK_PRODUCER, "request_timeout_ms": 2000}
    with Producer(bootstrap_servers=fake.bootstrap, linger_ms=20, **settings) as producer:
        producer.send("t", b"v").result(60)
        fake.faults[ApiKey.PRODUCE].append(faults["SILENT"])
        future = producer.send("t", b"v")
        child = os.fork()
        if child == 0:
            signal.alarm(60)
            code = 1
            try:
                future.result()
            except ForkedError:
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert future.result(60).offset == 1


def test_odd_records_are_refused_with_the_cause(fake, producer):
    fake.topic("t", 0, 0)
    for odd, why in [
        ((b"t", b"v"), r"a topic is text \(str\), not b't'"),
        ((None,), "a topic is text"),
        ((ProducerRecord(None, b"v"),), "a topic is text"),
        ((("t", b"v"),), r"takes a ProducerRecord\(topic, value, key, .*not \('t', b'v'\)"),
        (("t", b"v", None, "1"), r"a partition is a number \(int\), not '1'"),
        (("t", b"v", None, 1.0), "a partition is a number"),
        (("t", b"v", None, None, None, iter([("h", b"x")])), "headers are a list of pairs, not .* read once only"),
    ]:
        with pytest.raises(ValueError, match=why):
            producer.send(*odd)


def test_topics_and_partitions_of_derived_types(fake, producer):
    class Name(str):
        __slots__ = ()

    class Number:
        def __index__(self):
            return 1

    fake.topic("t", 0, 0)
    assert producer.send(Name("t"), b"v", partition=Number()).result(60)[:3] == ("t", 1, 0)


def test_a_close_that_is_cancelled_gives_up_at_once(fake, faults, caplog):
    fake.topic("t", 0)

    async def work():
        producer = AsyncProducer(bootstrap_servers=fake.bootstrap, **QUICK_PRODUCER)
        await (await producer.send("t", b"through"))
        fake.faults[ApiKey.PRODUCE].extend([faults["SILENT"]] * 5)
        future = await producer.send("t", b"v")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(producer.close(), 0.05)
        assert future.done()
        await producer.close()
        with pytest.raises(ClientClosedError):
            await producer.send("t", b"v")

    asyncio.run(work())
    assert "1 records were not acknowledged (1 of t-0)" in caplog.text


def test_a_record_that_is_sent_while_the_producer_is_stopped_is_refused(fake):
    fake.topic("t", 0)
    producer = Producer(bootstrap_servers=fake.bootstrap, **QUICK_PRODUCER)
    producer.send("t", b"v").result(60)
    producer.close()
    producer._delegate.refusal = None  # as a thread saw it just before
    with pytest.raises(ClientClosedError, match="the producer is closed"):
        producer.send("t", b"v")
    with pytest.raises(ClientClosedError, match="is closed"):
        producer.send_many([(None, b"v")], "t")


def test_close_waits_for_what_other_threads_were_just_sending(fake, faults):
    fake.topic("t", 0)
    producer = Producer(bootstrap_servers=fake.bootstrap, **QUICK_PRODUCER)
    producer.send("t", b"v").result(60)
    late = []

    def send_once_more(metadata, error):
        producer._delegate.refusal = None  # as a thread saw it just before
        late.append(producer.send("t", b"late"))
        producer._delegate.refuse()

    producer.send("t", b"w", callback=send_once_more)
    producer.close()
    assert late[0].result(0).offset == 2
