"""Topics in large numbers on Apache Kafka 3.9.1 and ottla, side by side in one run.

    ./run bench topics [--quick] [--only partitions requests] [--write]

How long it takes until topics are made and usable, and what other clients notice meanwhile. Figures are medians of
several rounds; see README.md beside this file.
"""

from __future__ import annotations

import itertools
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
# The harness that starts brokers belongs to the tests.
sys.path.append(str(PROJECT / "tests"))

from contestants import APACHE, NAMES, OTTLA, Started, compile_package, launch, make  # noqa: E402
from frames import CALL_TIMEOUT_S, Caller, CallFailed  # noqa: E402
from report import AT_MOST_EQUAL, Figures, Goal  # noqa: E402
from session import Bench as AnyBench  # noqa: E402
from session import Options, execute, say  # noqa: E402

from ottla.wire.apis import ApiKey  # noqa: E402
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest  # noqa: E402
from ottla.wire.messages.delete_topics import DeleteTopicsRequest  # noqa: E402
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic  # noqa: E402
from support.apache import ApacheZooKeeper  # noqa: E402

PARTITIONS, REQUESTS = PARTS = ("partitions", "requests")
#: An empty Metadata request, the cheapest that both answer from what they know, so long after the last.
PROBE_EVERY_S = 0.002
NOBODY_WAITS = Goal(50.0, at_least=False, absolute=True)


@dataclass(frozen=True)
class Plan:
    """How much is measured."""

    rounds: int
    partitions: int
    topics: int


FULL = Plan(rounds=3, partitions=1000, topics=2000)
QUICK = Plan(rounds=1, partitions=200, topics=200)


class Probe:
    """Another client that asks for something cheap all the time; `stop` gives its p99 and longest time, ms."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._times_ms: list[float] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._ask)
        self._thread.start()

    def _ask(self) -> None:
        with Caller(self._port) as caller:
            while not self._is_over.wait(PROBE_EVERY_S):
                began_s = time.perf_counter()
                caller.brokers()
                self._times_ms.append((time.perf_counter() - began_s) * 1e3)

    def stop(self) -> tuple[float, float]:
        """The p99 and the longest time."""
        self._is_over.set()
        self._thread.join()
        times = sorted(self._times_ms)
        return times[int(len(times) * 0.99)], times[-1]


class Bench:
    """One run: its figures, and the brokers that it has to stop."""

    def __init__(self, plan: Plan, parts: frozenset[str], folder: Path) -> None:
        self._plan = plan
        self._parts = parts
        self._folder = folder
        self._zookeeper = ApacheZooKeeper(folder)
        self._running: dict[str, Started] = {}
        self._numbers = itertools.count(1)
        self.figures = Figures()

    def run(self) -> None:
        """Measure everything."""
        compile_package()
        self._zookeeper.start()
        for name in NAMES:
            say(f"starting {name}")
            folder = self._folder / name.split()[0].lower()
            self._running[name] = launch(name, make(name, folder, self._zookeeper, {}))
            self._one_topic(name, 50, keep=False)
        for number in range(1, self._plan.rounds + 1):
            say(f"round {number}")
            for name in NAMES if number % 2 else reversed(NAMES):
                if PARTITIONS in self._parts:
                    self._one_topic(name, self._plan.partitions, keep=True)
                if REQUESTS in self._parts:
                    self._many_topics(name)

    def stop(self) -> None:
        """Kill what still runs."""
        for broker in self._running.values():
            broker.stop()
        self._zookeeper.stop()

    def _one_topic(self, name: str, partitions: int, keep: bool) -> None:
        topic = f"bench-one-{next(self._numbers)}"
        with Caller(self._running[name].port) as caller:
            began_s = time.perf_counter()
            caller.create_topic(topic, partitions, {})
            answered_s = time.perf_counter() - began_s
            _until_usable(caller, topic, partitions)
            usable_s = time.perf_counter() - began_s
            caller.delete_topic(topic)
        if keep:
            title = f"topic of {partitions:,} partitions"
            self.figures.add("One topic", f"{title}, until answered", "s", name, answered_s)
            self.figures.add("One topic", f"{title}, until usable", "s", name, usable_s, AT_MOST_EQUAL)

    def _many_topics(self, name: str) -> None:
        prefix, count = f"bench-many-{next(self._numbers)}-", self._plan.topics
        names = [f"{prefix}{number}" for number in range(count)]
        wanted = [CreatableTopic(name=each, num_partitions=1, replication_factor=1) for each in names]
        create = CreateTopicsRequest(topics=wanted, timeout_ms=60_000)
        delete = DeleteTopicsRequest(topic_names=names, timeout_ms=60_000)
        missing = MetadataRequest(topics=[MetadataRequestTopic(name=f"{each}-m") for each in names])
        self._measured(name, f"CreateTopics for {count:,}", lambda caller: caller.call(ApiKey.CREATE_TOPICS, create))
        self._measured(name, f"DeleteTopics for {count:,}", lambda caller: caller.call(ApiKey.DELETE_TOPICS, delete))
        made = f"Metadata for {count:,} missing topics"
        self._measured(name, made, lambda caller: caller.call(ApiKey.METADATA, missing))

    def _measured(self, name: str, what: str, work: Callable[[Caller], object]) -> None:
        broker = self._running[name]
        before, probe = broker.cpu_seconds(), Probe(broker.port)
        with Caller(broker.port) as caller:
            began_s = time.perf_counter()
            work(caller)
            seconds = time.perf_counter() - began_s
        p99_ms, longest_ms = probe.stop()
        self.figures.add(what, "until answered", "s", name, seconds)
        self.figures.add(what, "broker CPU", "s", name, broker.cpu_seconds() - before)
        self.figures.add(what, "another client meanwhile, p99", "ms", name, p99_ms, NOBODY_WAITS)
        self.figures.add(what, "another client meanwhile, longest", "ms", name, longest_ms)


def _until_usable(caller: Caller, topic: str, partitions: int) -> None:
    """Until each partition tells its end."""
    deadline = time.monotonic() + CALL_TIMEOUT_S
    while True:
        try:
            caller.end_offsets(topic, partitions)
        except CallFailed:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.002)
        else:
            return


def _make(options: Options, folder: Path) -> AnyBench:
    return Bench(QUICK if options.quick else FULL, options.parts, folder)


if __name__ == "__main__":
    assert {APACHE, OTTLA} == set(NAMES)
    sys.exit(execute("topics", __doc__, PARTS, FULL.rounds, _make))
