"""Plays seeds of the simulated cluster, and prints the story of each that goes wrong.

    ./run bench cluster_seeds 17                  # one seed, with its story
    ./run bench cluster_seeds 0 99                # a hundred
    ./run bench cluster_seeds --next 100 FILE     # the next hundred that FILE does not have, and enter them there

FILE is a ledger of JSON lines, one for each call, which only grows: the seeds, those that went wrong, what was played.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path

import ottla
from ottla.sim.cluster.seed_run import SeedOutcome, run_seed, story_of

SECONDS_PER_HOUR = 3600


class Played:
    """The sums of some seeds."""

    def __init__(self) -> None:
        self.wrong: list[int] = []
        self.faults: Counter[str] = Counter()
        self.acknowledged = 0
        self.simulated_s = 0.0

    def add(self, outcome: SeedOutcome) -> None:
        """One more seed."""
        if outcome.wrong:
            self.wrong.append(outcome.seed)
        self.faults.update(outcome.faults)
        self.acknowledged += outcome.acknowledged
        self.simulated_s += outcome.simulated_s


def play(first: int, last: int) -> Played:
    """Play the seeds from `first` to `last`, and tell of each."""
    played = Played()
    for seed in range(first, last + 1):
        outcome = run_seed(seed)
        played.add(outcome)
        if outcome.wrong or first == last:
            sys.stdout.write(story_of(outcome, sys.maxsize) + "\n")
        verdict = "WRONG" if outcome.wrong else "right"
        sys.stdout.write(f"seed {seed}: {verdict}, {outcome.acknowledged} records, {outcome.simulated_s:.0f} s\n")
        sys.stdout.flush()
    return played


def play_next(count: int, ledger: Path) -> Played:
    """Play the next seeds after those in the ledger, and enter them."""
    lines = ledger.read_text().splitlines() if ledger.exists() else []
    first = max((json.loads(line)["last"] for line in lines), default=-1) + 1
    began_s = time.process_time()
    played = play(first, first + count - 1)
    entry = {
        "version": ottla.__version__,
        "first": first,
        "last": first + count - 1,
        "wrong": played.wrong,
        "acknowledged": played.acknowledged,
        "simulated_hours": round(played.simulated_s / SECONDS_PER_HOUR, 2),
        "cpu_s_per_seed": round((time.process_time() - began_s) / count, 2),
        "faults": dict(sorted(played.faults.items())),
    }
    with ledger.open("a") as file:
        file.write(json.dumps(entry) + "\n")
    return played


def main() -> int:
    """See the module; 1 if a seed went wrong."""
    parser = argparse.ArgumentParser(prog="./run bench cluster_seeds", description="Plays seeds of a cluster.")
    parser.add_argument("seeds", nargs="*", type=int, help="the first seed, and the last one")
    parser.add_argument("--next", nargs=2, metavar=("COUNT", "FILE"), help="play the next seeds of a ledger")
    arguments = parser.parse_args()
    if arguments.next:
        played = play_next(int(arguments.next[0]), Path(arguments.next[1]))
    elif arguments.seeds:
        played = play(arguments.seeds[0], arguments.seeds[-1])
    else:
        parser.error("name a seed, or --next COUNT FILE")
    return int(bool(played.wrong))


if __name__ == "__main__":
    raise SystemExit(main())
