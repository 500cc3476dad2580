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
#: Requirements that say nothing of what is in the log or reaches a consumer or a table. A test that shows others,
#: or none, may show lost, doubled, reordered or wrong data.
WITHOUT_DATA = {
    *(f"A{number}" for number in range(1, 8)),
    *(f"C{number}" for number in (2, 6, 7, 9)),
    *(f"G{number}" for number in range(1, 11)),
    *(f"R{number}" for number in (4, 7, 9)),
    *(f"S{number}" for number in range(1, 7)),
    *(f"U{number}" for number in (2, 3, 4, 5)),
    *(f"Z{number}" for number in (1, 3, 5, 8)),
}
#: What reports call a requirement of their test.
SPEC = "spec"
#: The marker for other tests about data.
DATA_MARKER = "data"
#: Tests of these walk through a document each, on servers of its own.
DOCUMENT_WALKS = "tests/e2e/documents/test_pages.py::test_the_page_says_what_happens["
#: Failures that may be tried again in one run: more of them are no chance.
MOST_FAILURES = 3
#: A file that runs longer than this the second time hangs.
AGAIN_TIMEOUT_S = 1800
#: Of a failure's text, story included, this much is kept.
MOST_CHARACTERS = 20_000
#: What the reports of pytest-timeout, of subprocess and of pytest-xdist say of a test that hung or crashed.
_HUNG, _CRASHED = ("Failed: Timeout", "subprocess.TimeoutExpired"), "crashed while running"


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
        """The file that runs again as a whole; of the walks of documents only the failed one."""
        return self.test if self.test.startswith(DOCUMENT_WALKS) else self.test.partition("::")[0]

    def final_because(self, listed: Iterable[str]) -> str:
        """Why it does not run again; empty where it may. `listed` are the tests that passed a second time before."""
        if self.file.startswith(NEVER_IN):
            return "tests there wait for no other process"
        if self.is_about_data or not self.requirements or self.requirements - WITHOUT_DATA:
            return "it may show lost, doubled, reordered or wrong data"
        if any(each in self.text for each in _HUNG):
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
        return {row.get("test", "") for row in rows if not row.get("fix")}

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

    Nothing runs again where the run fails in any case: one failure is final, or there are too many.
    """
    reasons = {failure.test: failure.final_because(listed) for failure in failures}
    if len(failures) > MOST_FAILURES or any(reasons.values()):
        rest = f"{len(failures)} tests failed" if len(failures) > MOST_FAILURES else "another failure is final"
        return {test: reason or f"{rest}: nothing runs again" for test, reason in reasons.items()}
    for file in dict.fromkeys(failure.file for failure in failures):
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
        """Outcomes by test; none where the run failed in any way, such as by processes that it left."""
        outcomes = self._scratch / "outcomes.json"
        outcomes.unlink(missing_ok=True)
        written = ["--second-try", str(outcomes), "--spec-report", str(self._scratch / "spec.txt")]
        print(f"\nrunning {file} again, alone", flush=True)
        command = [sys.executable, "-m", "pytest", "-n", "0", "-q", *written, file]
        try:
            subprocess.run(command, cwd=self._root, stdin=subprocess.DEVNULL, timeout=AGAIN_TIMEOUT_S, check=True)
            return dict(json.loads(outcomes.read_text()))
        except (subprocess.SubprocessError, OSError, ValueError):
            return {}
