from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Iterator

import pytest

from ottla.env import collector
from ottla.env.collector import THRESHOLDS, collect_new, pass_over_copy, tune_collector
from support.server_collector import restored_collector


@pytest.fixture(autouse=True)
def undone() -> Iterator[None]:
    with restored_collector():
        yield


def test_a_full_collection_looks_only_at_what_is_new() -> None:
    """In a process of its own: a full collection waits until a quarter of what the one before saw is new."""
    program = """
import gc
from ottla.env import collector
collector.FREEZE_AFTER_S = 0.0
collector.tune_collector()
assert gc.get_freeze_count() > 0
oldest, remembered = 0, []
for number in range(300_000):
    remembered.append([number])
    if number % 10_000 == 0:
        oldest = max(oldest, len(gc.get_objects(generation=2)))
print(oldest, gc.get_freeze_count())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=240)
    oldest, frozen = map(int, done.stdout.split())
    # A collection of the middle generation promotes 6,000 objects, and the third of them starts a full one.
    assert 0 < oldest < 25_000, "the time of a full collection grows with what it looks at"
    assert frozen > 200_000


def test_cycles_are_collected_all_the_same() -> None:
    tune_collector()
    collected = gc.get_stats()[0]["collected"]
    for _ in range(2 * THRESHOLDS[0]):
        cycle: list[object] = []
        cycle.append(cycle)
    assert gc.get_stats()[0]["collected"] > collected


def test_what_survived_a_long_full_collection_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector, "FREEZE_AFTER_S", 0.0)
    tune_collector()
    remembered = [[number] for number in range(10_000)]
    before = gc.get_freeze_count()
    gc.collect(1)
    # Less is possible: what was frozen can still be freed by its count of references.
    assert gc.get_freeze_count() <= before, "only full collections look at everything"
    gc.collect()
    assert gc.get_freeze_count() > before + len(remembered) // 2


def test_a_short_full_collection_leaves_all_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector, "FREEZE_AFTER_S", 3600.0)
    tune_collector()
    before = gc.get_freeze_count()
    gc.collect()
    assert gc.get_freeze_count() <= before


def test_copies_are_passed_over_in_server_processes_only() -> None:
    """Elsewhere cycles of others are among what is there."""
    before = gc.get_freeze_count()
    pass_over_copy()
    assert gc.get_freeze_count() <= before
    tune_collector()
    before = gc.get_freeze_count()
    copy = [(number, [number]) for number in range(1_000)]
    pass_over_copy()
    assert gc.get_freeze_count() > before
    assert len(copy) == 1_000


def test_what_is_made_while_more_is_freed_is_looked_at_little_by_little() -> None:
    """In a process of its own. Without `collect_new` one collection looks at all that was made meanwhile."""
    program = """
import gc, sys, weakref
from ottla.env import collector
collector.FREEZE_AFTER_S = 3600.0  # on a busy machine the cycle below would be passed over for the time it takes
remembered = [[[number] for _ in range(20)] for number in range(5_000)]
collector.tune_collector()
most, left = 0, []
while remembered:
    remembered.pop()
    left.append([[0] for _ in range(10)])
    if len(left) % 100 == 0:
        most = max(most, len(gc.get_objects(generation=0)))
        if sys.argv[1] == "often":
            collector.collect_new()
class Cycle:
    pass
cycle = Cycle()
cycle.itself = cycle
gone = weakref.ref(cycle)
gc.collect()  # it is among the oldest objects now
del cycle
collector.collect_new()
print(most, gone() is None)
"""
    young = {}
    for how in ("often", "never"):
        command = [sys.executable, "-c", program, how]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=240)
        most, is_collected = done.stdout.split()
        assert is_collected == "True", "what is passed over would never be collected"
        young[how] = int(most)
    assert young["often"] < 2_000
    assert young["never"] > 20_000


def test_new_objects_are_passed_over_in_server_processes_only() -> None:
    before = gc.get_freeze_count()
    collect_new()
    assert gc.get_freeze_count() <= before
    tune_collector()
    before = gc.get_freeze_count()
    made = [[number] for number in range(1_000)]
    collect_new()
    assert gc.get_freeze_count() >= before + len(made) // 2
