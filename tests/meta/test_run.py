"""The script `run` and the locks it installs from."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
LOCKS = sorted((PROJECT / "requirements").glob("*.lock"))
PINNED = re.compile(r"^([a-z0-9][a-z0-9._-]*)==([^\s;]+)")


def run(*arguments: str, script: Path = PROJECT / "run", **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(script), *arguments],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def pins(lock: Path) -> dict[str, set[str]]:
    """Package to its pinned versions: more than one where platforms differ."""
    found: dict[str, set[str]] = {}
    for line in lock.read_text().splitlines():
        if match := PINNED.match(line):
            found.setdefault(match[1], set()).add(match[2])
    return found


def test_help_is_the_default() -> None:
    assert run().stdout == run("--help").stdout
    assert "./run COMMAND" in run("help").stdout


def test_an_unknown_command_is_an_error() -> None:
    done = run("fly")
    assert done.returncode == 1
    assert done.stderr.endswith("run: error: unknown command: fly\n")


def test_an_old_or_missing_python_is_reported(tmp_path: Path) -> None:
    shutil.copy(PROJECT / "run", tmp_path)
    shutil.copytree(PROJECT / "requirements", tmp_path / "requirements")
    done = run("setup", script=tmp_path / "run", OTTLA_PYTHON="python2.7")
    assert done.returncode == 1
    assert "no Python named python2.7 that is 3.11 or newer found" in done.stderr
    assert not (tmp_path / ".venv").exists()


def test_pythons_are_those_that_are_supported_and_work() -> None:
    """Each once, and what OTTLA_PYTHON names instead of them."""
    done = run("pythons", OTTLA_PYTHON="")
    assert done.returncode == 0, done.stderr
    program = "import sys; print('%d.%d' % sys.version_info[:2])"
    found = [subprocess.check_output([each, "-c", program], text=True).strip() for each in done.stdout.splitlines()]
    assert f"{sys.version_info.major}.{sys.version_info.minor}" in found
    assert found == [each for each in ("3.11", "3.12", "3.13", "3.14") if each in found]
    assert run("pythons", OTTLA_PYTHON=sys.executable).stdout == f"{sys.executable}\n"


def test_a_failed_step_shows_its_output_and_is_tried_again(tmp_path: Path) -> None:
    shutil.copy(PROJECT / "run", tmp_path)
    (tmp_path / "requirements").mkdir()
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    (tmp_path / ".venv" / ".made-in").write_text(f"{tmp_path}\n")
    # An environment whose installer fails, whichever it is.
    for program in (python, tmp_path / "uv"):
        program.write_text('#!/bin/sh\n[ "$1" = -c ] && exit 0\necho "no such thing: $*"\nexit 7\n')
        program.chmod(0o755)
    for name in ("build", "demo"):
        (tmp_path / "requirements" / f"{name}.lock").write_text("nothing==1 --hash=sha256:00\n")
    for _ in range(2):
        done = run("setup", "demo", script=tmp_path / "run", PATH=f"{tmp_path}:{os.environ['PATH']}")
        assert done.returncode != 0
        assert "no such thing: " in done.stderr
        assert "run: failed: " in done.stderr
        assert "the whole output is in" in done.stderr


def test_the_project_is_installed_anew_when_its_metadata_changes(tmp_path: Path) -> None:
    """An entry point, such as that of the pytest plugin, is known only to an installation that was made after it."""
    shutil.copy(PROJECT / "run", tmp_path)
    shutil.copytree(PROJECT / "requirements", tmp_path / "requirements")
    (tmp_path / "src" / "ottla" / "records").mkdir(parents=True)
    for name in ("setup.py", "src/ottla/records/_walk.py", "src/ottla/records/_walk_native.pxd"):
        (tmp_path / name).touch()
    metadata = tmp_path / "pyproject.toml"
    metadata.write_text('[project.scripts]\nottla = "ottla.cli:main"\n[tool.ruff]\nline-length = 100\n')
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    (tmp_path / ".venv" / ".made-in").write_text(f"{tmp_path}\n")
    # An environment that notes what is installed in it, whichever installer does so.
    for program in (python, tmp_path / "uv"):
        program.write_text(f'#!/bin/sh\ncase "$*" in *--editable*) echo once >>{tmp_path}/installed ;; esac\n')
        program.chmod(0o755)

    def installations() -> int:
        done = run("setup", "demo", script=tmp_path / "run", PATH=f"{tmp_path}:{os.environ['PATH']}")
        assert done.returncode == 0, done.stderr
        return len((tmp_path / "installed").read_text().splitlines())

    assert [installations(), installations()] == [1, 1]
    metadata.write_text(metadata.read_text().replace("line-length = 100", "line-length = 120"))
    assert installations() == 1
    metadata.write_text(metadata.read_text().replace("[tool", '[project.entry-points.x]\ny = "ottla.z"\n[tool'))
    assert [installations(), installations()] == [2, 2]


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.name)
def test_locks_are_hashed_and_name_no_index(lock: Path) -> None:
    text = lock.read_text()
    assert "://" not in text
    assert not re.search(r"^\s*--(?!hash=sha256:)", text, re.MULTILINE), "an option other than --hash"
    for requirement in text.replace("\\\n", " ").splitlines():
        assert requirement.startswith("#") or "--hash=sha256:" in requirement, requirement[:80]


def test_locks_agree_with_each_other() -> None:
    build, demo, dev = (pins(PROJECT / "requirements" / f"{name}.lock") for name in ("build", "demo", "dev"))
    assert demo.items() <= dev.items()
    assert build.items() <= dev.items()
    assert set(build) == {"cython", "setuptools"}
    wheels, compiler = (pins(PROJECT / "requirements" / f"{name}.lock") for name in ("wheels", "compiler"))
    assert build.items() <= wheels.items()
    assert compiler.items() <= wheels.items()


def test_locks_have_what_the_project_asks_for() -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = {
        "demo": [
            *project["dependencies"],
            *(each for name in ("demo", "spark", "fast", "arrow", "zookeeper") for each in extras[name]),
        ],
        "dev": extras["dev"],
    }
    for name, requirements in wanted.items():
        names = {re.split(r"[^A-Za-z0-9._-]", requirement)[0].lower() for requirement in requirements} - {"ottla"}
        assert names <= set(pins(PROJECT / "requirements" / f"{name}.lock"))


def test_test_tools_stay_out_of_the_demo() -> None:
    demo = pins(PROJECT / "requirements" / "demo.lock")
    assert {"pytest", "mypy", "ruff", "hypothesis"}.isdisjoint(demo)


def test_ci_runs_the_tests() -> None:
    script = PROJECT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert "./run test" in script.read_text()
    assert "export CI=true" in script.read_text()
