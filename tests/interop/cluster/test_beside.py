"""New scripts, played to Apache Kafka's controller and to ours (`golden/cluster/test_beside` has recorded ones)."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.apache import ApacheZooKeeper
from support.controller_comparison import differences
from support.controller_script import generate
from support.controller_stages import apache_plays, ottla_plays

#: Not among those that are recorded.
SEEDS = (1001, 1002)
STEPS = 10


@pytest.mark.needs_kafka
@pytest.mark.spec("R1", "R5", "Z3")
@pytest.mark.timeout(300)
def test_either_controller_does_the_same(tmp_path: Path) -> None:
    zookeeper = ApacheZooKeeper(tmp_path / "zookeeper", heap="128m").start()
    try:
        for seed in SEEDS:
            script = generate(seed, STEPS)
            theirs = apache_plays(script, zookeeper, tmp_path / str(seed), f"/{seed}")
            unwanted = [each for each in differences(ottla_plays(script), theirs) if each.wanted is None]
            assert not unwanted, f"seed {seed}\n" + "\n".join(map(str, unwanted))
    finally:
        zookeeper.stop()
