"""The example of a coordinator that dies in each phase of a rebalance."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from ottla.cli.main import app
from ottla.rebalance.failover.phases import play

pytestmark = [pytest.mark.spec("G10", "G11"), pytest.mark.slow]


@pytest.mark.parametrize(
    ("phase", "generation", "joined_again"),
    [(1, 4, {"d", "a", "b", "c"}), (2, 3, {"b"}), (3, 4, {"b", "d", "a", "c"}), (4, 4, set()), (5, 4, {"b"})],
)
def test_each_phase_ends_well(phase: int, generation: int, joined_again: set[str]) -> None:
    lines: list[str] = []
    result = play(phase, lines.append)
    assert result.is_well
    assert (result.generation_before, result.generation_after) == (3, generation)
    assert set(result.joined_again) == joined_again
    assert list(result.story) == lines
    assert sum("is killed" in line for line in lines) == 1
    assert any("ILLEGAL_GENERATION" in line for line in lines) == (phase == 4)


@pytest.mark.spec("U2")
def test_the_command() -> None:
    run = CliRunner().invoke
    done = run(app, ["cluster", "example", "failover", "--phase", "2"])
    assert done.exit_code == 0, done.output
    assert "In the end: generation 3, joined again b, partitions owned twice none" in done.stdout
    row = json.loads(run(app, ["cluster", "example", "failover", "--phase", "2", "--json"]).stdout)
    assert (row["phase"], row["joined_again"], row["offsets_lost"]) == (2, ["b"], [])
    assert "failover" in run(app, ["cluster", "example"]).stdout
    unknown = run(app, ["cluster", "example", "nothing"])
    assert (unknown.exit_code, unknown.stderr) == (
        2,
        "ottla cluster: example 'nothing' does not exist; examples are failover\n",
    )
