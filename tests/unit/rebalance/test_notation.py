"""Partitions in text."""

from __future__ import annotations

from ottla.rebalance.notation import ranges


def test_ranges_of_numbers() -> None:
    assert ranges([]) == ""
    assert ranges([7, 0, 1, 2, 4]) == "0-2,4,7"
