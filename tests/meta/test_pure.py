"""Modules that call themselves pure are held to it by an import contract (pyproject.toml)."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
SOURCES = PROJECT / "src"
CONTRACTS = {
    contract["id"]: contract
    for contract in tomllib.loads((PROJECT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
}
PURE = [CONTRACTS[name] for name in ("pure", "pure-tree", "pure-modules")]
#: How a module's text says it.
CLAIM = re.compile(r"\bPure\b[:.]|: pure\b")


def name_of(path: Path) -> str:
    """The module's dotted name."""
    parts = path.relative_to(SOURCES).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def path_of(module: str) -> Path:
    """The module's file."""
    path = SOURCES.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def held(module: str) -> bool:
    """Whether a contract names the module or a package that it is in."""
    named = [source for contract in PURE for source in contract["source_modules"]]
    return any(module == each or module.startswith(f"{each}.") for each in named)


def imports(body: list[ast.stmt]) -> Iterator[str]:
    """The modules that these statements import when the module is imported."""
    for node in body:
        if isinstance(node, ast.ImportFrom):
            yield node.module or ""
        elif isinstance(node, ast.If) and ast.unparse(node.test) != "TYPE_CHECKING":
            yield from imports(node.body)


def test_modules_that_call_themselves_pure_are_named_in_a_contract() -> None:
    claiming = [
        name_of(path)
        for path in sorted(SOURCES.rglob("*.py"))
        if CLAIM.search(ast.get_docstring(ast.parse(path.read_text())) or "")
    ]
    assert len(claiming) > len(PURE)
    assert [module for module in claiming if not held(module)] == []


def test_what_the_contract_leaves_out_is_imported_for_types_only() -> None:
    for contract in PURE:
        for ignored in contract.get("ignore_imports", []):
            importer, imported = ignored.split(" -> ")
            assert imported not in imports(ast.parse(path_of(importer).read_text()).body), ignored
