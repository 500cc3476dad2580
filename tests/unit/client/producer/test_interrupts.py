"""Ctrl-C at random points of a blocking producer: it comes through at once, and the producer goes on as before."""

from __future__ import annotations

import os
import random
import signal
import threading

import pytest

from ottla.client.errors import ClientClosedError, DeliveryError, InvalidArgumentError
from ottla.client.sync import Producer
from ottla.wire.apis import ApiKey
from support.waiting import Stopwatch

pytestmark = pytest.mark.interrupts

SETTINGS = {"request_timeout_ms": 5000, "delivery_timeout_ms": 10_000, "batch_size": 1000, "buffer_memory": 50_000}

SOON_S = 1.0


class Interrupt:
    """Raises KeyboardInterrupt in the main thread after a time; again later, since Python drops it in a finalizer."""

    def __init__(self, seconds):
        self._seconds = seconds
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._interrupt)

    def _interrupt(self):
        while not self._over.wait(self._seconds):
            os.kill(os.getpid(), signal.SIGUSR1)
            self._seconds = 1

    def __enter__(self):
        try:
            self._thread.start()
        except KeyboardInterrupt:  # it came before the block was entered
            self._over.set()
            raise

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()


@pytest.fixture
def interrupting():
    def interrupt(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, interrupt)
    yield
    signal.signal(signal.SIGUSR1, before)


def work_for_ever(producer, what):
    while True:
        if what == "send_many":
            producer.send_many([(None, b"v")] * 500, "t")
        elif what == "result":
            producer.send("t", b"v").result(60)
        else:
            for _ in range(20):
                producer.send("t", bytes(50))
            if what == "flush":
                producer.flush()


@pytest.mark.slow
@pytest.mark.spec("P4")
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("rounds", [60, pytest.param(400, marks=pytest.mark.long)])
def test_anywhere(fake, interrupting, rounds):
    fake.topic("t", 0, 0)
    chance = random.Random(rounds)
    with Producer(bootstrap_servers=fake.bootstrap, linger_ms=1, **SETTINGS) as producer:
        producer.send("t", b"first").result(60)
        for _ in range(rounds):
            what = chance.choice(["send", "send_many", "result", "flush"])
            with pytest.raises(KeyboardInterrupt), Interrupt(chance.uniform(0.0005, 0.01)):
                work_for_ever(producer, what)
            watch = Stopwatch()
            assert producer.send("t", b"next").result(60).offset >= 0
            assert watch.seconds() < SOON_S
        producer.flush()
        accumulator = producer._delegate.accumulator
        assert (accumulator.used_bytes, len(accumulator.incomplete), len(accumulator.active)) == (0, 0, 0)


@pytest.mark.parametrize("method", ["flush", "close", "result"])
def test_while_nobody_answers(fake, interrupting, faults, method):
    fake.topic("t", 0)
    producer = Producer(bootstrap_servers=fake.bootstrap, **SETTINGS)
    producer.send("t", b"first").result(60)
    fake.faults[ApiKey.PRODUCE].extend([faults["SILENT"]] * 10)
    future = producer.send("t", b"v")
    waiting = future.result if method == "result" else getattr(producer, method)
    watch = Stopwatch()
    with pytest.raises(KeyboardInterrupt), Interrupt(0.05):
        waiting()
    assert watch.seconds() < SOON_S
    with pytest.raises(DeliveryError, match="1 records"):
        producer.close(timeout_ms=10)
    assert isinstance(future.exception(0), ClientClosedError)
    assert not [each for each in threading.enumerate() if each.name == producer.config.client_id + "-producer"]


def test_a_block_that_is_interrupted_does_not_wait(fake, faults):
    fake.topic("t", 0)
    watch = Stopwatch()
    with pytest.raises(KeyboardInterrupt), Producer(bootstrap_servers=fake.bootstrap, **SETTINGS) as producer:  # noqa: PT012
        producer.send("t", b"first").result(60)
        fake.faults[ApiKey.PRODUCE].extend([faults["SILENT"]] * 10)
        future = producer.send("t", b"v")
        raise KeyboardInterrupt
    assert watch.seconds() < SOON_S
    assert isinstance(future.exception(0), ClientClosedError)


def test_a_callback_that_would_wait_for_itself_is_reported(fake):
    fake.topic("t", 0)
    told = []

    def send_more(metadata, error):
        try:
            producer.send("another", b"v")
        except InvalidArgumentError as refused:
            told.append(str(refused))
        producer.send("t", b"goes out")

    with Producer(bootstrap_servers=fake.bootstrap, **SETTINGS) as producer:
        producer.send("t", b"v", callback=send_more).result(60)
    assert ["would have to wait" in each for each in told] == [True]
    assert len(fake.requests_of(ApiKey.PRODUCE)) == 2
