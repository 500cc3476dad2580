"""Seeds of a cluster whose partitions move, and whose moves are replaced and cancelled, under the usual faults.

`./run bench cluster_seeds --moves SEED` plays one and prints its story.
"""

from __future__ import annotations

import pytest

from support.seed_ledger import play, ranges
from support.simulated_cluster.moves import MovingSeedRun, run_moving_seed
from support.simulated_cluster.seed_run import outcome_of, story_of

pytestmark = [pytest.mark.slow, pytest.mark.spec("R1", "R3", "R5")]

SEEDS = 10
#: Of a long run.
ALL_SEEDS = 300


@pytest.mark.parametrize("seed", range(SEEDS))
def test_records_survive_moves(seed: int) -> None:
    run = MovingSeedRun(seed)
    outcome = outcome_of(run)
    assert not outcome.wrong, story_of(outcome)
    assert outcome.acknowledged > 100
    assert run.requested["move"] > 0


def test_a_seed_plays_alike_alone_and_after_another() -> None:
    """Nothing is kept from one run to the next; this one has told the two apart."""
    alone = run_moving_seed(513)
    run_moving_seed(3)
    after = run_moving_seed(513)
    assert after.story.lines == alone.story.lines
    assert after.digest == alone.digest


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("first", "last"), [*ranges(SEEDS, ALL_SEEDS - 1)])
def test_three_hundred_moving_seeds(first: int, last: int) -> None:
    told: list[str] = []
    played = play(first, last, told.append, run_moving_seed)
    assert not played.wrong, "\n".join(told)
