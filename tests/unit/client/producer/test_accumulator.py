"""What the sender asks of the accumulator while other threads append."""

from __future__ import annotations

import threading
from collections import Counter

import pytest

from ottla.client.model import PartitionMetadata, TopicMetadata
from ottla.client.producer.accumulator import Accumulator, AccumulatorSettings
from ottla.client.producer.partitioners import random_int
from ottla.env.clock import VirtualClock
from ottla.env.randomness import Randomness

RECORDS = 3000


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
    assert counted() == 0, "it has had enough"


@pytest.mark.spec("P2")
def test_the_sticky_partition_is_left_even_if_others_begin_all_its_batches() -> None:
    settings = AccumulatorSettings(batch_size=2000, linger_ms=0, buffer_memory=1 << 30, delivery_timeout_ms=1000)
    accumulator = Accumulator(settings, VirtualClock(), lambda: None, random=random_int(Randomness(1)))
    partitions = tuple(PartitionMetadata(number, 1, 0, (1,), (1,)) for number in range(4))
    topic = accumulator.topic(TopicMetadata("t", partitions, False))
    seen: Counter[int] = Counter()
    for _ in range(4000):
        assert accumulator.append(topic, 0, 0, b"hot", b"v" * 100, (), 3, 100, 130) is not None
        accumulator.append(topic, -1, 0, None, b"v" * 100, (), -1, 100, 130)
        seen[topic.sticky.partition] += 1
        with accumulator.lock:
            for queue in list(accumulator.active):
                while queue.batches:
                    accumulator.take(queue)
                    queue.in_flight -= 1
    assert all(800 < seen[partition] < 1200 for partition in range(4)), seen


@pytest.mark.spec("P3")
def test_a_batch_that_is_full_is_reported_even_if_the_next_goes_into_another_that_is_open() -> None:
    settings = AccumulatorSettings(batch_size=1000, linger_ms=1000, buffer_memory=1 << 30, delivery_timeout_ms=1000)
    woken: list[int] = []
    chosen = iter([0, 1])
    accumulator = Accumulator(settings, VirtualClock(), lambda: woken.append(1), random=lambda: next(chosen))
    partitions = tuple(PartitionMetadata(number, 1, 0, (1,), (1,)) for number in range(2))
    topic = accumulator.topic(TopicMetadata("t", partitions, False))
    accumulator.append(topic, 1, 0, None, b"v", (), -1, 1, 30)
    accumulator.append(topic, -1, 0, None, b"v" * 900, (), -1, 900, 935)
    topic.sticky.produced_bytes = 500  # it had had others
    assert len(woken) == 2
    accumulator.append(topic, -1, 0, None, b"v" * 100, (), -1, 100, 130)
    assert len(woken) == 3
    assert topic.queues[0].batches[0].is_closed
    assert topic.queues[1].batches[0].builder.count == 2
