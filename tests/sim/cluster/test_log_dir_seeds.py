"""Seeds of a cluster whose replicas move between log directories, under the usual faults."""

from __future__ import annotations

import pytest

from support.seed_ledger import play, ranges
from support.simulated_cluster.log_dir_moves import LogDirSeedRun, run_log_dir_seed
from support.simulated_cluster.seed_run import outcome_of, story_of

pytestmark = [pytest.mark.slow, pytest.mark.spec("R1", "R3")]

SEEDS = 6
#: Of a long run.
ALL_SEEDS = 200


#: In 82 a move is taken back while its copy is flushed.
@pytest.mark.parametrize("seed", [*range(SEEDS), 82])
def test_records_survive_moves_between_log_directories(seed: int) -> None:
    run = LogDirSeedRun(seed)
    outcome = outcome_of(run)
    assert not outcome.wrong, story_of(outcome)
    assert outcome.acknowledged > 100
    assert run.requested > 10
    assert run.moved > 0


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("first", "last"), [*ranges(SEEDS, ALL_SEEDS - 1)])
def test_two_hundred_seeds_of_moves(first: int, last: int) -> None:
    told: list[str] = []
    played = play(first, last, told.append, run_log_dir_seed)
    assert not played.wrong, "\n".join(told)
