"""The histogram of latencies beside sorted ones."""

from __future__ import annotations

import random

import pytest

from ottla.profiles.latencies import GROWTH, SMALLEST_MS, Latencies

pytestmark = pytest.mark.spec("D6")


def test_percentiles_are_a_little_above_the_true_ones() -> None:
    chance = random.Random(1)
    times = sorted(chance.lognormvariate(3, 1.5) for _ in range(5_000))
    counted = Latencies()
    for each in times:
        counted.add(each, 1)
    for percent in (1, 50, 90, 99, 99.9, 100):
        true = times[max(0, int(len(times) * percent / 100) - 1)]
        found = counted.percentile_ms(percent)
        assert found is not None
        assert true <= found * 1.0001 <= true * GROWTH * 1.0002


def test_a_batch_counts_as_many_records() -> None:
    counted = Latencies()
    counted.add(1.0, 98)
    counted.add(700.0, 2)
    assert counted.percentile_ms(98) == pytest.approx(1.0, rel=0.02)
    assert counted.percentile_ms(99) == pytest.approx(700.0, rel=0.02)


def test_merging_and_nothing() -> None:
    assert Latencies().percentile_ms(99) is None
    one, other = Latencies(), Latencies()
    one.add(0.0, 1)
    other.add(5.0, 3)
    one.merge(other)
    assert one.percentile_ms(25) == pytest.approx(SMALLEST_MS)
    assert one.percentile_ms(26) == pytest.approx(5.0, rel=0.02)
