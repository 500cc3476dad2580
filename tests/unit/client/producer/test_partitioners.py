from __future__ import annotations

import struct
from collections import Counter

import pytest

from ottla.client.errors import InvalidConfigError
from ottla.client.model import PartitionMetadata, TopicMetadata
from ottla.client.producer.partitioners import (
    ClusterView,
    DefaultPartitioner,
    KeyOrRoundRobinPartitioner,
    RoundRobinPartitioner,
    UniformStickyPartitioner,
    partition_for_key,
    partitioner_of,
    random_int,
)
from ottla.client.producer.sticky import StickyState
from ottla.client.sync import Producer
from ottla.env.randomness import Randomness
from ottla.records.building import murmur2


def topic(*leaders, name="t"):
    partitions = [PartitionMetadata(number, leader, 0, (), ()) for number, leader in enumerate(leaders)]
    return TopicMetadata(name, tuple(partitions), False)


def chosen(partitioner, topic, count, key=None):
    view = ClusterView({topic.name: topic})
    return [partitioner.partition(topic.name, key, key, None, None, view) for _ in range(count)]


@pytest.mark.spec("P3")
@pytest.mark.parametrize(
    ("text", "java"),
    [
        ("21", -973932308),
        ("foobar", -790332482),
        ("a-little-bit-long-string", -985981536),
        ("a-little-bit-longer-string", -1486304829),
        ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        ("abc", 479470107),
        ("", 275646681),
    ],
)
def test_hashes_are_javas(text, java):
    assert murmur2(text.encode()) == java & 0xFFFFFFFF


@pytest.mark.spec("C5")
def test_the_partitions_of_the_walk_through_groups():
    assert [partition_for_key(struct.pack(">i", key), 3) for key in (1, 2, 3)] == [0, 2, 1]
    assert [partition_for_key(key, 3) for key in (b"1", b"2", b"3")] == [0, 2, 2]


@pytest.mark.spec("P3")
def test_round_robin_goes_round_the_available_partitions_from_a_random_start():
    starts = {chosen(RoundRobinPartitioner(random_int(Randomness(seed))), topic(0, 0, 0), 1)[0] for seed in range(20)}
    assert starts == {0, 1, 2}
    assert chosen(RoundRobinPartitioner(lambda: 4), topic(0, -1, 0, 0), 5) == [2, 3, 0, 2, 3]
    assert chosen(RoundRobinPartitioner(lambda: 4), topic(-1, -1, -1), 4) == [1, 2, 0, 1]
    assert chosen(RoundRobinPartitioner(lambda: 0), topic(0, 0), 3, key=b"the key does not matter") == [0, 1, 0]
    assert chosen(RoundRobinPartitioner(lambda: 0x7FFFFFFF), topic(0, 0), 3) == [1, 0, 1]


@pytest.mark.spec("P3")
def test_sticky_takes_another_available_partition_when_its_batch_is_complete():
    partitioner = UniformStickyPartitioner(random_int(Randomness(1)))
    there = topic(0, 0, -1, 0)
    view = ClusterView({"t": there})
    seen = Counter()
    before = None
    for _ in range(300):
        [now] = set(chosen(partitioner, there, 5))
        assert now != before
        seen[now] += 1
        before = now
        partitioner.on_new_batch("t", view, now)
    assert sorted(seen) == [0, 1, 3]
    assert min(seen.values()) > 70
    partitioner.on_new_batch("t", view, 99)  # somebody else's batch
    assert chosen(partitioner, there, 1) == chosen(partitioner, there, 1)


@pytest.mark.spec("P3")
def test_sticky_where_there_is_no_choice():
    assert set(chosen(UniformStickyPartitioner(), topic(-1, 0, -1), 9)) == {1}
    assert set(chosen(UniformStickyPartitioner(lambda: 5), topic(-1, -1, -1), 9)) == {2}


@pytest.mark.spec("P3")
def test_the_former_default_hashes_keys():
    assert chosen(DefaultPartitioner(), topic(0, -1, 0), 1, key=b"foobar") == [partition_for_key(b"foobar", 3)]


@pytest.mark.spec("P3")
def test_the_default_before_2_4_hashes_keys_and_goes_round_robin_without():
    there = topic(0, -1, 0, 0)
    partitioner = KeyOrRoundRobinPartitioner(lambda: 4)
    assert chosen(partitioner, there, 2) == [2, 3]
    assert chosen(partitioner, there, 2, key=b"foobar") == [partition_for_key(b"foobar", 4)] * 2
    assert chosen(partitioner, there, 3) == [0, 2, 3]
    assert chosen(KeyOrRoundRobinPartitioner(lambda: 4), topic(-1, -1, -1), 4) == [1, 2, 0, 1]
    assert isinstance(partitioner_of("KeyOrRoundRobinPartitioner", {}), KeyOrRoundRobinPartitioner)


@pytest.mark.spec("P3")
def test_the_sticky_state_switches_after_a_batchs_bytes():
    numbers = iter([3, 1, 2, 2, 0])
    state = StickyState(topic(0, 0, 0, 0), 100, lambda: next(numbers))
    assert state.partition == 3
    state.add(99, may_switch=True)
    assert state.partition == 3
    state.add(1, may_switch=True)
    assert (state.partition, state.produced_bytes) == (1, 0)
    state.add(199, may_switch=False)
    assert state.partition == 1
    state.add(1, may_switch=False)
    assert state.partition == 2


@pytest.mark.spec("P3")
def test_the_sticky_state_avoids_long_queues_and_slow_brokers():
    state = StickyState(topic(0, 0, 0), 1, random_int(Randomness(1)))

    def shares():
        seen = Counter()
        for _ in range(8000):
            state.switch()
            seen[state.partition] += 1
        return [round(seen[each] / 1000) for each in range(3)]

    state.update_load([0, 3, 1], [0, 1, 2], 3)
    assert shares() == [4, 1, 3]
    state.update_load([2, 2], [0, 2], 3)  # partition 1 is slow
    assert shares() == [4, 0, 4]
    state.update_load([1, 1, 1], [0, 1, 2], 3)
    assert max(shares()) == 3
    state.update_load(None)
    assert min(shares()) > 1


class Doubled:
    settings = None

    def configure(self, settings):
        self.settings = settings

    def partition(self, topic, key, key_bytes, value, value_bytes, cluster):
        return 1


@pytest.mark.spec("P3")
def test_partitioners_by_name_class_object_and_function():
    made = partitioner_of(Doubled, {"linger.ms": 5})
    assert made.settings == {"linger.ms": 5}
    assert partitioner_of(made, {}) is made
    name = "ottla.client.producer.partitioners.RoundRobinPartitioner"
    assert isinstance(partitioner_of(name, {}), RoundRobinPartitioner)
    java = "org.apache.kafka.clients.producer.UniformStickyPartitioner"
    assert isinstance(partitioner_of(java, {}), UniformStickyPartitioner)
    assert chosen(partitioner_of(lambda *_: 2, {}), topic(0, 0, 0), 1) == [2]
    assert partitioner_of(None, {}) is None
    for wrong in ("no.such.Thing", "Nothing", 5, "os.path.sep"):
        with pytest.raises(InvalidConfigError, match=r"partitioner\.class"):
            partitioner_of(wrong, {})


@pytest.mark.spec("P3")
def test_the_sticky_state_leaves_a_partition_that_is_gone():
    state = StickyState(topic(0, 0, 0, 0), 100, lambda: 3)
    state.learn(topic(0, 0))
    assert state.partition == 1


@pytest.mark.spec("P3", "P4")
def test_without_batches_each_record_goes_alone(fake):
    fake.topic("t", 0, 0)
    settings = {"batch_size": 0, "request_timeout_ms": 15_000, "max_block_ms": 30_000}
    with Producer(bootstrap_servers=fake.bootstrap, **settings) as producer:
        futures = [producer.send("t", bytes(300)) for _ in range(20)]
        assert sorted({future.result(60).partition for future in futures}) == [0, 1]
    assert sum(len(log.batches) for log in fake.logs.values()) == 20
