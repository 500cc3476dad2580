from __future__ import annotations

import pytest

from ottla.cluster.partition_set import PartitionSet

pytestmark = pytest.mark.spec("R5")


def test_it_is_a_set_of_pairs() -> None:
    found = PartitionSet([("a", 1), ("b", 0), ("a", 1)])
    found.add_of("a", range(3))
    found.add_of("c", ())
    assert set(found) == {("a", 0), ("a", 1), ("a", 2), ("b", 0)}
    assert len(found) == 4
    assert ("a", 2) in found
    assert ("a", 3) not in found
    assert ("c", 0) not in found
    assert found.of("a", 2) == {0, 1}
    assert found.of("a", 9) == {0, 1, 2}
    assert found.of("x", 9) == set()


def test_a_copy_is_a_set_of_its_own() -> None:
    found = PartitionSet([("a", 1), ("b", 0)])
    other = found.copy()
    other.add(("a", 2))
    other.of("a", 9).clear()
    found.remove_all(PartitionSet([("b", 0), ("b", 7), ("z", 1)]))
    assert (set(found), set(other)) == ({("a", 1)}, {("a", 1), ("b", 0), ("a", 2)})
    other.discard_all([("b", 0), ("a", 2), ("a", 77), ("y", 0)])
    assert set(other) == {("a", 1)}
    other.add_of("c", (3, 4))
    other.remove_topic("a")
    other.remove_topic("nowhere")
    assert set(other) == {("c", 3), ("c", 4)}
    found.remove_all(PartitionSet([("a", 1)]))
    assert not found
    assert other
    other.clear()
    assert not other
