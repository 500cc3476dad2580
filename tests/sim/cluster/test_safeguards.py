"""Safeguards of the cluster, left out, are noticed within some seeds, which are right with all of them in place.

Those of which no seed has noticed the absence yet are listed, and not played.
"""

from __future__ import annotations

import pytest

from ottla.sim.cluster.seed_run import run_seed
from sim.cluster.safeguards import SAFEGUARDS, left_out

pytestmark = [pytest.mark.long, pytest.mark.spec("R1", "R3", "R5")]

MOST_SEEDS = 200


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", [name for name, each in SAFEGUARDS.items() if each.is_noticed])
def test_what_it_prevents_is_noticed(name: str) -> None:
    for seed in range(MOST_SEEDS):
        with left_out(name) as kinds:
            is_caught = bool(run_seed(seed, kinds).wrong)
        if is_caught:
            break
    else:
        pytest.fail(f"{MOST_SEEDS} seeds are right without it")
    outcome = run_seed(seed, kinds)
    assert not outcome.wrong, "the seed is wrong with it, too"
