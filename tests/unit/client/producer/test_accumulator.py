"""What the sender asks of the accumulator while other threads append."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import pytest

from ottla.client.model import PartitionMetadata, TopicMetadata
from ottla.client.producer.accumulator import Accumulator, AccumulatorSettings
from ottla.env.clock import VirtualClock

RECORDS = 3000


@pytest.fixture
def quick_switches() -> Iterator[None]:
    """Threads take turns far more often than usual."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.spec("P3")
@pytest.mark.usefixtures("quick_switches")
def test_the_sender_looks_while_others_append() -> None:
    settings = AccumulatorSettings(
        batch_size=64, linger_ms=0, buffer_memory=1 << 30, delivery_timeout_ms=1000, is_adaptive=False
    )
    accumulator = Accumulator(settings, VirtualClock(), lambda: None)
    done = threading.Event()

    def append() -> None:
        for number in range(RECORDS):
            name = f"topic-{number % 500}"
            topic = accumulator.topic(TopicMetadata(name, (PartitionMetadata(0, 1, 0, (1,), (1,)),), False))
            assert accumulator.append(topic, 0, 0, None, b"v" * 200, (), -1, 200, 230) is not None
        done.set()

    thread = threading.Thread(target=append)
    thread.start()
    while not done.is_set():
        accumulator.oldest()
        accumulator.topics_in_use(0)
    thread.join()
    assert accumulator.oldest() is next(iter(accumulator.incomplete))
    assert len(accumulator.topics_in_use(0)) == 500
