"""A broker whose quota is used up says for how long (KIP-219)."""

from __future__ import annotations

import time

import pytest

from ottla.client.sync import Producer
from ottla.wire.apis import ApiKey

PAUSE_MS = 500


def throttled(fakes, node):
    """Answers a Produce request as ever, and says that the quota is used up."""

    def answer(request):
        response = fakes.on_produce(node, request, None)
        response.throttle_time_ms = PAUSE_MS
        return response

    return answer


@pytest.mark.slow
@pytest.mark.spec("P4")
def test_a_throttled_broker_gets_nothing_for_so_long_and_others_do(fakes):
    fakes.topic("t", 0, 1)
    with Producer(bootstrap_servers=fakes.bootstrap, linger_ms=0) as producer:
        for partition in (0, 1):
            producer.send("t", b"first", partition=partition).result(5)
        fakes.faults[ApiKey.PRODUCE].append(throttled(fakes, 0))
        producer.send("t", b"second", partition=0).result(5)
        began = time.monotonic()
        waits = producer.send("t", b"third", partition=0)
        producer.send("t", b"other", partition=1).result(5)
        assert time.monotonic() - began < PAUSE_MS / 1000
        assert not waits.done()
        waits.result(5)
        assert time.monotonic() - began > PAUSE_MS / 1000 - 0.1
        metrics = producer.metrics()
    assert metrics["produce-throttle-time-max"] == PAUSE_MS
    assert 0 < metrics["produce-throttle-time-avg"] < PAUSE_MS


@pytest.mark.spec("P4")
def test_an_old_broker_has_kept_the_pause_itself(fakes):
    fakes.topic("t", 0)
    fakes.newest_versions[ApiKey.PRODUCE] = 5
    with Producer(bootstrap_servers=fakes.bootstrap, linger_ms=0) as producer:
        producer.send("t", b"first").result(5)
        fakes.faults[ApiKey.PRODUCE].append(throttled(fakes, 0))
        producer.send("t", b"second").result(5)
        began = time.monotonic()
        producer.send("t", b"third").result(5)
        assert time.monotonic() - began < PAUSE_MS / 1000
