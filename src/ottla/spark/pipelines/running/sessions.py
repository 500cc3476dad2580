"""The Spark session that a pipeline runs on, by its settings alone: a local one, a cluster's, or Spark Connect's."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.records.extras import require_extra
from ottla.spark.pipelines.errors import PipelineError
from ottla.spark.pipelines.settings.model import PipelineSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL = "local"
#: Days and hours are those of UTC wherever the driver runs, as in a local session, unless the file says otherwise.
_CONF = {"spark.sql.session.timeZone": "UTC"}


def is_local(settings: PipelineSettings) -> bool:
    """Whether Spark runs in a process of its own on this machine."""
    return settings.spark.remote is None and settings.spark.master.startswith(LOCAL)


def open_session(
    settings: PipelineSettings, *, java_home: str | None, folder: Path, log_file: Path, attached: bool
) -> SparkSession:
    """The session; the caller stops it. `attached`: spark-submit has started Java already, with its own master.

    `java_home`, `folder` (scratch files) and `log_file` (Spark's log) are those of a local session.
    Raises PipelineError where Spark cannot be reached, JavaNotFound, MissingExtraError.
    """
    require_extra("a pipeline", "spark", "pyspark", "pyarrow")
    from ottla.spark import local

    spark = settings.spark
    if is_local(settings) and not attached:
        return local.session(
            f"ottla {settings.name}",
            cores=_cores(spark.master),
            memory=spark.memory,
            java_home=java_home,
            folder=folder,
            log_file=log_file,
            conf=spark.conf,
        )
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(f"ottla {settings.name}")
    if spark.remote is not None:
        require_extra("Spark Connect", "spark", "grpc")
        builder = builder.remote(spark.remote)
    elif not attached:
        builder = builder.master(spark.master).config("spark.driver.memory", spark.memory)
    for name, value in (_CONF | dict(spark.conf)).items():
        builder = builder.config(name, value)
    where = spark.remote or spark.master
    try:
        return local.register(builder.getOrCreate())
    except PySparkException as problem:
        first = (str(problem).strip().splitlines() or [""])[0]
        raise PipelineError(f"no session on {where}: {first}; check [spark] and that it runs") from None


def close_session(settings: PipelineSettings, spark: SparkSession, *, attached: bool) -> None:
    """Stop a session that `open_session` gave."""
    if is_local(settings) and not attached:
        from ottla.spark.local import stop

        stop(spark)
    else:
        spark.stop()


def _cores(master: str) -> int:
    """The number in `local[N]`: all processors for `*`."""
    inside = master.removeprefix(LOCAL).strip("[]").split(",")[0]
    return (os.cpu_count() or 1) if inside == "*" else int(inside or 1)
