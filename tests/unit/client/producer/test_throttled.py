"""A broker whose quota is used up says for how long (KIP-219)."""

from __future__ import annotations

import time

import pytest

from ottla.client.errors import ClientTimeoutError
from ottla.client.sync import Producer
from ottla.wire.apis import ApiKey
from support.fake_cluster import Later
from support.waiting import Stopwatch, wait_until

PAUSE_MS = 2000


def throttled(fakes, node, pause_ms=PAUSE_MS, after_s=0.0):
    """Answers a Produce request as ever, and says that the quota is used up."""

    def answer(request):
        response = fakes.on_produce(node, request, None)
        response.throttle_time_ms = pause_ms
        return Later(response, after_s)

    return answer


@pytest.mark.slow
@pytest.mark.spec("P4")
def test_a_throttled_broker_gets_nothing_for_so_long_and_others_do(fakes):
    fakes.topic("t", 0, 1)
    with Producer(bootstrap_servers=fakes.bootstrap, linger_ms=0) as producer:
        for partition in (0, 1):
            producer.send("t", b"first", partition=partition).result(60)
        fakes.faults[ApiKey.PRODUCE].append(throttled(fakes, 0))
        producer.send("t", b"second", partition=0).result(60)
        began, watch = time.monotonic(), Stopwatch()
        waits = producer.send("t", b"third", partition=0)
        producer.send("t", b"other", partition=1).result(60)
        assert watch.seconds() < PAUSE_MS / 1000
        assert not waits.done()
        waits.result(60)
        assert time.monotonic() - began > PAUSE_MS / 1000 - 0.1
        metrics = producer.metrics()
    assert metrics["produce-throttle-time-max"] == PAUSE_MS
    assert 0 < metrics["produce-throttle-time-avg"] < PAUSE_MS


@pytest.mark.spec("P4")
def test_an_old_broker_has_kept_the_pause_itself(fakes):
    fakes.topic("t", 0)
    fakes.newest_versions[ApiKey.PRODUCE] = 5
    with Producer(bootstrap_servers=fakes.bootstrap, linger_ms=0) as producer:
        producer.send("t", b"first").result(60)
        fakes.faults[ApiKey.PRODUCE].append(throttled(fakes, 0))
        producer.send("t", b"second").result(60)
        watch = Stopwatch()
        producer.send("t", b"third").result(60)
        assert watch.seconds() < PAUSE_MS / 1000


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


@pytest.mark.slow
@pytest.mark.spec("P4")
def test_what_is_on_its_way_waits_for_its_answer_after_the_pause(fakes):
    """A broker does not read on while it throttles, so that a longer pause than request.timeout.ms is no failure."""
    fakes.topic("t", 0, 0)
    settings = {"linger_ms": 0, "request_timeout_ms": 1000, "delivery_timeout_ms": 20_000}
    with Producer(bootstrap_servers=fakes.bootstrap, **settings) as producer:
        for partition in (0, 1):
            producer.send("t", b"first", partition=partition).result(60)
        fakes.requests.clear()
        fakes.faults[ApiKey.PRODUCE] += [
            throttled(fakes, 0, pause_ms=2500, after_s=0.1),
            lambda request: Later(fakes.on_produce(0, request, None), 2.0),
        ]
        sent = [producer.send("t", b"second", partition=0)]
        wait_until(lambda: len(fakes.asked(ApiKey.PRODUCE)) == 1, "the first request")
        sent.append(producer.send("t", b"third", partition=1))
        assert [future.result(60).offset for future in sent] == [1, 1]
        assert len(fakes.asked(ApiKey.PRODUCE)) == 2


@pytest.mark.slow
@pytest.mark.spec("P2")
def test_a_broker_is_no_longer_slow_once_nothing_waits_for_it(fakes):
    fakes.topic("t", 0, 1)
    settings = {"request_timeout_ms": 1500, "delivery_timeout_ms": 2000, "partitioner_availability_timeout_ms": 200}
    with Producer(bootstrap_servers=fakes.bootstrap, linger_ms=0, batch_size=500, **settings) as producer:
        for partition in (0, 1):
            producer.send("t", b"first", partition=partition).result(60)
        fakes.faults[ApiKey.PRODUCE].append(throttled(fakes, 0, pause_ms=4000))
        producer.send("t", b"second", partition=0).result(60)
        late = producer.send("t", b"third", partition=0)
        slow = producer._core.accumulator.slow_brokers
        wait_until(lambda: slow == {0} or not producer.send("t", b"o", partition=1).result(60), "a slow broker")
        with pytest.raises(ClientTimeoutError, match="a quota of broker 0 is used up"):
            late.result(60)
        producer.send("t", b"o", partition=1).result(60)
        assert slow == set()
