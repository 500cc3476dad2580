"""Clients used in another event loop than their own say so, and can be closed there once their own is over."""

from __future__ import annotations

import asyncio
import gc
import threading

import pytest

import ottla.client.sync
from ottla.client import Consumer, Producer
from ottla.client.errors import DeliveryError, IllegalStateError, InvalidArgumentError
from ottla.wire.apis import ApiKey
from support.fake_cluster import SILENT
from support.quick_settings import QUICK_PRODUCER
from support.waiting import wait_until

#: The sockets that a loop leaves open at its end are closed when they are collected, and asyncio complains of it.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

PATIENCE_S = 60.0


@pytest.fixture(autouse=True)
def collected():
    yield
    gc.collect()


def run(work):
    async def bounded():
        return await asyncio.wait_for(work, PATIENCE_S)

    return asyncio.run(bounded())


async def made_producer(fake, **settings):
    producer = Producer(bootstrap_servers=fake.bootstrap, **{**QUICK_PRODUCER, **settings})
    await (await producer.send("t", b"first"))
    return producer


async def made_consumer(fake, partition):
    consumer = Consumer(bootstrap_servers=fake.bootstrap, auto_offset_reset="earliest", group_id="g")
    await consumer.assign([partition])
    while not await consumer.poll(100):
        pass
    return consumer


async def check_producer_refuses(producer):
    for call in (
        lambda: producer.send("t", b"v"),
        lambda: producer.send("other", b"v"),
        lambda: producer.send_many([(None, b"v")], "t"),
        producer.flush,
        lambda: producer.partitions_for("t"),
    ):
        with pytest.raises(IllegalStateError, match="another one; make a client in each"):
            await call()


async def check_consumer_refuses(consumer, partition):
    for call in (
        consumer.poll,
        lambda: anext(aiter(consumer)),
        lambda: consumer.assign([partition]),
        lambda: consumer.position(partition),
        consumer.commit,
        consumer.list_topics,
    ):
        with pytest.raises(IllegalStateError, match="another one; make a client in each"):
            await call()
    with pytest.raises(IllegalStateError, match="another one"):
        consumer.commit_async()
    consumer.pause([partition])
    consumer.resume([partition])
    consumer.seek(partition, 0)
    consumer.wakeup()


def test_a_producer_in_a_second_loop(fake):
    [p] = fake.topic("t", 0)
    producer = run(made_producer(fake))
    run(check_producer_refuses(producer))
    run(producer.close())
    run(producer.close())
    assert [record.value for record in fake.logs[p].records()] == [b"first"]


def test_a_consumer_in_a_second_loop(fake):
    [p] = fake.topic("t", 0)
    fake.fill(p, 10)
    consumer = run(made_consumer(fake, p))
    run(check_consumer_refuses(consumer, p))
    run(consumer.close())
    run(consumer.close())


def test_what_the_first_loop_left_pending_is_given_up(fake):
    fake.topic("t", 0)

    async def leave_pending():
        producer = await made_producer(fake)
        fake.faults[ApiKey.PRODUCE].append(SILENT)
        return producer, await producer.send("t", b"never answered")

    producer, future = run(leave_pending())

    async def wait():
        with pytest.raises(IllegalStateError, match="was closed before the broker answered"):
            await future
        with pytest.raises(IllegalStateError, match="was closed before the broker answered"):
            future.result()
        with pytest.raises(DeliveryError, match="1 record"):
            await producer.close()
        await producer.abort()

    run(wait())
    assert future.done()


def test_while_the_first_loop_runs_nobody_else_closes(fake):
    [p] = fake.topic("t", 0)
    fake.fill(p, 10)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def there(work):
        return asyncio.run_coroutine_threadsafe(work, loop).result(PATIENCE_S)

    try:
        producer = there(made_producer(fake))
        consumer = there(made_consumer(fake, p))

        async def elsewhere():
            await check_producer_refuses(producer)
            await check_consumer_refuses(consumer, p)
            for close in (producer.close, producer.abort, consumer.close):
                with pytest.raises(IllegalStateError, match="another one"):
                    await close()

        run(elsewhere())

        async def send():
            return await producer.send("t", b"second")

        async def wait_here():
            future = await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(send(), loop))
            assert (await future).offset == 11
            assert future.result().offset == 11

        run(wait_here())
        there(producer.close())
        there(consumer.close())
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(PATIENCE_S)
        loop.close()


def test_blocking_clients_work_where_a_loop_runs_as_in_jupyter(fake):
    [p] = fake.topic("t", 0)
    told = []

    async def cell():
        with ottla.client.sync.Producer(bootstrap_servers=fake.bootstrap, **QUICK_PRODUCER) as producer:
            assert producer.send("t", b"1").result(PATIENCE_S).offset == 0
            assert producer.send_many([(None, b"2"), (None, b"3")], "t").result(PATIENCE_S)[0].start == 1
            producer.send("t", b"4", callback=lambda metadata, error: told.append(refusal(producer)))
            producer.flush()
        with ottla.client.sync.Consumer(bootstrap_servers=fake.bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign([p])
            assert wait_until(lambda: consumer.poll(100), "records")

    def refusal(producer):
        with pytest.raises(InvalidArgumentError, match="would block the event loop that sends"):
            producer.send("t", b"5").result(PATIENCE_S)
        return True

    run(cell())
    assert told == [True]
