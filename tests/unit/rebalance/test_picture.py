"""The picture of a simulated change."""

from __future__ import annotations

from ottla.assign.registry import BUILT_IN
from ottla.assign.simulation import GroupChange, Outcome, simulate
from ottla.rebalance import picture
from ottla.rebalance.group_source import group_of


def test_names_in_a_picture_are_text() -> None:
    group = group_of({"topics": {"t": 1}, "members": ["<b>&"]})
    outcome = simulate(group, GroupChange(), BUILT_IN["range"])
    assert isinstance(outcome, Outcome)
    assert "&lt;b&gt;&amp;" in picture.draw([outcome])
