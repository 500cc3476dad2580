"""ARCHITECTURE.md names modules that exist, its layers are those of the contract, and no imports go in circles."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

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


#: Most modules whose types name each other.
LARGEST_CIRCLE_OF_TYPES = 4


def module_name(path: Path, package: Path) -> str:
    parts = path.relative_to(package).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_in(node: ast.AST, *, types: bool) -> Iterator[str]:
    """The names that are imported, `a.b` for `from a import b`; with `types` those under TYPE_CHECKING, too."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (each.name for each in child.names)
        elif isinstance(child, ast.ImportFrom):
            yield from (f"{child.module}.{each.name}" for each in child.names)
        elif types or not (isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"):
            yield from imports_in(child, types=types)


def import_graph(package: Path, *, types: bool) -> dict[str, set[str]]:
    """The modules of the package that each one imports."""
    prefix = package.name + "."
    paths = {module_name(path, package): path for path in package.rglob("*.py")}
    graph: dict[str, set[str]] = {}
    for name, path in paths.items():
        found = [each.removeprefix(prefix) for each in imports_in(ast.parse(path.read_text()), types=types)]
        modules = {each if each in paths else each.rpartition(".")[0] for each in found}
        graph[name] = {each for each in modules & paths.keys() if each != name}
    return graph


def circles(graph: dict[str, set[str]]) -> set[tuple[str, ...]]:
    """The largest sets of modules of which each one leads to all others."""
    reached: dict[str, set[str]] = {}
    for start in graph:
        found, due = set[str](), list(graph[start])
        while due:
            name = due.pop()
            if name not in found:
                found.add(name)
                due.extend(graph.get(name, ()))
        reached[start] = found
    return {
        tuple(sorted(other for other in names if name in reached.get(other, ())))
        for name, names in reached.items()
        if name in names
    }


def test_no_imports_go_in_circles() -> None:
    assert circles(import_graph(PACKAGE, types=False)) == set()


def test_circles_of_types_are_small() -> None:
    found = circles(import_graph(PACKAGE, types=True))
    assert {each for each in found if len(each) > LARGEST_CIRCLE_OF_TYPES} == set()


@pytest.mark.parametrize(
    ("line", "at_run_time", "with_types"),
    [
        ("import made.b", {("a", "b")}, {("a", "b")}),
        ("def f():\n    from made import b", {("a", "b")}, {("a", "b")}),
        ("if TYPE_CHECKING:\n    from made.b import C", set(), {("a", "b")}),
        ("if TYPE_CHECKING:\n    from elsewhere.b import C", set(), set()),
    ],
)
def test_a_circle_would_be_found(
    tmp_path: Path, line: str, at_run_time: set[tuple[str, ...]], with_types: set[tuple[str, ...]]
) -> None:
    package = tmp_path / "made"
    package.mkdir()
    (package / "a.py").write_text(line)
    (package / "b.py").write_text("from made.c import d\nfrom made.a import e")
    (package / "c.py").write_text("")
    assert circles(import_graph(package, types=False)) == at_run_time
    assert circles(import_graph(package, types=True)) == with_types
