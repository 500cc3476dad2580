"""ARCHITECTURE.md names modules that exist, and its layers are those of the import contract."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
PACKAGE = PROJECT / "src" / "ottla"
TEXT = (PROJECT / "ARCHITECTURE.md").read_text()
ROWS = {row[1]: row[2] for row in re.finditer(r"^\| `(\w+)` \| (.*) \|$", TEXT, re.MULTILINE)}


def names_in(package: Path) -> set[str]:
    """The modules and packages of a package, by their names in each of its own packages."""
    found = set()
    for path in package.rglob("*.py"):
        parts = path.relative_to(package).with_suffix("").parts
        found |= {"/".join(parts[at:]) for at in range(len(parts))}
        found |= {*parts[:-1], *(f"{part}/" for part in parts[:-1])}
    return found


def test_every_package_has_a_row() -> None:
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert packages - ROWS.keys() == set()


def test_modules_in_the_table_exist() -> None:
    missing = []
    for package, text in ROWS.items():
        if (PACKAGE / package).is_dir():
            known = names_in(PACKAGE / package)
            words = re.findall(r"`([a-z_]+/?)`", text)
            missing += [f"{package}: {word}" for word in words if word not in known and word not in ALSO]
    assert missing == []


#: Not modules of the package in whose row they stand.
ALSO = {"poll", "serve", "zookeeper"}


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
