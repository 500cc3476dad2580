"""Plays seeds of the simulated cluster, prints the story of each that goes wrong, and enters them into a ledger.

    ./run bench cluster_seeds 17            # one seed, with its story; it is not entered
    ./run bench cluster_seeds 40 99         # these, a line of the ledger for each 50
    ./run bench cluster_seeds --total 2000  # continue where the ledger ends, until it has seeds 0 to 1999

With `--moves` partitions move between four brokers meanwhile; those seeds have a ledger of their own.
The ledger, `bench/cluster_seeds.jsonl`, only grows. Ends with 1 where a seed went wrong.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

BENCH = Path(__file__).resolve().parent
sys.path[:0] = [str(BENCH.parent / "tests")]

from support.seed_ledger import add_to_ledger, next_seed, play, ranges, read_ledger, summary  # noqa: E402
from support.simulated_cluster.moves import run_moving_seed  # noqa: E402
from support.simulated_cluster.seed_run import run_seed, story_of  # noqa: E402

LEDGER = BENCH / "cluster_seeds.jsonl"
MOVING_LEDGER = BENCH / "cluster_seeds_moving.jsonl"


def tell(text: str) -> None:
    """Print it at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main() -> int:
    """See the module."""
    options = _options()
    run = run_moving_seed if options.moves else run_seed
    if options.ledger is None:
        options.ledger = MOVING_LEDGER if options.moves else LEDGER
    if options.total is None and len(options.seeds) == 1:
        outcome = run(options.seeds[0])
        tell(story_of(outcome, sys.maxsize))
        return int(bool(outcome.wrong))
    if options.total is not None:
        first, last = next_seed(read_ledger(options.ledger)), options.total - 1
    else:
        first, last = options.seeds
    ends_at = time.monotonic() + options.minutes * 60
    is_wrong = False
    for begin, end in ranges(first, last):
        if time.monotonic() >= ends_at:
            tell(f"time is up: seeds from {begin} on are not played")
            break
        played = play(begin, end, tell, run)
        is_wrong |= bool(played.wrong)
        add_to_ledger(options.ledger, played)
        tell(str(played))
    tell(f"{options.ledger.name}: {summary(read_ledger(options.ledger))}")
    return int(is_wrong)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="./run bench cluster_seeds", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("seeds", nargs="*", type=int, help="a seed, or the first and the last one")
    parser.add_argument("--total", type=int, help="continue where the ledger ends, until it has this many")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no range later than this")
    parser.add_argument("--ledger", type=Path)
    parser.add_argument("--moves", action="store_true", help="partitions move meanwhile")
    options = parser.parse_args()
    if (options.total is None) != (len(options.seeds) in (1, 2)):
        parser.error("name a seed, the first and the last one, or --total COUNT")
    return options


if __name__ == "__main__":
    raise SystemExit(main())
