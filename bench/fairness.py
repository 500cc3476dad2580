"""How much another client of three brokers notices of a follower that catches up, a cold reader, a flood of requests.

    ./run bench fairness [--quick] [--only follower cold flood] [--cluster ottla] [--write]

One client sends small produce requests (acks=all, three replicas) and fetches at a fixed rate: alone, then beside each
of the three, then alone again. What counts is p99 beside it divided by p99 alone (of the measurements just before and
after), in one run. Three brokers of Apache Kafka 3.9.1 on Apache ZooKeeper are measured in the same way, while those of
ottla do not run, and the other way round. See README.md beside this file.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
# The harness that starts brokers belongs to the tests.
sys.path.append(str(PROJECT / "tests"))

from cluster_loads import warm_up  # noqa: E402
from clusters import Cluster  # noqa: E402
from contestants import APACHE, NAMES, OTTLA, compile_package  # noqa: E402
from fairness_loads import Behind, Cold, Flood, Foreground, Latencies  # noqa: E402
from loads import KIB, MIB, Bulk  # noqa: E402
from report import Figures, Goal  # noqa: E402
from session import Bench as AnyBench  # noqa: E402
from session import Options, execute, say  # noqa: E402

FOLLOWER, COLD, FLOOD = PARTS = ("follower", "cold", "flood")
#: R7: within twice its own alone.
TWICE = Goal(2.0, at_least=False, absolute=True)
TITLES = {
    FOLLOWER: ("a follower that catches up", "copied by the follower", "MB/s"),
    COLD: ("a cold reader", "read from the disk", "MB/s"),
    FLOOD: ("a flood of small requests", "requests of the flood", "per s"),
}


@dataclass(frozen=True)
class Plan:
    """How much is measured."""

    rounds: int
    warm_up_s: dict[str, float]
    seconds: float
    behind_bytes: int
    cold_bytes: int


FULL = Plan(
    rounds=3, warm_up_s={APACHE: 45.0, OTTLA: 5.0}, seconds=10.0, behind_bytes=2048 * MIB, cold_bytes=1024 * MIB
)
QUICK = Plan(rounds=1, warm_up_s={APACHE: 20.0, OTTLA: 1.0}, seconds=6.0, behind_bytes=1024 * MIB, cold_bytes=512 * MIB)


class Bench:
    """One run: its figures, and the cluster that it has to stop."""

    def __init__(self, plan: Plan, parts: frozenset[str], folder: Path, names: tuple[str, ...] = NAMES) -> None:
        self._plan = plan
        self._parts = parts
        self._folder = folder
        self._names = names
        self._cluster: Cluster | None = None
        self.figures = Figures()

    def run(self) -> None:
        """Measure everything, one cluster after the other."""
        compile_package()
        for name in self._names:
            say(f"starting three brokers of {name}")
            cluster = self._cluster = Cluster(name, self._folder / name.split()[0].lower())
            cluster.start()
            warm_up(cluster, self._plan.warm_up_s[name], (Bulk(KIB, 64 * KIB),))
            self._measure(cluster)
            cluster.stop()
            self._cluster = None

    def stop(self) -> None:
        """Kill what still runs."""
        if self._cluster is not None:
            self._cluster.stop()

    def _measure(self, cluster: Cluster) -> None:
        plan = self._plan
        foreground = Foreground(cluster)
        loads: dict[str, Behind | Cold | Flood] = {}
        if FOLLOWER in self._parts:
            loads[FOLLOWER] = Behind(cluster, plan.behind_bytes)
        if COLD in self._parts:
            loads[COLD] = Cold(cluster, plan.cold_bytes)
        if FLOOD in self._parts:
            loads[FLOOD] = Flood(cluster)
        foreground.measure(plan.seconds)  # the first one warms up
        for number in range(1, plan.rounds + 1):
            before = foreground.measure(plan.seconds)
            for part, load in loads.items():
                say(f"round {number}: {part}")
                beside, per_s = load.measure(foreground, plan.seconds)
                after = foreground.measure(plan.seconds)
                self._add(cluster.name, part, before, beside, after, per_s)
                before = after

    def _add(self, name: str, part: str, before: Latencies, beside: Latencies, after: Latencies, per_s: float) -> None:
        title, what, unit = TITLES[part]
        group = f"Beside {title}"
        for kind in ("produce", "fetch"):
            alone_ms = (getattr(before, f"{kind}_ms") + getattr(after, f"{kind}_ms")) / 2
            beside_ms = getattr(beside, f"{kind}_ms")
            self.figures.add(group, f"{kind}, p99 alone", "ms", name, alone_ms)
            self.figures.add(group, f"{kind}, p99 beside it", "ms", name, beside_ms)
            self.figures.add(group, f"{kind}, p99 beside it by p99 alone", "", name, beside_ms / alone_ms, TWICE)
        self.figures.add(group, what, unit, name, per_s)
        say(f"{part}: {before} {beside} {after} {per_s:.0f} {unit}")


def _make(options: Options, folder: Path) -> AnyBench:
    names = (options.arguments.cluster,) if options.arguments.cluster else NAMES
    return Bench(QUICK if options.quick else FULL, options.parts, folder, names)


if __name__ == "__main__":
    one = lambda parser: parser.add_argument("--cluster", choices=NAMES, help="measure this one alone")  # noqa: E731
    sys.exit(execute("fairness", __doc__, PARTS, FULL.rounds, _make, one))
