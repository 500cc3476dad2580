"""`python -m ottla.sim.cluster FIRST [LAST]`: plays seeds, and prints the story of each that goes wrong."""

from __future__ import annotations

import sys

from ottla.sim.cluster.seed_run import run_seed, story_of


def main(first: int, last: int) -> int:
    """Play the seeds from `first` to `last`; returns how many went wrong."""
    wrong = 0
    for seed in range(first, last + 1):
        outcome = run_seed(seed)
        if outcome.wrong or first == last:
            sys.stdout.write(story_of(outcome, sys.maxsize) + "\n")
        wrong += bool(outcome.wrong)
        verdict = "WRONG" if outcome.wrong else "right"
        sys.stdout.write(f"seed {seed}: {verdict}, {outcome.acknowledged} records, {outcome.simulated_s:.0f} s\n")
        sys.stdout.flush()
    return wrong


if __name__ == "__main__":
    numbers = [int(each) for each in sys.argv[1:]]
    raise SystemExit(bool(main(numbers[0], numbers[-1])))
