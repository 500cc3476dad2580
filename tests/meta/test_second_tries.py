"""The rule on chance, on outcomes and on small suites of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.second_tries import MOST_FAILURES, Failure, FlakyList, judge

TESTS = Path(__file__).resolve().parents[1]
WAITING = "tests/e2e/test_serve.py::test_it"
#: A run of pytest imports much, and takes its time on a busy machine.
RUN_TIMEOUT_S = 240


def chance(test: str) -> Failure:
    return Failure(test, "waited 60 s in vain", {"G10"})


def passing(file: str) -> dict[str, str]:
    return {f"{file}::test_it": "passed", f"{file}::test_other": "passed"}


def failing(file: str) -> dict[str, str]:
    return {f"{file}::test_it": "passed", f"{file}::test_other": "failed"}


def test_of_the_walks_of_documents_only_the_failed_one_runs_again() -> None:
    walk = "tests/e2e/documents/test_pages.py::test_the_page_says_what_happens[docs/spark.md]"
    ran: list[str] = []

    def again(target: str) -> dict[str, str]:
        ran.append(target)
        return {walk: "passed"}

    assert judge([chance(walk)], (), again) == {walk: ""}
    assert ran == [walk]


@pytest.mark.parametrize(
    ("failure", "because"),
    [
        (Failure(WAITING, "waited 60 s in vain", {"G10", "U2"}), ""),
        (Failure(WAITING, "waited 60 s in vain"), "wrong data"),
        (Failure("tests/unit/net/test_it.py::test_it", "x"), "wait for no other process"),
        (Failure("tests/meta/test_it.py::test_it", "x"), "wait for no other process"),
        (Failure(WAITING, "x", {"G10", "L9"}), "wrong data"),
        (Failure(WAITING, "x", {"G10"}, is_about_data=True), "wrong data"),
        (Failure(WAITING, "Failed: Timeout (>300.0s) from pytest-timeout.", {"G10"}), "hung"),
        (Failure(WAITING, "subprocess.TimeoutExpired: Command 'x' timed out", {"G10"}), "hung"),
        (Failure(WAITING, "worker 'gw1' crashed while running 'x'", {"G10"}), "crashed"),
        (Failure("tests/e2e/test_listed.py::test_it", "x", {"G10"}), "without a fix"),
    ],
)
def test_which_failures_are_final(failure: Failure, because: str) -> None:
    found = failure.final_because({"tests/e2e/test_listed.py::test_it"})
    assert because in found
    assert bool(because) == bool(found)


def test_a_failure_that_does_not_come_again_is_flaky() -> None:
    assert judge([chance(WAITING)], (), passing) == {WAITING: ""}


def test_the_whole_file_has_to_pass() -> None:
    assert judge([chance(WAITING)], (), failing) == {WAITING: "it or its file failed again, alone"}
    assert judge([chance(WAITING)], (), lambda _: {}) == {WAITING: "it or its file failed again, alone"}


def test_nothing_runs_again_beside_a_final_failure_or_too_many() -> None:
    def never(file: str) -> dict[str, str]:
        raise AssertionError(file)

    final = Failure("tests/unit/test_it.py::test_it", "")
    reasons = judge([chance(WAITING), final], (), never)
    assert reasons[WAITING] == "another failure is final: nothing runs again"
    assert reasons[final.test] == "tests there wait for no other process"
    many = [chance(f"tests/e2e/test_{number}.py::test_it") for number in range(MOST_FAILURES + 1)]
    assert set(judge(many, (), never).values()) == {"4 tests failed: nothing runs again"}
    assert set(judge(many[:MOST_FAILURES], (), passing).values()) == {""}


def test_the_list_knows_what_has_no_fix(tmp_path: Path) -> None:
    path = tmp_path / "flaky.jsonl"
    listed = FlakyList(path)
    assert listed.unfixed() == set()
    listed.add(Failure(WAITING, "story", load=[7.5, 3.0, 1.0]))
    row = json.loads(path.read_text())
    assert (row["test"], row["failure"], row["load"], row["fix"]) == (WAITING, "story", [7.5, 3.0, 1.0], "")
    assert listed.unfixed() == {WAITING}
    path.write_text(json.dumps(row | {"fix": "waits for the answer"}) + "\n")
    assert listed.unfixed() == set()


CHANCE = """
import os, pathlib
@pytest.mark.spec("G10")
def test_it():
    print("story of it")
    tried = pathlib.Path(os.environ["TRIED"])
    before = tried.exists()
    tried.touch()
    assert before, "not the first time"
def test_other(): pass
"""


def run_suite(folder: Path, source: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a test module, `test_it.py`, whose failures may be chance, under this project's conftest."""
    (folder / "test_it.py").write_text("import pytest\n" + source)
    configuration = f"-c {TESTS.parent / 'pyproject.toml'} --rootdir {folder} -p conftest -p no:cacheprovider"
    return subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "--spec-report", str(folder / "report.txt")),
            *("--flaky", str(folder / "flaky.jsonl"), *arguments, str(folder / "test_it.py")),
        ],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(TESTS), "PYTEST_ADDOPTS": configuration, "TRIED": str(folder / "tried")},
        capture_output=True,
        text=True,
        timeout=RUN_TIMEOUT_S,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize("place", [["-n", "0"], ["-n", "2"]], ids=["here", "workers"])
def test_a_run_with_a_flaky_test_passes_once(tmp_path: Path, place: list[str]) -> None:
    done = run_suite(tmp_path, CHANCE, *place)
    assert done.returncode == 0, done.stdout
    assert "1 passed, 0 failed, 1 flaky\n" in done.stdout
    assert "test_it.py::test_it: passed the second time" in done.stdout
    assert "story of it" in done.stdout
    row = json.loads((tmp_path / "flaky.jsonl").read_text())
    assert row["test"] == "test_it.py::test_it"
    assert "story of it" in row["failure"]
    (tmp_path / "tried").unlink()
    again = run_suite(tmp_path, CHANCE, *place)
    assert again.returncode == 1, again.stdout
    assert "1 passed, 1 failed, 0 flaky\n" in again.stdout
    assert "flaky.jsonl lists it without a fix" in again.stdout


@pytest.mark.slow
def test_data_and_second_failures_fail_the_run(tmp_path: Path) -> None:
    done = run_suite(tmp_path, f"pytestmark = pytest.mark.spec('R5'){CHANCE}")
    assert done.returncode == 1
    assert "wrong data" in done.stdout
    (tmp_path / "tried").unlink()
    done = run_suite(tmp_path, f"pytestmark = pytest.mark.data{CHANCE}")
    assert done.returncode == 1
    assert "wrong data" in done.stdout
    done = run_suite(tmp_path, "@pytest.mark.spec('G10')\ndef test_it(): assert False\n")
    assert done.returncode == 1
    assert "failed again, alone" in done.stdout
    assert not (tmp_path / "flaky.jsonl").exists()


LEAVES_THE_SECOND_TIME = """
import os, pathlib, subprocess, sys
@pytest.mark.spec("G10")
def test_it():
    tried = pathlib.Path(os.environ["TRIED"])
    before = tried.exists()
    tried.touch()
    assert before
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
"""


@pytest.mark.slow
def test_a_second_try_that_leaves_a_process_has_failed(tmp_path: Path) -> None:
    done = run_suite(tmp_path, LEAVES_THE_SECOND_TIME)
    assert done.returncode == 1
    assert "failed again, alone" in done.stdout


@pytest.mark.slow
def test_a_run_that_leaves_a_process_is_not_tried_again(tmp_path: Path) -> None:
    left = """
import subprocess, sys
def test_leaves(): subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
"""
    done = run_suite(tmp_path, left + CHANCE)
    assert done.returncode == 1
    assert "the run is not whole: nothing runs again" in done.stdout
