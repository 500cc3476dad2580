"""Three brokers of Apache Kafka 3.9.1 on Apache ZooKeeper, and three of ottla on its own, side by side in one run.

    ./run bench cluster [--quick] [--only produce create return death] [--write]

Both clusters run all the time, and are loaded in turns, another one first in every round; figures are medians of five
rounds. See README.md beside this file.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
# The harness that starts brokers belongs to the tests.
sys.path.append(str(PROJECT / "tests"))

from cluster_loads import Producing, catch_up, create_many, death, make_many, warm_up  # noqa: E402
from clusters import Cluster  # noqa: E402
from contestants import APACHE, NAMES, OTTLA, compile_package  # noqa: E402
from loads import KIB, MIB, Bulk  # noqa: E402
from report import AT_LEAST_EQUAL, AT_MOST_EQUAL, Figures, Goal  # noqa: E402
from session import Bench as AnyBench  # noqa: E402
from session import Options, execute, say  # noqa: E402

PRODUCE, CREATE, RETURN, DEATH = PARTS = ("produce", "create", "return", "death")
LOADS = (Bulk(100, 64 * KIB), Bulk(KIB, 64 * KIB))
#: Of the JVM's processor time.
SEVEN_TENTHS = Goal(0.7, at_least=False)
MB = 1e6


@dataclass(frozen=True)
class Plan:
    """How much is measured."""

    rounds: int
    warm_up_s: dict[str, float]
    produce_bytes: int
    paced_s: float
    partitions: int
    return_bytes: int
    many_partitions: int


FULL = Plan(
    rounds=5,
    warm_up_s={APACHE: 60.0, OTTLA: 5.0},
    produce_bytes=512 * MIB,
    paced_s=10.0,
    partitions=1000,
    return_bytes=1024 * MIB,
    many_partitions=2000,
)
QUICK = Plan(
    rounds=1,
    warm_up_s={APACHE: 20.0, OTTLA: 1.0},
    produce_bytes=192 * MIB,
    paced_s=4.0,
    partitions=200,
    return_bytes=256 * MIB,
    many_partitions=400,
)


class Bench:
    """One run: its figures, and the clusters that it has to stop."""

    def __init__(self, plan: Plan, parts: frozenset[str], folder: Path, names: tuple[str, ...] = NAMES) -> None:
        self._plan = plan
        self._parts = parts
        self._clusters = {name: Cluster(name, folder / name.split()[0].lower()) for name in names}
        self._many: dict[str, list[str]] = {}
        self.figures = Figures()

    def run(self) -> None:
        """Measure everything."""
        compile_package()
        for name, cluster in self._clusters.items():
            say(f"starting three brokers of {name}")
            cluster.start()
            warm_up(cluster, self._plan.warm_up_s[name], LOADS)
            self.figures.add("Memory", "brokers and ZooKeeper, resident", "MB", name, cluster.memory_bytes() / MB)
        measures: dict[str, Callable[[Cluster], None]] = {CREATE: self._create, RETURN: self._return}
        for number in range(1, self._plan.rounds + 1):
            if PRODUCE in self._parts:
                for bulk in LOADS:
                    self._produce(number, bulk)
            for part, measure in measures.items():
                if part in self._parts:
                    self._in_turn(number, part, measure)
        if DEATH in self._parts:
            for name, cluster in self._clusters.items():
                say(f"{self._plan.many_partitions:,} partitions for {name}")
                self._many[name] = make_many(cluster, self._plan.many_partitions)
            for number in range(1, self._plan.rounds + 1):
                self._in_turn(number, "death of a broker", lambda cluster: self._death(cluster, False))
                self._in_turn(number, "death of the controller", lambda cluster: self._death(cluster, True))

    def stop(self) -> None:
        """Kill what still runs."""
        for cluster in self._clusters.values():
            cluster.stop()

    def _in_turn(self, number: int, what: str, measure: Callable[[Cluster], None]) -> None:
        """Measure both clusters, another one first in every round."""
        say(f"round {number}: {what}")
        clusters = list(self._clusters.values())
        for cluster in clusters if number % 2 else reversed(clusters):
            measure(cluster)

    def _produce(self, number: int, bulk: Bulk) -> None:
        """As much as either takes, and then both at half the rate of the slower one."""
        title, under_way, rates = bulk.title, dict[str, Producing](), dict[str, float]()
        add = self.figures.add

        def saturate(cluster: Cluster) -> None:
            name = cluster.name
            producing = under_way[name] = Producing(cluster, bulk)
            found = producing.saturate(self._plan.produce_bytes)
            rates[name] = found.mb_per_s
            group = "Replicated produce, acks=all"
            add(group, title, "MB/s", name, found.mb_per_s, AT_LEAST_EQUAL)
            add(group, title, "CPU s of the cluster per GB", name, found.cpu_s_per_gb, SEVEN_TENTHS)
            add(group, title, "generator CPU s per GB", name, found.generator_cpu_s_per_gb)
            add(group, title, "generator's share of a core", name, found.generator_share)

        def pace(cluster: Cluster) -> None:
            producing = under_way[cluster.name]
            p50_ms, p99_ms = producing.paced(min(rates.values()) / 2, self._plan.paced_s)
            producing.end()
            group = "Replicated produce at half the slower one's rate"
            add(group, f"{title}, p50", "ms", cluster.name, p50_ms)
            add(group, f"{title}, p99", "ms", cluster.name, p99_ms, AT_MOST_EQUAL)

        self._in_turn(number, title, saturate)
        self._in_turn(number, f"{title}, paced", pace)

    def _create(self, cluster: Cluster) -> None:
        found = create_many(cluster, self._plan.partitions)
        group, what = "Many partitions", f"topic of {self._plan.partitions:,} partitions, 3 replicas"
        add, name = self.figures.add, cluster.name
        add(group, f"{what}, until answered", "s", name, found.answered_s)
        add(group, f"{what}, until led", "s", name, found.led_s, AT_MOST_EQUAL)
        add(group, f"{what}, CPU of the cluster", "s", name, found.cpu_s, SEVEN_TENTHS)

    def _return(self, cluster: Cluster) -> None:
        found = catch_up(cluster, self._plan.return_bytes, LOADS[1])
        group, add, name = "A broker returns and lacks data", self.figures.add, cluster.name
        add(group, "from its registration until in sync", "MB/s", name, found.mb_per_s, AT_LEAST_EQUAL)
        add(group, "the same", "s", name, found.seconds)
        add(group, "CPU of the cluster meanwhile", "s per GB", name, found.cpu_s_per_gb, SEVEN_TENTHS)

    def _death(self, cluster: Cluster, of_controller: bool) -> None:
        found = death(cluster, self._many[cluster.name], of_controller=of_controller)
        who = "The controller" if of_controller else "A broker that is not the controller"
        group, add, name = f"{who} dies, {self._plan.many_partitions:,} partitions", self.figures.add, cluster.name
        add(group, "node gone to first acknowledgement", "s", name, found.acknowledged_s, AT_MOST_EQUAL)
        add(group, "node gone to last UpdateMetadata", "s", name, found.told_s, AT_MOST_EQUAL)
        add(group, "death to node gone (session timeout)", "s", name, found.gone_after_s)
        add(group, "death to last UpdateMetadata", "s", name, found.total_s)
        add(group, "CPU of the cluster from death on", "s", name, found.cpu_s)


def _make(options: Options, folder: Path) -> AnyBench:
    names = (options.arguments.cluster,) if options.arguments.cluster else NAMES
    return Bench(QUICK if options.quick else FULL, options.parts, folder, names)


if __name__ == "__main__":
    assert {APACHE, OTTLA} == set(NAMES)
    one = lambda parser: parser.add_argument("--cluster", choices=NAMES, help="measure this one alone")  # noqa: E731
    sys.exit(execute("cluster", __doc__, PARTS, FULL.rounds, _make, one))
