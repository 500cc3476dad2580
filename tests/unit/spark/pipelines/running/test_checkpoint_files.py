"""Which local sessions write their checkpoints with fewer programs, and what a Spark without that class gets."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from ottla.spark.pipelines.running.sessions import FILE_MANAGER, LOCAL_FILES, conf_of_checkpoint, use_if_known
from ottla.spark.pipelines.settings.model import PipelineKind, PipelineSettings, SparkSettings

pytestmark = pytest.mark.spec("D3")

OURS = {FILE_MANAGER, LOCAL_FILES}


def settings(checkpoint: str, **conf: str) -> PipelineSettings:
    return PipelineSettings(
        name="p", kind=PipelineKind.mirror, checkpoint=checkpoint, spark=SparkSettings(master="local[2]", conf=conf)
    )


@pytest.mark.parametrize("checkpoint", ["state/p", "/var/lib/p", "file:///var/lib/p", "FILE:/var/lib/p"])
def test_checkpoints_in_local_folders_are_written_with_fewer_programs(checkpoint: str) -> None:
    assert conf_of_checkpoint(settings(checkpoint), java_computes=False).keys() == OURS


@pytest.mark.parametrize("checkpoint", ["s3://bucket/p", "hdfs://name/p", "s3a://bucket/p"])
def test_checkpoints_elsewhere_are_written_as_spark_does(checkpoint: str) -> None:
    assert conf_of_checkpoint(settings(checkpoint), java_computes=False) == {}


@pytest.mark.parametrize(
    "conf", [{"spark.eventLog.dir": "s3a://logs/spark"}, {"spark.hadoop.fs.defaultFS": "hdfs://n/"}]
)
def test_other_file_systems_of_hadoop_need_its_local_files_with_checksums(conf: dict[str, str]) -> None:
    assert conf_of_checkpoint(settings("state/p", **conf), java_computes=False) == {}


def test_where_java_computes_hadoops_local_files_stay_as_they_are() -> None:
    """RocksDB's state is copied from Hadoop's local files with checksums; plain ones are refused."""
    assert conf_of_checkpoint(settings("state/p"), java_computes=True) == {}


@pytest.mark.parametrize("name", sorted(OURS))
def test_what_the_file_says_of_it_stands_alone(name: str) -> None:
    assert conf_of_checkpoint(settings("state/p", **{name: "of.the.User"}), java_computes=False) == {}


class PlayedSpark:
    """A session whose Java knows the classes of `known`."""

    def __init__(self, *known: str) -> None:
        self.unset: list[str] = []
        self.conf = SimpleNamespace(unset=self.unset.append)
        loader = SimpleNamespace(loadClass=self._load)
        thread = SimpleNamespace(getContextClassLoader=lambda: loader)
        lang = SimpleNamespace(Thread=SimpleNamespace(currentThread=lambda: thread))
        self.sparkContext = SimpleNamespace(_jvm=SimpleNamespace(java=SimpleNamespace(lang=lang)))
        self._known = known

    def _load(self, name: str) -> None:
        if name not in self._known:
            raise Py4JJavaError("ClassNotFoundException", SimpleNamespace(_target_id="o1", _gateway_client=None))


@pytest.mark.parametrize(("is_known", "unset"), [(True, []), (False, [FILE_MANAGER])])
def test_a_spark_without_the_class_writes_in_its_own_way(is_known: bool, unset: list[str]) -> None:
    conf = conf_of_checkpoint(settings("state/p"), java_computes=False)
    spark: Any = PlayedSpark(*([conf[FILE_MANAGER]] if is_known else []))
    use_if_known(spark, conf)
    assert spark.unset == unset


def test_a_session_without_these_settings_is_not_asked() -> None:
    nothing: Any = SimpleNamespace()
    use_if_known(nothing, {})
    assert vars(nothing) == {}
