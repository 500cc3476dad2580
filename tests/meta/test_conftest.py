"""The rules of a test run itself: markers, the report, leftovers. Each is tried on a small suite of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]

pytestmark = pytest.mark.slow


#: A run of pytest with workers imports much, and takes its time on a busy machine.
RUN_TIMEOUT_S = 240


def run_suite(
    folder: Path, source: str, *arguments: str, env: dict[str, str] | None = None, path: str = "test_it.py"
) -> subprocess.CompletedProcess[str]:
    """Run `source` as a test module of its own, under this project's conftest."""
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    (folder / path).write_text("import pytest\n" + source)
    configuration = ["-c", str(TESTS.parent / "pyproject.toml"), "--rootdir", str(folder), "-p", "conftest"]
    report = ["--spec-report", str(folder / "report.txt"), "-p", "no:cacheprovider"]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *configuration, *report, "-q", *arguments, str(folder / path)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(TESTS), **(env or {})},
        capture_output=True,
        text=True,
        timeout=RUN_TIMEOUT_S,
        check=False,
    )


#: In this process, or by two workers.
PLACES = pytest.mark.parametrize("place", [["-n", "0"], ["-n", "2"]], ids=["here", "workers"])


@PLACES
def test_a_process_left_running_fails_the_run_and_is_killed(tmp_path: Path, place: list[str]) -> None:
    source = """
import subprocess, sys
def test_it():
    global child
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600) # lost child"])
    print(child.pid)
"""
    done = run_suite(tmp_path, source, *place)
    assert done.returncode == 1, done.stdout
    assert "1 passed" in done.stdout
    assert "left running: " in done.stdout
    assert "lost child" in done.stdout


@PLACES
def test_no_program_sees_the_users_terminal(tmp_path: Path, place: list[str]) -> None:
    source = """
import subprocess, sys
def test_it():
    names = subprocess.run([sys.executable, "-c", "import os; print(*os.environ)"], capture_output=True, text=True)
    assert not {"COLUMNS", "LINES", "NO_COLOR", "OTTLA_BOOTSTRAP_SERVER"}.intersection(names.stdout.split())
"""
    shell = {"COLUMNS": "80", "LINES": "24", "NO_COLOR": "1", "OTTLA_BOOTSTRAP_SERVER": "nowhere:9092"}
    done = run_suite(tmp_path, source, *place, env=shell)
    assert done.returncode == 0, done.stdout


@PLACES
def test_an_orphan_left_running_fails_the_run_and_is_killed(tmp_path: Path, place: list[str]) -> None:
    source = """
import subprocess, sys
def test_it():
    orphan = [sys.executable, "-c", "import time; time.sleep(600) # lost orphan"]
    subprocess.run([sys.executable, "-c", f"import subprocess; subprocess.Popen({orphan!r})"])
"""
    done = run_suite(tmp_path, source, *place)
    assert done.returncode == 1, done.stdout
    assert "1 passed" in done.stdout
    assert "lost orphan" in done.stdout


def test_files_left_open_fail_the_run_and_those_that_are_garbage_are_closed(tmp_path: Path) -> None:
    source = """
import os
from ottla.env.disk import RealDisk
kept = []
def test_garbage():
    cycle = [open(os.devnull) for _ in range(600)]
    cycle.append(cycle)
def test_dropped():
    for _ in range(600):
        RealDisk().open(os.devnull)
def test_kept():
    kept.append([open(os.devnull) for _ in range(600)])
"""
    done = run_suite(
        tmp_path,
        source,
        "-n",
        "0",
        "-W",
        "ignore::ResourceWarning",
        "-W",
        "ignore::pytest.PytestUnraisableExceptionWarning",
    )
    assert done.returncode == 1, done.stdout
    assert "3 passed, 1 error" in done.stdout
    found = re.search(r"(\d+) files and sockets are open after test_", done.stdout)
    assert found is not None, done.stdout
    assert 600 <= int(found[1]) < 800


def test_what_a_crashed_worker_had_started_is_killed(tmp_path: Path) -> None:
    source = """
import os, subprocess, sys
def test_it():
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600) # lost child"])
    os._exit(3)
def test_other(): pass
"""
    done = run_suite(tmp_path, source, "-n", "2")
    assert done.returncode == 1, done.stdout
    assert "1 failed, 1 passed" in done.stdout
    assert "crashed while running" in done.stdout
    assert "lost child" in done.stdout


NEEDY = """
@pytest.mark.needs_kafka
def test_it():
    pass
"""


def test_a_missing_program_skips_and_says_what_to_do(tmp_path: Path) -> None:
    done = run_suite(tmp_path, NEEDY, env={"OTTLA_KAFKA_LIBS": str(tmp_path), "CI": ""})
    assert done.returncode == 0
    assert "1 skipped" in done.stdout
    assert "./run test brings both" in done.stdout


def test_a_missing_program_fails_in_ci(tmp_path: Path) -> None:
    done = run_suite(tmp_path, NEEDY, env={"OTTLA_KAFKA_LIBS": str(tmp_path), "CI": "true"})
    assert done.returncode == 1
    assert "1 error" in done.stdout
    assert "./run test brings both" in done.stdout


def test_a_quick_run_leaves_out_what_needs_a_program(tmp_path: Path) -> None:
    done = run_suite(tmp_path, NEEDY + "def test_other(): pass\n", "--quick", path="tests/unit/test_it.py")
    assert done.returncode == 0
    assert "1 passed, 1 deselected" in done.stdout


def test_long_tests_run_when_asked_for(tmp_path: Path) -> None:
    source = "@pytest.mark.long\ndef test_long(): pass\ndef test_short(): pass\n"
    assert "1 passed, 1 deselected" in run_suite(tmp_path, source).stdout
    assert "2 passed" in run_suite(tmp_path, source, "--long").stdout


@PLACES
def test_the_report_lists_tests_by_requirement(tmp_path: Path, place: list[str]) -> None:
    source = """
@pytest.mark.spec("L4", "G2")
def test_passes(): pass
@pytest.mark.spec("G2")
@pytest.mark.spec("G9")
def test_fails(): assert False
"""
    done = run_suite(tmp_path, source, *place)
    assert done.returncode == 1
    assert "requirements shown: L4 (the tests of each: report.txt)" in done.stdout
    report = (tmp_path / "report.txt").read_text()
    assert "G2: 1 passed, 1 failed\n    failed  test_it.py::test_fails\n    passed  test_it.py::test_passes\n" in report
    assert "G9: 1 failed\n" in report
    assert "Without a test in this run: A1, " in report


@PLACES
def test_a_hanging_test_fails_with_the_stacks_of_its_threads(tmp_path: Path, place: list[str]) -> None:
    source = """
import threading
def test_it():
    never = threading.Event()
    threading.Thread(target=never.wait, name="the-waiting-thread", daemon=True).start()
    never.wait()
"""
    done = run_suite(tmp_path, source, "--timeout", "1", *place)
    assert done.returncode == 1
    assert "Timeout" in done.stdout
    assert "the-waiting-thread" in done.stdout + done.stderr


def test_warnings_of_ours_are_errors(tmp_path: Path) -> None:
    done = run_suite(tmp_path, "import warnings\ndef test_it(): warnings.warn('old', DeprecationWarning)\n")
    assert done.returncode == 1
    assert "DeprecationWarning: old" in done.stdout


def test_an_unknown_marker_is_an_error(tmp_path: Path) -> None:
    done = run_suite(tmp_path, "@pytest.mark.need_kafka\ndef test_it(): pass\n")
    assert done.returncode != 0
    assert "need_kafka" in done.stdout
