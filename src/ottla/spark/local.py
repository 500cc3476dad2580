"""A Spark session on this machine, made for streams of small batches, with the `ottla` format registered."""

from __future__ import annotations

import atexit
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.records.extras import require_extra
from ottla.spark.data_sources import register_source
from ottla.spark.errors import VersionMismatchError
from ottla.spark.java import find_java, spark_launcher
from ottla.spark.versions import pyspark_problem

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

#: Options of SQL (`USING ottla OPTIONS (…)`) whose values Spark leaves out of plans, and its default. It leaves out
#: what is named as passwords are, too.
REDACTION = "spark.sql.redaction.options.regex"
SPARKS_REDACTION = "(?i)url"
STOP_TIMEOUT_S = 10.0
#: Java's connections break before its process has ended: limit on the wait for its end after their errors.
JAVA_END_S = 5.0
#: A shell whose command was ended by a signal ends with this and the signal's number.
_SHELL_SIGNALS = 128
_DEFAULT_PYTHON = "python3"

_CONF = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # Few cores: few shuffle partitions, and queries that run beside each other share them evenly.
    "spark.sql.shuffle.partitions": "2",
    "spark.scheduler.mode": "FAIR",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.catalogImplementation": "in-memory",
    # Times in Parquet as every reader knows them, not in the old 96 bits.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
# The collector for few cores, and a first heap of a fixed size, not a share of the machine's memory: it grows where a
# query needs more.
_JAVA_OPTIONS = "-XX:+UseSerialGC -Xms64m"
#: No second compiler, which takes more time than it saves where queries are short or their rows stay out of Java.
_COMPILED_ONCE = "-XX:TieredStopAtLevel=1"


def register(spark: SparkSession) -> SparkSession:
    """Make `format("ottla")` known to a session whose Spark has not found it by itself, and give the session back.

    Spark finds it where its own Python (PYSPARK_PYTHON, else `python3` on the path) is that of this environment.
    Raises MissingExtraError, VersionMismatchError.
    """
    require_extra("ottla.spark", "spark", "pyspark", "pyarrow")
    problem = pyspark_problem()
    if problem is not None:
        raise VersionMismatchError(problem)
    from ottla.spark.source.data_source import OttlaDataSource

    register_source(spark, OttlaDataSource)
    if spark.conf.get(REDACTION, None) in (None, SPARKS_REDACTION):
        spark.conf.set(REDACTION, f"{SPARKS_REDACTION}|jaas|keystore[.]key")
    return spark


def session(
    app_name: str = "ottla",
    *,
    cores: int = 2,
    memory: str = "1g",
    java_home: str | None = None,
    folder: Path | None = None,
    log_file: Path | None = None,
    conf: Mapping[str, str] | None = None,
    java_computes: bool = False,
) -> SparkSession:
    """A local session with `format("ottla")`; the running one, where this process has one.

    `java_home` names the Java to use (the caller reads JAVA_HOME if it wants to), else one is found. `folder` is for
    the launcher and Spark's scratch files; a temporary one by default. Spark's own log goes to `log_file`, by default
    to standard error. `conf` adds Spark settings or replaces ours. `java_computes`: rows go through Java for
    minutes, so that it pays to compile them a second time, better. Raises JavaNotFound, MissingExtraError.
    """
    require_extra("ottla.spark", "spark", "pyspark", "pyarrow")
    from pyspark import SparkConf, SparkContext
    from pyspark.find_spark_home import _find_spark_home
    from pyspark.sql import SparkSession

    if SparkContext._active_spark_context is not None:
        return register(SparkSession.builder.getOrCreate())
    scratch = folder if folder is not None else _temporary_directory()
    settings = SparkConf()
    settings.setAppName(app_name).setMaster(f"local[{cores}]")
    for name, value in _CONF.items():
        settings.set(name, value)
    settings.set("spark.driver.memory", memory)
    settings.set("spark.local.dir", str(scratch))
    options = _JAVA_OPTIONS if java_computes else f"{_JAVA_OPTIONS} {_COMPILED_ONCE}"
    settings.set("spark.driver.extraJavaOptions", f'{options} "-Djava.io.tmpdir={scratch}"')
    settings.set("spark.sql.warehouse.dir", str(scratch / "warehouse"))
    for name, value in (conf or {}).items():
        settings.set(name, value)
    if SparkContext._gateway is not None:  # A session of this process was stopped; its Java runs on.
        context = SparkContext(conf=settings)
    else:
        launcher = spark_launcher(find_java(java_home), Path(_find_spark_home()), scratch)
        context = SparkContext(conf=settings, gateway=_launch(settings, launcher, log_file))
    if context.pythonExec == _DEFAULT_PYTHON:
        context.pythonExec = sys.executable  # Workers need the packages of this environment.
    return register(SparkSession(context))


def cluster_session(
    app_name: str,
    master: str,
    *,
    memory: str,
    java_home: str | None,
    folder: Path,
    log_file: Path,
    conf: Mapping[str, str],
) -> SparkSession:
    """A session on a cluster whose driver is here, `stop` ends it: Java, `folder` and `log_file` are as in `session`.

    Its settings are Spark's own but for `conf`. Raises JavaNotFound, MissingExtraError, and what Spark raises.
    """
    require_extra("ottla.spark", "spark", "pyspark", "pyarrow")
    from pyspark import SparkConf, SparkContext
    from pyspark.find_spark_home import _find_spark_home
    from pyspark.sql import SparkSession

    settings = SparkConf()
    settings.setAppName(app_name).setMaster(master)
    for name, value in ({"spark.driver.memory": memory} | dict(conf)).items():
        settings.set(name, value)
    launcher = spark_launcher(find_java(java_home), Path(_find_spark_home()), folder, local=False)
    return register(SparkSession(SparkContext(conf=settings, gateway=_launch(settings, launcher, log_file))))


def _launch(settings: SparkConf, launcher: Path, log_file: Path | None) -> Any:
    """Start Spark's Java by the launcher. PySpark itself would take the program from its environment variables."""
    from pyspark import java_gateway

    launch: Callable[..., Any] = java_gateway.launch_gateway
    # In a session of its own: a signal for the whole group (Ctrl-C, that of systemd) lets the driver stop it in order.
    how: dict[str, Any] = {"executable": str(launcher), "start_new_session": True}
    if log_file is None:
        return launch(settings, how)
    with log_file.open("ab") as log:
        return launch(settings, how | {"stdout": log, "stderr": subprocess.STDOUT})


def _temporary_directory() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="ottla-spark-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def how_java_ended(noticed_by: Exception | None = None) -> str | None:
    """How the Java that this process has started for Spark ended, in words; None while it runs, or if there is none.

    Where an error of its connection may have been the first sign, its end is waited for `JAVA_END_S`.
    """
    if "pyspark" not in sys.modules:
        return None
    process = _java()
    if process is None:
        return None
    if isinstance(noticed_by, (OSError, EOFError)) or type(noticed_by).__module__.startswith("py4j"):
        with suppress(subprocess.TimeoutExpired):
            process.wait(JAVA_END_S)
    code = process.poll()
    if code is None:
        return None
    # The launcher's shell may stand between: it says 128 and the signal.
    number = -code if code < 0 else code - _SHELL_SIGNALS
    try:
        return f"by {signal.Signals(number).name}"
    except ValueError:
        return f"with exit code {code}"


def stop(spark: SparkSession) -> None:
    """Stop the session and the Java it runs on; afterwards this process can make a new one."""
    from pyspark import SparkContext

    gateway, process = SparkContext._gateway, _java()
    ended = how_java_ended()
    if ended is None:
        try:
            spark.stop()
        except Exception as problem:
            ended = how_java_ended(problem)
            if ended is None:
                raise
    if ended is not None:  # It cannot be asked any more: only what this process knows of it is left to forget.
        SparkContext._active_spark_context = None
        type(spark)._instantiatedSession = type(spark)._activeSession = None
    if gateway is None:
        return
    with suppress(Exception):  # of py4j's or the socket's, where Java cannot be reached
        gateway.shutdown()
    if process is not None:
        if process.stdin is not None:
            process.stdin.close()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    SparkContext._gateway = None
    SparkContext._jvm = None


def _java() -> subprocess.Popen[bytes] | None:
    from pyspark import SparkContext

    process: subprocess.Popen[bytes] | None = getattr(SparkContext._gateway, "proc", None)
    return process
