"""The ledger of the simulated cluster's seeds: a short line for each range that was played. It only grows."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from support.java import PROJECT
from support.simulated_cluster.seed_run import SeedOutcome, run_seed, story_of

SECONDS_PER_HOUR = 3600
#: Seeds of a line at most: what a run that is interrupted plays again.
MOST_OF_A_LINE = 50


class SeedRange(NamedTuple):
    """What came of the seeds from `first` to `last`; a line of the ledger."""

    first: int
    last: int
    #: The commit that they were played with; `+` if the sources were changed since.
    version: str
    records: int
    faults: int
    simulated_hours: float
    cpu_mean_s: float
    cpu_max_s: float
    #: Seeds that went wrong.
    wrong: tuple[int, ...]

    def __str__(self) -> str:
        """As it is told."""
        went = f"wrong: {', '.join(map(str, self.wrong))}" if self.wrong else "all right"
        return (
            f"seeds {self.first} to {self.last}: {went}; {self.records} records, {self.faults} faults, "
            f"{self.simulated_hours:.2f} simulated hours, {_cpu(self.cpu_mean_s, self.cpu_max_s)}"
        )


def _cpu(mean_s: float, max_s: float) -> str:
    return f"{mean_s:.2f} s of CPU a seed, {max_s:.2f} at most"


def play(first: int, last: int, tell: Callable[[str], None], run: Callable[[int], SeedOutcome] = run_seed) -> SeedRange:
    """Play the seeds, and tell of each; of one that goes wrong its whole story."""
    records = faults = 0
    simulated_s = 0.0
    wrong = []
    cpu_s = []
    for seed in range(first, last + 1):
        began_s = time.process_time()
        try:
            outcome = run(seed)
        except Exception:  # of the simulation: the other seeds are played all the same
            wrong.append(seed)
            tell(f"seed {seed}: WRONG, the simulation failed\n{traceback.format_exc()}")
            continue
        finally:
            cpu_s.append(time.process_time() - began_s)
        records += outcome.acknowledged
        faults += sum(outcome.faults.values())
        simulated_s += outcome.simulated_s
        if outcome.wrong:
            wrong.append(seed)
            tell(story_of(outcome, sys.maxsize))
        verdict = "WRONG" if outcome.wrong else "right"
        took = f"{outcome.simulated_s:.0f} s, {cpu_s[-1]:.1f} s of CPU"
        tell(f"seed {seed}: {verdict}, {outcome.acknowledged} records, {took}")
    hours = round(simulated_s / SECONDS_PER_HOUR, 3)
    mean_s, max_s = round(sum(cpu_s) / len(cpu_s), 2), round(max(cpu_s), 2)
    return SeedRange(first, last, version(), records, faults, hours, mean_s, max_s, tuple(wrong))


def ranges(first: int, last: int) -> Iterator[tuple[int, int]]:
    """The first and the last seed of each line for these seeds."""
    for begin in range(first, last + 1, MOST_OF_A_LINE):
        yield begin, min(begin + MOST_OF_A_LINE - 1, last)


def version() -> str:
    """See `SeedRange.version`."""

    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=PROJECT, capture_output=True, text=True).stdout.strip()

    return git("rev-parse", "--short", "HEAD") + ("+" if git("status", "--porcelain", "src") else "")


def read_ledger(path: Path) -> list[SeedRange]:
    """All lines."""
    lines = path.read_text().splitlines() if path.exists() else []
    found = [SeedRange(**json.loads(line)) for line in lines]
    return [each._replace(wrong=tuple(each.wrong)) for each in found]


def add_to_ledger(path: Path, played: SeedRange) -> None:
    """Add a line."""
    with path.open("a") as file:
        file.write(json.dumps(played._asdict()) + "\n")


def next_seed(ledger: Iterable[SeedRange]) -> int:
    """The first seed behind all that were played."""
    return max((each.last for each in ledger), default=-1) + 1


def still_wrong(ledger: Iterable[SeedRange]) -> list[int]:
    """Seeds that went wrong when they were played last."""
    verdicts: dict[int, bool] = {}
    for each in ledger:
        verdicts.update((seed, seed in each.wrong) for seed in range(each.first, each.last + 1))
    return [seed for seed, is_wrong in sorted(verdicts.items()) if is_wrong]


def summary(ledger: Iterable[SeedRange]) -> str:
    """The sums of the ledger; a seed that was played again counts once, with what was found last."""
    lines = list(ledger)
    played = {seed for each in lines for seed in range(each.first, each.last + 1)}
    wrong = still_wrong(lines)
    runs = sum(each.last - each.first + 1 for each in lines)
    mean_s = sum(each.cpu_mean_s * (each.last - each.first + 1) for each in lines) / max(runs, 1)
    return (
        f"{len(played)} seeds played, {len(played) - len(wrong)} right, "
        f"wrong: {', '.join(map(str, wrong)) or 'none'}; {sum(each.records for each in lines)} records, "
        f"{sum(each.faults for each in lines)} faults, "
        f"{sum(each.simulated_hours for each in lines):.1f} simulated hours, "
        f"{_cpu(mean_s, max((each.cpu_max_s for each in lines), default=0.0))}"
    )
