from __future__ import annotations

import itertools
import struct
from collections import Counter
from random import Random

import pytest

from ottla.client.partitioner import StickyPartitioner, murmur2, partition_for_key


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
def test_sticky_stays_for_a_batch_and_then_moves():
    partitioner = StickyPartitioner(100, Random(1))
    chosen = [partitioner.partition("t", range(4), 25) for _ in range(400)]
    batches = [chosen[at : at + 4] for at in range(0, 400, 4)]
    assert all(len(set(batch)) == 1 for batch in batches)
    assert all(before[0] != after[0] for before, after in itertools.pairwise(batches))
    assert min(Counter(chosen).values()) > 50


def test_sticky_with_one_partition_and_with_one_that_goes_away():
    partitioner = StickyPartitioner(10, Random(1))
    assert [partitioner.partition("t", [2], 50) for _ in range(3)] == [2, 2, 2]
    assert partitioner.partition("t", [0], 1) == 0
    assert partitioner.partition("u", [5], 1) == 5
