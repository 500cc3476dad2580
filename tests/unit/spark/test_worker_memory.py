"""What Spark's workers hold for nothing is given back, and imports go on as before."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from ottla.spark import worker_memory
from ottla.spark.worker_memory import give_back

CODE = """
import importlib, sys, zipimport
sys.path.insert(0, sys.argv[1])
import bundled.one.first, bundled.two.first
importlib.invalidate_caches()

def lists():
    return [each._files for each in sys.path_importer_cache.values() if isinstance(each, zipimport.zipimporter)]

before = lists()
from ottla.spark.worker_memory import give_back
give_back()
import bundled.one.second, bundled.two.second
print(len(before), len({id(each) for each in before}), len({id(each) for each in lists()}), lists() == before)
print(bundled.one.second.NAME, bundled.two.second.NAME)
"""


@pytest.mark.spec("D1")
@pytest.mark.skipif(sys.version_info >= (3, 12), reason="this Python reads an archive's list when it is needed")
def test_packages_of_an_archive_share_its_list_of_files(tmp_path: Path) -> None:
    archive = tmp_path / "bundled.zip"
    with ZipFile(archive, "w") as written:
        for name in ("bundled", "bundled/one", "bundled/two"):
            written.writestr(f"{name}/__init__.py", "")
            written.writestr(f"{name}/first.py", "")
            written.writestr(f"{name}/second.py", f"NAME = {name!r}")
    done = subprocess.run([sys.executable, "-c", CODE, str(archive)], capture_output=True, text=True, check=True)
    counts, names = done.stdout.splitlines()
    importers, lists_before, lists_after, equal = counts.split()
    assert int(importers) >= 4
    assert lists_before == importers
    assert lists_after == "1"
    assert equal == "True"
    assert names.split() == ["bundled/one", "bundled/two"]


@pytest.mark.spec("D1")
def test_only_workers_of_spark_give_back() -> None:
    """A user's own program is left alone, and does not even import what would do it."""
    code = "import sys, ottla.spark; print('ottla.spark.worker_memory' in sys.modules)"
    worker = "import sys; from importlib.machinery import ModuleSpec\n"
    worker += "sys.modules['__main__'].__spec__ = ModuleSpec('pyspark.daemon', None)\n"
    for start, gives_back in (("", "False"), (worker, "True")):
        done = subprocess.run([sys.executable, "-c", start + code], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == gives_back


def test_a_python_without_ctypes_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    monkeypatch.setattr(worker_memory, "_share_lists_of_archives", lambda: done.append("lists"))
    monkeypatch.setitem(sys.modules, "ctypes", None)
    give_back()
    assert done == ["lists"]
