"""The compiled modules and their sources: what is listed where, and that everything works without them."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
RECORDS = PROJECT / "src" / "ottla" / "records"

ROUND_TRIP = """
import sys
BLOCKED
from ottla.records import building, keys, walk
assert not (building.COMPILED or keys.COMPILED or walk.COMPILED)
from ottla.records.batch import parse_batch_header
from ottla.records.consumed import decode_consumed
builder = building.RecordsBuilder()
builder.append(5, b"key", b"value", [("h", b"1")])
batch = building.finish_batch(builder)
[record] = decode_consumed(batch, parse_batch_header(batch), "t", 0, 0)
assert record[2:] == (0, 5, 0, b"key", b"value", (("h", b"1"),), -1, 3, 5), record
assert building.murmur2(b"21") == 2**32 - 973932308
"""


def compiled() -> dict[str, str]:
    """Source to built module, as setup.py lists them."""
    for node in ast.parse((PROJECT / "setup.py").read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "COMPILED":
            found: dict[str, str] = ast.literal_eval(node.value)
            return found
    raise AssertionError("setup.py lists no COMPILED")


def run_python(program: str) -> None:
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 0, done.stderr


def test_what_is_compiled_is_listed_and_typed() -> None:
    listed = compiled()
    assert sorted(listed.values()) == sorted(path.stem for path in RECORDS.glob("_*_native.pxd"))
    assert all((RECORDS / f"{source}.py").exists() for source in listed)
    check = (PROJECT / "run").read_text()
    assert f"import {', '.join(sorted(f'ottla.records.{built}' for built in listed.values()))}'" in check


@pytest.mark.slow
def test_everything_works_without_compiled_modules_and_cython() -> None:
    blocked = [*(f"ottla.records.{built}" for built in compiled().values()), "cython"]
    run_python(ROUND_TRIP.replace("BLOCKED", f"sys.modules.update(dict.fromkeys({blocked}))"))


@pytest.mark.long
def test_a_wheel_is_built_without_a_compiler(tmp_path: Path) -> None:
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(PROJECT / name, tmp_path)
    shutil.copytree(PROJECT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    build = "from setuptools import build_meta; print(build_meta.build_wheel('.'))"
    done = subprocess.run(
        [sys.executable, "-c", build],
        cwd=tmp_path,
        env={**os.environ, "CC": "/bin/false"},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    [wheel] = tmp_path.glob("*.whl")
    run_python(ROUND_TRIP.replace("BLOCKED", f"sys.path.insert(0, {str(wheel)!r})"))
