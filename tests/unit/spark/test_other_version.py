"""What travels from a driver to an executor that has another version of ottla: two processes, without a JVM."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest
from pyspark import cloudpickle

import ottla
from ottla.spark.source.data_source import OttlaDataSource
from support.packing import python_without_links
from support.processes import run_tool

READ = "import pathlib, pickle, sys; pickle.loads(pathlib.Path(sys.argv[1]).read_bytes())"


@pytest.mark.slow
@pytest.mark.spec("D1")
@pytest.mark.parametrize(("version", "is_refused"), [("0.0.9", True), (ottla.__version__, False)])
def test_an_executor_with_another_version_refuses_in_one_sentence(
    tmp_path: Path, version: str, is_refused: bool
) -> None:
    shutil.copytree(Path(ottla.__file__).parent, tmp_path / "ottla", ignore=shutil.ignore_patterns("__pycache__"))
    marker = tmp_path / "ottla" / "__init__.py"
    marker.write_text(marker.read_text().replace(f'"{ottla.__version__}"', f'"{version}"'))
    source = OttlaDataSource({"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"})
    sent = tmp_path / "sent"
    sent.write_bytes(cloudpickle.dumps(source.reader(source.schema())))
    path = os.pathsep.join([str(tmp_path), *(each for each in sys.path if each)])
    done = run_tool([sys.executable, "-c", READ, str(sent)], env={"PYTHONPATH": path}, check=False)
    sentence = f"the driver has ottla {ottla.__version__} and this executor has ottla 0.0.9: install the same version"
    assert (done.returncode != 0, sentence in done.stderr) == (is_refused, is_refused), done.stderr


@pytest.mark.slow
@pytest.mark.spec("D1")
def test_an_executor_without_ottla_says_so_in_one_sentence(tmp_path: Path) -> None:
    source = OttlaDataSource({"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"})
    sent = tmp_path / "sent"
    sent.write_bytes(cloudpickle.dumps(source.reader(source.schema())))
    python = python_without_links(tmp_path / "bare")
    done = run_tool([python, "-c", READ, str(sent)], env={"PYTHONPATH": ""}, check=False)
    assert done.returncode != 0
    assert done.stderr.splitlines()[-1] == (
        f"RuntimeError: the driver has ottla {ottla.__version__} and this executor has none: install "
        f"'ottla[spark-source]' of the same version for its Python, {python}"
    )
