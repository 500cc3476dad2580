"""The ledger of faults: a line for each that was made, added when the history it is part of has been checked."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.broken_network import CLIENTS, ZOOKEEPER, BreakableNetwork, NamespaceNetwork, ProxiedNetwork
from support.cluster_faults import CLOCK_PLACE, KINDS, FaultCourse, FaultReport, places_of
from support.cluster_history import Violation, describe
from support.failing_cluster import FailingCluster
from support.java import PROJECT

OK = "ok"
#: Violations of a course are seen at its end; those that name no time within a fault belong to the course.
UNCHECKED = "unchecked"
#: Characters of what stopped a course, in its line: the whole is printed.
STOPPED_LENGTH = 300


@dataclass(frozen=True)
class CoursePlan:
    """Which faults are made where."""

    seed: int
    faults: int
    brokers: int = 3
    #: `proxies` or `namespaces`.
    network: str = "proxies"
    #: Whether the ZooKeeper is Apache's.
    apache: bool = False
    #: Those that are made, in this order, or in one of the seed's.
    kinds: tuple[str, ...] = ()

    def order(self) -> list[str]:
        """The kinds, one for each fault."""
        if self.kinds:
            return [self.kinds[number % len(self.kinds)] for number in range(self.faults)]
        dice = random.Random(f"order {self.seed}")
        order: list[str] = []
        while len(order) < self.faults:
            order += dice.sample(KINDS, len(KINDS))
        return order[: self.faults]


@dataclass(frozen=True)
class CourseResult:
    """What came of a course: its faults, the violations, and what ended it before its time, if anything did."""

    plan: CoursePlan
    reports: list[FaultReport]
    violations: list[Violation]
    stopped: str
    acknowledged: int
    seconds: float
    #: The batches with records that are there more than once.
    repeated: Sequence[str] = ()

    @property
    def is_well(self) -> bool:
        """Whether all went to its end and nothing was wrong."""
        return not self.violations and not self.stopped

    @property
    def counted(self) -> int:
        """Faults that count."""
        return sum(report.counts for report in self.reports) if not self.stopped else 0

    def describe(self) -> str:
        """In words, for a failure."""
        return "\n".join(filter(None, (self.stopped, describe(self.violations), *self.repeated))) or OK

    def verdict(self, number: int) -> str:
        """Of one fault: violations from its beginning to that of the next one."""
        if self.stopped:
            return (
                f"stopped: {self.stopped.splitlines()[0][:STOPPED_LENGTH]}"
                if number == len(self.reports) - 1
                else UNCHECKED
            )
        began_s = self.reports[number].began_s if number else 0.0
        end_s = self.reports[number + 1].began_s if number + 1 < len(self.reports) else float("inf")
        found = [each for each in self.violations if began_s <= each.at_s < end_s]
        return OK if not found else "; ".join(sorted({each.kind.value for each in found}))

    def lines(self) -> Iterator[dict[str, Any]]:
        """The ledger's lines."""
        version = revision()
        for number, report in enumerate(self.reports):
            yield {
                "seed": self.plan.seed,
                "number": number + 1,
                "kind": report.kind,
                "victim": report.victim,
                "brokers": self.plan.brokers,
                "network": self.plan.network,
                "zookeeper": "Apache" if self.plan.apache else "ottla",
                "seen": report.seen[:3],
                "acknowledged": report.acknowledged_before,
                "seconds": round(report.seconds, 1),
                "counts": report.counts and not self.stopped,
                "verdict": self.verdict(number),
                **({"replaced": report.replaced} if report.replaced else {}),
                "version": version,
                "day": time.strftime("%Y-%m-%d"),
            }


def revision() -> str:
    """The commit that is checked out, with a plus where files differ from it."""
    asked = ["git", "-C", str(PROJECT), "describe", "--always", "--dirty=+", "--abbrev=9", "--exclude=*"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def network_of(plan: CoursePlan) -> BreakableNetwork:
    """The network that a plan asks for."""
    if plan.network == "namespaces":
        return NamespaceNetwork([ZOOKEEPER, CLIENTS, *map(str, range(1, plan.brokers + 1))])
    return ProxiedNetwork()


def run_course(plan: CoursePlan, folder: Path, tell: Callable[[str], None] = lambda _: None) -> CourseResult:
    """Run a course in a folder, which is kept where something was wrong, with the history beside the brokers' logs."""
    began_s = time.monotonic()
    network = network_of(plan)
    found: list[Violation] = []
    stopped = ""
    cluster = FailingCluster(folder, plan.brokers, network, places_of(plan.brokers), [CLOCK_PLACE], apache=plan.apache)
    course = FaultCourse(cluster, plan.seed, tell)
    try:
        with cluster.running():
            course.begin()
            course.run(plan.order())
            found = course.end()
    except AssertionError as error:
        stopped = f"{course.reports[-1].kind if course.reports else 'the beginning'}: {error}"
    finally:
        course.abandon()
        network.close()
    took_s = time.monotonic() - began_s
    result = CourseResult(plan, course.reports, found, stopped, course.history.acknowledged, took_s, course.repeated)
    if result.is_well:
        shutil.rmtree(folder)
    else:
        events = [*course.history.events, *course.cluster.watcher.changes, *course.history.failures]
        (folder / "history.txt").write_text("\n".join(map(str, events)))
    return result


def add_to_ledger(path: Path, result: CourseResult) -> None:
    """Add a course's faults."""
    with path.open("a") as file:
        for line in result.lines():
            file.write(json.dumps(line) + "\n")


def read_ledger(path: Path) -> list[dict[str, Any]]:
    """All lines; none where there is no ledger yet."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def counted(lines: Sequence[dict[str, Any]]) -> int:
    """How many faults count."""
    return sum(bool(line["counts"]) for line in lines)
