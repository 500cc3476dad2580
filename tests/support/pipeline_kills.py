"""Pipelines killed -9 at named points and at chance moments, and whether what they made is right afterwards.

A course is one pipeline on one topic: it is started, killed, and started again, until the seed's kills are done; then
it runs to its end, and its judge looks. A kill takes the driver alone, or the driver with its Java and all of Spark's
Python processes, or one of these Python processes (an executor's worker).
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psutil

from ottla.records.record import Record
from ottla.spark.pipelines import crash_points
from ottla.spark.pipelines.sinks.tables import BATCHES_PER_COMPACTION
from support.brokers import Bootstrapped
from support.filled_topics import fill_topic
from support.java import PROJECT
from support.pipeline_judges import EVENTS, JUDGES, event_record, pipeline_file
from support.processes import command_of

#: Partitions of the topic, records that come before each run, and records that a batch may take.
PARTITIONS: Final = 3
RECORDS_PER_RUN: Final = 900
RECORDS_PER_BATCH: Final = 300
#: As many batches as come to the next compaction, wherever the last run ended.
RECORDS_TO_COMPACTION: Final = BATCHES_PER_COMPACTION * RECORDS_PER_BATCH
#: A run of the pipeline that neither ends nor is killed in this time is stuck, in seconds.
RUN_TIMEOUT_S: Final = 300.0
POLL_S: Final = 0.005

#: Kills that are not of the driver at a point of its code.
AT_CHANCE: Final = "at a chance moment"
WORKER: Final = "a worker, at a chance moment"

_OF_TABLES: Final = (
    crash_points.FILES_WRITTEN,
    crash_points.TABLE_COMMITTED,
    crash_points.BATCH_LOGGED,
    crash_points.COMPACTING,
    crash_points.RECOVERING,
)
#: Which points a pipeline can reach, by the kind of its sink.
POINTS: Final = {
    "parquet": _OF_TABLES,
    "delta": _OF_TABLES,
    "iceberg": _OF_TABLES,
    "online": (crash_points.BATCH_LOGGED,),
    "mirror": (crash_points.MIRROR_PRODUCED, crash_points.BATCH_LOGGED),
}


@dataclass(frozen=True, slots=True)
class PlannedKill:
    """Where a run is killed: a point and its how manieth time, or a delay after the first batch; and who is killed."""

    point: str
    nth: int = 1
    after_s: float = 0.0
    whole: bool = True

    def __str__(self) -> str:
        return (
            f"{self.point} ({self.nth})" if self.point in crash_points.ALL else f"{self.point} ({self.after_s:.2f} s)"
        )


@dataclass(slots=True)
class KillReport:
    """What came of a course."""

    kind: str
    seed: int
    kills: Counter[str] = field(default_factory=Counter)
    #: Runs that came to their end before their kill.
    missed: int = 0
    verdict: str = ""
    detail: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0

    def line(self) -> dict[str, Any]:
        """The ledger's line."""
        return {
            "kind": self.kind,
            "seed": self.seed,
            "kills": dict(sorted(self.kills.items())),
            "missed": self.missed,
            "verdict": self.verdict,
            **self.detail,
            "seconds": round(self.seconds, 1),
        }


def planned_kills(kind: str, seed: int, count: int) -> list[PlannedKill]:
    """The seed's kills: half at points, each kind of point in turn, half at chance moments."""
    dice = random.Random(f"{kind} {seed}")
    reachable = list(POINTS[kind])
    dice.shuffle(reachable)
    plan: list[PlannedKill] = []
    for number in range(count):
        if number % 2 == 0:
            point = reachable[number // 2 % len(reachable)]
            nth = 1 if point in (crash_points.RECOVERING, crash_points.COMPACTING) else dice.randint(1, 3)
            plan.append(PlannedKill(point, nth, whole=dice.random() < 0.5))
        else:
            where = WORKER if dice.random() < 0.3 else AT_CHANCE
            plan.append(PlannedKill(where, after_s=dice.uniform(0, 4), whole=dice.random() < 0.5))
    return plan


class KilledCourse:
    """One pipeline, its topic and its folder."""

    def __init__(
        self,
        kind: str,
        seed: int,
        folder: Path,
        broker: Bootstrapped,
        target: Bootstrapped,
        records_per_batch: int = RECORDS_PER_BATCH,
    ) -> None:
        self.kind, self.folder, self.broker, self.target = kind, folder, broker, target
        self.topic = f"{EVENTS}-{kind}-{seed}"
        self.report = KillReport(kind, seed)
        self._records: list[list[Record]] = [[] for _ in range(PARTITIONS)]
        self.file = pipeline_file(kind, folder, self.topic, broker, target, records_per_batch)

    def run(self, plan: Sequence[PlannedKill]) -> KillReport:
        """Run with each of the kills, more records before each, and then to the end; judge."""
        began_s = time.monotonic()
        for kill in plan:
            self.fill(RECORDS_TO_COMPACTION if kill.point == crash_points.COMPACTING else RECORDS_PER_RUN)
            if self._killed(kill):
                self.report.kills[kill.point] += 1
            else:
                self.report.missed += 1
        self.fill()
        status, said = self.to_the_end()
        self.report.verdict = f"exit code {status}: {said[-500:]}" if status else self.verdict()
        self.report.seconds = time.monotonic() - began_s
        return self.report

    def fill(self, count: int = RECORDS_PER_RUN) -> None:
        """Send further records, and make the topic for the first ones."""
        done = sum(map(len, self._records))
        more = [[event_record(at) for at in range(done + part, done + count, PARTITIONS)] for part in range(PARTITIONS)]
        fill_topic(self.broker, self.topic, more, create=not done)
        for part, records in enumerate(more):
            self._records[part] += records

    def verdict(self) -> str:
        """What is wrong with what the pipeline has made; nothing if it is right."""
        judge = JUDGES[self.kind]
        verdict, self.report.detail = judge(self.folder, self.topic, self.broker, self.target, self._records)
        return verdict

    def _killed(self, kill: PlannedKill) -> bool:
        """Run with one kill; False if the run came to its end before."""
        at_point = kill.point in crash_points.ALL and kill.point != crash_points.BATCH_LOGGED
        process = self.start([kill.point, str(kill.nth)] if at_point else [])
        try:
            if at_point:
                ended = self._await(process, lambda: False)
            else:
                done = self._batches_logged()
                wanted = done + (kill.nth if kill.point == crash_points.BATCH_LOGGED else 1)
                ended = self._await(process, lambda: self._batches_logged() >= wanted)
                if not ended and kill.after_s:
                    until_s = time.monotonic() + kill.after_s
                    ended = self._await(process, lambda: time.monotonic() >= until_s)
                if not ended and kill.point == WORKER:
                    return self._worker_killed(process)
            if not ended:
                self.end(process, whole=kill.whole)
                return True
            return process.returncode == -signal.SIGKILL
        finally:
            self.end(process, whole=True)

    def _worker_killed(self, process: subprocess.Popen[bytes]) -> bool:
        """Kill one of Spark's Python processes; the query ends with an error, or continues."""
        found = [
            each
            for each in psutil.Process(process.pid).children(recursive=True)
            if "pyspark" in " ".join(command_of(each))
        ]
        if not found:
            return False
        random.Random(len(found)).choice(found).kill()
        self._await(process, lambda: False)
        return True

    def start(self, plan: Sequence[str]) -> subprocess.Popen[bytes]:
        """Start the pipeline; `plan`: options of the command, a point, its how manieth time, whether it stops there."""
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(PROJECT / "tests"), str(PROJECT / "src")])}
        with (self.folder / "said.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "support.killed_pipeline", str(self.file), *plan],
                stdout=log,
                stderr=log,
                env=environment,
                cwd=self.folder,
                start_new_session=True,
            )

    def _await(self, process: subprocess.Popen[bytes], condition: Callable[[], bool]) -> bool:
        """Whether the process ended before the condition held."""
        deadline_s = time.monotonic() + RUN_TIMEOUT_S
        while process.poll() is None:
            if condition():
                return False
            assert time.monotonic() < deadline_s, f"the pipeline hangs: see {self.folder / 'said.log'}"
            try:
                process.wait(POLL_S)
            except subprocess.TimeoutExpired:
                continue
        return True

    def end(self, process: subprocess.Popen[bytes], *, whole: bool = True) -> None:
        """Kill the driver, alone or with all its processes; those left behind end by themselves, or are ended."""
        left = []
        if process.poll() is None:
            left = psutil.Process(process.pid).children(recursive=True)
            process.kill()
            process.wait()
        if whole:
            for each in left:
                try:
                    each.kill()
                except psutil.NoSuchProcess:
                    continue
        psutil.wait_procs(left, timeout=RUN_TIMEOUT_S)

    def wait_until_stopped(self, process: subprocess.Popen[bytes]) -> None:
        """Return when the driver was stopped (SIGSTOP)."""
        driver = psutil.Process(process.pid)
        assert not self._await(process, lambda: driver.status() == psutil.STATUS_STOPPED), self.said()

    def said(self) -> str:
        """All that the drivers printed."""
        return (self.folder / "said.log").read_text(errors="replace")

    def to_the_end(self, *options: str) -> tuple[int, str]:
        """Run without a kill; the exit code, and all that was printed."""
        process = self.start(options)
        try:
            self._await(process, lambda: False)
        finally:
            self.end(process, whole=True)
        return process.returncode, self.said()

    def _batches_logged(self) -> int:
        """Batches in Spark's log of finished ones."""
        folder = self.folder / "checkpoint" / "commits"
        return sum(each.name.isdigit() for each in folder.iterdir()) if folder.exists() else 0
