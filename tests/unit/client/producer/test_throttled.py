"""A broker whose quota is used up says for how long (KIP-219)."""

from __future__ import annotations

import pytest

from ottla.client import Producer as AsyncProducer
from ottla.client.errors import ClientTimeoutError
from ottla.client.sync import Producer
from ottla.wire.apis import ApiKey
from support.fake_cluster import Later
from support.waiting import until

PAUSE_MS = 2000


def throttled(fakes, node, pause_ms=PAUSE_MS, after_s=0.0):
    """Answers a Produce request as ever, and says that the quota is used up."""

    def answer(request):
        response = fakes.on_produce(node, request, None)
        response.throttle_time_ms = pause_ms
        return Later(response, after_s)

    return answer


def producing(fakes, work, **settings):
    """Run `work(producer)` on virtual time."""

    async def body():
        settings_of_all = {"bootstrap_servers": fakes.bootstrap, "linger_ms": 0, "environment": fakes.environment}
        async with AsyncProducer(**settings_of_all, **settings) as producer:
            await work(producer)

    fakes.run_to_end(body())


async def sent(producer, value, partition):
    return (await (await producer.send("t", value, partition=partition))).offset


@pytest.mark.spec("P4")
def test_a_throttled_broker_gets_nothing_for_so_long_and_others_do(virtual_fakes):
    virtual_fakes.topic("t", 0, 1)

    async def work(producer):
        for partition in (0, 1):
            await sent(producer, b"first", partition)
        virtual_fakes.faults[ApiKey.PRODUCE].append(throttled(virtual_fakes, 0))
        await sent(producer, b"second", 0)
        began_s = virtual_fakes.loop.time()
        waits = await producer.send("t", b"third", partition=0)
        await sent(producer, b"other", 1)
        assert virtual_fakes.loop.time() - began_s < 0.1
        assert not waits.done()
        await waits
        assert virtual_fakes.loop.time() - began_s == pytest.approx(PAUSE_MS / 1000, abs=0.01)
        metrics = producer.metrics()
        assert metrics["produce-throttle-time-max"] == PAUSE_MS
        assert 0 < metrics["produce-throttle-time-avg"] < PAUSE_MS

    producing(virtual_fakes, work)


@pytest.mark.spec("P4")
def test_an_old_broker_has_kept_the_pause_itself(virtual_fakes):
    virtual_fakes.topic("t", 0)
    virtual_fakes.newest_versions[ApiKey.PRODUCE] = 5

    async def work(producer):
        await sent(producer, b"first", 0)
        virtual_fakes.faults[ApiKey.PRODUCE].append(throttled(virtual_fakes, 0))
        await sent(producer, b"second", 0)
        began_s = virtual_fakes.loop.time()
        await sent(producer, b"third", 0)
        assert virtual_fakes.loop.time() - began_s < 0.1

    producing(virtual_fakes, work)


@pytest.mark.slow
@pytest.mark.spec("P5")
def test_a_throttled_broker_that_is_gone_does_not_hold_up_the_next_leader(fakes):
    [p] = fakes.topic("t", 0)
    with Producer(bootstrap_servers=fakes.bootstrap, linger_ms=0) as producer:
        producer.send("t", b"first").result(60)
        fakes.faults[ApiKey.PRODUCE].append(throttled(fakes, 0, pause_ms=60_000))
        producer.send("t", b"second").result(60)
        fakes.leaders[p] = 1
        fakes.stop(0)
        assert producer.send("t", b"third").result(60).offset == 2


@pytest.mark.slow
@pytest.mark.spec("P5")
def test_a_broker_that_was_started_anew_has_forgotten_its_quotas(fakes):
    fakes.topic("t", 0)
    with Producer(bootstrap_servers=fakes.bootstrap, linger_ms=0) as producer:
        producer.send("t", b"first").result(60)
        fakes.faults[ApiKey.PRODUCE].append(throttled(fakes, 0, pause_ms=60_000))
        producer.send("t", b"second").result(60)
        fakes.stop(0)
        fakes.start(0)
        assert producer.send("t", b"third").result(60).offset == 2


@pytest.mark.spec("P4")
def test_what_is_on_its_way_waits_for_its_answer_after_the_pause(virtual_fakes):
    """A broker does not read on while it throttles, so that a longer pause than request.timeout.ms is no failure."""
    virtual_fakes.topic("t", 0, 0)

    async def work(producer):
        for partition in (0, 1):
            await sent(producer, b"first", partition)
        virtual_fakes.requests.clear()
        virtual_fakes.faults[ApiKey.PRODUCE] += [
            throttled(virtual_fakes, 0, pause_ms=2500, after_s=0.1),
            lambda request: Later(virtual_fakes.on_produce(0, request, None), 2.0),
        ]
        waiting = [await producer.send("t", b"second", partition=0)]
        await until(lambda: len(virtual_fakes.requests_of(ApiKey.PRODUCE)) == 1, "the first request")
        waiting.append(await producer.send("t", b"third", partition=1))
        assert [(await future).offset for future in waiting] == [1, 1]
        assert len(virtual_fakes.requests_of(ApiKey.PRODUCE)) == 2

    producing(virtual_fakes, work, request_timeout_ms=1000, delivery_timeout_ms=20_000)


@pytest.mark.spec("P2")
def test_a_broker_is_no_longer_slow_once_nothing_waits_for_it(virtual_fakes):
    virtual_fakes.topic("t", 0, 1)

    async def work(producer):
        for partition in (0, 1):
            await sent(producer, b"first", partition)
        virtual_fakes.faults[ApiKey.PRODUCE].append(throttled(virtual_fakes, 0, pause_ms=4000))
        await sent(producer, b"second", 0)
        late = await producer.send("t", b"third", partition=0)
        slow = producer._delegate.accumulator.slow_brokers
        while slow != {0}:
            await sent(producer, b"o", 1)
        with pytest.raises(ClientTimeoutError, match="a quota of broker 0 is used up"):
            await late
        await sent(producer, b"o", 1)
        assert slow == set()

    settings = {"request_timeout_ms": 1500, "delivery_timeout_ms": 2000, "partitioner_availability_timeout_ms": 200}
    producing(virtual_fakes, work, batch_size=500, **settings)
