"""Faults against a cluster of processes under load, entered into a ledger that only grows.

    ./run bench cluster_faults --faults 20                      # one course: 3 brokers, proxies, the next seed
    ./run bench cluster_faults --faults 20 --brokers 5 --network namespaces
    ./run bench cluster_faults --total 300 --minutes 60         # courses with 3 and 5 brokers, to 300 faults in all
    ./run bench cluster_faults --seed 7 --kinds mute,isolate    # again, and only these

Each fault is made under load (two idempotent producers with acks=all, a reader, two groups, observers of end offsets
and commits), has to be seen to act, and is healed; then all replicas are in sync and both groups settled again. At the
end of a course the whole history is checked (`support.cluster_history`). A fault counts if it was seen to act and
1,000 records were acknowledged since the one before. Ends with 1 where something was wrong; the folder is kept then.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

BENCH = Path(__file__).resolve().parent
sys.path[:0] = [str(BENCH.parent / "tests")]

from support.broken_network import NamespaceNetwork  # noqa: E402
from support.cluster_faults import KINDS  # noqa: E402
from support.fault_ledger import CoursePlan, add_to_ledger, counted, read_ledger, run_course  # noqa: E402

LEDGER = BENCH / "cluster_faults.jsonl"
FAULTS_OF_A_COURSE = 20
#: Set in the process that runs in a network namespace of its own.
APART = "OTTLA_FAULTS_APART"


def main() -> int:
    """Run what was asked for."""
    options = _options()
    logging.getLogger("kazoo").setLevel(logging.ERROR)
    if options.network == "namespaces" and not os.environ.get(APART):
        if not NamespaceNetwork.is_possible():
            print("network namespaces need root, `ip`, `unshare` and `nsenter`; take --network proxies")
            return 1
        os.environ[APART] = "1"
        os.execvp("unshare", ["unshare", "-n", sys.executable, __file__, *sys.argv[1:]])
    well = True
    for plan in _plans(options):
        print(f"seed {plan.seed}: {plan.faults} faults, {plan.brokers} brokers, {plan.network}", flush=True)
        folder = Path(tempfile.mkdtemp(prefix=f"faults-{plan.seed}-"))
        result = run_course(plan, folder, lambda text: print(f"{time.strftime('%T')} {text}", flush=True))
        if not options.dry:
            add_to_ledger(options.ledger, result)
        well &= result.is_well
        print(
            f"seed {plan.seed}: {result.counted} of {len(result.reports)} faults count, {result.acknowledged} records "
            f"acknowledged, {result.seconds:.0f} s: {result.describe()}" + ("" if result.is_well else f"\n  {folder}"),
            flush=True,
        )
    _report(options.ledger)
    return 0 if well else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, help="default: the one after the ledger's last")
    parser.add_argument("--faults", type=int, default=FAULTS_OF_A_COURSE, help="of a course")
    parser.add_argument("--brokers", type=int, choices=(3, 5), default=3)
    parser.add_argument("--network", choices=("proxies", "namespaces"), default="proxies")
    parser.add_argument("--zookeeper", choices=("ottla", "apache"), default="ottla", help="apache: with proxies only")
    parser.add_argument("--kinds", default="", help=f"names separated by commas, of {', '.join(KINDS)}")
    parser.add_argument(
        "--total", type=int, help="continue, with 3 and 5 brokers in turn, until the ledger has this many"
    )
    parser.add_argument("--minutes", type=float, default=60.0, help="with --total: begin no course later than this")
    parser.add_argument("--ledger", type=Path, default=LEDGER)
    parser.add_argument("--dry", action="store_true", help="add nothing to the ledger")
    return parser.parse_args()


def _plans(options: argparse.Namespace) -> Iterator[CoursePlan]:
    lines = read_ledger(options.ledger)
    seed = options.seed if options.seed is not None else max((line["seed"] for line in lines), default=0) + 1
    kinds = tuple(filter(None, options.kinds.split(",")))
    apache = options.zookeeper == "apache"
    faults = len(kinds) if kinds else options.faults
    if options.total is None:
        yield CoursePlan(seed, faults, options.brokers, options.network, apache, kinds)
        return
    ends_at = time.monotonic() + options.minutes * 60
    while counted(read_ledger(options.ledger)) < options.total and time.monotonic() < ends_at:
        yield CoursePlan(seed, faults, 3 if seed % 2 else 5, options.network, apache, kinds)
        seed += 1


def _report(ledger: Path) -> None:
    lines = read_ledger(ledger)
    print(f"{ledger.name}: {counted(lines)} faults count, of {len(lines)} that were made")
    for name in ("verdict", "kind"):
        counts = Counter(line[name].partition(":")[0] for line in lines)
        print(f"  {name}s: " + ", ".join(f"{count} {what}" for what, count in counts.most_common()))


if __name__ == "__main__":
    sys.exit(main())
