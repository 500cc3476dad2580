"""The style that matters, as a test."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
PACKAGE = PROJECT / "src" / "ottla"

LONGEST_MODULE_LINES = 800
LONGEST_FUNCTION_LINES = 60
LONGEST_CLASS_LINES = 450
MOST_METHODS = 40
#: Classes that are larger: public facades, and those that have yet to be split. None may come in.
LARGE_CLASSES = {
    "Consumer",
}
#: Docstrings name the thing or the verb.
VAGUE_OPENING = re.compile(r"(What|Those|Where|So|Who)\b")
#: Phrases that plain English does without, and the most of them in the sources and documents: it only falls.
UNWANTED_PHRASES = re.compile(
    r"^Who\b|(?<=[.!?:;] )Who\b|\bWhoever\b|\bLost is\b|\bAs many\b|\b(is|are) no [a-z]|\bstands? in place of\b"
    r"|\b(is|are) to be\b|\bso many\b|\btold\b|\banew\b|\b(goes|go|went|going) on\b|\b[Nn]obody\b|\b[Ss]omebody\b"
    r"|\bg(iven|ives) up\b|\bbehind the last record\b",
    re.MULTILINE,
)
MOST_UNWANTED_PHRASES = 43
VAGUE_NAMES = re.compile(r"(^|_)(util|utils|helper|helpers|misc|common)(_|$)", re.IGNORECASE)
#: Hosts of package registries and absolute paths of somebody's machine, put together here so as not to find themselves.
FORBIDDEN_TEXTS = [
    "pypi" + ".org",
    "pythonhosted" + ".org",
    "repo1.maven" + ".org",
    "repo.maven" + ".apache.org",
    "registry.npmjs" + ".org",
    "deb.debian" + ".org",
    "/" + "work/",
    "/tmp/" + "ottla",
    "/" + "root/",
    "/" + "home/",
]
GENERATED_OR_BINARY = {".bin", ".gz", ".jar", ".jks", ".lock", ".p12", ".parquet", ".png", ".snapshot", ".zip"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def modules(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (PROJECT / folder).rglob("*.py"))


def name_of(path: Path) -> str:
    return str(path.relative_to(PROJECT))


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


def functions(path: Path) -> Iterator[Function]:
    return (node for node in ast.walk(tree_of(path)) if isinstance(node, Function))


def functions_too_long(path: Path, limit: int = LONGEST_FUNCTION_LINES) -> list[str]:
    """Functions of more than `limit` lines, the docstring not counted."""
    found = []
    for function in functions(path):
        first = function.body[0]
        last = function.end_lineno or 0
        docstring = (first.end_lineno or 0) - first.lineno + 1 if ast.get_docstring(function) is not None else 0
        length = last - function.lineno + 1 - docstring
        if length > limit:
            found.append(f"{path.name}:{function.lineno} {function.name}: {length} lines")
    return found


def test_modules_are_short() -> None:
    long = {name_of(path): len(path.read_text().splitlines()) for path in modules("src", "tests", "bench")}
    assert {path: lines for path, lines in long.items() if lines >= LONGEST_MODULE_LINES} == {}


def test_functions_are_short() -> None:
    assert [found for path in modules("src", "bench") for found in functions_too_long(path)] == []


def test_classes_are_small() -> None:
    large = set()
    for path in modules("src"):
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.ClassDef):
                methods = sum(isinstance(each, Function) for each in node.body)
                if (node.end_lineno or 0) - node.lineno >= LONGEST_CLASS_LINES or methods > MOST_METHODS:
                    large.add(node.name)
    assert large == LARGE_CLASSES


def test_docstrings_name_the_thing() -> None:
    documented = (ast.Module, ast.ClassDef, *Function.__args__)
    found = [
        f"{name_of(path)}: {docstring[:60]}"
        for path in modules("src")
        for node in ast.walk(tree_of(path))
        if isinstance(node, documented) and VAGUE_OPENING.match(docstring := ast.get_docstring(node) or "")
    ]
    assert found == []


def test_unwanted_phrases_get_fewer() -> None:
    files = [*modules("src"), PACKAGE / "config" / "settings.tsv", *(PROJECT / "docs").rglob("*.md")]
    files += [PROJECT / f"{name}.md" for name in ("ARCHITECTURE", "CONTRIBUTING", "README")]
    assert sum(len(UNWANTED_PHRASES.findall(path.read_text())) for path in files) <= MOST_UNWANTED_PHRASES


def test_a_long_function_would_be_found(tmp_path: Path) -> None:
    module = tmp_path / "long.py"
    module.write_text('def f():\n    """A\n    B"""\n    a = 1\n    b = 2\n')
    assert functions_too_long(module, limit=2) == ["long.py:1 f: 3 lines"]
    assert functions_too_long(module, limit=3) == []


def test_modules_say_what_they_are() -> None:
    assert [
        name_of(path) for path in modules("src", "tests/support", "bench") if not ast.get_docstring(tree_of(path))
    ] == []


def test_modules_postpone_annotations() -> None:
    without = [
        name_of(path)
        for path in modules("src")
        if next(functions(path), None) and "from __future__ import annotations" not in path.read_text()
    ]
    assert without == []


def test_names_are_not_vague() -> None:
    vague = [name_of(path) for path in modules("src", "tests", "bench") if VAGUE_NAMES.search(path.stem)]
    vague += [
        f"{name_of(path)}: class {node.name}"
        for path in modules("src")
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.ClassDef) and re.search(r"(Utils?|Helpers?)$", node.name)
    ]
    assert vague == []


#: Classes that share a name: public names that Kafka has twice, and pairs of asyncio and sync clients.
SHARED_CLASS_NAMES = {
    # asyncio and blocking clients
    "Admin", "Consumer", "Producer", "SimpleConsumer",
    # Kafka has both, in two packages
    "ConsumerRebalanceListener", "FetchSession", "ResourceType",
}  # fmt: skip


def test_a_class_name_means_one_thing() -> None:
    """Messages are declared as Kafka declares them, several of whose structs have one name."""
    homes: dict[str, list[str]] = {}
    for path in modules("src"):
        if PACKAGE / "wire" / "messages" not in path.parents:
            for node in tree_of(path).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    homes.setdefault(node.name, []).append(name_of(path))
    shared = {name: places for name, places in homes.items() if len(places) > 1}
    assert {name: places for name, places in shared.items() if name not in SHARED_CLASS_NAMES} == {}


def outside_of_cli(path: Path) -> list[str]:
    """Uses of the process's environment variables and exit in a module."""
    found = []
    for node in ast.walk(tree_of(path)):
        match node:
            case ast.Attribute(value=ast.Name(id="os"), attr="environ" | "getenv" | "putenv" | "_exit" as attribute):
                found.append(f"os.{attribute}")
            case ast.Attribute(value=ast.Name(id="sys"), attr="exit" | "argv" as attribute):
                found.append(f"sys.{attribute}")
            case ast.Name(id="SystemExit" | "exit" | "quit" as name):
                found.append(name)
            case _:
                pass
    return found


def test_only_the_command_line_reads_the_environment_and_exits() -> None:
    paths = [path for path in modules("src") if PACKAGE / "cli" not in path.parents]
    assert {name_of(path): found for path in paths if (found := outside_of_cli(path))} == TELLS_OTHERS


#: Modules that read no variable and set one: PySpark asks it when a worker of Spark's reports an exception and ends.
TELLS_OTHERS = {"src/ottla/spark/errors.py": ["os.environ"], "src/ottla/spark/versions.py": ["os.environ"]}


def test_tests_do_not_sleep_for_luck() -> None:
    """Waiting is `support.waiting`'s; a test that has to let time pass says why on the line itself (`# sleep: …`)."""
    sleeping = [
        f"{name_of(path)}:{node.lineno}"
        for path in modules("tests")
        if "support" not in path.parts
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in ("time.sleep", "asyncio.sleep", "sleep")
        and ast.unparse(node) != "asyncio.sleep(0)"
        and "# sleep:" not in path.read_text().splitlines()[node.lineno - 1]
    ]
    assert sleeping == []


def asserts(function: Function) -> bool:
    """Whether it is seen without a look at its helpers: `assert`, `raises`, `fail`, or a call whose name says so."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assert):
            return True
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
            words = name.strip("_").split("_")
            if name in ("raises", "warns", "fail") or words[0] in ("assert", "check") or "until" in words:
                return True
    return False


def cases_in(path: Path) -> Iterator[Function]:
    for function in functions(path):
        is_fixture = any("fixture" in ast.unparse(each) for each in function.decorator_list)
        if function.name.startswith("test_") and not is_fixture:
            yield function


def test_each_test_shows_what_it_asserts() -> None:
    tests = [
        (path, function) for path in modules("tests") if path.stem.startswith("test_") for function in cases_in(path)
    ]
    assert [f"{name_of(path)}:{one.lineno}: {one.name}" for path, one in tests if not asserts(one)] == []


@pytest.mark.parametrize(
    ("body", "is_seen"),
    [("assert f()", True), ("with pytest.raises(ValueError): f()", True), ("check_alike(f())", True),
     ("wait_until(f, 'it')", True), ("f()", False), ("compare(f())", False)],
)  # fmt: skip
def test_a_test_that_asserts_nothing_would_be_found(body: str, is_seen: bool) -> None:
    (function,) = ast.parse(f"def test_it():\n    {body}").body
    assert isinstance(function, Function)
    assert asserts(function) is is_seen


def test_tests_leave_the_alarm_to_the_limit_of_their_time() -> None:
    """A test that sets the timer of SIGALRM has no limit any more: where it hangs, the whole run does."""
    setting = [
        f"{name_of(path)}:{node.lineno}"
        for path in modules("tests")
        if path.name.startswith(("test_", "conftest"))
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Attribute) and ast.unparse(node) in ("signal.SIGALRM", "signal.setitimer")
    ]
    assert setting == []


def committed_files() -> list[Path]:
    """Files under version control; without git (an unpacked archive), all files outside of hidden folders."""
    if shutil.which("git"):
        listing = subprocess.run(["git", "ls-files", "-z"], cwd=PROJECT, capture_output=True, text=True, check=False)
        if listing.returncode == 0:
            return [PROJECT / name for name in listing.stdout.split("\0") if name and (PROJECT / name).is_file()]
    files = (path for path in PROJECT.rglob("*") if path.is_file() and path.suffix != ".pyc")
    return [path for path in files if not any(part.startswith(".") for part in path.relative_to(PROJECT).parts)]


@pytest.mark.parametrize("text", FORBIDDEN_TEXTS)
def test_no_file_names_a_registry_or_a_machine(text: str) -> None:
    found = [
        name_of(path)
        for path in committed_files()
        if (path.suffix not in GENERATED_OR_BINARY or path.suffix == ".lock")
        and text in path.read_text(errors="ignore")
    ]
    assert found == []


def test_tests_have_no_package_files() -> None:
    """Tests are imported by path (importlib mode), so equal names in different folders are no trouble."""
    assert [name_of(path) for path in (PROJECT / "tests").rglob("__init__.py")] == []
