"""Our controller beside Apache Kafka's, step by step: scripts that were played to Apache Kafka 3.9.1, played to ours.

`beside/` has what Apache Kafka's controller did with the scripts of the seeds 1 to 20, and with some that are made by
hand (`support.controller_script`), a line for each step. Ours plays them in virtual time with its real broker, and does
the same but for what `support.wanted_differences` names. To record them again, in about ten minutes:
`OTTLA_RECORD=1 pytest --long tests/golden/cluster/test_beside.py`; one of them with `-k "plays_as_recorded and NAME"`.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.apache import ApacheZooKeeper
from support.controller_comparison import differences
from support.controller_play import Played
from support.controller_script import BY_HAND, by_hand, generate
from support.controller_stages import apache_plays, ottla_plays
from support.wanted_differences import Wanted

RECORDED = Path(__file__).parent / "beside"
#: Seeds of scripts, and names of those that are made by hand.
SCRIPTS = (*(f"{seed:02}" for seed in range(1, 21)), *BY_HAND)
LEAST_STEPS = 300
KINDS = (
    "register die return shutdown mute speak fail create found grow delete mark shrink expand prefer unclean elect "
    "move describe reelect usurp yield"
)


def read(name: str) -> list[Played]:
    return [json.loads(line) for line in (RECORDED / f"{name}.jsonl").read_text().splitlines()]


def made(name: str) -> list[str]:
    return by_hand(name) if name in BY_HAND else generate(int(name))


def script_of(played: list[Played]) -> list[str]:
    return [step["step"] for step in played[1:]]


@pytest.mark.spec("R1", "R5", "Z3")
@pytest.mark.parametrize("name", SCRIPTS)
def test_each_step_ends_as_apache_kafkas(name: str) -> None:
    theirs = read(name)
    found = differences(ottla_plays(script_of(theirs)), theirs)
    unwanted = [each for each in found if each.wanted is None]
    assert not unwanted, "\n".join(map(str, unwanted))


def test_the_scripts_say_much() -> None:
    played = [read(name) for name in SCRIPTS]
    assert sum(len(steps) for steps in played) > LEAST_STEPS
    kinds = Counter(line.split()[0] for steps in played for line in script_of(steps))
    for kind in KINDS.split():
        assert kinds[kind], f"no script has {kind}"


def test_two_plays_of_ours_are_equal() -> None:
    script = generate(4)
    assert ottla_plays(script) == ottla_plays(script)


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheZooKeeper]:
    server = ApacheZooKeeper(tmp_path_factory.mktemp("zookeeper"), heap="128m").start()
    yield server
    server.stop()


@pytest.mark.needs_kafka
@pytest.mark.long
@pytest.mark.parametrize("name", SCRIPTS)
def test_apache_kafka_plays_as_recorded(name: str, zookeeper: ApacheZooKeeper, tmp_path: Path) -> None:
    is_recording = bool(os.environ.get("OTTLA_RECORD"))
    script = made(name) if is_recording else script_of(read(name))
    played = apache_plays(script, zookeeper, tmp_path / name, f"/{name}")
    if is_recording:
        lines = (json.dumps(step, separators=(",", ":")) for step in played)
        (RECORDED / f"{name}.jsonl").write_text("".join(f"{line}\n" for line in lines))
    else:
        # How often it passes through a state on its way depends on its threads.
        found = [each for each in differences(played, read(name)) if each.wanted is not Wanted.PASSED_OVER]
        assert not found, "\n".join(map(str, found))
