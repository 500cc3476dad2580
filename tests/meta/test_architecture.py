"""ARCHITECTURE.md names modules that exist, and its layers are those of the import contract."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
PACKAGE = PROJECT / "src" / "ottla"
TEXT = (PROJECT / "ARCHITECTURE.md").read_text()


def test_files_that_the_text_names_exist() -> None:
    files = set(re.findall(r"`((?:\w+/)+\w+\.py)`", TEXT))
    assert len(files) > 30
    assert sorted(name for name in files if not (PACKAGE / name).exists() and not (PROJECT / name).exists()) == []


def test_the_layers_are_those_of_the_contract() -> None:
    contracts = tomllib.loads((PROJECT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = next(each["layers"] for each in contracts if each["id"] == "layers")
    contract = [layer.replace("(", "").replace(")", "") for layer in layers if "__main__" not in layer]
    block = TEXT.split("Packages import downward only:")[1].split("```")[1]
    drawn = [re.split(r"\s{2,}", line)[0] for line in block.strip().splitlines()]
    assert [set(line.split(" | ")) for line in drawn] == [set(line.split(" | ")) for line in contract]
