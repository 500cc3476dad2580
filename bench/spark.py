"""ottla's Spark source and sink beside Spark's own Kafka connector, on the same broker, side by side in one run.

    ./run bench spark [--quick] [--only scan parquet …] [--scale 0.1] [--write]

Each connector has a Spark session of its own, with the same settings; both read the same topics of one `ottla serve`
in turns. Figures are medians of several rounds; see README.md beside this file.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parents[1]
# The harness that starts brokers belongs to the tests.
sys.path.append(str(PROJECT / "tests"))

import pyarrow  # noqa: E402
import pyspark  # noqa: E402
from contestants import NAMES, OTTLA, Started, compile_package, launch, make  # noqa: E402
from process_tree import PeakMemory, ProcessTree  # noqa: E402
from report import Figures, Goal  # noqa: E402
from session import Bench as AnyBench  # noqa: E402
from session import Options, execute, say  # noqa: E402
from spark_floor import FLOOR_FORMAT  # noqa: E402
from spark_queries import KAFKA_FORMAT, OTTLA_FORMAT  # noqa: E402

from ottla.client.sync import Client, Producer  # noqa: E402
from ottla.spark.java import home_without_archives  # noqa: E402
from support.apache import ApacheZooKeeper  # noqa: E402
from support.java import java_executable, spark_connector  # noqa: E402

OFFICIAL = "Spark's connector"
CONTESTANTS = (OFFICIAL, OTTLA)
TRIVIAL = "trivial source"
FORMATS = {OFFICIAL: KAFKA_FORMAT, OTTLA: OTTLA_FORMAT, TRIVIAL: FLOOR_FORMAT}
SCAN, COLUMNS, PARQUET, STREAM, WINDOWS, JSON, WRITE, LATENCY, FLOOR = PARTS = (
    "scan",
    "columns",
    "parquet",
    "stream",
    "windows",
    "json",
    "write",
    "latency",
    "floor",
)
PARTITIONS = 4
SMALL, EVENTS, WARM_UP, WARM_UP_EVENTS = "bench-small", "bench-events", "bench-warm-up", "bench-warm-up-events"
KEYS = 10_000
VALUE_BYTES = 100
EVENT_BYTES = 1024
DIFFERENT_EVENTS = 20_000
#: Timestamps of a topic's records lie this far apart, so that there are windows.
APART_US = 200
FIRST_MS = 1_700_000_000_000
ROWS_PER_SEND = 50_000
MB = 1e6
LESS_CPU = Goal(0.8, at_least=False)
LITTLE_MORE_MEMORY = Goal(1.2, at_least=False)
NO_SLOWER = Goal(1.0, at_least=False)
SPEED = {SCAN: 2.5, COLUMNS: 2.5, PARQUET: 1.8, STREAM: 1.8, WINDOWS: 1.6, JSON: 2.5, WRITE: 1.5}


@dataclass(frozen=True)
class Plan:
    """How much is measured."""

    rounds: int
    records: int
    events: int
    warm_up: int
    micro_batches: int

    def scaled(self, scale: float) -> Plan:
        """The same with fewer records."""
        return Plan(
            self.rounds,
            int(self.records * scale),
            int(self.events * scale),
            int(self.warm_up * scale),
            self.micro_batches,
        )


FULL = Plan(rounds=3, records=5_000_000, events=2_000_000, warm_up=500_000, micro_batches=20)
QUICK = Plan(rounds=1, records=500_000, events=100_000, warm_up=50_000, micro_batches=10)


@dataclass(frozen=True)
class Cost:
    """What one query took."""

    seconds: float
    spark_cpu_s: float
    broker_cpu_s: float
    memory: dict[str, int]
    found: Any


class Session:
    """A process with a Spark session (`spark_session.py`), which runs queries one by one."""

    SCRIPT = "spark_session.py"

    def __init__(self, name: str, folder: Path, broker: Started, jars: str, spark_home: Path) -> None:
        self.name = name
        folder.mkdir(parents=True)
        self._broker = broker
        command = [sys.executable, str(Path(__file__).with_name(self.SCRIPT)), FORMATS[name], str(folder)]
        command.append(f"127.0.0.1:{broker.port}")
        if name == OFFICIAL:
            command.append(jars)
        self._log = folder / "spark.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=_environment(spark_home),
            )
        self.tree = ProcessTree(self._process.pid)
        self._reply()

    def run(self, query: str, **arguments: Any) -> Cost:
        """Run a query to its end."""
        assert self._process.stdin is not None
        memory = PeakMemory(self.tree)
        try:
            spark_cpu_s, broker_cpu_s = self.tree.cpu_seconds(), self._broker.cpu_seconds()
            self._process.stdin.write(json.dumps({"query": query, **arguments}) + "\n")
            self._process.stdin.flush()
            reply = self._reply()
            spark_cpu_s = self.tree.cpu_seconds() - spark_cpu_s
            broker_cpu_s = self._broker.cpu_seconds() - broker_cpu_s
        finally:
            peak = memory.stop()
        return Cost(reply["seconds"], spark_cpu_s, broker_cpu_s, peak, reply["found"])

    def _reply(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            tail = "\n".join(self._log.read_text(encoding="utf-8", errors="replace").splitlines()[-40:])
            raise RuntimeError(f"the session with {self.name} ended:\n{tail}")
        return json.loads(line)

    def stop(self) -> None:
        """End the session; its Java ends with it."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            for pid in reversed(self.tree.pids()):
                _kill(pid)
            self._process.wait()


def _kill(pid: int) -> None:
    try:
        os.kill(pid, 9)
    except ProcessLookupError:
        return


def _environment(spark_home: Path) -> dict[str, str]:
    java = java_executable()
    assert java is not None
    home = str(Path(java).resolve().parents[1])
    # Workers find the trivial source beside this file.
    path = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), str(Path(__file__).parent))))
    own = {"JAVA_HOME": home, "PYSPARK_PYTHON": sys.executable, "PYTHONDONTWRITEBYTECODE": "", "PYTHONPATH": path}
    return os.environ | own | {"SPARK_HOME": str(spark_home)}


class Bench:
    """One run: its figures, and the processes that it has to stop."""

    def __init__(
        self,
        plan: Plan,
        parts: frozenset[str],
        folder: Path,
        jars: str,
        names: tuple[str, ...],
        *,
        archives: bool,
    ) -> None:
        own = Path(pyspark.__file__).parent
        self._spark_home = own if archives else home_without_archives(own, folder / "spark-home")
        self._plan = plan
        self._parts = parts
        self._folder = folder
        self._jars = jars
        self._names = names
        self._numbers = itertools.count(1)
        self._broker: Started | None = None
        self._sessions: list[Session] = []
        self.figures = Figures(OFFICIAL)

    @property
    def broker(self) -> Started:
        """The broker that both read from."""
        assert self._broker is not None
        return self._broker

    def run(self) -> None:
        """Measure everything."""
        compile_package()
        say("starting ottla")
        self._broker = launch(OTTLA, make(OTTLA, self._folder / "broker", ApacheZooKeeper(self._folder)))
        self._fill()
        size = f"{self._plan.records:,} records of {VALUE_BYTES} bytes"
        events = f"{self._plan.events:,} JSON events of 1 KiB"
        topic, records = {"topic": SMALL}, self._plan.records
        if SCAN in self._parts:
            self._measure(SCAN, f"Batch read to an aggregate, {size}", "scan", topic, records)
        if COLUMNS in self._parts:
            self._measure(
                COLUMNS, f"Batch read of three columns to an aggregate, {size}", "scan_of_columns", topic, records
            )
        if PARQUET in self._parts:
            self._measure(PARQUET, f"Batch read to Parquet, {size}", "parquet", topic, records, self._same_files)
        if STREAM in self._parts:
            title = f"Stream to Parquet, availableNow, {size}"
            self._measure(STREAM, title, "stream_to_parquet", topic, records, self._same_files)
        if WINDOWS in self._parts:
            self._measure(WINDOWS, f"Stream aggregated in windows, availableNow, {size}", "windows", topic, records)
        if JSON in self._parts:
            title, topic = f"Typed columns to Parquet, {events}", {"topic": EVENTS}
            self._measure(JSON, title, "json_to_parquet", topic, self._plan.events, self._same_files)
        if WRITE in self._parts:
            title = f"Write, acks=all, {size}"
            self._measure(WRITE, title, "write", {"rows": records}, records, self._same_topics)
        if LATENCY in self._parts:
            self._latency()
        if FLOOR in self._parts:
            self._floor()

    def stop(self) -> None:
        """Kill what still runs."""
        for session in self._sessions:
            session.stop()
        if self._broker is not None:
            self._broker.stop()

    def _fill(self) -> None:
        plan = self._plan
        wanted: list[tuple[str, int, Callable[[int], Iterator[pyarrow.Table]]]] = []
        if self._parts & {SCAN, COLUMNS, PARQUET, STREAM, WINDOWS, FLOOR}:
            wanted += [(SMALL, plan.records, _small_records), (WARM_UP, plan.warm_up, _small_records)]
        if JSON in self._parts:
            wanted += [(EVENTS, plan.events, _events), (WARM_UP_EVENTS, plan.warm_up // 5, _events)]
        bootstrap = f"127.0.0.1:{self.broker.port}"
        with Client(bootstrap) as client, Producer(bootstrap_servers=bootstrap, batch_size=64 * 1024) as producer:
            for topic, count, tables in wanted:
                say(f"filling {topic} with {count:,} records")
                client.create_topic(topic, PARTITIONS, config={"retention.ms": "-1"})
                for table in tables(count):
                    producer.send_arrow(table, topic)
                producer.flush()

    def _open(self, *names: str) -> list[Session]:
        for name in names or self._names:
            number = next(self._numbers)
            self._sessions.append(
                Session(name, self._folder / f"session-{number}", self.broker, self._jars, self._spark_home)
            )
        return self._sessions

    def _close(self) -> None:
        while self._sessions:
            self._sessions.pop().stop()

    def _measure(
        self,
        part: str,
        title: str,
        query: str,
        arguments: dict[str, Any],
        rows: int,
        compare: Callable[[str, int, dict[str, dict[str, Any]]], None] | None = None,
    ) -> None:
        """Run a query in turns, in a fresh session of each connector, and compare what it gave."""
        say(title)
        sessions = self._open()
        where: dict[str, dict[str, Any]] = {}
        for session in sessions:
            where[session.name] = self._place(part, arguments, 0)
            session.run(query, **where[session.name] | _warm_up(part, self._plan))
        for number in range(1, self._plan.rounds + 1):
            found: dict[str, Any] = {}
            for session in sessions if number % 2 else reversed(sessions):
                place = where[session.name] = self._place(part, arguments, number)
                cost = session.run(query, **place)
                found[session.name] = cost.found
                self._add_cost(title, session.name, rows, cost, part)
            if len({json.dumps(each) for each in found.values()}) > 1:
                raise RuntimeError(f"{title}: the connectors gave different rows: {found}")
        if compare is not None:
            compare(title, rows, where)
        self._close()

    def _place(self, part: str, arguments: dict[str, Any], number: int) -> dict[str, Any]:
        """The arguments of one run, with a place to write to where it writes."""
        if part in (PARQUET, STREAM, JSON):
            return arguments | {"target": str(self._folder / f"{part}-{next(self._numbers)}")}
        if part == WRITE:
            topic = f"bench-write-{next(self._numbers)}"
            with Client(f"127.0.0.1:{self.broker.port}") as client:
                client.create_topic(topic, PARTITIONS)
            return arguments | {"topic": topic}
        return arguments

    def _add_cost(self, title: str, name: str, rows: int, cost: Cost, part: str = "", other: str | None = None) -> None:
        """Add the figures of one query; with the goals of a part, if one is named."""
        goals = (Goal(SPEED[part], at_least=True), LESS_CPU, LITTLE_MORE_MEMORY) if part else (None, None, None)
        python = sum(size for program, size in cost.memory.items() if program != "java")
        for what, unit, value, goal in (
            ("speed", "rows/s", rows / cost.seconds, goals[0]),
            ("CPU of Spark", "s", cost.spark_cpu_s, goals[1]),
            ("memory at its peak", "MB", sum(cost.memory.values()) / MB, goals[2]),
            ("of it Python", "MB", python / MB, None),
        ):
            self.figures.add(title, what, unit, name, value, goal, other=other)
        if other != TRIVIAL:
            self.figures.add(title, "CPU of the broker", "s", name, cost.broker_cpu_s)
        shown = ", ".join(f"{program} {size / MB:.0f}" for program, size in cost.memory.items())
        say(f"  {name}: {cost.seconds:.2f} s, CPU {cost.spark_cpu_s:.1f} + {cost.broker_cpu_s:.1f} s, {shown} MB")

    def _same_files(self, title: str, rows: int, where: dict[str, dict[str, Any]]) -> None:
        """Check that the Parquet files of the last round have the same rows.

        They are then copied by each session: Spark's own writer has its share of what a query takes, which no source
        can make less.
        """
        judge = self._sessions[-1]
        found = {name: judge.run("digest", path=place["target"]).found for name, place in where.items()}
        _check_equal(found)
        for session in self._sessions:
            for _ in range(2):  # The first warms up.
                target = str(self._folder / f"copy-{next(self._numbers)}")
                cost = session.run("copy", path=where[session.name]["target"], target=target)
            self.figures.add(title, "for comparison: its files copied", "rows/s", session.name, rows / cost.seconds)
            say(f"  {session.name}: copied in {cost.seconds:.2f} s, CPU {cost.spark_cpu_s:.1f} s")

    def _same_topics(self, title: str, rows: int, where: dict[str, dict[str, Any]]) -> None:
        """Check that the topics of the last round have the same records."""
        judge = self._sessions[0]
        found = {name: judge.run("digest_of_topic", topic=place["topic"]).found for name, place in where.items()}
        _check_equal(found)

    def _latency(self) -> None:
        say("micro-batches")
        sessions = self._open()
        for number in range(1, self._plan.rounds + 1):
            for session in sessions if number % 2 else reversed(sessions):
                topic = f"bench-latency-{next(self._numbers)}"
                with Client(f"127.0.0.1:{self.broker.port}") as client:
                    client.create_topic(topic, PARTITIONS)
                cost = session.run("micro_batches", topic=topic, batches=self._plan.micro_batches, warm_up=10)
                title, add, name, found = "Stream that follows a topic", self.figures.add, session.name, cost.found
                add(title, "trigger with nothing new", "ms", name, found["idle"], NO_SLOWER)
                add(title, "micro-batch of 100 records", "ms", name, found["triggerExecution"], NO_SLOWER)
                add(title, "of it planning", "ms", name, found["latestOffset"] + found["queryPlanning"])
                add(title, "of it reading", "ms", name, found["addBatch"])
                say(f"  {name}: {found}")
        self._close()

    def _floor(self) -> None:
        """What any source in Python takes: the scan of a topic beside the same query of a source of constants."""
        rows, warm_up = self._plan.records, self._plan.warm_up
        title = f"Batch read to an aggregate, beside {rows:,} constant rows of a trivial source in Python"
        say(title)
        for session in self._open(TRIVIAL, OTTLA):
            trivial = session.name == TRIVIAL
            query = "scan_of_constants" if trivial else "scan"
            session.run(query, **({"rows": warm_up} if trivial else {"topic": WARM_UP}))
            for _ in range(self._plan.rounds):
                cost = session.run(query, **({"rows": rows} if trivial else {"topic": SMALL}))
                self._add_cost(title, session.name, rows, cost, other=TRIVIAL)
        self._close()


def _check_equal(found: dict[str, Any]) -> None:
    if len({json.dumps(each) for each in found.values()}) > 1:
        raise RuntimeError(f"the connectors wrote different rows: {found}")
    say(f"  the same rows: {next(iter(found.values()))[-3:]}")


def _warm_up(part: str, plan: Plan) -> dict[str, Any]:
    if part == WRITE:
        return {"rows": plan.warm_up}
    return {"topic": WARM_UP_EVENTS if part == JSON else WARM_UP}


def _small_records(count: int) -> Iterator[pyarrow.Table]:
    """Records with a key of up to 4 bytes and a value of 100, which no other record has."""
    dice = random.Random(17)
    for first in range(0, count, ROWS_PER_SEND):
        rows = dice.randbytes(VALUE_BYTES * ROWS_PER_SEND)
        values = [rows[at : at + VALUE_BYTES] for at in range(0, len(rows), VALUE_BYTES)]
        yield _table(first, values[: count - first], dice)


def _events(count: int) -> Iterator[pyarrow.Table]:
    """JSON events of 1 KiB, of which a query wants about a half."""
    dice = random.Random(18)
    values = [_event(dice, number) for number in range(DIFFERENT_EVENTS)]
    for first in range(0, count, len(values)):
        yield _table(first, values[: count - first], dice)


def _table(first: int, values: list[bytes], dice: random.Random) -> pyarrow.Table:
    times = [FIRST_MS + (first + row) * APART_US // 1000 for row in range(len(values))]
    keys = [b"%d" % dice.randrange(KEYS) for _ in values]
    return pyarrow.table(
        {
            "key": pyarrow.array(keys, pyarrow.binary()),
            "value": pyarrow.array(values, pyarrow.binary()),
            "timestamp": pyarrow.array(times, pyarrow.timestamp("ms", "UTC")),
        }
    )


def _event(dice: random.Random, number: int) -> bytes:
    day = f"20{dice.randrange(20, 26)}-{dice.randrange(1, 13):02}-{dice.randrange(1, 29):02}"
    event = {
        "id": number,
        "user": f"user-{dice.randrange(100_000)}",
        "country": dice.choice(["AT", "BR", "CA", "DE", "FR", "JP", "NZ"]),
        "score": round(dice.random() * 100, 6),
        "amount": dice.randrange(1_000_000) / 100,
        "active": dice.random() < 0.5,
        "at": f"{day}T{dice.randrange(24):02}:{dice.randrange(60):02}:30.{dice.randrange(1000):03}Z",
        "day": day,
        "visits": dice.randrange(1000),
        "device": {"os": dice.choice(["ios", "android"]), "version": dice.randrange(20), "model": "m-1"},
        "tags": [f"tag-{dice.randrange(100)}" for _ in range(dice.randrange(5))],
        "path": f"/shop/{dice.randrange(10_000)}/item",
        "latency": round(dice.random(), 4),
        "status": dice.choice([200, 200, 200, 404, 500]),
        "agent": "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0 Safari/537.36",
        "session": f"{dice.getrandbits(128):032x}",
        "referrer": f"https://shop.example/{dice.getrandbits(64):016x}",
        "experiments": {f"e{each}": dice.random() < 0.5 for each in range(6)},
        "note": "",
    }
    missing = EVENT_BYTES - len(json.dumps(event))
    return json.dumps(event | {"note": "n" * max(0, missing)}).encode()


def _add_options(parser: Any) -> None:
    parser.add_argument("--scale", type=float, default=1.0, help="a part of the records, say 0.1")
    parser.add_argument("--archives", action="store_true", help="Spark's home as it is, with PySpark in an archive")
    parser.add_argument("--connector", choices=CONTESTANTS, help="measure this one alone")


def _make(options: Options, folder: Path) -> AnyBench:
    arguments = options.arguments
    plan = (QUICK if options.quick else FULL).scaled(arguments.scale)
    names = (arguments.connector,) if arguments.connector else CONTESTANTS
    jars = ",".join(map(str, spark_connector()))
    if not jars and OFFICIAL in names:
        raise SystemExit("bench: the jars of Spark's Kafka connector are missing; use ./run bench, which fetches them")
    return Bench(plan, options.parts, folder, jars, names, archives=arguments.archives)


if __name__ == "__main__":
    assert OTTLA in NAMES
    sys.exit(execute("spark", __doc__, PARTS, FULL.rounds, _make, _add_options))
