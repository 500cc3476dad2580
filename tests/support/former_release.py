"""The release before this one, taken out of the history and run with the environment of this one."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import tarfile
import tempfile
from functools import cache
from pathlib import Path

import pytest

from support.java import PROJECT

#: The state of 0.1.0 before operations; the newest tag `v…` is taken instead, once there is one.
FORMER_COMMIT = "316625c3303ce58c0a8c0ac5c283253d9c01a453"
RELEASES = PROJECT / ".cache" / "releases"


@cache
def former_commit() -> str | None:
    """The commit of the release before; None in a clone without the history."""
    tags = _git("tag", "--list", "v*", "--merged", "HEAD", "--sort=-version:refname").split()
    for name in (*tags[:1], FORMER_COMMIT):
        found = _git("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
        if found and _git("ls-tree", "--name-only", found, "src/ottla/__main__.py"):
            return found
    return None


def former_environment() -> dict[str, str]:
    """The environment in which `python -m ottla` is the release before; skips the test where it cannot be had."""
    return {"PYTHONPATH": str(_unpacked() / "src")}


@cache
def _unpacked() -> Path:
    """The sources of the release before, in .cache."""
    commit = former_commit()
    if commit is None:
        pytest.skip(f"the release before is not in this clone: fetch the whole history, or commit {FORMER_COMMIT[:9]}")
    folder = RELEASES / commit[:12]
    if folder.exists():
        return folder
    RELEASES.mkdir(parents=True, exist_ok=True)
    archive = subprocess.run(
        ["git", "-C", str(PROJECT), "archive", commit, "src"], capture_output=True, check=True
    ).stdout
    # Several workers may come here at once: the first whole one is kept.
    made = Path(tempfile.mkdtemp(dir=RELEASES))
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(made, filter="data")
    _bring_compiled(made)
    try:
        made.rename(folder)
    except OSError:
        shutil.rmtree(made)
    return folder


def _bring_compiled(folder: Path) -> None:
    """What is compiled here is the same there where its sources are; without it the release is slower, not other."""
    records = Path("src/ottla/records")
    names = [path.name for pattern in ("_*.py", "_*.pxd") for path in (PROJECT / records).glob(pattern)]

    def content(root: Path, name: str) -> bytes:
        path = root / records / name
        return path.read_bytes() if path.exists() else b""

    if all(content(folder, name) == content(PROJECT, name) for name in names):
        for compiled in (PROJECT / records).glob("*.so"):
            shutil.copy2(compiled, folder / records)


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(PROJECT), *arguments]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
