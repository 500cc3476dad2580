"""A sample of what `./run fuzz` sends: damaged requests in each state of authentication, which harm no broker."""

from __future__ import annotations

import random

import pytest

from fuzz.__main__ import seldom_reached
from fuzz.cases import SIZE_BYTES, State, case, targets
from fuzz.running import FuzzReport, fuzz
from ottla.broker.dispatch import BEFORE_AUTHENTICATION

pytestmark = pytest.mark.spec("S5")
SEED = 20261130
FRAMES = 2000


@pytest.mark.slow
def test_a_sample_of_damaged_requests() -> None:
    report = fuzz(SEED, random.Random(SEED).sample(range(10_000_000), FRAMES))
    assert not report.failures, "\n\n".join(report.failures)
    assert report.frames == FRAMES
    reached = dict.fromkeys(State, 0)
    for (key, _, state), counts in report.counts.items():
        reached[state] += counts["reached"]
        if state is State.BEFORE_LOGIN and key not in BEFORE_AUTHENTICATION:
            assert not counts["reached"], key
    assert all(reached.values()), reached


def test_cases_follow_from_seed_and_number() -> None:
    assert case(1, 77) == case(1, 77) != case(2, 77)
    numbers = range(3 * len(targets()))
    assert {(each.key, each.version) for each in (case(1, number) for number in numbers)} == set(targets())
    sound = next(one for number in numbers if (one := case(1, number)).damage == "none")
    assert int.from_bytes(sound.sent[:SIZE_BYTES], "big") == len(sound.sent) - SIZE_BYTES


def test_what_is_seldom_reached_is_named() -> None:
    report = FuzzReport()
    report.counts[18, 3, State.BEFORE_LOGIN]["reached"] = 5
    few = seldom_reached(report, 6)
    assert "ApiVersions v3 before login: 5 times" in few
    assert not any(each.startswith("Metadata") and "before" in each for each in few)
    assert not any(each.startswith("ApiVersions v3 before") for each in seldom_reached(report, 5))
