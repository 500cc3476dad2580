"""One request that changes tens of thousands of partitions: the longest turns of the brokers' event loops meanwhile.

    ./run bench large_changes [--quick] [--only topic cluster all] [--stacks] [--write]

- topic: on one broker a topic of 70,000 partitions is made, another grows to as many, both are deleted; with that many
  logs, a small topic is deleted and made again.
- cluster: on three brokers a topic of 20,000 partitions of factor 3 is made; the controller dies and returns; the
  topic is deleted.
- all: with 33,333 partitions of factor 3 all get their preferred leaders, another order of their replicas, two
  replicas, three again; all topics grow and are deleted.

Turns are those of `watched_broker.py`; see README.md beside this file.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parents[1]
# The harness that starts brokers belongs to the tests.
sys.path.append(str(PROJECT / "tests"))

from clusters import QUIET_ENV  # noqa: E402
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

from ottla.wire.apis import ApiKey  # noqa: E402
from ottla.wire.messages.alter_partition_reassignments import (  # noqa: E402
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic  # noqa: E402
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest  # noqa: E402
from ottla.wire.messages.delete_topics import DeleteTopicsRequest  # noqa: E402
from ottla.wire.messages.elect_leaders import ElectLeadersRequest  # noqa: E402
from ottla.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest  # noqa: E402
from support.waiting import wait_until  # noqa: E402

TOPIC, CLUSTER, ALL = PARTS = ("topic", "cluster", "all")
TIMEOUT_MS = int(SETTLE_TIMEOUT_S * 1000)
#: After so long all checkpoints name the logs that are there.
CHECKPOINTS_S = 65.0
Replicas = Callable[[list[int]], list[int]]


def _create(name: str, partitions: int, factor: int) -> CreateTopicsRequest:
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=factor, assignments=[])
    return CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)


def _grow(counts: Iterable[tuple[str, int]]) -> CreatePartitionsRequest:
    topics = [CreatePartitionsTopic(name=name, count=count, assignments=None) for name, count in counts]
    return CreatePartitionsRequest(topics=topics, timeout_ms=TIMEOUT_MS, validate_only=False)


def _delete(names: Sequence[str]) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(topic_names=list(names), timeout_ms=TIMEOUT_MS)


class Bench:
    """One run."""

    def __init__(self, options: Options, folder: Path) -> None:
        self._parts = options.parts
        self._folder = folder
        self._of_topic, self._of_cluster, self._of_all = (
            (7_000, 2_000, 2_000) if options.quick else (70_000, 20_000, 33_333)
        )
        self._checkpoints_s = 0.0 if options.quick else CHECKPOINTS_S
        self._stacks = options.arguments.stacks
        self._server: WatchedServer | None = None
        self._cluster: WatchedCluster | None = None
        self._turns = Turns(())
        self.figures = ScaleFigures()

    def run(self) -> None:
        """Measure everything."""
        compile_package()
        if TOPIC in self._parts:
            self._run_topic()
        for part, run in ((CLUSTER, self._run_cluster), (ALL, self._run_all)):
            if part in self._parts:
                self._cluster = cluster = WatchedCluster(self._folder / part, self._stacks)
                self._turns = Turns(cluster.reports.values())
                say("starting three brokers")
                cluster.start()
                run(cluster)
                cluster.stop()
                self._cluster = None

    def stop(self) -> None:
        """Kill what still runs."""
        if self._cluster is not None:
            self._cluster.stop()
        if self._server is not None and self._server.server.running:
            self._server.kill9()

    def _ask(self, rows: Rows, port: int, what: str, key: ApiKey, request: Any) -> None:
        """Make a request, and note how long its answer takes and which turns are long until a second later."""
        with self._turns.noted(rows, what), Caller(port, SETTLE_TIMEOUT_S) as caller:
            began_s = time.monotonic()
            codes = _codes(caller.call(key, request))
            rows.add(what, "s", time.monotonic() - began_s)
            assert set(codes) <= {0}, f"{what}: {codes}"
            time.sleep(1.0)  # what is done after the answer counts, too

    def _run_topic(self) -> None:
        """One broker, which is its own controller and keeps its metadata itself."""
        count = self._of_topic
        rows = self.figures.part(f"A topic of {count:,} partitions on one broker")
        self._server = server = WatchedServer(self._folder / "one", overrides=SETTINGS, env=QUIET_ENV)
        server.report, server.stacks = self._folder / "turns-one.jsonl", self._stacks
        self._turns = Turns([server.report])
        server.start()
        port = server.port
        self._ask(rows, port, "it is made", ApiKey.CREATE_TOPICS, _create("large", count, 1))
        self._ask(rows, port, "a topic of one partition is made", ApiKey.CREATE_TOPICS, _create("grown", 1, 1))
        self._ask(rows, port, "that grows to as many", ApiKey.CREATE_PARTITIONS, _grow([("grown", count)]))
        self._ask(rows, port, "it is deleted", ApiKey.DELETE_TOPICS, _delete(["large"]))
        self._ask(rows, port, "a topic of 100 partitions is made", ApiKey.CREATE_TOPICS, _create("small", 100, 1))
        time.sleep(self._checkpoints_s)  # until the checkpoints name it
        self._ask(rows, port, "that is deleted", ApiKey.DELETE_TOPICS, _delete(["small"]))
        self._ask(rows, port, "and made again", ApiKey.CREATE_TOPICS, _create("small", 100, 1))
        self._ask(rows, port, "the grown one is deleted", ApiKey.DELETE_TOPICS, _delete(["grown"]))
        server.kill9()

    def _run_cluster(self, cluster: WatchedCluster) -> None:
        rows = self.figures.part(f"A topic of {self._of_cluster:,} partitions of factor 3 on three brokers")
        controller = cluster.controller()
        with self._turns.noted(rows, "it is made"):
            began_s = time.monotonic()
            with Caller(cluster.ports[controller], SETTLE_TIMEOUT_S) as caller:
                caller.create_topic("large", self._of_cluster, {}, 3)
            wait_until_told(cluster, ["large"])
            rows.add("it is made, until all brokers have all in sync", "s", time.monotonic() - began_s)
        with self._turns.noted(rows, "the controller dies"):
            began_s = time.monotonic()
            cluster.halt(controller, in_order=False)
            wait_until_told(cluster, ["large"], without=controller)
            rows.add("the controller dies: kill to all told", "s", time.monotonic() - began_s)
        with self._turns.noted(rows, "it returns"):
            began_s = time.monotonic()
            cluster.restart(controller)
            wait_until_told(cluster, ["large"])
            rows.add("it returns, until all brokers have all in sync", "s", time.monotonic() - began_s)
        port = cluster.ports[cluster.controller()]
        self._ask(rows, port, "it is deleted", ApiKey.DELETE_TOPICS, _delete(["large"]))

    def _run_all(self, cluster: WatchedCluster) -> None:
        rows = self.figures.part(f"All of {self._of_all:,} partitions of factor 3 on three brokers")
        names = [f"many-{number}" for number in range(-(-self._of_all // PER_TOPIC))]
        create_many(cluster, names, self._of_all)
        wait_until_told(cluster, names)
        port = cluster.ports[cluster.controller()]
        with Caller(port, SETTLE_TIMEOUT_S) as caller:
            placed = {
                name: [each.replica_nodes for each in caller.metadata([name]).topics[0].partitions] for name in names
            }
        prefer = ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=TIMEOUT_MS)
        self._ask(rows, port, "preferred leaders, which all lead", ApiKey.ELECT_LEADERS, prefer)
        self._move(rows, port, "another order of replicas", placed, lambda replicas: [*replicas[1:], replicas[0]])
        self._ask(rows, port, "preferred leaders, none of which leads", ApiKey.ELECT_LEADERS, prefer)
        self._move(rows, port, "two replicas", placed, lambda replicas: replicas[1:])
        self._move(rows, port, "three replicas again", placed, lambda replicas: [*replicas[1:], replicas[0]])
        grown = [(name, len(replicas) + 1) for name, replicas in placed.items()]
        self._ask(rows, port, "one partition more in each topic", ApiKey.CREATE_PARTITIONS, _grow(grown))
        self._ask(rows, port, "all topics are deleted", ApiKey.DELETE_TOPICS, _delete(names))

    def _move(self, rows: Rows, port: int, what: str, placed: dict[str, list[list[int]]], change: Replicas) -> None:
        """Have all partitions moved, and wait until that is done."""
        topics = [
            ReassignableTopic(
                name=name,
                partitions=[
                    ReassignablePartition(partition_index=index, replicas=change(list(replicas)))
                    for index, replicas in enumerate(partitions)
                ],
            )
            for name, partitions in placed.items()
        ]
        request = AlterPartitionReassignmentsRequest(timeout_ms=TIMEOUT_MS, topics=topics)

        def is_done() -> bool:
            with Caller(port, SETTLE_TIMEOUT_S) as caller:
                listing = ListPartitionReassignmentsRequest(timeout_ms=TIMEOUT_MS, topics=None)
                return not caller.call(ApiKey.LIST_PARTITION_REASSIGNMENTS, listing).topics

        with self._turns.noted(rows, what):
            began_s = time.monotonic()
            with Caller(port, SETTLE_TIMEOUT_S) as caller:
                codes = _codes(caller.call(ApiKey.ALTER_PARTITION_REASSIGNMENTS, request))
            assert set(codes) <= {0}, f"{what}: {codes}"
            rows.add(f"{what}: begun", "s", time.monotonic() - began_s)
            wait_until(is_done, f"the end of the moves: {what}", SETTLE_TIMEOUT_S)
            rows.add(f"{what}: done", "s", time.monotonic() - began_s)


def _codes(answer: Any) -> Counter[int]:
    """The error codes of an answer: of topics, or of their partitions."""
    found: Counter[int] = Counter()
    for field in ("topics", "results", "responses", "replica_election_results"):
        for topic in getattr(answer, field, ()):
            partitions = getattr(topic, "partition_result", None) or getattr(topic, "partitions", None)
            found.update(each.error_code for each in partitions or [topic])
    return found


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--stacks", action="store_true", help="show what the longest turns did")


def _make(options: Options, folder: Path) -> AnyBench:
    say(f"files that a process may have open: {resource.getrlimit(resource.RLIMIT_NOFILE)[0]:,}")
    return Bench(options, folder)


if __name__ == "__main__":
    sys.exit(execute("large_changes", __doc__, PARTS, 1, _make, _add_options))
