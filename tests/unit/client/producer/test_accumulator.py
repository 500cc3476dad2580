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


@pytest.mark.spec("P2")
def test_records_for_a_chosen_partition_do_not_count_for_the_sticky_one() -> None:
    settings = AccumulatorSettings(batch_size=1000, linger_ms=0, buffer_memory=1 << 30, delivery_timeout_ms=1000)
    accumulator = Accumulator(settings, VirtualClock(), lambda: None, random=lambda: 0)
    partitions = tuple(PartitionMetadata(number, 1, 0, (1,), (1,)) for number in range(2))
    topic = accumulator.topic(TopicMetadata("t", partitions, False))
    sticky = topic.sticky.partition

    def append(partition: int, count: int) -> None:
        for _ in range(count):
            assert accumulator.append(topic, partition, 0, None, b"v" * 100, (), -1, 100, 130) is not None

    def counted() -> int:
        topic.queues[sticky].close_open()
        return topic.sticky.produced_bytes

    append(sticky, 25)
    assert counted() == 0, "three batches, all of them chosen"
    append(-1, 3)
    first = counted()
    assert 300 < first < 360
    append(sticky, 4)
    append(-1, 2)
    assert first + 200 < counted() < first + 240
    append(-1, 4)
    assert counted() > 900
    append(-1, 1)
    assert counted() > 1000, "it has had enough"
    append(-1, 1)
    assert topic.sticky.produced_bytes == 0, "with the next record another begins"
