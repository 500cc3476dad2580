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


@pytest.mark.parametrize(
    ("test", "marker", "tier"),
    [
        ("tests/unit/net/test_a.py::test_x", "", Tier.QUICK),
        ("tests/golden/test_a.py::test_x", "needs_kafka", Tier.SHORT),
        ("tests/unit/net/test_a.py::test_x", "long", Tier.LONG),
        ("tests/unit/test_slow.py::test_x[1]", "", Tier.SHORT),
        ("tests/unit/test_slow.py::test_x[2]", "", Tier.WHOLE),
        ("tests/unit/test_slow.py::test_y", "", Tier.QUICK),
        ("tests/e2e/test_other.py::test_x", "", Tier.SHORT),
        ("tests/e2e/test_other.py::test_y", "needs_programs", Tier.WHOLE),
        ("tests/e2e/test_a.py::test_kept[2]", "", Tier.SHORT),
        ("tests/e2e/test_a.py::test_some[1]", "", Tier.SHORT),
        ("tests/e2e/test_a.py::test_some[2]", "", Tier.WHOLE),
        ("tests/e2e/test_a.py::test_some[1]", "long", Tier.LONG),
        ("tests/e2e/test_b.py::test_x", "", Tier.WHOLE),
        ("tests/e2e/test_c.py::test_x[1]", "", Tier.WHOLE),
        ("tests/e2e/test_c.py::test_y", "", Tier.SHORT),
    ],
)
def test_the_tier_of_a_test(test: str, marker: str, tier: Tier) -> None:
    assert TIERS.of(test, {marker}, {"needs_kafka"}) is tier


def test_names_that_no_test_has_are_found() -> None:
    collected = [
        "tests/e2e/test_a.py::test_kept[2]",
        "tests/e2e/test_c.py::test_x[1]",
        "tests/unit/test_slow.py::test_x[2]",
    ]
    assert TIERS.unknown(collected) == ["tests/e2e/test_a.py::test_some[1]"]
