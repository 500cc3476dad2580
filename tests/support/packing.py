"""Distributions of the project: built from a copy of it, and installed in virtual environments of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from collections.abc import Iterable, Sequence
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement

PROJECT = Path(__file__).resolve().parents[2]
PACK = "import sys; from setuptools import build_meta; print(getattr(build_meta, f'build_{sys.argv[1]}')('dist'))"
#: What a process of a user's inherits here: where programs are, and how pip gets at packages.
KEPT_VARIABLES = ("PATH", "LANG", "LD_LIBRARY_PATH", "TMPDIR", "CC", "PYENV_VERSION")


def copied_sources(folder: Path) -> Path:
    """A copy of what is built, without anything compiled."""
    folder.mkdir()
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(PROJECT / name, folder)
    ignored = shutil.ignore_patterns("*.so", "__pycache__", "*.egg-info")
    shutil.copytree(PROJECT / "src", folder / "src", ignore=ignored)
    return folder


def pack(sources: Path, kind: str, timeout: float = 240, **env: str) -> subprocess.CompletedProcess[str]:
    """Build a `wheel` or an `sdist` in `sources`/dist with the tools of this environment; the last line names it."""
    return subprocess.run(
        [sys.executable, "-c", PACK, kind],
        cwd=sources,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def packed(sources: Path, kind: str, timeout: float = 240, **env: str) -> Path:
    """The same where it has to succeed: the file."""
    done = pack(sources, kind, timeout, **env)
    assert done.returncode == 0, done.stderr
    return sources / "dist" / done.stdout.splitlines()[-1]


def names_in(wheel: Path) -> list[str]:
    """The files of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def is_compiled(name: str) -> bool:
    """Whether a file of this name holds compiled code."""
    return Path(name).suffix in (".so", ".pyd", ".dylib")


def with_dependencies(names: Iterable[str]) -> dict[str, Distribution]:
    """These distributions, and what they depend on, as they are installed here."""
    found: dict[str, Distribution] = {}
    left = [Requirement(name) for name in names]
    while left:
        wanted = left.pop()
        if wanted.name in found or (wanted.marker is not None and not wanted.marker.evaluate({"extra": ""})):
            continue
        found[wanted.name] = distribution(wanted.name)
        left += [Requirement(each) for each in found[wanted.name].requires or ()]
    return found


def base_dependencies() -> list[str]:
    """What the project needs without any extra, as pyproject.toml has it."""
    declared: list[str] = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["dependencies"]
    return declared


def python_without_links(folder: Path) -> str:
    """A Python with the packages of this one, but not with what is installed by a link, as the project is in tests."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True, timeout=110)
    python = str(folder / "bin" / "python")
    where = [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    own = subprocess.run(where, capture_output=True, text=True, check=True, timeout=240).stdout.strip()
    # The line names the folder; what its own .pth files name is not looked at.
    Path(own, "packages.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


class VirtualEnvironment:
    """An environment as a user makes it, used with an empty home directory."""

    def __init__(self, folder: Path, python: str = sys.executable) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        self.home = folder / "home"
        self.work = folder / "work"
        made = subprocess.run([python, "-m", "venv", folder], capture_output=True, text=True, timeout=110, check=False)
        assert made.returncode == 0, made.stdout + made.stderr
        self.home.mkdir()
        self.work.mkdir()

    @property
    def env(self) -> dict[str, str]:
        """The environment of its processes."""
        kept = {name: value for name, value in os.environ.items() if name in KEPT_VARIABLES or name.startswith("PIP_")}
        return {**kept, "PATH": f"{self.bin}:{kept['PATH']}", "HOME": str(self.home), "COLUMNS": "200"}

    def run(self, *command: str, timeout: float = 240, **env: str) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment, in a directory of its own."""
        return subprocess.run(
            command,
            cwd=self.work,
            env={**self.env, **env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def output(self, *command: str, timeout: float = 240, **env: str) -> str:
        """The same where it has to succeed: its standard output."""
        done = self.run(*command, timeout=timeout, **env)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def install(self, *what: str, timeout: float = 240, **env: str) -> None:
        """`pip install` with these arguments."""
        self.output("python", "-m", "pip", "install", *what, timeout=timeout, **env)

    def take_over(self, names: Sequence[str]) -> None:
        """Copy installed distributions and what they depend on from this environment, instead of fetching them."""
        site_packages = Path(
            self.output("python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
        )
        for found in with_dependencies(names).values():
            for file in found.files or ():
                if ".." in file.parts or file.suffix == ".pyc":
                    continue
                target = site_packages / file
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(str(file.locate()), target)
