"""Many replicas: 100,000 on three brokers of ottla, and 100,000 partitions of one broker.

    ./run bench scale [--quick] [--partitions 33333] [--only cluster one] [--stacks] [--write]

How long creation, the death of the controller and restarts take, what a replica costs, and the longest turns of the
brokers' event loops meanwhile, in processor time (`watched_broker.py`); see README.md beside this file.
"""

from __future__ import annotations

import argparse
import resource
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
# The harness that starts brokers belongs to the tests.
sys.path.append(str(PROJECT / "tests"))

from clusters import BROKER_IDS, QUIET_ENV  # noqa: E402
from contestants import compile_package  # noqa: E402
from frames import Caller  # noqa: E402
from session import Bench as AnyBench  # noqa: E402
from session import Options, execute, say  # noqa: E402
from watched import (  # noqa: E402
    PER_TOPIC,
    SETTINGS,
    SETTLE_TIMEOUT_S,
    Rows,
    ScaleFigures,
    Turns,
    WatchedCluster,
    WatchedServer,
    create_many,
    wait_until_told,
)

CLUSTER, ONE = PARTS = ("cluster", "one")
PER_LARGE_TOPIC = 1_000
REST_S = 70.0
#: The goal: a new controller has told everybody within so much.
FAILOVER_GOAL_S = 10.0


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
        self._turns = Turns(())
        self.figures = ScaleFigures()

    def run(self) -> None:
        """Measure everything."""
        compile_package()
        if CLUSTER in self._parts:
            self._cluster = WatchedCluster(self._folder / "cluster", self._stacks)
            self._turns = Turns(self._cluster.reports.values())
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
        with self._turns.noted(rows, "creation"):
            began_s = time.monotonic()
            create_many(cluster, names, self._partitions)
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
        with self._turns.noted(rows, "death of a broker that is not the controller"):
            rows.add("a broker dies: node gone to all told", "s", self._death(cluster, names, follower))
        self._return(cluster, rows, names, follower, "it returns after the kill")
        with self._turns.noted(rows, "death of the controller"):
            told_s = self._death(cluster, names, controller)
            rows.add("the controller dies: node gone to all told", "s", told_s, FAILOVER_GOAL_S)
        self._return(cluster, rows, names, controller, "it returns after the kill")
        with self._turns.noted(rows, "a clean stop"):
            began_s = time.monotonic()
            cluster.halt(follower, in_order=True)
            rows.add("clean stop of a broker", "s", time.monotonic() - began_s)
        self._return(cluster, rows, names, follower, "it returns after a clean stop")

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
        with self._turns.noted(rows, what):
            began_s = time.monotonic()
            cluster.restart(broker_id)
            server = cluster.brokers[broker_id]
            assert isinstance(server, WatchedServer)
            rows.add(f"{what}: until its ready line", "s", server.ready_after_s)
            wait_until_told(cluster, names)
            rows.add(f"{what}: until all brokers have all in sync", "s", time.monotonic() - began_s)

    def _run_one(self) -> None:
        """One broker, which is its own controller and keeps its metadata itself."""
        rows = self.figures.part(f"{self._one:,} partitions of one broker")
        server = WatchedServer(self._folder / "one", overrides=SETTINGS, env=QUIET_ENV)
        server.report, server.stacks = self._folder / "turns-one.jsonl", self._stacks
        self._one_server = server
        self._turns = Turns([server.report])
        server.start()
        before = server.server.memory_bytes()
        with self._turns.noted(rows, "creation"):
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
            with self._turns.noted(rows, f"start after {what}"):
                server.start(SETTLE_TIMEOUT_S)
                rows.add(f"start after {what}: all partitions are led", "s", server.ready_after_s)
        server.kill9()

    def _rest(self, rows: Rows) -> None:
        with self._turns.noted(rows, f"at rest, {REST_S:g} s"):
            time.sleep(REST_S)  # nothing happens: what timers do is measured


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--partitions", type=int, help="partitions of factor 3 on three brokers (33,333)")
    parser.add_argument("--stacks", action="store_true", help="show what the longest turns did")


def _make(options: Options, folder: Path) -> AnyBench:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    say(f"files that a process may have open: {soft:,} (at most {hard:,})")
    return Bench(options, folder)


if __name__ == "__main__":
    sys.exit(execute("scale", __doc__, PARTS, 1, _make, _add_options))
