"""The archive pipeline beside what one writes with Spark's own Kafka connector, on the same broker, in one run.

    ./run bench pipelines [--quick] [--scale 0.1] [--only fast rows] [--write]

Both read the same topic of JSON events to the same typed rows, in Parquet files of the same codec in the same folders,
in micro-batches of the same size; the rows are compared one by one. See README.md beside this file.
"""

from __future__ import annotations

import itertools
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parents[1]
# The harness that starts brokers belongs to the tests.
sys.path.append(str(PROJECT / "tests"))

import pyarrow  # noqa: E402
import pyarrow.dataset  # noqa: E402
import pyspark  # noqa: E402
from contestants import OTTLA, Started, compile_package, launch, make  # noqa: E402
from report import Figures, Goal  # noqa: E402
from session import Bench as AnyBench  # noqa: E402
from session import Options, execute, say  # noqa: E402
from spark import MB, OFFICIAL, PARTITIONS, Cost, Session, _events  # noqa: E402

from ottla.client.sync import Client, Producer  # noqa: E402
from ottla.spark.java import home_without_archives  # noqa: E402
from support.apache import ApacheZooKeeper  # noqa: E402
from support.java import spark_connector  # noqa: E402

FAST, ROWS = PARTS = ("fast", "rows")
THROUGH_SPARK = (
    "SELECT id, user, country, score, amount, active, at, day, visits, device, tags, path, latency, status, partition, "
    "offset, to_date(date_trunc('DAY', timestamp)) AS record_day FROM events"
)
TITLES = {
    FAST: "Archive, columns and casts (fast path)",
    ROWS: "Archive, SQL that goes through Spark",
}
EVENTS, WARM_UP = "bench-events", "bench-warm-up-events"
THREE_TIMES = Goal(3.0, at_least=True)
NO_MORE_MEMORY = Goal(1.0, at_least=False)
FASTER = Goal(1.0, at_least=True)


@dataclass(frozen=True)
class Plan:
    """How much is measured."""

    rounds: int
    events: int
    warm_up: int
    batch: int

    def scaled(self, scale: float) -> Plan:
        """The same with fewer records."""
        return Plan(self.rounds, *(int(each * scale) for each in (self.events, self.warm_up, self.batch)))


FULL = Plan(rounds=3, events=2_000_000, warm_up=200_000, batch=500_000)
QUICK = Plan(rounds=1, events=200_000, warm_up=20_000, batch=100_000)


class ArchiveSession(Session):
    """A process that runs archives."""

    SCRIPT = "pipeline_session.py"


class Bench:
    """One run: its figures, and the processes that it has to stop."""

    def __init__(self, plan: Plan, parts: frozenset[str], folder: Path, jars: str) -> None:
        self._plan = plan
        self._parts = parts
        self._folder = folder
        self._jars = jars
        self._spark_home = home_without_archives(Path(pyspark.__file__).parent, folder / "spark-home")
        self._numbers = itertools.count(1)
        self._broker: Started | None = None
        self._sessions: list[Session] = []
        self.figures = Figures(OFFICIAL)

    def run(self) -> None:
        """Measure everything."""
        compile_package()
        say("starting ottla")
        self._broker = launch(OTTLA, make(OTTLA, self._folder / "broker", ApacheZooKeeper(self._folder)))
        self._fill(f"127.0.0.1:{self._broker.port}")
        for part in PARTS:
            if part in self._parts:
                self._measure(part)

    def stop(self) -> None:
        """Kill what still runs."""
        while self._sessions:
            self._sessions.pop().stop()
        if self._broker is not None:
            self._broker.stop()

    def _fill(self, bootstrap: str) -> None:
        with Client(bootstrap) as client, Producer(bootstrap_servers=bootstrap, batch_size=64 * 1024) as producer:
            for topic, count in ((EVENTS, self._plan.events), (WARM_UP, self._plan.warm_up)):
                say(f"filling {topic} with {count:,} events")
                client.create_topic(topic, PARTITIONS, config={"retention.ms": "-1"})
                for table in _events(count):
                    producer.send_arrow(table, topic)
                producer.flush()

    def _measure(self, part: str) -> None:
        title = f"{TITLES[part]}, {self._plan.events:,} events of 1 KiB"
        say(title)
        assert self._broker is not None
        for name in (OFFICIAL, OTTLA):
            folder = self._folder / f"session-{next(self._numbers)}"
            self._sessions.append(ArchiveSession(name, folder, self._broker, self._jars, self._spark_home))
        for session in self._sessions:
            session.run("archive", **self._job(part, session.name, WARM_UP))
        for number in range(1, self._plan.rounds + 1):
            written: dict[str, Path] = {}
            for session in self._sessions if number % 2 else reversed(self._sessions):
                job = self._job(part, session.name, EVENTS)
                self._add(title, part, session.name, session.run("archive", **job))
                written[session.name] = Path(job["target"])
            files = {name: len(list(path.rglob("[!._]*.parquet"))) for name, path in written.items()}
            for name, count in files.items():
                self.figures.add(title, "files", "number", name, count)
            _check_equal(written, self._plan.events)
        while self._sessions:
            self._sessions.pop().stop()

    def _job(self, part: str, name: str, topic: str) -> dict[str, Any]:
        number = next(self._numbers)
        job: dict[str, Any] = {
            "topic": topic,
            "batch": self._plan.batch,
            "target": str(self._folder / f"archive-{number}"),
            "checkpoint": str(self._folder / f"checkpoint-{number}"),
        }
        return job | {"sql": THROUGH_SPARK} if part == ROWS and name == OTTLA else job

    def _add(self, title: str, part: str, name: str, cost: Cost) -> None:
        python = sum(size for program, size in cost.memory.items() if program != "java")
        speed, memory = (THREE_TIMES, NO_MORE_MEMORY) if part == FAST else (FASTER, None)
        for what, unit, value, goal in (
            ("speed", "rows/s", self._plan.events / cost.seconds, speed),
            ("CPU of Spark", "s", cost.spark_cpu_s, None),
            ("memory at its peak", "MB", sum(cost.memory.values()) / MB, memory),
            ("of it Python", "MB", python / MB, None),
            ("CPU of the broker", "s", cost.broker_cpu_s, None),
        ):
            self.figures.add(title, what, unit, name, value, goal)
        shown = ", ".join(f"{program} {size / MB:.0f}" for program, size in cost.memory.items())
        say(f"  {name}: {cost.seconds:.2f} s, CPU {cost.spark_cpu_s:.1f} + {cost.broker_cpu_s:.1f} s, {shown} MB")


def _check_equal(written: dict[str, Path], count: int) -> None:
    """Compare the rows one by one, a partition of the topic after the other, so that not all are in memory."""
    sets = [pyarrow.dataset.dataset(path, partitioning="hive") for path in written.values()]
    rows = 0
    for number in range(PARTITIONS):
        here = pyarrow.dataset.field("partition") == number
        first, second = (_in_order(each.to_table(filter=here)) for each in sets)
        if first != second.select(first.schema.names).cast(first.schema):
            raise RuntimeError(f"the archives differ in partition {number}: {_difference(first, second)}")
        rows += first.num_rows
    if rows != count:
        raise RuntimeError(f"the archives have {rows} rows of {count}")
    say(f"  the same {rows:,} rows")


def _in_order(table: pyarrow.Table) -> pyarrow.Table:
    return table.sort_by("offset").combine_chunks()


def _difference(first: pyarrow.Table, second: pyarrow.Table) -> str:
    if first.num_rows != second.num_rows:
        return f"{first.num_rows} and {second.num_rows} rows"
    names = [name for name in first.schema.names if not first[name].equals(second[name].cast(first[name].type))]
    return f"in {', '.join(names)}"


def _add_options(parser: Any) -> None:
    parser.add_argument("--scale", type=float, default=1.0, help="a part of the events, say 0.1")


def _make(options: Options, folder: Path) -> AnyBench:
    plan = (QUICK if options.quick else FULL).scaled(options.arguments.scale)
    jars = ",".join(map(str, spark_connector()))
    if not jars:
        raise SystemExit("bench: the jars of Spark's Kafka connector are missing; use ./run bench, which fetches them")
    return Bench(plan, options.parts, folder, jars)


if __name__ == "__main__":
    sys.exit(execute("pipelines", __doc__, PARTS, FULL.rounds, _make, _add_options))
