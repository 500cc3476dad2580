"""Ctrl-C and `close` while brokers hang: both come back within a second, wherever the consumer is."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time

import pytest

import ottla.client
import ottla.client.sync
from ottla.wire.apis import ApiKey
from support.fake_cluster import SILENT
from support.waiting import POLL_INTERVAL_S, Stopwatch

pytestmark = [pytest.mark.spec("C1"), pytest.mark.slow, pytest.mark.interrupts]

HANGS = [ApiKey.METADATA, ApiKey.LIST_OFFSETS, ApiKey.FETCH, ApiKey.FIND_COORDINATOR]
WITHIN_S = 1.0
#: When Ctrl-C is pressed though no request has shown that the consumer is at work.
PRESSED_AFTER_S = 10.0


@pytest.fixture
def settings(fakes):
    fakes.waits_for_records = True
    fakes.topic("t", 0)
    return {"bootstrap_servers": fakes.bootstrap, "auto_offset_reset": "earliest", "group_id": "g"}


@pytest.fixture
def pressed(fakes, api_key):
    """A watch that is started when Ctrl-C is pressed: as soon as the broker has the request that it hangs over."""
    watches = []
    over = threading.Event()

    def press():
        deadline = time.monotonic() + PRESSED_AFTER_S
        while not fakes.requests_of(api_key) and time.monotonic() < deadline:
            if over.wait(POLL_INTERVAL_S):
                return
        watches.append(Stopwatch())
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=press)
    thread.start()
    yield watches
    over.set()
    thread.join()


def hang(fakes, api_key):
    fakes.faults[api_key] += [SILENT] * 100


@pytest.mark.parametrize("api_key", HANGS)
def test_without_a_loop(fakes, settings, pressed, api_key):
    hang(fakes, api_key)

    def main():
        with ottla.client.sync.Consumer(settings) as consumer:
            if api_key is ApiKey.FIND_COORDINATOR:
                consumer.subscribe(["t"])
            else:
                consumer.assign([("t", 0)])
                consumer.seek(("t", 0), 0)
            if api_key is ApiKey.LIST_OFFSETS:
                consumer.end_offsets([("t", 0)])
            consumer.poll(60_000)

    with pytest.raises(KeyboardInterrupt):
        main()
    assert pressed[0].seconds() < WITHIN_S


@pytest.mark.parametrize("api_key", HANGS)
def test_with_a_loop(fakes, settings, pressed, api_key):
    hang(fakes, api_key)

    async def main():
        # A signal that comes just before the loop waits would else be noticed at its next timer, Python's own race:
        # with a handler of any signal every signal wakes the loop.
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, lambda: None)
        async with ottla.client.Consumer(settings) as consumer:
            if api_key is ApiKey.FIND_COORDINATOR:
                await consumer.subscribe(["t"])
            else:
                await consumer.assign([("t", 0)])
                consumer.seek(("t", 0), 0)
            if api_key is ApiKey.LIST_OFFSETS:
                await consumer.end_offsets([("t", 0)])
            await consumer.poll(60_000)

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main())
    assert pressed[0].seconds() < WITHIN_S


@pytest.mark.parametrize("api_key", HANGS)
def test_close(fakes, settings, facade, api_key):
    hang(fakes, api_key)
    consumer = facade.consumer(settings)
    if api_key is ApiKey.FIND_COORDINATOR:
        consumer.subscribe(["t"])
    else:
        consumer.assign([("t", 0)])
        consumer.seek(("t", 0), 0)
    assert not consumer.poll(50)
    watch = Stopwatch()
    consumer.close()
    assert watch.seconds() < WITHIN_S
