"""Leaves out each safeguard of the cluster, plays seeds until one goes wrong, and prints a table of what broke.

    ./run bench cluster_safeguards                # all of them
    ./run bench cluster_safeguards gaps "ends of" # those with one of these words in their names

The safeguards, and the scenes that provoke what they prevent, are those of `tests/sim/cluster`. The seed that goes
wrong is played again with the safeguard in place, and must be right.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from sim.cluster.safeguards import SAFEGUARDS, Safeguard, left_out
from support.cluster_history import NO_LOG_READ, violations
from support.simulated_cluster.seed_run import SeedOutcome, outcome_of

MOST_SEEDS: Final = 200
#: What a seed says that does not come to its end.
UNSETTLED: Final = ("the cluster does not recover", "nothing is acknowledged", "the high watermarks of replicas stay")


def broken(outcome: SeedOutcome) -> str:
    """What was wrong with a seed, in words: broken promises, or what kept the check from being made."""
    found = violations(outcome.events)
    kinds = list(dict.fromkeys(str(each.kind) for each in found if NO_LOG_READ not in each.what))
    if any(line.startswith(UNSETTLED) for line in outcome.wrong.splitlines()):
        kinds.append("the partition does not recover")
    if outcome.story.bugs:
        kinds.append("an exception")
    return "; ".join(kinds) or outcome.wrong.splitlines()[0]


def provocation(safeguard: Safeguard) -> str:
    """The name of the scene, or the kinds of faults."""
    wanted = safeguard.provocation
    return ", ".join(wanted) if isinstance(wanted, tuple) else f"`{wanted.__name__}`"


def row(name: str) -> str:
    """A safeguard's row of the table."""
    for seed in range(MOST_SEEDS):
        with left_out(name) as safeguard:
            outcome = outcome_of(safeguard.run(seed))
        if outcome.wrong:
            break
    else:
        return f"| {name} | {provocation(safeguard)} | none of {MOST_SEEDS} | |"
    verdict = broken(outcome)
    if outcome_of(safeguard.run(seed)).wrong:
        verdict += " (WRONG WITH IT, TOO)"
    return f"| {name} | {provocation(safeguard)} | {seed + 1} | {verdict} |"


def main() -> None:
    """Play them, and print the table."""
    words = sys.argv[1:]
    began_s = time.process_time()
    chosen = [name for name in SAFEGUARDS if not words or any(word in name for word in words)]
    sys.stdout.write("| Safeguard left out | provoked by | seeds | what broke |\n|---|---|---:|---|\n")
    for name in chosen:
        sys.stdout.write(row(name) + "\n")
        sys.stdout.flush()
    sys.stdout.write(f"\n{len(chosen)} safeguards, {time.process_time() - began_s:.0f} s of CPU\n")


if __name__ == "__main__":
    main()
