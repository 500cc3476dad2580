"""The checks of `./run check`, so that no change passes the tests without them."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
PACKAGE = PROJECT / "src" / "ottla"
SCRIPTS = Path(sys.executable).parent

#: Contract of pyproject.toml and the packages that it has to name as soon as they exist.
CONTRACT_SOURCES = {
    "pure": {"assign", "cluster", "config", "groups", "records", "txn", "wire"},
    "shells": {"broker", "client", "net", "ops", "peer", "security", "storage", "zk", "zkconsumer"},
    "clients": {"client", "ops", "spark", "web", "zkconsumer"},
}


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "command",
    ["ruff check", "ruff format --check", "mypy", "lint-imports --no-logo --no-cache"],
)
def test_check_passes(command: str) -> None:
    program, *arguments = command.split()
    done = subprocess.run(
        [str(SCRIPTS / program), *arguments], cwd=PROJECT, capture_output=True, text=True, timeout=1700, check=False
    )
    if done.returncode:
        pytest.fail(f"{command}:\n{done.stdout[-6000:]}{done.stderr[-2000:]}", pytrace=False)


@pytest.mark.parametrize("contract", sorted(CONTRACT_SOURCES))
def test_import_contracts_name_every_package_they_are_for(contract: str) -> None:
    settings = tomllib.loads((PROJECT / "pyproject.toml").read_text())
    contracts = {c["id"]: c for c in settings["tool"]["importlinter"]["contracts"]}
    existing = {name for name in CONTRACT_SOURCES[contract] if (PACKAGE / name / "__init__.py").exists()}
    assert set(contracts[contract]["source_modules"]) == {f"ottla.{name}" for name in existing}
