"""Clusters of processes that are killed, paused, cut off, filled up under load: no promise to a client is broken."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from support.broken_network import NamespaceNetwork
from support.cluster_faults import KINDS
from support.fault_ledger import CoursePlan, counted, read_ledger, run_course
from support.java import PROJECT
from support.processes import run_tool

pytestmark = [pytest.mark.slow, pytest.mark.spec("R1", "R2", "R3", "R5")]

COURSE = 20
LONG_COURSES = 5
COURSE_TIMEOUT_S = 1200.0


@pytest.mark.timeout(900)
def test_twenty_faults(tmp_path: Path) -> None:
    result = run_course(CoursePlan(1, COURSE, kinds=KINDS[:COURSE]), tmp_path / "course", print)
    assert result.is_well, result.describe()
    assert result.counted == COURSE, [report for report in result.reports if not report.counts]


@pytest.mark.long
@pytest.mark.timeout(2 * COURSE_TIMEOUT_S)
@pytest.mark.parametrize("number", range(LONG_COURSES))
def test_a_hundred_faults(tmp_path: Path, number: int) -> None:
    """In courses of twenty, with 3 and 5 brokers, where packets are really lost if the machine allows that."""
    ledger = tmp_path / "ledger.jsonl"
    network = "namespaces" if NamespaceNetwork.is_possible() else "proxies"
    command = [sys.executable, "bench/cluster_faults.py", "--seed", str(1000 + number), "--faults", str(COURSE)]
    command += ["--brokers", "3" if number % 2 else "5", "--network", network, "--ledger", str(ledger)]
    run_tool(command, timeout_s=COURSE_TIMEOUT_S, cwd=PROJECT)
    assert counted(read_ledger(ledger)) == COURSE
