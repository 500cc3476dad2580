"""Apache Kafka 3.9.1 (in ZooKeeper mode, which it needs as we need our tree) and ottla, side by side in one run.

    ./run bench broker [--quick] [--only start bulk tiny tools] [--write]

Both brokers get the same requests in turns; figures are medians of three rounds. See README.md beside this file for
what each row means, and RESULTS.md for the last complete run.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
# The harness that starts brokers belongs to the tests.
sys.path.append(str(PROJECT / "tests"))

from contestants import APACHE, NAMES, OTTLA, Started, compile_package, start  # noqa: E402
from loads import (  # noqa: E402
    BULK_LOADS,
    KIB,
    MIB,
    TINY_CONNECTIONS,
    Bulk,
    fill_partitions,
    produce_and_consume,
    tiny,
    warm_up,
)
from perf_tools import run_perf_tools  # noqa: E402
from report import (  # noqa: E402
    AT_LEAST_EQUAL,
    AT_MOST_EQUAL,
    EIGHTH,
    HALF,
    QUARTER,
    Figures,
)
from session import Options, execute, say  # noqa: E402

from support.apache import ApacheZooKeeper  # noqa: E402

START, BULK, TINY, TOOLS = PARTS = ("start", "bulk", "tiny", "tools")
MANY_PARTITIONS = 1000
MB = 1e6


@dataclass(frozen=True)
class Plan:
    """How much is measured."""

    rounds: int
    warm_up_s: dict[str, float]
    bulk_bytes: int
    passes: int
    tiny_requests: dict[int, int]
    tool_records: dict[int, int]


FULL = Plan(
    rounds=3,
    warm_up_s={APACHE: 35.0, OTTLA: 5.0},
    bulk_bytes=768 * MIB,
    passes=3,
    tiny_requests={1: 20_000, 8: 60_000, 16: 60_000},
    tool_records={100: 1_500_000, KIB: 300_000},
)
QUICK = Plan(
    rounds=1,
    warm_up_s={APACHE: 12.0, OTTLA: 1.0},
    bulk_bytes=256 * MIB,
    passes=2,
    tiny_requests={1: 10_000, 8: 20_000, 16: 20_000},
    tool_records={KIB: 150_000},
)


class Bench:
    """One run: its figures, and the brokers that it has to stop."""

    def __init__(self, plan: Plan, parts: frozenset[str], folder: Path) -> None:
        self._plan = plan
        self._parts = parts
        self._folder = folder
        self._zookeeper = ApacheZooKeeper(folder)
        self._running: dict[str, Started] = {}
        self.figures = Figures()

    def run(self) -> None:
        """Measure everything."""
        compile_package()
        self._zookeeper.start()
        if START in self._parts:
            self._starts()
        if not self._parts & {BULK, TINY, TOOLS}:
            return
        for name in NAMES:
            self._start(name, "load")
            say(f"warming up {name}")
            warm_up(self._running[name], self._plan.warm_up_s[name])
        for number in range(1, self._plan.rounds + 1):
            for bulk in BULK_LOADS if BULK in self._parts else ():
                self._in_turn(number, bulk.title, partial(self._bulk, bulk=bulk))
            for connections in TINY_CONNECTIONS if TINY in self._parts else ():
                self._in_turn(
                    number,
                    f"tiny requests, {connections} connections",
                    partial(self._tiny, connections=connections),
                )
            for record_bytes, records in self._plan.tool_records.items() if TOOLS in self._parts else ():
                self._in_turn(
                    number,
                    f"Apache Kafka's tools, {record_bytes} B records",
                    partial(self._tools, record_bytes=record_bytes, records=records),
                )

    def stop(self) -> None:
        """Kill what still runs."""
        for broker in self._running.values():
            broker.stop()
        self._zookeeper.stop()

    def _start(self, name: str, label: str) -> Started:
        folder = self._folder / f"{name.split()[0].lower()}-{label}"
        broker = self._running[name] = start(name, folder, self._zookeeper)
        return broker

    def _end(self, name: str) -> None:
        self._running.pop(name).stop()

    def _in_turn(self, number: int, what: str, measure: Callable[[Started], None]) -> None:
        """Measure both brokers, another one first in every round."""
        say(f"round {number}: {what}")
        for name in NAMES if number % 2 else reversed(NAMES):
            measure(self._running[name])

    def _starts(self) -> None:
        # Once unmeasured, so that programs and libraries are in the page cache.
        for number in range(self._plan.rounds + 1):
            say("starting both brokers" + (f", round {number}" if number else " to get everything into memory"))
            for name in NAMES:
                broker = self._start(name, f"start-{number}")
                if number:
                    self._started(broker)
                self._end(name)

    def _started(self, broker: Started) -> None:
        add, name = self.figures.add, broker.name
        add("Start and memory", "process start to first answer", "s", name, broker.seconds, EIGHTH)
        add("Start and memory", "CPU until then", "s", name, broker.cpu_s)
        add("Start and memory", "resident memory then", "MB", name, broker.memory_bytes / MB, QUARTER)
        fill_partitions(broker, MANY_PARTITIONS)
        memory = broker.server.memory_bytes() / MB
        what = f"resident memory with {MANY_PARTITIONS:,} partitions, a record in each"
        add("Start and memory", what, "MB", name, memory, QUARTER)

    def _bulk(self, broker: Started, bulk: Bulk) -> None:
        found = produce_and_consume(broker, bulk, self._plan.bulk_bytes, self._plan.passes)
        for group, one in zip(("Produce", "Consume"), found, strict=True):
            add, name = self.figures.add, broker.name
            add(group, bulk.title, "MB/s", name, one.mb_per_s, AT_LEAST_EQUAL)
            add(group, bulk.title, "broker CPU s per GB", name, one.cpu_s_per_gb, HALF)
            add(group, bulk.title, "generator CPU s per GB", name, one.generator_cpu_s_per_gb)

    def _tiny(self, broker: Started, connections: int) -> None:
        found = tiny(broker, connections, self._plan.tiny_requests[connections])
        what = f"{connections} connection{'s' if connections > 1 else ''}"
        group, add, name = "One tiny record per request", self.figures.add, broker.name
        add(group, what, "requests/s", name, found.per_s, AT_LEAST_EQUAL)
        add(group, what, "broker CPU µs per request", name, found.cpu_us, AT_MOST_EQUAL)
        add(group, what, "p50 ms", name, found.p50_ms)
        add(group, what, "p99 ms", name, found.p99_ms)
        add(group, what, "generator CPU µs per request", name, found.generator_cpu_us)

    def _tools(self, broker: Started, record_bytes: int, records: int) -> None:
        found = run_perf_tools(broker, record_bytes, records)
        group, add, name = "Apache Kafka's own tools", self.figures.add, broker.name
        what = "1 KiB records" if record_bytes == KIB else f"{record_bytes} B records"
        add(group, f"{what}, produce", "records/s", name, found.produced_per_s)
        add(group, f"{what}, produce", "p99 ms", name, found.produced_p99_ms)
        add(group, f"{what}, produce", "broker CPU s per million", name, found.produce_cpu_s_per_million)
        add(group, f"{what}, consume", "records/s", name, found.consumed_per_s)
        add(group, f"{what}, consume", "broker CPU s per million", name, found.consume_cpu_s_per_million)


def _make(options: Options, folder: Path) -> Bench:
    return Bench(QUICK if options.quick else FULL, options.parts, folder)


if __name__ == "__main__":
    sys.exit(execute("broker", __doc__, PARTS, FULL.rounds, _make))
