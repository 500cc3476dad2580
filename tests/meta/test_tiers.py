"""The tiers: which run has a test first."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.tiers import Sample, Tier, Tiers

TESTS = Path(__file__).resolve().parents[1]
TIERS = Tiers(
    quick=Sample({}, {"tests/unit/test_slow.py": ["test_x"]}),
    short=Sample(
        only={"tests/e2e/test_a.py": ["test_kept", "test_some[1]"], "tests/e2e/test_b.py": []},
        without={"tests/unit/test_slow.py": ["test_x[2]"], "tests/e2e/test_c.py": ["test_x"]},
    ),
)


class Item:
    def __init__(self, nodeid: str, *markers: str) -> None:
        self.nodeid = nodeid
        self._markers = markers

    def get_closest_marker(self, name: str) -> str | None:
        return name if name in self._markers else None


@pytest.mark.parametrize(
    ("item", "tier"),
    [
        (Item("tests/unit/net/test_a.py::test_x"), Tier.QUICK),
        (Item("tests/golden/test_a.py::test_x", "needs_kafka"), Tier.SHORT),
        (Item("tests/unit/net/test_a.py::test_x", "long"), Tier.LONG),
        (Item("tests/unit/test_slow.py::test_x[1]"), Tier.SHORT),
        (Item("tests/unit/test_slow.py::test_x[2]"), Tier.WHOLE),
        (Item("tests/unit/test_slow.py::test_y"), Tier.QUICK),
        (Item("tests/e2e/test_other.py::test_x"), Tier.SHORT),
        (Item("tests/e2e/test_other.py::test_y", "needs_programs"), Tier.WHOLE),
        (Item("tests/e2e/test_a.py::test_kept[2]"), Tier.SHORT),
        (Item("tests/e2e/test_a.py::test_some[1]"), Tier.SHORT),
        (Item("tests/e2e/test_a.py::test_some[2]"), Tier.WHOLE),
        (Item("tests/e2e/test_a.py::test_some[1]", "long"), Tier.LONG),
        (Item("tests/e2e/test_b.py::test_x"), Tier.WHOLE),
        (Item("tests/e2e/test_c.py::test_x[1]"), Tier.WHOLE),
        (Item("tests/e2e/test_c.py::test_y"), Tier.SHORT),
    ],
    ids=lambda value: value.nodeid if isinstance(value, Item) else value.name,
)
def test_the_tier_of_a_test(item: Item, tier: Tier) -> None:
    assert TIERS.of(item, ["needs_kafka"]) is tier  # type: ignore[arg-type]


def test_names_that_no_test_has_are_found() -> None:
    collected = [
        "tests/e2e/test_a.py::test_kept[2]",
        "tests/e2e/test_c.py::test_x[1]",
        "tests/unit/test_slow.py::test_x[2]",
    ]
    assert TIERS.unknown(collected) == ["tests/e2e/test_a.py::test_some[1]"]
