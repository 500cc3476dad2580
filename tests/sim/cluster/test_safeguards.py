"""Safeguards of the cluster, left out, are noticed within some seeds, which are right with all of them in place."""

from __future__ import annotations

import pytest

from sim.cluster.safeguards import SAFEGUARDS, left_out
from sim.cluster.scene import Scene
from support.simulated_cluster.seed_run import SeedRun, outcome_of, story_of

pytestmark = [pytest.mark.spec("R1", "R3", "R5")]

MOST_SEEDS = 200
#: Of a scene, which was made for this.
MOST_SEEDS_OF_A_SCENE = 5
#: Of each scene, with all safeguards in place.
RIGHT_SEEDS = 20
#: Played in each run, since their scenes are short.
ALWAYS = (
    "only members of the ISR are preferred",
    "restarted brokers leave the ISR",
    "requests from before a restart are refused",
    "end offsets of a new leader wait",
    "truncation covers the producers' state",
    "gaps of sequence numbers are refused",
    "a new controller continues moves",
)

CASES = [
    pytest.param(name, marks=[pytest.mark.slow if name in ALWAYS else pytest.mark.long], id=name.replace(" ", "_"))
    for name in SAFEGUARDS
]


SCENES = {each.provocation for each in SAFEGUARDS.values() if isinstance(each.provocation, type)}


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("scene", sorted(SCENES, key=lambda scene: scene.__name__))
def test_a_scene_is_right(scene: type[Scene]) -> None:
    for seed in range(RIGHT_SEEDS):
        run = scene(seed)
        outcome = outcome_of(run)
        assert not outcome.wrong, story_of(outcome)
        assert not run.missed, story_of(outcome)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", CASES)
def test_what_it_prevents_is_noticed(name: str) -> None:
    is_scene = not isinstance(SAFEGUARDS[name].provocation, tuple)
    for seed in range(MOST_SEEDS_OF_A_SCENE if is_scene else MOST_SEEDS):
        with left_out(name) as safeguard:
            noticed = outcome_of(safeguard.run(seed))
        if noticed.wrong:
            break
    else:
        pytest.fail("all seeds are right without it")
    run: SeedRun = SAFEGUARDS[name].run(seed)
    outcome = outcome_of(run)
    assert not outcome.wrong, f"the seed is wrong with it, too\n{story_of(outcome)}"
    assert not isinstance(run, Scene) or not run.missed
