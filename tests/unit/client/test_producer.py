from __future__ import annotations

import pytest

from ottla.client.accumulator import Accumulator
from ottla.client.cluster import Cluster
from ottla.client.errors import InvalidArgumentError, RecordTooLargeError
from ottla.client.model import PartitionMetadata, TopicMetadata
from ottla.client.partitioner import partition_for_key
from ottla.client.record_router import RecordRouter
from ottla.client.settings import ClientSettings, ProducerSettings
from ottla.env.clock import VirtualClock
from ottla.records.record import Record


def topic(*leaders: int) -> TopicMetadata:
    partitions = tuple(PartitionMetadata(at, leader, 0, (0,), (0,)) for at, leader in enumerate(leaders))
    return TopicMetadata("t", partitions, False)


class Routed:
    """A router whose records are taken out again."""

    def __init__(self, **settings):
        chosen = ProducerSettings(**{"linger_ms": 0, **settings})
        cluster = Cluster(ClientSettings("h:1"), VirtualClock(5000))
        self.accumulator = Accumulator(chosen, cluster.clock)
        self.router = RecordRouter(cluster, chosen, self.accumulator)

    def send(self, to, key=None, value=b"v", timestamp=None, headers=(), partition=None):
        self.router.send(to, key, value, timestamp, headers, partition)
        [batch] = self.accumulator.take()
        self.accumulator.finish(batch)
        return batch.partition.partition, batch.records[-1]


@pytest.mark.spec("P3")
def test_the_partition_of_the_record_wins_then_the_key():
    routed = Routed()
    assert routed.send(topic(0, 0, 0), key=b"k", partition=1)[0] == 1
    for at in range(20):
        key = b"key-%d" % at
        assert routed.send(topic(0, 0, 0), key=key)[0] == partition_for_key(key, 3)
    assert routed.send(topic(-1, -1, -1), key=b"key-0")[0] == partition_for_key(b"key-0", 3)


@pytest.mark.spec("P3")
def test_without_a_key_only_partitions_with_a_leader_are_chosen():
    routed = Routed(batch_size=1)
    assert {routed.send(topic(-1, 4, -1, 5))[0] for _ in range(50)} == {1, 3}
    assert {routed.send(topic(-1, -1))[0] for _ in range(50)} == {0, 1}


def test_the_timestamp_is_the_records_or_now():
    routed = Routed()
    assert routed.send(topic(0), timestamp=7)[1].timestamp == 7
    assert routed.send(topic(0), timestamp=0)[1].timestamp == 0
    assert routed.send(topic(0), headers=(("h", None),))[1] == Record(0, 5000, None, b"v", (("h", None),))


@pytest.mark.parametrize("partition", [-1, 2, 99])
def test_a_partition_that_is_not_there(partition):
    with pytest.raises(InvalidArgumentError, match=f"no partition {partition}; it has the partitions 0 to 1"):
        Routed().send(topic(0, 0), partition=partition)
    with pytest.raises(InvalidArgumentError, match=f"no partition {partition}"):
        Routed().router.send_batch(topic(0, 0), partition, [Record(0, 0, None, None)])


def test_a_record_that_is_too_large():
    routed = Routed(max_request_size=1000)
    routed.send(topic(0), value=bytes(900))
    with pytest.raises(RecordTooLargeError, match=r"max_request_size of the producer \(1000\)"):
        routed.send(topic(0), value=bytes(1000))
    with pytest.raises(RecordTooLargeError):
        routed.router.send_batch(topic(0), 0, [Record(0, 0, None, b""), Record(0, 0, bytes(1000), None)])
    assert routed.accumulator.take() == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"key": "text"},
        {"value": 5},
        {"value": bytearray(2)},
        {"timestamp": 1.5},
        {"timestamp": 2**63},
        {"headers": (("a", "text"),)},
        {"headers": ((b"a", b""),)},
        {"headers": ("ab",)},
        {"headers": (("a", b"", b""),)},
    ],
)
def test_wrong_types_are_refused_at_the_door(wrong):
    routed = Routed()
    with pytest.raises(InvalidArgumentError):
        routed.send(topic(0), **wrong)
    values = {"key": None, "value": b"", "timestamp": 0, "headers": ()} | wrong
    with pytest.raises(InvalidArgumentError):
        routed.router.send_batch(
            topic(0), 0, [Record(0, values["timestamp"], values["key"], values["value"], values["headers"])]
        )
    assert routed.accumulator.take() == []


def test_an_empty_batch():
    with pytest.raises(InvalidArgumentError, match="at least one record"):
        Routed().router.send_batch(topic(0), 0, [])
