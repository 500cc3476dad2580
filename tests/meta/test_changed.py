"""Which tests a change reaches."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from support.changed import Reached, changed_files, reached_by

PROJECT = Path(__file__).resolve().parents[2]

FILES = {
    "src/ottla/__init__.py": "",
    "src/ottla/__main__.py": "def main():\n    from ottla.cli import serve\n",
    "src/ottla/cli.py": "from ottla import served\n",
    "src/ottla/served.py": 'import importlib\nmodule = importlib.import_module(f"ottla.handlers.{name}")\n',
    "src/ottla/handlers/__init__.py": '"""See ottla.alone."""\n',
    "src/ottla/handlers/produce.py": "",
    "src/ottla/alone.py": "if TYPE_CHECKING:\n    from ottla.handlers import produce\n",
    "src/ottla/native.pxd": "",
    "tests/conftest.py": """
from support.server import Server
from ottla.alone import Thing
DEFAULT = Thing()
@pytest.fixture
def server() -> Server:
    return Server()
@pytest.fixture
def broker(request):
    return request.getfixturevalue("server")
@pytest.fixture
def unrelated(thing: Server):
    return 1
@pytest.fixture
def thing():
    return DEFAULT
""",
    "tests/support/server.py": 'command = [sys.executable, "-u", "-m", "ottla", "serve"]\n',
    "tests/unit/test_alone.py": "from ottla.alone import it\n",
    "tests/unit/test_program.py": 'PROGRAM = "import sys; from ottla.alone import it"\n',
    "tests/unit/test_in_a_function.py": "def test_it():\n    import ottla.handlers.produce\n",
    "tests/unit/test_other.py": "FILE = '../golden/bytes.json'\ndef test_it(broker): pass\n",
    "tests/golden/test_data.py": "",
    "tests/golden/data/bytes.json": "",
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def names_of(reached: Reached) -> set[str]:
    return {Path(path).stem for path in reached.files if "/test_" in path}


def fixtures_of(reached: Reached) -> set[str]:
    return {fixture.rpartition("::")[2] for fixture in reached.fixtures}


def test_imports_and_programs_are_followed(project: Path) -> None:
    reached = reached_by(project, ["src/ottla/alone.py"])
    assert names_of(reached) == {"test_alone", "test_program"}
    assert fixtures_of(reached) == {"thing", "unrelated"}


def test_modules_that_are_imported_late_are_followed_into_processes(project: Path) -> None:
    reached = reached_by(project, ["src/ottla/handlers/produce.py"])
    assert names_of(reached) == {"test_in_a_function"}
    assert fixtures_of(reached) == {"server", "broker"}


def test_the_package_itself_reaches_whatever_uses_it(project: Path) -> None:
    reached = reached_by(project, ["src/ottla/__init__.py"])
    assert names_of(reached) == {"test_alone", "test_program", "test_in_a_function"}
    assert fixtures_of(reached) == {"server", "broker", "thing", "unrelated"}


def test_a_changed_conftest_reaches_who_uses_its_fixtures(project: Path) -> None:
    reached = reached_by(project, ["tests/conftest.py"])
    assert fixtures_of(reached) == {"server", "broker", "thing", "unrelated"}


@pytest.mark.parametrize(
    ("changed", "tests"),
    [
        ("tests/unit/test_other.py", {"test_other"}),
        ("tests/unit/test_gone.py", {"test_gone"}),
        ("tests/golden/data/other.json", {"test_data"}),
        ("tests/golden/bytes.json", {"test_data", "test_other"}),
        ("src/ottla/native.pxd", {"test_alone", "test_program", "test_in_a_function"}),
        ("docs/index.md", set()),
    ],
)
def test_other_files(project: Path, changed: str, tests: set[str]) -> None:
    reached = reached_by(project, [changed])
    assert (reached.everything, names_of(reached)) == (False, tests)


@pytest.mark.parametrize("changed", ["pyproject.toml", "run", "requirements/dev.lock"])
def test_what_no_import_leads_to_reaches_everything(project: Path, changed: str) -> None:
    assert reached_by(project, ["docs/index.md", changed]).everything


def test_what_a_worker_gets_is_the_same(project: Path) -> None:
    reached = reached_by(project, ["src/ottla/alone.py"])
    assert Reached.received(reached.sent()) == reached


def test_changed_files_are_those_since_the_branch_began_and_new_ones(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=t", "-c", "user.email=t@t", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", "-C", str(tmp_path), *identity, *arguments], check=True, capture_output=True)

    def commit(*names: str) -> None:
        for name in names:
            (tmp_path / name).write_text(name)
        git("add", "-A")
        git("commit", "-m", "-")

    git("init", "-b", "main")
    commit("old", "kept")
    git("checkout", "-b", "work")
    commit("committed")
    (tmp_path / "kept").write_text("changed")
    (tmp_path / "new").write_text("")
    assert changed_files(tmp_path, None) == ["committed", "kept", "new"]
    assert changed_files(tmp_path, "HEAD") == ["kept", "new"]
    with pytest.raises(pytest.UsageError, match=r"--changed: .*nowhere"):
        changed_files(tmp_path, "nowhere")


def test_the_broker_of_tests_leads_to_its_handlers() -> None:
    reached = reached_by(PROJECT, ["src/ottla/broker/handlers/metadata.py"])
    assert "tests/conftest.py::ottla_server" in reached.fixtures
    assert "tests/unit/wire/test_codec.py" not in reached.files
    assert "tests/unit/broker/test_served.py" in reached.files


def test_examples_reach_the_tests_that_run_them() -> None:
    reached = reached_by(PROJECT, ["examples/high_level_consumer.py"])
    assert names_of(reached) == {"test_streams", "test_changed"}
    reached = reached_by(PROJECT, ["examples/rust/orders.rs", "examples/python/test_orders.py"])
    assert names_of(reached) == {"test_other_languages", "test_python"}
