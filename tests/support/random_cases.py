"""How hypothesis runs here: on a busy machine as on a quiet one, in each run with the same cases.

Runs that are to be short try a part of the cases: see `support.tiers`.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

from support.tiers import TIER_VARIABLE, Tier

PROFILE = "whatever else the machine does"
#: Hypothesis's own number of cases for a test that sets none.
DEFAULT_CASES = 100
#: Of this many cases a short run tries one.
SHARE_OF_SHORT_RUNS = 5


def cases(count: int) -> int:
    """How many of `count` cases this run tries: all of them from `--all` on."""
    is_whole = Tier[os.environ.get(TIER_VARIABLE, Tier.WHOLE.name)] >= Tier.WHOLE
    return count if is_whole else max(1, count // SHARE_OF_SHORT_RUNS)


def load() -> None:
    """Make it what tests have that do not say otherwise."""
    settings.register_profile(
        PROFILE,
        max_examples=cases(DEFAULT_CASES),
        derandomize=True,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    settings.load_profile(PROFILE)
