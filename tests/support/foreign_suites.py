"""Test suites of other projects, unpacked from their source distributions and run against test brokers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
FOREIGN = PROJECT / "tests" / "interop" / "foreign"
DISTRIBUTIONS = PROJECT / ".cache" / "foreign"
#: A whole suite on a busy machine.
RUN_TIMEOUT_S = 500
#: One test of a suite.
TEST_TIMEOUT_S = 100


def foreign_distributions() -> Path | None:
    """The folder with the archives that `./run test` fetches."""
    return DISTRIBUTIONS if (DISTRIBUTIONS / ".made-of").exists() else None


@dataclass(frozen=True)
class ForeignSuite:
    """A suite: where it is from, what of it runs, and what is known to end otherwise against ottla."""

    #: The archive's name without `.tar.gz`, which is also its folder's.
    distribution: str
    #: Our module in the place of the suite's own fixtures, in `tests/interop/foreign/conftests`.
    conftest: str
    #: What pytest is given.
    tests: Sequence[str]
    #: Node ids, or beginnings of such, that are not run, and why.
    left_out: Mapping[str, str]
    #: Node ids that fail, and why.
    differences: Mapping[str, str]


@dataclass(frozen=True)
class ForeignTest:
    """What became of one test."""

    name: str
    outcome: str
    connections: int
    message: str


def run_suite(suite: ForeignSuite, folder: Path, sample: tuple[int, int] | None = None) -> list[ForeignTest]:
    """Unpack the suite into `folder` and run it with our fixtures; `sample` is a seed and a number of tests."""
    with tarfile.open(DISTRIBUTIONS / f"{suite.distribution}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    root = folder / suite.distribution
    (root / "conftest.py").write_text((FOREIGN / "conftests" / f"{suite.conftest}.py").read_text())
    report = folder / "connections.json"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "connection_report"]
    command += ["-p", "pytest_timeout", "--timeout", str(TEST_TIMEOUT_S), "--show-capture=no", "-W", "ignore"]
    command += [argument for name in suite.left_out for argument in ("--deselect", name)]
    if sample is not None:
        seed, count = sample
        command += ["--sample-seed", str(seed), "--sample-size", str(count)]
        command += [argument for name in suite.differences for argument in ("--deselect", name)]
    paths = [root, PROJECT / "src", FOREIGN]
    env = {
        **os.environ,
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "OTTLA_CONNECTION_REPORT": str(report),
    }
    ended = subprocess.run(
        [*command, *suite.tests], cwd=root, env=env, capture_output=True, text=True, check=False, timeout=RUN_TIMEOUT_S
    )
    assert ended.returncode in (0, 1), ended.stdout[-4000:] + ended.stderr[-4000:]
    tests = json.loads(report.read_text())
    return [ForeignTest(name, each["outcome"], each["connections"], each["message"]) for name, each in tests.items()]
