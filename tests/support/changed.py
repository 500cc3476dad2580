"""Which tests a change can reach, by what their files import; for `./run test --changed`.

The graph has an edge where a file imports another one, at its top or within a function, or names a module in a string:
`python -m ottla`, programs given to `python -c`, modules imported when they are first used. A test is reached if its
file leads to a changed one, or a fixture of a conftest that it uses. Data reaches the modules beside it, and those that
name the file. What stands elsewhere (locks, `pyproject.toml`, `run`) reaches every test. `tests/meta` looks at the
project as a whole and always runs.
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

EVERYTHING_ABOUT = "tests/meta/"
#: Folders whose modules are imported by their names from there.
ROOTS = ("src/", "tests/", "bench/")
#: Files that no test looks at, but those in `tests/meta`.
DOCUMENTS = (".md", ".svg", ".png", ".gitignore")

_DOTTED = re.compile(r"\bottla(?:\.\w+)*\.?")
_READS_SOURCES = re.compile(r"glob\(\"\*\.py\"\)")


@dataclass(slots=True)
class Reached:
    """What a change reaches; plain values, so that they can be sent to workers."""

    everything: bool = False
    #: Files with tests, and conftests whose fixtures are all reached.
    files: set[str] = field(default_factory=set)
    #: `tests/interop/conftest.py::broker`.
    fixtures: set[str] = field(default_factory=set)

    def reaches(self, item: pytest.Item, root: Path) -> bool:
        """Whether the change can make a difference to the test."""
        path = item.path.relative_to(root).as_posix()
        if self.everything or path in self.files or path.startswith(EVERYTHING_ABOUT):
            return True
        used: dict[str, Sequence[pytest.FixtureDef[Any]]] = getattr(item, "_fixtureinfo").name2fixturedefs  # noqa: B009
        return any(
            f"{one.baseid}/conftest.py::{one.argname}" in self.fixtures for several in used.values() for one in several
        )

    def sent(self) -> dict[str, Any]:
        """As a worker gets it."""
        return {"everything": self.everything, "files": sorted(self.files), "fixtures": sorted(self.fixtures)}

    @classmethod
    def received(cls, sent: dict[str, Any]) -> Reached:
        """From what `sent` made."""
        return cls(sent["everything"], set(sent["files"]), set(sent["fixtures"]))


#: The tests of the examples that are projects of their own, in directories of examples/.
PROJECT_EXAMPLES = "tests/interop/examples/"


def changed_files(root: Path, since: str | None) -> list[str]:
    """The files that differ from commit `since`, else from where this branch left `main`; new ones too."""

    def git(*arguments: str) -> list[str]:
        command = ["git", "-C", str(root), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
        if done.returncode:
            raise pytest.UsageError(f"--changed: {done.stderr.strip() or 'git failed'}")
        return done.stdout.splitlines()

    if since is None:
        branches = git("branch", "--list", "main")
        since = git("merge-base", "HEAD", "main")[0] if branches else "HEAD"
    return sorted({*git("diff", "--name-only", since), *git("ls-files", "--others", "--exclude-standard")})


def reached_by(root: Path, changed: Sequence[str]) -> Reached:
    """The tests that a change of these files reaches; all paths are relative to the project's root."""
    graph = ImportGraph(root)
    known = graph.files
    seeds: set[str] = set()
    for path in changed:
        if path.startswith("examples/") and path.count("/") > 1:
            seeds |= {one for one in known if one.startswith(PROJECT_EXAMPLES)}
        elif path.startswith("examples/"):
            seeds |= {path, *_readers(root, path, known)}
        elif path in known or path.endswith(".py"):
            seeds.add(path)
        elif path.startswith(("src/", "tests/", "bench/")) and not path.endswith(DOCUMENTS):
            seeds |= _readers(root, path, known)
        elif not path.endswith(DOCUMENTS):
            return Reached(everything=True)
    reached = graph.dependents(seeds)
    found = Reached(files={path for path in reached if path.startswith("tests/") and not path.endswith("/conftest.py")})
    for path in known:
        if path.endswith("/conftest.py"):
            names = graph.fixtures_reached(path, reached, whole=path in seeds)
            found.fixtures |= {f"{path}::{name}" for name in names}
    return found


def _readers(root: Path, path: str, known: set[str]) -> set[str]:
    """Modules that may read a file: those in the nearest folder that has some, and below it, and those that name it."""
    folder, _, name = path.rpartition("/")
    while not (found := {one for one in known if one.startswith(folder + "/")}):
        folder = folder.rpartition("/")[0]
    return found | {one for one in known if name in (root / one).read_text()}


def _python_files(root: Path) -> list[str]:
    folders = ("src", "tests", "bench", "examples")
    return [path.relative_to(root).as_posix() for folder in folders for path in sorted((root / folder).rglob("*.py"))]


def _module_of(path: str) -> str:
    for root in ROOTS:
        path = path.removeprefix(root)
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


class ImportGraph:
    """Who imports whom, by paths."""

    def __init__(self, root: Path) -> None:
        self._modules = {_module_of(path): path for path in _python_files(root)}
        self._trees: dict[str, ast.Module] = {}
        self._importers: dict[str, set[str]] = defaultdict(set)
        self.files = set(self._modules.values())
        self._sources = {path for path in self.files if path.startswith("src/")}
        for path in sorted(self.files):
            text = (root / path).read_text()
            tree = ast.parse(text)
            if path.endswith("/conftest.py"):
                self._trees[path] = tree
                # What a fixture of it leads to is looked at by fixture.
                continue
            needed = self._needed(tree)
            if _READS_SOURCES.search(text):
                needed |= self._sources
            for one in needed - {path}:
                self._importers[one].add(path)

    def dependents(self, seeds: set[str]) -> set[str]:
        """The files themselves, and all that lead to one of them."""
        found, waiting = set(seeds), list(seeds)
        while waiting:
            for importer in self._importers[waiting.pop()] - found:
                found.add(importer)
                waiting.append(importer)
        return found

    def fixtures_reached(self, conftest: str, reached: set[str], *, whole: bool) -> set[str]:
        """Fixtures of that file that lead to one of the files; all of them if the file itself has changed."""
        tree = self._trees[conftest]
        functions = {one.name: one for one in tree.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)}
        if whole:
            return set(functions)
        imported: dict[str, set[str]] = {}
        others: dict[str, ast.stmt] = dict(functions)
        for statement in tree.body:
            if isinstance(statement, ast.Import | ast.ImportFrom):
                for alias in statement.names:
                    imported[alias.asname or alias.name.partition(".")[0]] = self._needed(statement)
            elif isinstance(statement, ast.ClassDef):
                others[statement.name] = statement
            elif isinstance(statement, ast.Assign):
                others |= {target.id: statement for target in statement.targets if isinstance(target, ast.Name)}
        direct = {
            name: self._needed(one).union(*(imported.get(used, set()) for used in _used(one)))
            for name, one in others.items()
        }
        users = {name: {used for used in _used(one) if used in others} for name, one in others.items()}
        found = {name for name, needed in direct.items() if needed & reached}
        while more := {name for name, used in users.items() if name not in found and used & found}:
            found |= more
        return found & set(functions)

    def _needed(self, tree: ast.AST) -> set[str]:
        """Files that the code imports or names."""
        found: set[str] = set()
        for name in set(_named(tree)):
            if name.endswith("."):
                found |= {path for module, path in self._modules.items() if module.startswith(name)}
                continue
            parts = name.split(".")
            for end in range(1, len(parts) + 1):
                if path := self._modules.get(".".join(parts[:end])):
                    found.add(path)
        return found


def _named(tree: ast.AST) -> Iterator[str]:
    """Names of modules, or of what is in them; with a dot at the end all modules of a package are meant."""
    for node in _but_docstrings(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from (name for name in _DOTTED.findall(node.value) if "." in name)
            if "-m ottla" in node.value:
                yield "ottla.__main__"
        elif isinstance(node, ast.List | ast.Tuple):
            words = [each.value if isinstance(each, ast.Constant) else None for each in node.elts]
            if ("-m", "ottla") in pairwise(words):
                yield "ottla.__main__"


def _but_docstrings(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes; no text that stands alone, and nothing for the type checker only."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            waiting += node.orelse
        elif not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            yield node
            for name in node._fields:
                value = getattr(node, name, None)
                if isinstance(value, ast.AST):
                    waiting.append(value)
                elif isinstance(value, list):
                    waiting += [one for one in value if isinstance(one, ast.AST)]


def _used(statement: ast.stmt) -> set[str]:
    """Names that the statement uses, without annotations; strings and parameters too: fixtures are asked for so."""
    found: set[str] = set()
    waiting: list[ast.AST] = [statement]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
            continue
        elif isinstance(node, ast.AnnAssign):
            waiting += [part for part in (node.target, node.value) if part is not None]
            continue
        for name, value in ast.iter_fields(node):
            if name in ("returns", "annotation"):
                continue
            waiting += [one for one in (value if isinstance(value, list) else [value]) if isinstance(one, ast.AST)]
    return found
