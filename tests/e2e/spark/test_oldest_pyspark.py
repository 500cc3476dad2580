"""The tests of source, sink, decoders and listener once more, with the oldest PySpark that they run with."""

from __future__ import annotations

import os
import re
import sysconfig
from pathlib import Path

import pytest

from ottla.spark.versions import OLDEST_PYSPARK
from support.packing import PROJECT, VirtualEnvironment
from support.processes import run_tool

LOCK = PROJECT / "requirements" / "spark-oldest.lock"
INSTALL = ("--quiet", "--require-hashes", "--no-deps", "--no-build-isolation", "--use-pep517")
#: Format found by itself, batch, stream, sink, filters, decoders, backfill, listener; and the tests without a JVM.
TESTS = (
    "tests/unit/spark",
    "tests/e2e/spark/test_source_and_sink.py",
    "tests/e2e/spark/test_more_options.py",
    "tests/e2e/spark/test_decoded_values.py",
    "tests/e2e/spark/test_backfill.py",
    "tests/e2e/spark/test_listening.py",
    "tests/e2e/spark/clusters/test_ways_to_run.py",
)
INSTALL_TIMEOUT_S = 600
TESTS_TIMEOUT_S = 1800


def test_the_lock_names_the_oldest_version_that_is_taken() -> None:
    (version,) = re.findall(r"^pyspark==(\d+)\.(\d+)", LOCK.read_text(), re.MULTILINE)
    assert tuple(map(int, version)) == OLDEST_PYSPARK


@pytest.mark.long
@pytest.mark.timeout(INSTALL_TIMEOUT_S + TESTS_TIMEOUT_S)
@pytest.mark.spec("D1", "D4", "D5")
def test_the_oldest_pyspark(tmp_path: Path) -> None:
    python = _environment(tmp_path / "venv")
    version = run_tool([python, "-c", "import pyspark; print(pyspark.__version__)"]).stdout
    assert version.startswith(".".join(map(str, OLDEST_PYSPARK)))
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--spec-report", str(tmp_path / "report.txt")]
    # The sources of this run, not those that are installed.
    paths = os.pathsep.join(path for path in (str(PROJECT / "src"), os.environ.get("PYTHONPATH")) if path)
    environment = {"PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}
    done = run_tool([*command, *TESTS], cwd=PROJECT, env=environment, timeout_s=TESTS_TIMEOUT_S)
    assert re.search(r"^\d+ passed", done.stdout.splitlines()[-1]), done.stdout


def _environment(folder: Path) -> str:
    """The Python of an environment with that PySpark, and otherwise with the packages of this one."""
    made = VirtualEnvironment(folder)
    made.take_over(["setuptools"])  # It comes as sources only; the setuptools that packs it is that of the locks.
    made.install(*INSTALL, "-r", str(LOCK), timeout=INSTALL_TIMEOUT_S)
    python = str(made.bin / "python")
    purelib = made.output(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    # They stand behind its own; what is installed here by a link is there, too.
    Path(purelib, "packages.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    return python
