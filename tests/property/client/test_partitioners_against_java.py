"""Partition numbers and distributions of the producer, beside those of Java's own classes."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from ottla.client.model import PartitionMetadata, TopicMetadata
from ottla.client.producer.partitioners import (
    ClusterView,
    RoundRobinPartitioner,
    UniformStickyPartitioner,
    partition_for_key,
    random_int,
)
from ottla.client.producer.sticky import StickyState
from ottla.env.randomness import Randomness
from support.java import java_tool

pytestmark = [pytest.mark.needs_kafka, pytest.mark.slow, pytest.mark.spec("P3")]

KEYS = 10_000
BATCH = 100
PROGRAM = Path(__file__).with_name("Partitioners.java")
LEADERS = ["y", "yy", "yyy", "ynyyn", "nnn", "yyyyyyyyyyyy"]


def java(lines):
    """What Java tells, a line for each."""
    return java_tool(str(PROGRAM), stdin="\n".join(lines) + "\n").stdout.splitlines()


def topic(leaders):
    partitions = (PartitionMetadata(at, 0 if each == "y" else -1, 0, (), ()) for at, each in enumerate(leaders))
    return TopicMetadata("t", tuple(partitions), False)


def test_partitions_of_random_keys():
    chance = random.Random(43)
    keys = [
        (chance.randbytes(chance.choice([0, 1, 2, 3, 4, 7, 8, 16, 33, 100])), chance.randint(1, 1000))
        for _ in range(KEYS)
    ]
    told = java([f"key x{key.hex()} {count}" for key, count in keys])
    assert [partition_for_key(key, count) for key, count in keys] == [int(line) for line in told]


def test_round_robin():
    told = java([f"round {leaders} 50" for leaders in LEADERS])
    for leaders, line in zip(LEADERS, told, strict=True):
        partitioner, view = RoundRobinPartitioner(lambda: 0), ClusterView({"t": topic(leaders)})
        ours = [partitioner.partition("t", None, None, None, None, view) for _ in range(50)]
        assert ours == [int(each) for each in line.split()]


def test_sticky_has_javas_distribution():
    times = 6000
    told = java([f"sticky {leaders} {times}" for leaders in LEADERS])
    for leaders, line in zip(LEADERS, told, strict=True):
        partitioner, view = UniformStickyPartitioner(random_int(Randomness(1))), ClusterView({"t": topic(leaders)})
        ours = []
        for _ in range(times):
            ours.append(partitioner.partition("t", None, None, None, None, view))
            partitioner.on_new_batch("t", view, ours[-1])
        theirs = [int(each) for each in line.split()]
        assert set(ours) == set(theirs)
        mine, other = Counter(ours), Counter(theirs)
        assert all(abs(mine[each] - other[each]) < 0.25 * times / len(other) for each in other)
        repeats = [sum(a == b for a, b in pairwise(chosen)) for chosen in (ours, theirs)]
        assert (repeats[0] == 0) == (repeats[1] == 0)


def asked(leaders, steps):
    """The steps as Java's side reads them."""
    told = []
    for step in steps:
        if step[0] == "load":
            told += ["load", len(step[1]), *(number for pair in step[1] for number in pair)]
        else:
            told += ["add", step[1], str(step[2]).lower()]
    return f"default {leaders} {len(steps)} {BATCH} {' '.join(map(str, told))}"


def done(leaders, steps):
    """Partition and whether it is a new choice, after each step."""
    choices = 0
    numbers = random_int(Randomness(5))

    def number():
        nonlocal choices
        choices += 1
        return numbers()

    state = StickyState(topic(leaders), BATCH, number)
    told = []
    for step in steps:
        before = choices
        if step[0] == "load":
            state.update_load([length for _, length in step[1]], [each for each, _ in step[1]], len(leaders))
        else:
            state.add(step[1], may_switch=step[2])
        told.append((state.partition, "same" if choices == before else "new"))
    return told


def javas(line):
    words = line.split()
    return [(int(partition), choice) for partition, choice in zip(words[::2], words[1::2], strict=True)]


def test_the_default_switches_when_javas_does():
    chance = random.Random(44)
    cases = []
    for _ in range(100):
        steps = [("add", chance.randint(0, 80), chance.random() < 0.5) for _ in range(60)]
        cases.append((chance.choice(LEADERS), steps))
    for case, line in zip(cases, java([asked(*case) for case in cases]), strict=True):
        assert [choice for _, choice in done(*case)] == [choice for _, choice in javas(line)]


def test_the_default_has_javas_distribution():
    times = 8000
    loads = [
        ("yyy", [(0, 0), (1, 3), (2, 1)]),
        ("yyy", [(0, 2), (1, 2), (2, 2)]),
        ("yyyy", [(1, 5), (3, 0)]),
        ("ynyyn", [(0, 1), (2, 4), (3, 1)]),
        ("ynyyn", []),
        ("nnn", []),
        ("y", [(0, 3)]),
    ]
    cases = [(leaders, [("load", load), *[("add", BATCH, True)] * times]) for leaders, load in loads]
    for case, line in zip(cases, java([asked(*case) for case in cases]), strict=True):
        shares = [Counter(partition for partition, _ in told[1:]) for told in (done(*case), javas(line))]
        assert shares[0].keys() == shares[1].keys()
        assert all(abs(shares[0][each] - shares[1][each]) < 0.04 * times for each in shares[0])
