"""The ledger of the simulated cluster's seeds."""

from __future__ import annotations

from pathlib import Path

from support.seed_ledger import SeedRange, add_to_ledger, next_seed, play, ranges, read_ledger, still_wrong, summary
from support.simulated_cluster.seed_run import SeedOutcome, SeedRun

PLAYED = SeedRange(0, 49, "abc1234", 70_000, 400, 1.02, 1.21, 1.9, (7,))
STORY = SeedRun(0).cluster.story


def outcome(seed: int) -> SeedOutcome:
    """Of a seed; 3 went wrong."""
    return SeedOutcome(seed, "lost: 1" if seed == 3 else "", {"kill": 2, "pause": 1}, 100, 36.0, 0, STORY, [])


def test_it_grows_by_a_line_for_each_range(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    assert next_seed(read_ledger(path)) == 0
    add_to_ledger(path, PLAYED)
    add_to_ledger(path, PLAYED._replace(first=50, last=60, wrong=()))
    assert read_ledger(path) == [PLAYED, PLAYED._replace(first=50, last=60, wrong=())]
    assert len(path.read_text().splitlines()) == 2
    assert next_seed(read_ledger(path)) == 61


def test_a_seed_that_is_played_again_counts_with_what_was_found_last() -> None:
    lines = [PLAYED]
    assert still_wrong(lines) == [7]
    assert summary(lines).startswith("50 seeds played, 49 right, wrong: 7; 70000 records, 400 faults, 1.0 simulated")
    lines.append(PLAYED._replace(first=7, last=7, wrong=()))
    assert still_wrong(lines) == []
    assert summary(lines).startswith("50 seeds played, 50 right, wrong: none;")
    assert next_seed(lines) == 50


def test_long_ranges_are_lines_of_fifty() -> None:
    assert list(ranges(20, 130)) == [(20, 69), (70, 119), (120, 130)]


def test_what_was_played_is_summed_and_a_failing_seed_tells_its_story() -> None:
    told: list[str] = []
    played = play(2, 4, told.append, outcome)
    assert played._replace(version="", cpu_mean_s=0.0, cpu_max_s=0.0) == SeedRange(
        2, 4, "", 300, 9, 0.03, 0.0, 0.0, (3,)
    )
    assert [each.partition(",")[0] for each in told] == [
        "seed 2: right",
        "seed 3\n\nlost: 1",
        "seed 3: WRONG",
        "seed 4: right",
    ]


def test_a_seed_that_cannot_be_played_does_not_keep_others_from_it() -> None:
    def fails(seed: int) -> SeedOutcome:
        if seed == 0:
            raise ZeroDivisionError
        return outcome(seed)

    told: list[str] = []
    played = play(0, 1, told.append, fails)
    assert played.wrong == (0,)
    assert "ZeroDivisionError" in told[0]


def test_a_line_is_told_in_words() -> None:
    figures = "70000 records, 400 faults, 1.02 simulated hours, 1.21 s of CPU a seed, 1.90 at most"
    assert str(PLAYED) == f"seeds 0 to 49: wrong: 7; {figures}"
