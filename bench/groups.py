"""Consumer groups on Apache Kafka 3.9.1 and ottla, side by side in one run.

    ./run bench groups [--quick] [--only rebalances heartbeats assignors] [--write]

Both coordinators get the same requests in turns; figures are medians of several rounds. See README.md beside this file
for what each row means, and RESULTS.md for the last complete run.
"""

from __future__ import annotations

import itertools
import sys
import time
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
# The harness that starts brokers belongs to the tests.
sys.path.append(str(PROJECT / "tests"))

import assignors  # noqa: E402
import loadgen  # noqa: E402
from contestants import APACHE, NAMES, OTTLA, Started, compile_package, launch, make  # noqa: E402
from frames import Caller  # noqa: E402
from loads import make_topic  # noqa: E402
from raw_members import RawGroup  # noqa: E402
from report import AT_MOST_EQUAL, Figures  # noqa: E402
from session import Options, execute, say  # noqa: E402

from ottla.wire.apis import ApiKey  # noqa: E402
from support.apache import ApacheZooKeeper  # noqa: E402

REBALANCES, HEARTBEATS, ASSIGNORS = PARTS = ("rebalances", "heartbeats", "assignors")
SETTINGS = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "4"}
PARTITIONS = 400
SIZES = (10, 100, 1000)
HEARTBEAT_MEMBERS = 64


@dataclass(frozen=True)
class Plan:
    """How much is measured."""

    rounds: int
    warm_up_s: dict[str, float]
    heartbeats: int
    assignors: assignors.Plan


FULL = Plan(rounds=5, warm_up_s={APACHE: 30.0, OTTLA: 5.0}, heartbeats=100_000, assignors=assignors.FULL)
QUICK = Plan(rounds=1, warm_up_s={APACHE: 10.0, OTTLA: 1.0}, heartbeats=20_000, assignors=assignors.QUICK)


class Bench:
    """One run: its figures, and the brokers that it has to stop."""

    def __init__(self, plan: Plan, parts: frozenset[str], folder: Path) -> None:
        self._plan = plan
        self._parts = parts
        self._folder = folder
        self._zookeeper = ApacheZooKeeper(folder)
        self._running: dict[str, Started] = {}
        self._topics: dict[str, str] = {}
        self._numbers = itertools.count(1)
        self.figures = Figures()

    def run(self) -> None:
        """Measure everything; the assignors last, when the brokers are gone."""
        if self._parts != {ASSIGNORS}:
            self._coordinators()
            self.stop()
        if ASSIGNORS in self._parts:
            self._assign()

    def _assign(self) -> None:
        bench = assignors.Bench(self._plan.assignors, frozenset(assignors.STICKY), self._folder, self.figures)
        try:
            bench.run()
        finally:
            bench.stop()

    def _coordinators(self) -> None:
        compile_package()
        self._zookeeper.start()
        for name in NAMES:
            say(f"starting and warming up {name}")
            self._start(name)
        for number in range(1, self._plan.rounds + 1):
            say(f"round {number}")
            for name in NAMES if number % 2 else reversed(NAMES):
                if REBALANCES in self._parts:
                    self._rebalances(name)
                if HEARTBEATS in self._parts:
                    self._heartbeats(name)

    def stop(self) -> None:
        """Kill what still runs."""
        for broker in self._running.values():
            broker.stop()
        self._zookeeper.stop()

    def _start(self, name: str) -> None:
        folder = self._folder / name.split()[0].lower()
        broker = self._running[name] = launch(name, make(name, folder, self._zookeeper, SETTINGS))
        with Caller(broker.port) as caller:
            self._topics[name], _ = make_topic(caller, PARTITIONS)
            caller.wait_for_coordinator("warm-up")
        deadline = time.monotonic() + self._plan.warm_up_s[name]
        while time.monotonic() < deadline:
            for size in SIZES:
                group = self._group(name)
                group.form(size)
                group.one_leaves()
                group.one_joins()
                group.close()

    def _group(self, name: str) -> RawGroup:
        group_id = f"bench-group-{next(self._numbers)}"
        return RawGroup(self._running[name].port, group_id, self._topics[name], PARTITIONS)

    def _rebalances(self, name: str) -> None:
        broker = self._running[name]
        for size in SIZES:
            group, before = self._group(name), broker.cpu_seconds()
            seconds = {"start": group.form(size), "one leaves": group.one_leaves(), "one joins": group.one_joins()}
            cpu_s = broker.cpu_seconds() - before
            group.close()
            title = f"{size:,} members"
            for what, value in seconds.items():
                self.figures.add("Rebalances", f"{title}, {what}", "ms", name, value * 1e3, AT_MOST_EQUAL)
            self.figures.add("Rebalances", f"{title}, all three", "broker CPU ms", name, cpu_s * 1e3)

    def _heartbeats(self, name: str) -> None:
        broker, group = self._running[name], self._group(name)
        group.form(HEARTBEAT_MEMBERS)
        frames = group.heartbeat_frames()
        with Caller(broker.port) as caller:
            answer = caller.exchange(frames[0])
            if caller.decoded(ApiKey.HEARTBEAT, answer).error_code:
                raise loadgen.LoadFailed("a heartbeat was refused")
        before = broker.cpu_seconds()
        done = loadgen.ping_pong(broker.port, frames, len(answer), self._plan.heartbeats)
        cpu_s = broker.cpu_seconds() - before
        group.close()
        title = f"{HEARTBEAT_MEMBERS} connections"
        self.figures.add("Heartbeats", title, "heartbeats/s", name, done.requests / done.seconds)
        self.figures.add("Heartbeats", title, "heartbeats per CPU second", name, done.requests / cpu_s)
        self.figures.add("Heartbeats", title, "p99 ms", name, done.percentile_ms(99))


def _make(options: Options, folder: Path) -> Bench:
    return Bench(QUICK if options.quick else FULL, options.parts, folder)


if __name__ == "__main__":
    sys.exit(execute("groups", __doc__, PARTS, FULL.rounds, _make))
