"""The Spark session that a pipeline runs on, by its settings alone: a local one, a cluster's, or Spark Connect's."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla.records.extras import require_extra
from ottla.spark.errors import SparkRefusal
from ottla.spark.pipelines.errors import PipelineError
from ottla.spark.pipelines.running.reasons import is_of_spark, short_reason
from ottla.spark.pipelines.settings.model import PipelineKind, PipelineSettings
from ottla.spark.pipelines.tables import filesystems

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL = "local"
STANDALONE = "spark://"
#: Limit for a master, or a server of Spark Connect, to take a connection. Spark itself tries for minutes.
ANSWER_TIMEOUT_S: Final = 20.0
#: Days and hours are those of UTC wherever the driver runs, as in a local session, unless the file says otherwise.
_CONF = {"spark.sql.session.timeZone": "UTC"}
#: Spark's defaults of the settings that change what SQL means.
_DEFAULTS = {"spark.sql.caseSensitive": "false", "spark.sql.ansi.enabled": "true"}
_REGISTRY = "schemaregistry"
#: How Spark's Java writes a checkpoint in a local folder: with one program for each file, not many.
#: Spark's own checkpoint file manager (`FileContextBasedCheckpointFileManager`) runs `chmod` and `readlink` several
#: times for each small file and its checksum, which is most of the time that a batch spends on its checkpoint. The
#: other, on Hadoop's plain local files, runs one `chmod`. Both write a file under another name, then rename it; the
#: plain files have no checksums (`.crc`) beside them, and each manager reads what the other has written.
FILE_MANAGER: Final = "spark.sql.streaming.checkpointFileManagerClass"
LOCAL_FILES: Final = "spark.hadoop.fs.file.impl"
_BY_FILE_SYSTEM = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
_PLAIN_FILES = "org.apache.hadoop.fs.RawLocalFileSystem"


def is_local(settings: PipelineSettings) -> bool:
    """Whether Spark runs in a process of its own on this machine."""
    return settings.spark.remote is None and settings.spark.master.startswith(LOCAL)


def java_computes(settings: PipelineSettings) -> bool:
    """Whether rows go through Spark's Java in a local session, as far as it is known before there is one.

    Mirrors copy in Python, and so do archives on the fast path.
    """
    if settings.kind is PipelineKind.mirror:
        return False
    if len(settings.sources) != 1 or _REGISTRY in map(str.lower, settings.sources[0].options):  # It is not asked here.
        return True
    from ottla.spark.pipelines.queries.sources import read_options
    from ottla.spark.pipelines.writing.direct import is_direct

    source = settings.sources[0]
    conf = _CONF | _DEFAULTS | dict(settings.spark.conf)
    try:
        options = read_options(source, schema=source.schema, starting=source.starting_offsets)
        return not is_direct(settings, options, conf.__getitem__)
    except SparkRefusal:  # It is said where the pipeline starts.
        return True


def open_session(
    settings: PipelineSettings, *, java_home: str | None, folder: Path, log_file: Path, attached: bool
) -> SparkSession:
    """The session; the caller stops it. `attached`: spark-submit has started Java already, with its own master.

    `java_home`, `folder` (scratch files) and `log_file` (Spark's log) are those of a Java that is started here.
    Raises PipelineError where Spark cannot be reached, JavaNotFound, MissingExtraError.
    """
    require_extra("a pipeline", "spark", "pyspark", "pyarrow")
    spark, name = settings.spark, f"ottla {settings.name}"
    if is_local(settings) and not attached:
        return _local_session(settings, name, java_home, folder, log_file)
    from pyspark.sql import SparkSession

    from ottla.spark import local

    conf = _CONF | dict(spark.conf)
    try:
        if spark.remote is None and not attached:
            _check_master(spark.master)
            return local.cluster_session(
                name,
                spark.master,
                memory=spark.memory,
                java_home=java_home,
                folder=folder,
                log_file=log_file,
                conf=conf,
            )
        builder = SparkSession.builder.appName(name)
        if spark.remote is not None:
            require_extra("Spark Connect", "spark", "grpc")
            _check_server(spark.remote)
            builder = builder.remote(spark.remote)
        for key, value in conf.items():
            builder = builder.config(key, value)
        return local.register(builder.getOrCreate())
    except Exception as problem:
        if not is_of_spark(problem):
            raise
        # The address of a server may have a token behind it.
        where = spark.master if spark.remote is None else spark.remote.partition(";")[0].rstrip("/")
        raise PipelineError(
            f"no session on {where}: {short_reason(str(problem))}; check [spark] and that it runs, --spark-log keeps "
            "what Spark says"
        ) from None


def _local_session(
    settings: PipelineSettings, name: str, java_home: str | None, folder: Path, log_file: Path
) -> SparkSession:
    from ottla.spark import local

    spark, computes = settings.spark, java_computes(settings)
    checkpoint_conf = conf_of_checkpoint(settings, java_computes=computes)
    session = local.session(
        name,
        cores=_cores(spark.master),
        memory=spark.memory,
        java_home=java_home,
        folder=folder,
        log_file=log_file,
        conf=checkpoint_conf | dict(spark.conf),
        java_computes=computes,
    )
    use_if_known(session, checkpoint_conf)
    return session


def conf_of_checkpoint(settings: PipelineSettings, *, java_computes: bool) -> dict[str, str]:
    """The Spark settings for the checkpoint.

    Empty where the checkpoint is not local, `[spark.conf]` sets one of them, or Java may need Hadoop's local files with
    checksums: for RocksDB's state, where rows go through Java, and for other file systems that `[spark.conf]` names.
    """
    mine, own = {FILE_MANAGER: _BY_FILE_SYSTEM, LOCAL_FILES: _PLAIN_FILES}, settings.spark.conf
    is_possible = not java_computes and all(map(filesystems.is_local, (settings.checkpoint, *own.values())))
    return mine if is_possible and not mine.keys() & own.keys() else {}


def use_if_known(spark: SparkSession, conf: Mapping[str, str]) -> None:
    """Go back to Spark's own way where this Spark has no such class. `conf` is what `conf_of_checkpoint` gave."""
    if FILE_MANAGER not in conf:
        return
    from py4j.protocol import Py4JJavaError

    loader = spark.sparkContext._jvm.java.lang.Thread.currentThread().getContextClassLoader()  # type: ignore[union-attr]
    try:
        loader.loadClass(conf[FILE_MANAGER])
    except Py4JJavaError:
        spark.conf.unset(FILE_MANAGER)


def close_session(settings: PipelineSettings, spark: SparkSession, *, attached: bool) -> None:
    """Stop a session that `open_session` gave."""
    if settings.spark.remote is None and not attached:
        from ottla.spark.local import stop

        stop(spark)
    else:
        spark.stop()


def _check_master(master: str) -> None:
    """Raises PipelineError where none of a standalone cluster's masters takes a connection."""
    if not master.startswith(STANDALONE):
        return
    reasons = []
    for address in master.removeprefix(STANDALONE).split(","):
        host, _, port = address.rpartition(":")
        try:
            with socket.create_connection((host.strip("[]"), int(port)), ANSWER_TIMEOUT_S):
                return
        except (OSError, ValueError) as problem:
            reasons.append(f"{address}: {getattr(problem, 'strerror', None) or problem}")
    raise PipelineError(f"no master of {master} answers ({', '.join(reasons)}); check [spark] master and that it runs")


def _check_server(remote: str) -> None:
    """Raises PipelineError where a server of Spark Connect takes no connection, what PySpark raises for its address."""
    import grpc
    from pyspark.sql.connect.client import DefaultChannelBuilder

    builder = DefaultChannelBuilder(remote)
    channel = builder.toChannel()
    ready = grpc.channel_ready_future(channel)
    try:
        ready.result(ANSWER_TIMEOUT_S)
    except grpc.FutureTimeoutError:
        raise PipelineError(
            f"no server of Spark Connect answers at {builder.endpoint} within {ANSWER_TIMEOUT_S:.0f} s; check [spark] "
            "remote and that it runs"
        ) from None
    finally:
        ready.cancel()
        channel.close()


def _cores(master: str) -> int:
    """The number in `local[N]`: all processors for `*`."""
    inside = master.removeprefix(LOCAL).strip("[]").split(",")[0]
    return (os.cpu_count() or 1) if inside == "*" else int(inside or 1)
