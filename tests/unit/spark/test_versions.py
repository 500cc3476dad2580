"""The format found by Spark itself, the versions that must agree, and errors as the user sees them."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys

import pyspark
import pytest
from pyspark import cloudpickle
from pyspark.sql.datasource import InputPartition

import ottla
from ottla.spark import unusable
from ottla.spark.errors import HIDE_TRACEBACK, OptionError, VersionMismatchError, in_spark_worker, one_sentence
from ottla.spark.source.data_source import OttlaDataSource
from ottla.spark.source.schema import source_schema
from ottla.spark.versions import pyspark_problem, restore

BASE = {"kafka.bootstrap.servers": "h:1", "subscribe": "a"}


@pytest.mark.spec("D1")
def test_spark_s_look_up_of_modules_finds_the_format() -> None:
    """As `lookup_data_sources` does it: modules named pyspark_*, their DefaultSource, pickled."""
    code = (
        "import pickle; from pkgutil import iter_modules; from importlib import import_module\n"
        "from pyspark import cloudpickle; from pyspark.sql.datasource import DataSource\n"
        "found = [import_module(each.name) for each in iter_modules() if each.name == 'pyspark_ottla']\n"
        "source = pickle.loads(cloudpickle.dumps(found[0].DefaultSource))\n"
        "print(source.name(), issubclass(source, DataSource), source.__module__)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["ottla", "True", "ottla.spark.source.data_source"]


@pytest.mark.parametrize(
    ("version", "runs"), [("4.2.0", True), ("4.3.0", True), ("5.0.0.dev1", True), ("4.1.2", False)]
)
def test_old_versions_of_pyspark_are_told(version: str, runs: bool) -> None:
    problem = pyspark_problem(version)
    if runs:
        assert problem is None
    else:
        assert problem == f"ottla needs PySpark 4.2 or newer, and this is {version}: pip install 'pyspark>=4.2'"


def test_the_format_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspark, "__version__", "4.1.0")
    assert unusable.UnusableSource.name() == "ottla"
    with pytest.raises(VersionMismatchError, match=r"ottla needs PySpark 4\.2 or newer, and this is 4\.1\.0"):
        unusable.UnusableSource({})
    monkeypatch.setattr(pyspark, "__version__", "4.3.0")
    assert unusable.why_unusable() is None
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert unusable.why_unusable() == "format(\"ottla\") needs pyarrow: pip install 'ottla[spark-source]'"


def test_executors_with_another_version_are_told_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = source_schema(include_headers=False)
    reader = OttlaDataSource(BASE).reader(schema)
    written = [
        cloudpickle.dumps(each) for each in (OttlaDataSource(BASE), reader, OttlaDataSource(BASE).streamReader(schema))
    ]
    same = pickle.loads(written[1])
    assert list(same.read(InputPartition(None))) == []
    monkeypatch.setattr(ottla, "__version__", "0.0.9")
    for each in written:
        with pytest.raises(VersionMismatchError) as refused:
            pickle.loads(each)
        assert str(refused.value).startswith("the driver has ottla 0.")
        assert str(refused.value).endswith("this executor has ottla 0.0.9: install the same version on both")


def test_the_version_is_compared_before_anything_else_is_read() -> None:
    with pytest.raises(VersionMismatchError, match=r"the driver has ottla 99\.0"):
        restore("99.0", b"not a pickle")


def test_refusals_come_without_a_traceback_in_spark_s_workers_only(monkeypatch: pytest.MonkeyPatch) -> None:
    @one_sentence
    def fail(error: Exception) -> None:
        raise error

    monkeypatch.delenv(HIDE_TRACEBACK, raising=False)
    assert not in_spark_worker()
    with pytest.raises(OptionError):
        fail(OptionError("x"))
    assert HIDE_TRACEBACK not in os.environ
    monkeypatch.setattr("ottla.spark.errors.in_spark_worker", lambda: True)
    with pytest.raises(ZeroDivisionError):
        fail(ZeroDivisionError())
    assert HIDE_TRACEBACK not in os.environ, "a bug keeps its traceback"
    monkeypatch.setenv(HIDE_TRACEBACK, "")  # so that it is put back
    with pytest.raises(OptionError):
        fail(OptionError("x"))
    assert os.environ[HIDE_TRACEBACK] == "1"
