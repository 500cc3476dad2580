"""Kills pipelines -9 at named points and at chance moments, checks what they made, and keeps a ledger.

    ./run bench pipeline_kills --kinds parquet delta --seeds 1-5     # courses of ten kills each
    ./run bench pipeline_kills --summary                             # what the ledger says

Each course is a line of bench/pipeline_kills.jsonl.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from support.fault_ledger import revision
from support.ottla_server import OttlaServer
from support.pipeline_kills import POINTS, KilledCourse, planned_kills

LEDGER = Path(__file__).with_suffix(".jsonl")
KILLS_PER_COURSE = 10


def course(kind: str, seed: int, kills: int) -> dict[str, object]:
    """One course in a folder of its own, with two brokers."""
    with tempfile.TemporaryDirectory(prefix="ottla-kills-") as scratch:
        folder = Path(scratch)
        brokers = [OttlaServer(folder / name) for name in ("here", "there")]
        try:
            for broker in brokers:
                broker.start()
            work = folder / "pipeline"
            work.mkdir()
            report = KilledCourse(kind, seed, work, brokers[0], brokers[1]).run(planned_kills(kind, seed, kills))
            if report.verdict:
                print((work / "said.log").read_text(errors="replace")[-4_000:])
            return report.line() | {"version": revision(), "day": time.strftime("%Y-%m-%d")}
        finally:
            for broker in brokers:
                broker.stop()


def summary() -> None:
    """The ledger in a table, and the points that were never hit."""
    lines = [json.loads(line) for line in LEDGER.read_text().splitlines()] if LEDGER.exists() else []
    print("| pipeline | courses | kills | at points | wrong | points never hit |\n|---|--:|--:|--:|--:|---|")
    for kind, reachable in POINTS.items():
        own = [line for line in lines if line["kind"] == kind]
        kills: Counter[str] = Counter()
        for line in own:
            kills.update(line["kills"])
        at_points = sum(kills[point] for point in reachable)
        never = ", ".join(point for point in reachable if not kills[point])
        wrong = sum(bool(line["verdict"]) for line in own)
        print(f"| {kind} | {len(own)} | {kills.total()} | {at_points} | {wrong} | {never} |")


def _seeds(text: str) -> range:
    """The seeds of FIRST-LAST, or of one number. Raises ValueError, which argparse reports."""
    first, _, last = text.partition("-")
    found = range(int(first), int(last or first) + 1)
    if not found:
        raise ValueError(text)
    return found


def main() -> None:
    """Run the courses that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", nargs="+", choices=sorted(POINTS), default=sorted(POINTS))
    parser.add_argument("--seeds", type=_seeds, default="1", metavar="FIRST[-LAST]")
    parser.add_argument("--kills", type=int, default=KILLS_PER_COURSE)
    parser.add_argument("--summary", action="store_true")
    arguments = parser.parse_args()
    if arguments.summary:
        summary()
        return
    wrong = 0
    for seed in arguments.seeds:
        for kind in arguments.kinds:
            line = course(kind, seed, arguments.kills)
            print(json.dumps(line), flush=True)
            with LEDGER.open("a") as ledger:
                ledger.write(json.dumps(line) + "\n")
            wrong += bool(line["verdict"])
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
