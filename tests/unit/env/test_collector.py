from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from ottla.env.collector import THRESHOLDS, tune_collector


@pytest.fixture(autouse=True)
def undone() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)


def test_a_large_request_starts_no_full_collection() -> None:
    tune_collector()
    assert gc.get_freeze_count() > 0
    full = gc.get_stats()[2]["collections"]
    remembered = [[number] for number in range(200_000)]
    assert gc.get_stats()[2]["collections"] == full, "it would look at each of them"
    assert len(remembered) == 200_000


def test_cycles_are_collected_all_the_same() -> None:
    tune_collector()
    collected = gc.get_stats()[0]["collected"]
    for _ in range(2 * THRESHOLDS[0]):
        cycle: list[object] = []
        cycle.append(cycle)
    assert gc.get_stats()[0]["collected"] > collected
