"""Many replicas: 100,000 on three brokers of ottla, and 100,000 partitions of one broker.

    ./run bench scale [--quick] [--partitions 33333] [--only cluster one] [--stacks] [--write]

How long creation, the death of the controller and restarts take, what a replica costs, and the longest turns of the
brokers' event loops meanwhile, in processor time (`watched_broker.py`); see README.md beside this file.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parents[1]
# The harness that starts brokers belongs to the tests.
sys.path.append(str(PROJECT / "tests"))

from cluster_loads import spread  # noqa: E402
from clusters import BROKER_IDS, QUIET_ENV, Cluster  # noqa: E402
from contestants import OTTLA, compile_package  # noqa: E402
from frames import Caller  # noqa: E402
from report import number, table  # noqa: E402
from session import Bench as AnyBench  # noqa: E402
from session import Options, execute, say  # noqa: E402

from ottla.wire.apis import ApiKey  # noqa: E402
from ottla.wire.messages.create_topics import (  # noqa: E402
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from support.ottla_server import OttlaServer  # noqa: E402
from support.waiting import wait_until  # noqa: E402

CLUSTER, ONE = PARTS = ("cluster", "one")
WATCHED = Path(__file__).with_name("watched_broker.py")
PER_TOPIC = 100
PER_LARGE_TOPIC = 1_000
REST_S = 70.0
#: Topics of one CreateTopics request.
AT_ONCE = 10
SETTLE_TIMEOUT_S = 600.0
LOOK_S = 0.2
#: The goals: no turn of a loop longer, and a new controller has told everybody within so much.
TURN_GOAL_MS = 50.0
FAILOVER_GOAL_S = 10.0
SETTINGS = {
    "auto.create.topics.enable": "false",
    # Under load of the whole machine a session must outlast the creation of so many files.
    "zookeeper.session.timeout.ms": "18000",
    "offsets.topic.num.partitions": "3",
}


@dataclass
class Rows:
    """What was measured, with the goals."""

    title: str
    rows: list[list[str]] = field(default_factory=list)
    met: list[bool] = field(default_factory=list)

    def add(self, what: str, unit: str, value: float, at_most: float | None = None) -> None:
        """Note a figure, with its goal if it has one."""
        verdict = ""
        if at_most is not None:
            self.met.append(value <= at_most)
            verdict = "met" if self.met[-1] else "NOT met"
        self.rows.append([f"{what}, {unit}", number(value), f"≤ {at_most:g}" if at_most is not None else "", verdict])
        say(f"{what}: {number(value)} {unit} {verdict}")


class ScaleFigures:
    """The tables of one run."""

    legend = "Turns are in processor time of the loop's thread, garbage collection included."

    def __init__(self) -> None:
        self.parts: list[Rows] = []

    def part(self, title: str) -> Rows:
        """A new table."""
        self.parts.append(Rows(title))
        return self.parts[-1]

    def goals(self) -> tuple[int, int]:
        """How many goals there are, and how many were met."""
        met = [each for part in self.parts for each in part.met]
        return len(met), sum(met)

    def tables(self) -> Iterator[str]:
        """A Markdown table for each part."""
        for part in self.parts:
            yield table([part.title, "ottla", "goal", ""], part.rows)


class WatchedServer(OttlaServer):
    """`ottla serve` under `watched_broker.py`; `report` has its long turns."""

    report: Path
    stacks: bool

    def stop(self, timeout_s: float = SETTLE_TIMEOUT_S) -> int:
        """Stop it cleanly, however long that takes with so many logs."""
        return super().stop(timeout_s)

    def command(self) -> list[str]:
        """The command line of the next start."""
        ours = super().command()
        begin = ours.index("-m")
        return [*ours[:begin], str(WATCHED), str(self.report), *(["--stacks"] * self.stacks), *ours[begin + 2 :]]


class WatchedCluster(Cluster):
    """Three brokers whose loops are watched."""

    def __init__(self, folder: Path, stacks: bool) -> None:
        super().__init__(OTTLA, folder, SETTINGS)
        self._stacks = stacks
        self.reports = {broker_id: folder / f"turns-{broker_id}.jsonl" for broker_id in BROKER_IDS}

    def _broker(self, broker_id: int) -> OttlaServer:
        made = super()._broker(broker_id)
        assert isinstance(made, OttlaServer)
        watched = WatchedServer(made.folder, overrides=made.overrides, arguments=made.arguments, env=QUIET_ENV)
        watched.report, watched.stacks = self.reports[broker_id], self._stacks
        return watched


class Bench:
    """One run."""

    def __init__(self, options: Options, folder: Path) -> None:
        self._parts = options.parts
        self._folder = folder
        self._partitions = options.arguments.partitions or (2_000 if options.quick else 33_333)
        self._one = 5_000 if options.quick else 100_000
        self._stacks = options.arguments.stacks
        self._cluster: WatchedCluster | None = None
        self._one_server: WatchedServer | None = None
        self._reports: list[Path] = []
        self.figures = ScaleFigures()

    def run(self) -> None:
        """Measure everything."""
        compile_package()
        if CLUSTER in self._parts:
            self._cluster = WatchedCluster(self._folder / "cluster", self._stacks)
            self._reports = list(self._cluster.reports.values())
            self._run_cluster(self._cluster)
            self._cluster.stop()
            self._cluster = None
        if ONE in self._parts:
            self._run_one()

    def stop(self) -> None:
        """Kill what still runs."""
        if self._cluster is not None:
            self._cluster.stop()
        if self._one_server is not None and self._one_server.server.running:
            self._one_server.kill9()

    def _run_cluster(self, cluster: WatchedCluster) -> None:
        replicas = self._partitions * len(BROKER_IDS)
        rows = self.figures.part(f"{replicas:,} replicas, {self._partitions:,} partitions on three brokers")
        say("starting three brokers")
        cluster.start()
        before = {broker_id: broker.server.memory_bytes() for broker_id, broker in cluster.brokers.items()}
        names = [f"many-{number}" for number in range(-(-self._partitions // PER_TOPIC))]
        with self._turns(rows, "creation"):
            began_s = time.monotonic()
            self._create(cluster, names)
            rows.add("created, until the last request is answered", "s", time.monotonic() - began_s)
            wait_until_told(cluster, names)
            rows.add("created, until all brokers have all in sync", "s", time.monotonic() - began_s)
        each = [broker.server.memory_bytes() - before[broker_id] for broker_id, broker in cluster.brokers.items()]
        rows.add("memory per replica, mean of the brokers", "KB", sum(each) / replicas / 1e3)
        files = max(len(list(Path(f"/proc/{broker.server.pid}/fd").iterdir())) for broker in cluster.brokers.values())
        rows.add("open files of a broker, most", "", files)
        self._rest(rows)
        controller = cluster.controller()
        follower = next(each for each in BROKER_IDS if each != controller)
        with self._turns(rows, "death of a broker that is not the controller"):
            rows.add("a broker dies: node gone to all told", "s", self._death(cluster, names, follower))
        self._return(cluster, rows, names, follower, "it returns after the kill")
        with self._turns(rows, "death of the controller"):
            told_s = self._death(cluster, names, controller)
            rows.add("the controller dies: node gone to all told", "s", told_s, FAILOVER_GOAL_S)
        self._return(cluster, rows, names, controller, "it returns after the kill")
        with self._turns(rows, "a clean stop"):
            began_s = time.monotonic()
            cluster.halt(follower, in_order=True)
            rows.add("clean stop of a broker", "s", time.monotonic() - began_s)
        self._return(cluster, rows, names, follower, "it returns after a clean stop")

    @contextmanager
    def _turns(self, rows: Rows, what: str) -> Iterator[None]:
        """Note the longest turns of all brokers meanwhile."""
        began_s = time.monotonic()
        yield
        turns = sorted(self._noted(began_s), key=lambda turn: -turn[1])
        for at_s, cpu_ms, wall_ms, collected_ms, seen in turns[:6]:
            say(f"  {cpu_ms:.0f} ms (clock {wall_ms:.0f}, collector {collected_ms:.0f}) at {at_s - began_s:.1f} s")
            for stack, count in seen:
                say(f"    {count:4} {stack}")
        longest = turns[0][1] if turns else 0.0
        rows.add(f"{what}: longest turn (0: below 20)", "ms", longest, TURN_GOAL_MS)
        if turns:
            rows.add(f"{what}: turns above 50 ms", "", sum(turn[1] > TURN_GOAL_MS for turn in turns))

    def _noted(self, since_s: float) -> Iterator[list[Any]]:
        for report in self._reports:
            for line in report.read_text().splitlines() if report.exists() else ():
                turn = json.loads(line)
                if turn[0] >= since_s:
                    yield turn

    def _create(self, cluster: WatchedCluster, names: Sequence[str]) -> None:
        left = self._partitions
        with Caller(cluster.ports[cluster.controller()], SETTLE_TIMEOUT_S) as caller:
            for start in range(0, len(names), AT_ONCE):
                topics = []
                for name in names[start : start + AT_ONCE]:
                    count = min(PER_TOPIC, left)
                    left -= count
                    assignments = [
                        CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
                        for index, brokers in enumerate(spread(count))
                    ]
                    topics.append(
                        CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=assignments)
                    )
                request = CreateTopicsRequest(topics=topics, timeout_ms=int(SETTLE_TIMEOUT_S * 1000))
                answer = caller.call(ApiKey.CREATE_TOPICS, request)
                assert not any(created.error_code for created in answer.topics), answer.topics[0]
                if start % 500 == 0:
                    say(f"{start + len(topics)} of {len(names)} topics made")

    def _death(self, cluster: WatchedCluster, names: Sequence[str], victim: int) -> float:
        """Kill a broker; seconds from when its node is gone until both others know a leader of each partition."""
        gone_at_s: list[float] = []
        gone = threading.Event()

        def note(_event: object) -> None:
            gone_at_s.append(time.monotonic())
            gone.set()

        cluster.zk.exists(f"/brokers/ids/{victim}", watch=note)
        cluster.halt(victim, in_order=False)
        assert gone.wait(SETTLE_TIMEOUT_S), "the node of the dead broker stays"
        # The last topic of all is told last; the others are looked at afterwards.
        wait_until_told(cluster, list(reversed(names)), without=victim)
        return time.monotonic() - gone_at_s[0]

    def _return(self, cluster: WatchedCluster, rows: Rows, names: Sequence[str], broker_id: int, what: str) -> None:
        with self._turns(rows, what):
            began_s = time.monotonic()
            cluster.restart(broker_id)
            server = cluster.brokers[broker_id]
            assert isinstance(server, OttlaServer)
            rows.add(f"{what}: until its ready line", "s", server.ready_after_s)
            wait_until_told(cluster, names)
            rows.add(f"{what}: until all brokers have all in sync", "s", time.monotonic() - began_s)

    def _run_one(self) -> None:
        """One broker, which is its own controller and keeps its metadata itself."""
        rows = self.figures.part(f"{self._one:,} partitions of one broker")
        server = WatchedServer(self._folder / "one", overrides=SETTINGS, env=QUIET_ENV)
        server.report, server.stacks = self._folder / "turns-one.jsonl", self._stacks
        self._one_server = server
        self._reports = [server.report]
        server.start()
        before = server.server.memory_bytes()
        with self._turns(rows, "creation"):
            began_s = time.monotonic()
            with Caller(server.port, SETTLE_TIMEOUT_S) as caller:
                for number in range(self._one // PER_LARGE_TOPIC):
                    caller.create_topic(f"many-{number}", PER_LARGE_TOPIC, {})
            rows.add("created", "s", time.monotonic() - began_s)
        rows.add("memory per partition", "KB", (server.server.memory_bytes() - before) / self._one / 1e3)
        self._rest(rows)
        for what, stop in (("a clean stop", server.stop), ("a kill", server.kill9)):
            began_s = time.monotonic()
            stop()
            rows.add(what, "s", time.monotonic() - began_s)
            with self._turns(rows, f"start after {what}"):
                server.start(SETTLE_TIMEOUT_S)
                rows.add(f"start after {what}: all partitions are led", "s", server.ready_after_s)
        server.kill9()

    def _rest(self, rows: Rows) -> None:
        with self._turns(rows, f"at rest, {REST_S:g} s"):
            time.sleep(REST_S)  # nothing happens: what timers do is measured


def wait_until_told(cluster: Cluster, names: Sequence[str], without: int | None = None) -> None:
    """Until each running broker has a leader and all live replicas in sync for each partition of these topics."""

    def is_over(caller: Caller, name: str) -> bool:
        partitions = caller.metadata([name]).topics[0].partitions
        wanted = len(BROKER_IDS) - (without is not None)
        return bool(partitions) and all(
            each.leader_id not in (-1, without) and len(each.isr_nodes) == wanted for each in partitions
        )

    def look(broker_id: int) -> None:
        with Caller(cluster.ports[broker_id], SETTLE_TIMEOUT_S) as caller:
            for name in names:
                wait_until(partial(is_over, caller, name), f"{name} at {broker_id}", SETTLE_TIMEOUT_S, LOOK_S)

    for broker_id in cluster.running():
        look(broker_id)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--partitions", type=int, help="partitions of factor 3 on three brokers (33,333)")
    parser.add_argument("--stacks", action="store_true", help="show what the longest turns did")


def _make(options: Options, folder: Path) -> AnyBench:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    say(f"files that a process may have open: {soft:,} (at most {hard:,})")
    return Bench(options, folder)


if __name__ == "__main__":
    sys.exit(execute("scale", __doc__, PARTS, 1, _make, _add_options))
