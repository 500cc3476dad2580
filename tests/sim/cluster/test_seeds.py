"""Seeds of the simulated cluster: three shipped brokers, shipped clients, faults, and a check of what clients saw.

`./run bench cluster_seeds SEED` plays one and prints its story.
"""

from __future__ import annotations

import pytest

from ottla.sim.cluster.seed_run import run_seed, story_of

pytestmark = [pytest.mark.slow, pytest.mark.spec("R1", "R3", "R5")]

SEEDS = 20


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_cluster_keeps_its_promises(seed: int) -> None:
    outcome = run_seed(seed)
    assert not outcome.wrong, story_of(outcome)
    assert outcome.acknowledged > 100


@pytest.mark.usefixtures("sealed")
def test_a_seed_tells_everything() -> None:
    first, again, other = (run_seed(seed) for seed in (5, 5, 6))
    assert first.digest == again.digest
    assert first.events == again.events
    assert other.digest != first.digest
