"""Sends damaged requests to a broker in this process: `./run fuzz`.

Every case follows from the seed and its number. A fault is shown with both; `--from NUMBER --frames 1` runs it alone.
The exit code is 0 where there are no faults, 1 where there are some.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed

from fuzz.cases import State, targets
from fuzz.running import FuzzReport, fuzzed
from ottla.broker.dispatch import BEFORE_AUTHENTICATION
from ottla.wire.apis import API

FRAMES, LONG_FRAMES = 50_000, 5_000_000
FRAMES_PER_TASK = 12_000
#: So often a long run reaches the handler of each API, version and state.
LEAST_REACHED = 200
COLUMNS = ("reached", "accepted", "refused", "closed", "unanswered")


def seldom_reached(report: FuzzReport, least: int) -> list[str]:
    """The APIs and versions whose handlers were reached less often, in the states in which that is possible."""
    return [
        f"{API[key].name} v{version} {state.value}: {reached} times"
        for key, version in targets()
        for state in State
        if (state is not State.BEFORE_LOGIN or key in BEFORE_AUTHENTICATION)
        and (reached := report.counts[key, version, state]["reached"]) < least
    ]


def main() -> int:
    """Run what the command line says; the exit code."""
    parser = argparse.ArgumentParser(
        prog="./run fuzz", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--frames", type=int, default=FRAMES, help=f"how many frames (default: {FRAMES})")
    parser.add_argument("--long", action="store_true", help=f"{LONG_FRAMES} frames: an hour or more")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--from", type=int, default=0, dest="first", help="the number of the first case")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes (default: the processors)")
    options = parser.parse_args()
    end = options.first + (LONG_FRAMES if options.long else options.frames)
    tasks = [
        (options.seed, range(start, min(start + FRAMES_PER_TASK, end)))
        for start in range(options.first, end, FRAMES_PER_TASK)
    ]
    report = FuzzReport()
    with ProcessPoolExecutor(options.workers) as pool:
        for each in as_completed([pool.submit(fuzzed, *task) for task in tasks]):
            report.add(each.result())
            if sys.stderr.isatty():
                print(f"\r{report.frames} frames, {len(report.failures)} faults", end="", file=sys.stderr, flush=True)
    _show(report)
    few = seldom_reached(report, LEAST_REACHED) if options.long else []
    for problem in [*report.failures, *few]:
        print(f"fault: {problem}")
    return 1 if report.failures or few else 0


def _show(report: FuzzReport) -> None:
    print(f"{'API':<32}{'version':>8}  {'state':<14}" + "".join(f"{name:>12}" for name in COLUMNS))
    total: Counter[str] = Counter()
    for (key, version, state), counts in sorted(
        report.counts.items(), key=lambda each: (*each[0][:2], each[0][2].value)
    ):
        total.update(counts)
        shown = "".join(f"{counts[name]:>12}" for name in COLUMNS)
        print(f"{API[key].name:<32}{version:>8}  {state.value:<14}{shown}")
    print(f"{'all':<32}{'':>8}  {'':<14}" + "".join(f"{total[name]:>12}" for name in COLUMNS))
    print(f"{report.frames} frames: {', '.join(f'{count} {name}' for name, count in report.damages.most_common())}")
    print(f"most memory for a frame: {report.most_bytes[0]} bytes ({report.most_bytes[1][:120]})")
    print(f"most processor time for a frame: {report.most_cpu_s[0]:.3f} s ({report.most_cpu_s[1][:120]})")


if __name__ == "__main__":
    sys.exit(main())
