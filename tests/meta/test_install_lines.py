"""What a page says to install is all that its programs import."""

from __future__ import annotations

import ast
import importlib
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from support.walkthrough import code_blocks, session

PROJECT = Path(__file__).resolve().parents[2]
EXTRAS: dict[str, list[str]] = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"][
    "optional-dependencies"
]
#: `pip install ` and what follows it in code or in a line of its own.
INSTALL = re.compile(r"pip install ([^`\n#]+)")
REQUIREMENT = re.compile(r"(?P<name>[A-Za-z0-9][\w.-]*)(?:\[(?P<extras>[\w,-]+)\])?")
#: Distributions that others bring: what they are imported for comes with any of these.
BROUGHT = {"fastapi": {"starlette"}, "pyspark": {"py4j"}, "pandas": {"numpy"}}
#: Programs that are typed in sessions, by the distribution that brings them.
PROGRAMS = {"pytest": "pytest", "uvicorn": "uvicorn", "spark-submit": "pyspark"}


def installed_by(text: str) -> set[str]:
    """The distributions that the install lines of a page name, those of ottla's extras included."""
    return {name for line in INSTALL.findall(text) for name in _distributions(line.replace("'", " ").split())}


def _distributions(requirements: list[str]) -> Iterator[str]:
    for requirement in requirements:
        found = REQUIREMENT.match(requirement)
        if found is None:
            continue
        name, extras = found["name"].lower(), (found["extras"] or "").split(",")
        yield name
        yield from BROUGHT.get(name, ())
        if name == "ottla":
            yield from _distributions([each.split(";")[0] for extra in extras if extra for each in EXTRAS[extra]])


def imported_by(source: str) -> set[str]:
    """The top-level modules of a program that are neither Python's nor ottla's."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names.update(alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.split(".")[0])
    return names - set(sys.stdlib_module_names) - {"ottla"}


@cache
def _brings() -> Mapping[str, list[str]]:
    return packages_distributions()


def missing(imported: set[str], own: set[str], installed: set[str]) -> list[str]:
    """The imported modules that no install line brings; `own` are modules of the page itself."""
    brings = _brings()
    return sorted(
        name for name in imported - own if not installed & {each.lower() for each in brings.get(name, [name])}
    )


@pytest.mark.parametrize(
    "page", [PROJECT / "README.md", *sorted((PROJECT / "docs").glob("*.md"))], ids=lambda page: page.name
)
def test_a_page_names_what_its_programs_import(page: Path) -> None:
    blocks = [block for block in code_blocks(page) if block.is_run]
    files = {block.file_name: block.text for block in blocks if block.file_name and block.language == "python"}
    imported = {name for text in files.values() for name in imported_by(text)}
    typed = [command for block in blocks if block.language == "console" for command in session(block.text)]
    programs = {PROGRAMS[word] for each in typed if (word := each.command.split()[0]) in PROGRAMS}
    installed = installed_by(page.read_text())
    assert missing(imported, {Path(name).stem for name in files}, installed) == []
    assert programs <= installed


def test_examples_name_what_they_import() -> None:
    table = (PROJECT / "examples" / "README.md").read_text()
    lines: dict[str, str] = dict(re.findall(r"^\| ([^|]+) \| (`pip install .*) \|$", table, re.MULTILINE))
    for path in sorted((PROJECT / "examples").rglob("*.py")):
        place = path.relative_to(PROJECT / "examples").parts[0]
        line = lines[place] if place in lines else lines["the programs for a running broker"]
        own = {other.stem for other in path.parent.glob("*.py")}
        assert missing(imported_by(path.read_text()), own, installed_by(line)) == [], path


def test_every_extra_is_in_the_table_of_extras() -> None:
    page = (PROJECT / "docs" / "install.md").read_text()
    assert sorted(re.findall(r"^\| `([a-z0-9-]+)` \|", page.split("## Compiled")[0], re.MULTILINE)) == sorted(EXTRAS)


def test_extras_of_extras_are_brought() -> None:
    assert {"ottla", "pyarrow", "pyspark", "sqlglot", "pytest"} <= installed_by(
        "`pip install 'ottla[pipelines]' pytest`"
    )
    assert missing({"pyarrow", "pandas"}, set(), installed_by("`pip install 'ottla[arrow]'`")) == ["pandas"]


@pytest.mark.parametrize(
    "page", [PROJECT / "README.md", *sorted((PROJECT / "docs").glob("*.md"))], ids=lambda page: page.name
)
def test_what_programs_of_a_page_import_of_ottla_is_there(page: Path) -> None:
    """Also where a block is a part of a program, which no walk runs; `await` may stand outside a coroutine there."""
    for block in code_blocks(page):
        if block.language != "python" or block.text.startswith(">>> "):
            continue
        text = block.text.replace("…", "_")  # what is left out
        compile(text, f"{page.name}:{block.line}", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "ottla":
                module = importlib.import_module(node.module or "")
                gone = [each.name for each in node.names if not hasattr(module, each.name)]
                assert gone == [], f"{page.name}:{block.line}: {node.module}"
