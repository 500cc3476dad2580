"""Brokers with many partitions whose turns of the event loop are watched: for scale.py and large_changes.py."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

# The harness that starts brokers belongs to the tests.
sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))

from cluster_loads import spread
from clusters import BROKER_IDS, QUIET_ENV, Cluster
from contestants import OTTLA
from frames import Caller
from report import number, table
from session import say

from ottla.wire.apis import ApiKey
from ottla.wire.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from support.ottla_server import OttlaServer
from support.waiting import wait_until

PER_TOPIC = 100
#: Topics of one CreateTopics request.
AT_ONCE = 10
WATCHED = Path(__file__).with_name("watched_broker.py")
SETTLE_TIMEOUT_S = 600.0
LOOK_S = 0.2
#: The goal: no turn of a loop longer.
TURN_GOAL_MS = 50.0
SETTINGS = {
    "auto.create.topics.enable": "false",
    # Under load of the whole machine a session must outlast the creation of this many files.
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
        """Stop it cleanly, however long that takes with this many logs."""
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


class Turns:
    """The long turns that brokers have noted in these files."""

    def __init__(self, reports: Iterable[Path]) -> None:
        self._reports = tuple(reports)

    @contextmanager
    def noted(self, rows: Rows, what: str) -> Iterator[None]:
        """Note the longest turns of all brokers meanwhile."""
        began_s = time.monotonic()
        yield
        turns = sorted(self._since(began_s), key=lambda turn: -turn[1])
        for at_s, cpu_ms, wall_ms, collected_ms, seen in turns[:6]:
            say(f"  {cpu_ms:.0f} ms (clock {wall_ms:.0f}, collector {collected_ms:.0f}) at {at_s - began_s:.1f} s")
            for stack, count in seen:
                say(f"    {count:4} {stack}")
        longest = turns[0][1] if turns else 0.0
        rows.add(f"{what}: longest turn (0: below 20)", "ms", longest, TURN_GOAL_MS)
        if turns:
            rows.add(f"{what}: turns above 50 ms", "", sum(turn[1] > TURN_GOAL_MS for turn in turns))

    def _since(self, since_s: float) -> Iterator[list[Any]]:
        for report in self._reports:
            for line in report.read_text().splitlines() if report.exists() else ():
                turn = json.loads(line)
                if turn[0] >= since_s:
                    yield turn


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


def create_many(cluster: WatchedCluster, names: Sequence[str], partitions: int) -> None:
    """Make this many partitions of factor 3, `PER_TOPIC` in each of these topics."""
    left = partitions
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
