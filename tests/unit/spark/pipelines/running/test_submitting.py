"""The line for spark-submit, and the environment that is sent along."""

from __future__ import annotations

import subprocess
import tarfile
import venv
from pathlib import Path

import pytest

from ottla.spark.pipelines.errors import PipelineError
from ottla.spark.pipelines.running.submitting import SubmitOptions, pack_environment, shown, submit_line
from ottla.spark.pipelines.settings.file import load_pipeline
from ottla.spark.pipelines.settings.model import PipelineSettings

TEXT = """
name = "p"
checkpoint = "{checkpoint}"
[spark]
{spark}
[source]
bootstrap_servers = "127.0.0.1:9092"
topics = ["a"]
[sink]
kind = "console"
"""


def _settings(folder: Path, spark: str, checkpoint: str = "checkpoint") -> PipelineSettings:
    path = folder / "p.toml"
    path.write_text(TEXT.format(spark=spark, checkpoint=checkpoint))
    return load_pipeline(path, {"PASSWORD": "hunter2"})


def _options(folder: Path, mode: str = "client", archive: str | None = None) -> SubmitOptions:
    return SubmitOptions("spark-submit", Path("/x/submitted.py"), folder / "p.toml", mode, archive, "/usr/bin/python3")


def test_the_line_has_master_memory_and_settings(tmp_path: Path) -> None:
    settings = _settings(tmp_path, 'master = "spark://h:7077"\nmemory = "2g"\nconf.spark.cores.max = 4')
    assert submit_line(settings, _options(tmp_path)) == [
        *("spark-submit", "--master", "spark://h:7077", "--deploy-mode", "client", "--name", "ottla p"),
        *("--driver-memory", "2g", "--conf", "spark.cores.max=4", "/x/submitted.py", "run", str(tmp_path / "p.toml")),
    ]


def test_secrets_are_not_in_the_line(tmp_path: Path) -> None:
    conf = 'conf."spark.hadoop.fs.s3a.secret.key" = "${env:PASSWORD}"\nconf.spark.cores.max = 4'
    line = shown(submit_line(_settings(tmp_path, f'master = "yarn"\n{conf}'), _options(tmp_path)))
    assert "hunter2" not in line
    assert "secret.key" not in line
    assert "spark.cores.max=4" in line


def test_an_archive_brings_its_python(tmp_path: Path) -> None:
    settings = _settings(tmp_path, 'master = "yarn"', "hdfs://n/c")
    line = submit_line(settings, _options(tmp_path, archive="/a/env.tar.gz"))
    assert "/a/env.tar.gz#environment" in line
    assert "spark.pyspark.python=./environment/bin/python" in line
    assert "spark.pyspark.driver.python=/usr/bin/python3" in line
    line = submit_line(settings, _options(tmp_path, "cluster", "/a/env.tar.gz"))
    assert "spark.yarn.appMasterEnv.PYSPARK_PYTHON=./environment/bin/python" in line
    assert line[-4:] == [str(tmp_path / "p.toml"), "/x/submitted.py", "run", "p.toml"]


def test_a_driver_elsewhere_has_no_paths_of_here(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"checkpoint = .* is a path of this machine"):
        submit_line(_settings(tmp_path, 'master = "yarn"'), _options(tmp_path, "cluster"))


def test_spark_connect_is_not_submitted_to(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="use ottla pipeline run"):
        submit_line(_settings(tmp_path, 'remote = "sc://h"'), _options(tmp_path))


@pytest.mark.slow
def test_a_packed_environment_runs_elsewhere(tmp_path: Path) -> None:
    made = tmp_path / "made"
    venv.create(made, symlinks=True)
    packages = next((made / "lib").glob("python*/site-packages"))
    (packages / "pyspark").mkdir()
    (packages / "pyspark" / "__init__.py").touch()
    (packages / "others.py").write_text("here = True\n")
    assert pack_environment(tmp_path / "environment.tar.gz", made) > 0
    with tarfile.open(tmp_path / "environment.tar.gz") as archive:
        archive.extractall(tmp_path / "elsewhere", filter="tar")
    code = "import importlib.util, others, ottla; print(ottla.__file__, importlib.util.find_spec('pyspark'))"
    command = [str(tmp_path / "elsewhere" / "bin" / "python"), "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=240, env={})
    assert done.stdout.split()[1] == "None"
    assert done.stdout.startswith(str(tmp_path / "elsewhere"))


def test_what_cannot_be_moved_is_not_packed(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="not an environment made by venv"):
        pack_environment(tmp_path / "e.tar.gz", tmp_path)
    (tmp_path / "pyvenv.cfg").touch()
    (tmp_path / "e.tar.gz").touch()
    with pytest.raises(PipelineError, match="exists already"):
        pack_environment(tmp_path / "e.tar.gz", tmp_path)
