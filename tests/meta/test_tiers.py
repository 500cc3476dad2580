"""The tiers: which run has a test first."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from support.tiers import Sample, Tier, Tiers

PROJECT = Path(__file__).resolve().parents[2]
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


def test_tiers_name_tests_that_there_are() -> None:
    missing = []
    for test in Tiers.read(PROJECT / "tests" / "tiers.toml").named():
        file, _, name = test.partition("::")
        function = name.partition("[")[0].rpartition("::")[2]
        if not re.search(rf"\bdef {function}\(", (PROJECT / file).read_text()):
            missing.append(test)
    assert missing == []


def test_the_list_of_flaky_tests_can_be_read() -> None:
    rows = [json.loads(line) for line in (PROJECT / "tests" / "flaky.jsonl").read_text().splitlines()]
    assert all(row.keys() >= {"test", "at", "load", "seed", "failure", "fix"} for row in rows)
