"""The rule on chance: which failed tests run a second time, alone, and what is noted of those that pass then.

Only a test that waits for another process or a wall clock may run again, once, with its whole file, after all others
have ended. A failure that may show wrong data, a hang, a crashed worker and a process left running are never tried
again, nor is a test that `tests/flaky.jsonl` lists without a fix.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from support.spec_report import SEVERITY

#: Folders whose tests wait for no other process and no wall clock.
NEVER_IN = tuple(f"tests/{name}/" for name in ("unit", "property", "sim", "scenarios", "golden", "meta"))
#: Requirements about what is in the log, or reaches a consumer or a table: their tests show lost, doubled, reordered or
#: wrong data.
ABOUT_DATA = frozenset(
    (
        "L1",
        "L2",
        "L3",
        "L4",
        "L5",
        "L7",
        "L9",
        "P3",
        "P5",
        "P6",
        "C3",
        "C4",
        "C5",
        "G11",
        "R2",
        "R3",
        "R5",
        "R6",
        "X1",
        "X2",
        "X3",
        "D1",
        "D2",
        "D3",
        "D5",
        "D6",
        "D7",
    )
)
#: What reports call a requirement of their test.
SPEC = "spec"
#: The marker for tests about data that show none of these requirements.
DATA_MARKER = "data"
#: Files with failures that may run again in one run: more of them are no chance.
MOST_FILES = 3
#: Of a failure's text, story included, this much is kept.
MOST_CHARACTERS = 20_000
#: How the reports of pytest-timeout and of pytest-xdist begin what they say of a test that hung or crashed.
_HUNG, _CRASHED = "Failed: Timeout", "crashed while running"


@dataclass(slots=True)
class Failure:
    """A test that failed, in any of its phases."""

    test: str
    text: str
    requirements: set[str] = field(default_factory=set)
    is_about_data: bool = False
    #: Processes that wanted a core when it failed, on average of 1, 5 and 15 minutes.
    load: list[float] = field(default_factory=lambda: [round(each, 1) for each in os.getloadavg()])

    @property
    def file(self) -> str:
        """The file or document that runs again as a whole."""
        return self.test.partition("::")[0]

    def final_because(self, listed: Iterable[str]) -> str:
        """Why it does not run again; empty where it may. `listed` are the tests that passed a second time before."""
        if self.file.startswith(NEVER_IN):
            return "tests there wait for no other process"
        if self.is_about_data or self.requirements & ABOUT_DATA:
            return "it shows lost, doubled, reordered or wrong data"
        if _HUNG in self.text:
            return "it hung"
        if _CRASHED in self.text:
            return "its worker crashed"
        if self.test in listed:
            return "flaky.jsonl lists it without a fix"
        return ""


class Outcomes:
    """What became of each test of a run, and its failures."""

    def __init__(self) -> None:
        #: The worst outcome of each test's phases.
        self.by_test: dict[str, str] = {}
        self.failures: dict[str, Failure] = {}

    def note(self, report: pytest.TestReport) -> None:
        """Note one phase of a test."""
        worst = max(report.outcome, self.by_test.get(report.nodeid, report.outcome), key=SEVERITY.index)
        self.by_test[report.nodeid] = worst
        if report.failed:
            failure = self.failures.setdefault(report.nodeid, Failure(report.nodeid, ""))
            failure.text += "\n".join([report.longreprtext, *(f"--- {name}\n{text}" for name, text in report.sections)])
            failure.requirements |= {str(name) for kind, name in report.user_properties if kind == SPEC}
            failure.is_about_data |= any(kind == DATA_MARKER for kind, _ in report.user_properties)


class FlakyList:
    """`tests/flaky.jsonl`: tests that failed, then passed alone; one JSON object a line.

    `fix` is empty until the cause is repaired, then it says how.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def unfixed(self) -> set[str]:
        """Tests listed without a fix."""
        lines = self._path.read_text().splitlines() if self._path.exists() else []
        rows = [json.loads(line) for line in lines if line.strip()]
        return {row["test"] for row in rows if not row["fix"]}

    def add(self, failure: Failure) -> None:
        """List a test that passed the second time, with its first failure."""
        row = {
            "test": failure.test,
            "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "load": failure.load,
            "seed": os.environ.get("PYTHONHASHSEED", "random"),
            "failure": failure.text[-MOST_CHARACTERS:],
            "fix": "",
        }
        with self._path.open("a") as file:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


def judge(
    failures: Sequence[Failure], listed: Iterable[str], run_again: Callable[[str], Mapping[str, str]]
) -> dict[str, str]:
    """Why each failed test stays failed, by test; empty for one that passed alone, with its whole file.

    Nothing runs again where the run fails in any case: one failure is final, or too many files have some.
    """
    files = list(dict.fromkeys(failure.file for failure in failures))
    reasons = {failure.test: failure.final_because(listed) for failure in failures}
    if len(files) > MOST_FILES or any(reasons.values()):
        rest = f"{len(files)} files have failures" if len(files) > MOST_FILES else "another failure is final"
        return {test: reason or f"{rest}: nothing runs again" for test, reason in reasons.items()}
    for file in files:
        outcomes = run_again(file)
        for failure in failures:
            if failure.file == file and (outcomes.get(failure.test) != "passed" or "failed" in outcomes.values()):
                reasons[failure.test] = "it or its file failed again, alone"
    return reasons


class RunAgain:
    """Runs a file alone, in a pytest of its own without workers, with the tests that it has in this run's tier."""

    def __init__(self, root: Path, scratch: Path) -> None:
        self._root = root
        self._scratch = scratch

    def __call__(self, file: str) -> dict[str, str]:
        """Outcomes by test; none where the run did not come to its end."""
        outcomes = self._scratch / "outcomes.json"
        outcomes.unlink(missing_ok=True)
        written = ["--second-try", str(outcomes), "--spec-report", str(self._scratch / "spec.txt")]
        print(f"\nrunning {file} again, alone", flush=True)
        command = [sys.executable, "-m", "pytest", "-n", "0", "-q", *written, file]
        subprocess.run(command, cwd=self._root, stdin=subprocess.DEVNULL, check=False)
        try:
            return dict(json.loads(outcomes.read_text()))
        except (OSError, ValueError):
            return {}
