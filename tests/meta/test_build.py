"""The compiled modules and their sources: what is listed where, and that everything works without them."""

from __future__ import annotations

import ast
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from support.packing import copied_sources, is_compiled, names_in, pack, packed

PROJECT = Path(__file__).resolve().parents[2]
RECORDS = PROJECT / "src" / "ottla" / "records"

ROUND_TRIP = """
import sys
BLOCKED
from ottla import records
from ottla.records import building, keys, walk
assert records.build_in_use() == "pure"
assert not (building.COMPILED or keys.COMPILED or walk.COMPILED)
from ottla.records.batch import parse_batch_header
from ottla.records.consumed import decode_consumed
builder = building.RecordsBuilder()
builder.append(5, b"key", b"value", [("h", b"1")])
batch = building.finish_batch(builder)
[record] = decode_consumed(batch, parse_batch_header(batch), "t", 0, 0)
assert record[2:] == (0, 5, 0, b"key", b"value", (("h", b"1"),), -1, 3, 5), record
assert building.murmur2(b"21") == 2**32 - 973932308
from ottla.config.settings import BROKER_SETTINGS
assert BROKER_SETTINGS["log.segment.bytes"].default == "1073741824"
"""


def compiled() -> dict[str, str]:
    """Source to built module, as setup.py lists them."""
    for node in ast.parse((PROJECT / "setup.py").read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "COMPILED":
            found: dict[str, str] = ast.literal_eval(node.value)
            return found
    raise AssertionError("setup.py lists no COMPILED")


def check_python(program: str) -> None:
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
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
    check_python(ROUND_TRIP.replace("BLOCKED", f"sys.modules.update(dict.fromkeys({blocked}))"))


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    return copied_sources(tmp_path / "sources")


@pytest.mark.spec("U4")
@pytest.mark.slow
def test_pure_never_builds(sources: Path) -> None:
    """No platform in its name, nothing compiled in it, and it works."""
    wheel = packed(sources, "wheel", OTTLA_BUILD="pure")
    assert wheel.name.endswith("-py3-none-any.whl")
    assert [name for name in names_in(wheel) if is_compiled(name)] == []
    check_python(ROUND_TRIP.replace("BLOCKED", f"sys.path.insert(0, {str(wheel)!r})"))


@pytest.mark.spec("U4")
@pytest.mark.slow
def test_an_unknown_kind_of_build_is_refused(sources: Path) -> None:
    done = pack(sources, "wheel", OTTLA_BUILD="fast")
    assert done.returncode != 0
    assert "OTTLA_BUILD=fast: expected compiled, pure or auto" in done.stderr


@pytest.mark.spec("U4")
@pytest.mark.slow
@pytest.mark.timeout(180)
def test_without_a_compiler(sources: Path) -> None:
    """A build continues without compiled code and says so; one that was asked to compile fails and says why."""
    done = pack(sources, "wheel", 170, CC="/bin/false")
    assert done.returncode == 0, done.stderr
    assert "ottla's work on single records is not compiled, and runs slower" in done.stderr + done.stdout
    [wheel] = (sources / "dist").iterdir()
    assert wheel.name.endswith("-py3-none-any.whl")
    assert [name for name in names_in(wheel) if is_compiled(name)] == []
    done = pack(sources, "wheel", 60, CC="/bin/false", OTTLA_BUILD="compiled")
    assert done.returncode != 0
    assert "OTTLA_BUILD=compiled: ottla.records._walk_native could not be compiled" in done.stderr
    assert "is there a C compiler, and Python.h?" in done.stderr
    assert [path.name for path in (sources / "dist").iterdir()] == [wheel.name]


@pytest.mark.spec("U4")
@pytest.mark.slow
def test_without_cython(sources: Path) -> None:
    (sources / "Cython.py").write_text("raise ImportError")
    assert packed(sources, "wheel", PYTHONPATH=str(sources)).name.endswith("-py3-none-any.whl")
    done = pack(sources, "wheel", OTTLA_BUILD="compiled", PYTHONPATH=str(sources))
    assert done.returncode != 0
    assert "OTTLA_BUILD=compiled: that needs Cython: pip install 'cython>=3.1'" in done.stderr
    assert f"compiling {len(compiled())} modules, which takes about half a minute" in done.stdout + done.stderr


@pytest.mark.spec("U4")
@pytest.mark.long
@pytest.mark.timeout(400)
def test_compiled_code_has_the_tag_of_its_platform(sources: Path) -> None:
    wheel = packed(sources, "wheel", 390, OTTLA_BUILD="compiled")
    assert len([name for name in names_in(wheel) if is_compiled(name)]) == len(compiled())
    assert not wheel.name.endswith("-any.whl")


@pytest.mark.spec("U4")
@pytest.mark.slow
def test_a_source_distribution_holds_what_is_compiled(sources: Path) -> None:
    archive = packed(sources, "sdist")
    with tarfile.open(archive) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    wanted = {"setup.py", "pyproject.toml", "README.md", "LICENSE"}
    wanted |= {"src/ottla/py.typed", "src/ottla/config/settings.tsv"}
    for source, built in compiled().items():
        wanted |= {f"src/ottla/records/{source}.py", f"src/ottla/records/{built}.pxd"}
    assert wanted <= names
    assert [name for name in names if is_compiled(name) or name.startswith("tests/")] == []


def test_messages_never_point_to_the_script_of_the_project() -> None:
    """Who installed ottla with pip has no `./run`."""
    found = [str(path) for path in (PROJECT / "src").rglob("*.py") if "./run" in path.read_text()]
    assert found == []
