"""Seeds of the simulated cluster: three shipped brokers, shipped clients, faults, and a check of what clients saw.

`./run bench cluster_seeds SEED` plays one and prints its story; ranges of seeds are entered into a ledger.
"""

from __future__ import annotations

import pytest

from support.seed_ledger import play, ranges
from support.simulated_cluster.seed_run import run_seed, story_of

pytestmark = [pytest.mark.slow, pytest.mark.spec("R1", "R3", "R5")]

SEEDS = 20
#: Of a long run.
ALL_SEEDS = 2_000


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_cluster_keeps_its_promises(seed: int) -> None:
    outcome = run_seed(seed)
    assert not outcome.wrong, story_of(outcome)
    assert outcome.acknowledged > 100


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("first", "last"), [*ranges(SEEDS, ALL_SEEDS - 1)])
def test_two_thousand_seeds(first: int, last: int) -> None:
    told: list[str] = []
    played = play(first, last, told.append)
    assert not played.wrong, "\n".join(told)


@pytest.mark.usefixtures("sealed")
def test_a_seed_tells_everything() -> None:
    first, again, other = (run_seed(seed) for seed in (5, 5, 6))
    assert first.digest == again.digest
    assert first.events == again.events
    assert other.digest != first.digest
