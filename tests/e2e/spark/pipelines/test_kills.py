"""Pipelines whose driver is killed -9, or stopped and replaced: nothing is lost, and nothing is in a table twice.

Two hundred kills are made by bench/pipeline_kills.py, with a ledger; here is a course of each kind.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.spark.pipelines import crash_points
from support.ottla_server import OttlaServer
from support.pipeline_kills import POINTS, KilledCourse, PlannedKill, planned_kills

pytestmark = pytest.mark.spec("D3")

SEED = 1


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[list[OttlaServer]]:
    made = [OttlaServer(tmp_path / name) for name in ("here", "there")]
    try:
        for each in made:
            each.start()
        yield made
    finally:
        for each in made:
            each.stop()


def _course(kind: str, tmp_path: Path, brokers: list[OttlaServer], records_per_batch: int = 300) -> KilledCourse:
    folder = tmp_path / "pipeline"
    folder.mkdir()
    return KilledCourse(kind, SEED, folder, brokers[0], brokers[1], records_per_batch)


def test_an_archive_killed_before_and_after_its_commit(tmp_path: Path, brokers: list[OttlaServer]) -> None:
    plan = [PlannedKill(crash_points.FILES_WRITTEN, 2), PlannedKill(crash_points.TABLE_COMMITTED, 1, whole=False)]
    report = _course("delta", tmp_path, brokers, 450).run(plan)
    assert report.verdict == ""
    assert set(report.kills) == {crash_points.FILES_WRITTEN, crash_points.TABLE_COMMITTED}


@pytest.mark.long
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("kind", POINTS)
def test_a_course_of_kills(kind: str, tmp_path: Path, brokers: list[OttlaServer]) -> None:
    report = _course(kind, tmp_path, brokers).run(planned_kills(kind, SEED, 2 * len(POINTS[kind]) + 2))
    assert report.verdict == ""
    assert {point for point in POINTS[kind] if not report.kills[point]} == set(), "each point was hit"


@pytest.mark.long
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("kind", ["parquet", "delta", "iceberg"])
def test_a_driver_stopped_before_its_commit_is_superseded(
    kind: str, tmp_path: Path, brokers: list[OttlaServer]
) -> None:
    """A second driver takes its place; when the first one continues, it ends with one sentence."""
    course = _course(kind, tmp_path, brokers)
    course.fill()
    stopped = course.start([crash_points.FILES_WRITTEN, "2", "stop"])
    try:
        course.wait_until_stopped(stopped)
        status, said = course.to_the_end("--take-over")
        assert status == 0, said
        os.kill(stopped.pid, signal.SIGCONT)
        assert stopped.wait(300) not in (0, -signal.SIGKILL)
    finally:
        course.end(stopped)
    said = course.said()
    assert "another driver" in said.lower() or "superseded" in said.lower(), said
    assert "Traceback" not in said
    assert course.verdict() == ""
