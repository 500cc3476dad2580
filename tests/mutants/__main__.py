"""Plants faults one by one and runs the tests that reach them: `./run mutants`.

Every fault is planted in a copy of the project. The tests are the pure ones of all tiers; which of them reach which
lines is recorded once for a state of the code. They run until the first one fails, those first that stand where the
module's own tests do. A fault that no test notices is a survivor, unless `harmless.toml` says why it changes nothing.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import queue
import shutil
import subprocess
import sys
import threading
import time
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import coverage

from mutants.planting import Mutant, drawn
from support.changed import ImportGraph
from support.scheduling import SHORT, TestTimes
from support.tiers import TIER_VARIABLE, Tier

PROJECT = Path(__file__).resolve().parents[2]
WORK = PROJECT / ".cache" / "mutants"
HARMLESS = Path(__file__).with_name("harmless.toml")
FOLDERS = [
    f"src/ottla/{name}" for name in ("groups", "txn", "storage", "records", "wire", "client", "ops", "peer", "cluster")
]
#: What of the project the copies leave out.
LEFT_OUT = (".git", ".venv", ".cache", ".mypy_cache", ".ruff_cache", ".hypothesis", "__pycache__", "build")
#: Options of the run that is recorded: tests that need no other program, of all tiers.
PURE_TESTS = ("--quick", "--all", "-m", "not slow")
GOAL = 0.9
#: Tests of a first, short run, which most faults do not survive.
FIRST_TESTS = 60
FIRST_FILES = 6
TEST_TIMEOUT_S = 30
#: Beyond what the tests took without the fault.
PATIENCE_S = 60.0
PATIENCE_FACTOR = 5.0

CAUGHT, SURVIVED, HARMLESS_ONE, UNREACHED = "caught", "survived", "changes nothing", "not reached"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a mutant."""

    mutant: Mutant
    outcome: str
    #: The test that failed, or the reason of a harmless one.
    by: str
    seconds: float


class Copy:
    """A copy of the project in which tests run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._planted = 0
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(PROJECT, folder, ignore=shutil.ignore_patterns(*LEFT_OUT), symlinks=True)

    def pytest(self, *arguments: str, timeout_s: float | None = None) -> subprocess.CompletedProcess[str]:
        """Run tests of the copy. subprocess.TimeoutExpired if that takes longer."""
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(str(self.folder / name) for name in ("src", "tests")),
            "PYTHONPYCACHEPREFIX": str(WORK / "modules" / self.folder.name),
            TIER_VARIABLE: Tier.WHOLE.name,
        }
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
        process = subprocess.Popen(
            command,
            cwd=self.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            out, _ = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.communicate()
            raise
        return subprocess.CompletedProcess(command, process.returncode, out)

    def plant(self, mutant: Mutant) -> None:
        """Put the fault in."""
        self._write(mutant.path, mutant.planted((PROJECT / mutant.path).read_text()))

    def mend(self, mutant: Mutant) -> None:
        """Take the fault out."""
        self._write(mutant.path, (PROJECT / mutant.path).read_text())

    def _write(self, path: str, text: str) -> None:
        target = self.folder / path
        target.write_text(text)
        # Compiled modules are known by time, in seconds, and size: let no two states have the same.
        self._planted += 1
        os.utime(target, (self._planted, self._planted))


class Reach:
    """Which tests reach which lines, and how long each takes."""

    def __init__(self, copy: Copy, folders: Sequence[str]) -> None:
        self._folders = folders
        self._lines = WORK / f"lines-{_state_of_the_code(folders)}"
        self.seconds: dict[str, float] = {}
        #: Tests that noticed a fault, and whether they pass alone without one.
        self._alone: dict[str, bool] = {}
        if not list(WORK.glob(f"{self._lines.name}.*")):
            self._record(copy)
        self.seconds = TestTimes(self._times).earlier
        failed = set(json.loads(self._failed.read_text()))
        self._contexts: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
        for path in WORK.glob(f"{self._lines.name}.*"):
            data = coverage.CoverageData(str(path))
            data.read()
            for file in data.measured_files():
                of_file = self._contexts[file[file.index("/src/") + 1 :]]
                for line, tests in data.contexts_by_lineno(file).items():
                    of_file[line].update(test for test in tests if test and test not in failed)
        self._tests = set(self.seconds) - failed
        self._imports = ImportGraph(PROJECT)

    @property
    def _times(self) -> Path:
        return self._lines.with_name(f"of-{self._lines.name}") / "test-times.json"

    @property
    def _failed(self) -> Path:
        return self._times.with_name("failed.json")

    def _record(self, copy: Copy) -> None:
        print("recording which tests reach which lines", flush=True)
        report = self._times.with_name("spec-report.txt")
        done = copy.pytest(
            *self._folders, "-n", "auto", *PURE_TESTS, "-p", "mutants.recording", "--lines", str(self._lines),
            "--spec-report", str(report), "-rfE", "--tb", "no",
        )  # fmt: skip
        lines = [line.split() for line in done.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]
        self._failed.write_text(json.dumps([words[1] for words in lines]))
        print(done.stdout.splitlines()[-1], flush=True)

    def tests_of(self, mutant: Mutant) -> list[str]:
        """The tests that reach a mutant, those first that will tell soonest."""
        last = mutant.line + mutant.before.count("\n")
        of_file = self._contexts[mutant.path]
        tests = {test for line in range(mutant.line, last + 1) for test in of_file.get(line, ())}
        if not tests:
            # It is reached, if at all, when the module is imported.
            files = self._imports.dependents({mutant.path})
            tests = {test for test in self._tests if test.partition("::")[0] in files}
        package = mutant.path.removeprefix("src/ottla/").partition("/")[0]
        own = f"/{package}/"
        name = Path(mutant.path).stem.strip("_")
        return sorted(tests, key=lambda test: (name not in test.partition("::")[0], own not in test, self._cost(test)))

    def passes_alone(self, copy: Copy, test: str) -> bool:
        """Whether the test passes without a fault and without the others of its file."""
        if test not in self._alone:
            self._alone[test] = not _failing(copy, [test], self)
        return self._alone[test]

    def expected_s(self, tests: Iterable[str]) -> float:
        """How long the tests take together."""
        return sum(map(self._cost, tests))

    def _cost(self, test: str) -> float:
        return self.seconds.get(test, 0.1)


def first_of(tests: Sequence[str]) -> list[str]:
    """As many as a short run takes, of few files."""
    files: list[str] = []
    for test in tests:
        file = test.partition("::")[0]
        if file not in files:
            files.append(file)
    few = set(files[:FIRST_FILES])
    return [test for test in tests if test.partition("::")[0] in few][:FIRST_TESTS]


def try_out(copy: Copy, mutant: Mutant, reach: Reach) -> Verdict:
    """Whether a test notices the mutant; one that fails alone without the fault, too, does not count."""
    began = time.monotonic()
    tests = reach.tests_of(mutant)
    outcome, by = (SURVIVED, "") if tests else (UNREACHED, "")
    while tests:
        copy.plant(mutant)
        try:
            by = _failing_of_two(copy, tests, reach)
        finally:
            copy.mend(mutant)
        if not by or by not in tests or reach.passes_alone(copy, by):
            outcome = CAUGHT if by else SURVIVED
            break
        tests.remove(by)
    return Verdict(mutant, outcome, by if outcome == CAUGHT else "", time.monotonic() - began)


def _failing_of_two(copy: Copy, tests: list[str], reach: Reach) -> str:
    """The first test that fails, of those that are likeliest to, else of the others."""
    first = first_of(tests)
    return _failing(copy, first, reach) or _failing(copy, [test for test in tests if test not in set(first)], reach)


def _failing(copy: Copy, tests: list[str], reach: Reach) -> str:
    """The first test that fails, or how the run ended; empty if all pass."""
    if not tests:
        return ""
    chosen = copy.folder / ".chosen.json"
    chosen.write_text(json.dumps(tests))
    files = list(dict.fromkeys(test.partition("::")[0] for test in tests))
    patience = PATIENCE_S + PATIENCE_FACTOR * reach.expected_s(tests)
    try:
        done = copy.pytest(
            "-x", "-n", "0", "-p", "mutants.chosen", "--chosen", str(chosen), "--timeout", str(TEST_TIMEOUT_S), "--tb",
            "no", "-rfE", "--spec-report", str(copy.folder / ".report" / "spec.txt"), *files, timeout_s=patience,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return "the time"
    if done.returncode == 0:
        return ""
    lines = [line for line in done.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    return lines[0].split()[1] if lines else f"status {done.returncode}"


def run_all(mutants: Sequence[Mutant], folders: Sequence[str], jobs: int, minutes: float) -> list[Verdict]:
    """Verdicts in the order in which they come; what no time is left for has none."""
    copies = [Copy(WORK / f"copy-{number}") for number in range(jobs)]
    reach = Reach(copies[0], folders)
    waiting: queue.SimpleQueue[Mutant] = queue.SimpleQueue()
    for mutant in mutants:
        waiting.put(mutant)
    verdicts: list[Verdict] = []
    deadline = time.monotonic() + 60 * minutes

    def work(copy: Copy) -> None:
        while time.monotonic() < deadline:
            try:
                mutant = waiting.get_nowait()
            except queue.Empty:
                return
            verdict = _unless_harmless(try_out(copy, mutant, reach))
            verdicts.append(verdict)
            at = f"{len(verdicts)}/{len(mutants)} {verdict.outcome}"
            print(f"{at} in {verdict.seconds:.0f} s: line {mutant.line} of {mutant.name} {verdict.by}", flush=True)

    threads = [threading.Thread(target=work, args=(copy,)) for copy in copies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return verdicts


def _unless_harmless(verdict: Verdict) -> Verdict:
    reason = harmless().get(verdict.mutant.name)
    if verdict.outcome != SURVIVED or reason is None:
        return verdict
    return Verdict(verdict.mutant, HARMLESS_ONE, reason, verdict.seconds)


def harmless() -> dict[str, str]:
    """Names of mutants that change nothing, and why."""
    return {one["mutant"]: one["reason"] for one in tomllib.loads(HARMLESS.read_text()).get("harmless", [])}


def _state_of_the_code(folders: Sequence[str]) -> str:
    files = sorted(path for folder in ("src", *SHORT, "tests/support") for path in (PROJECT / folder).rglob("*.py"))
    content = [path.read_bytes() for path in files]
    return hashlib.sha256(b"".join([*content, repr(sorted(folders)).encode()])).hexdigest()[:16]


def summary(verdicts: Sequence[Verdict]) -> str:
    """A table by package, and the survivors."""
    rows: dict[str, Counter[str]] = defaultdict(Counter)
    for verdict in verdicts:
        rows[verdict.mutant.path.split("/")[2]][verdict.outcome] += 1
    outcomes = (CAUGHT, SURVIVED, UNREACHED, HARMLESS_ONE)
    lines = [f"| package | {' | '.join(outcomes)} |", f"|---{'|---:' * len(outcomes)}|"]
    rows["all"] = sum(rows.values(), Counter())
    lines += [f"| {name} | {' | '.join(str(row[each]) for each in outcomes)} |" for name, row in rows.items()]
    lines += ["", f"caught of those that change something: {100 * share_caught(verdicts):.1f} %"]
    for verdict in verdicts:
        if verdict.outcome in (SURVIVED, UNREACHED):
            lines.append(f"{verdict.outcome}: line {verdict.mutant.line} of {verdict.mutant.name}")
    return "\n".join(lines)


def share_caught(verdicts: Sequence[Verdict]) -> float:
    """The part of those that change something which a test has caught."""
    counts = Counter(verdict.outcome for verdict in verdicts)
    changing = len(verdicts) - counts[HARMLESS_ONE]
    return counts[CAUGHT] / changing if changing else 1.0


def main() -> int:
    """The program; 0 where the goal is met."""
    parser = argparse.ArgumentParser(prog="./run mutants", description="Whether the tests notice small faults.")
    parser.add_argument("--count", type=int, default=200, help="how many are planted (200)")
    parser.add_argument("--seed", type=int, default=12, help="which ones are drawn (12)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many at a time")
    parser.add_argument("--minutes", type=float, default=30.0, help="when to end (30)")
    parser.add_argument("--only", default="", metavar="TEXT", help="of those drawn only the ones whose name has TEXT")
    parser.add_argument(
        "--tests", nargs="*", default=[], metavar="FOLDER", help="only these may notice (all pure ones)"
    )
    options = parser.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    mutants = [one for one in drawn(PROJECT, FOLDERS, options.count, options.seed) if options.only in one.name]
    began = time.monotonic()
    verdicts = run_all(mutants, options.tests, options.jobs, options.minutes)
    print(f"\n{summary(verdicts)}\n{len(verdicts)} of {len(mutants)} in {time.monotonic() - began:.0f} s")
    return 0 if len(verdicts) == len(mutants) and share_caught(verdicts) >= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
