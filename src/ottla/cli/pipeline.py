"""`ottla pipeline`: one of the three pipelines alone, on a local Spark, by a small TOML file."""

from __future__ import annotations

import importlib.util
import signal
import sys
import tempfile
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    Starter = Callable[[SparkSession], StreamingQuery]

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
PROGRESS_INTERVAL_S = 2
_LONGEST_REASON = 1_000


class PipelineName(StrEnum):
    """The pipelines there are."""

    online = "online"
    archive = "archive"
    mirror = "mirror"


def pipeline(
    name: Annotated[PipelineName, typer.Argument(help="Which pipeline.")],
    config: Annotated[Path, typer.Argument(help="Its settings, a TOML file (topic, group_id, checkpoint, …).")],
) -> None:
    """Run one pipeline on a local Spark until Ctrl-C, or until it is done where its file says `once = true`."""
    missing = [each for each in ("pyspark", "pyarrow") if importlib.util.find_spec(each) is None]
    if missing:
        _refuse(f"pipelines need {', '.join(missing)}: pip install 'ottla[spark]'")
    from ottla.client.errors import ClientError
    from ottla.spark.java import JavaNotFound
    from ottla.spark.pipelines.config import PipelineConfigError

    try:
        start = _starter(name, config)
        code = _run(start)
    except PipelineConfigError as problem:
        _refuse(str(problem))
    except (ClientError, JavaNotFound) as problem:
        print(f"ottla pipeline: {problem}", file=sys.stderr)
        code = EXIT_FAILED
    sys.exit(code)


def _starter(name: PipelineName, path: Path) -> Starter:
    """What starts the pipeline, its settings read. Raises PipelineConfigError."""
    from ottla.spark.pipelines import archive, mirror, online
    from ottla.spark.pipelines.config import load_config

    if name is PipelineName.online:
        totals = load_config(online.OnlineConfig, path)
        return lambda spark: online.start(spark, totals)
    if name is PipelineName.archive:
        folders = load_config(archive.ArchiveConfig, path)
        return lambda spark: archive.start(spark, folders)
    target = load_config(mirror.MirrorConfig, path)
    return lambda spark: mirror.start(spark, target)


def _run(start: Starter) -> int:
    import ottla.spark
    from ottla.cli.java_home import java_home
    from ottla.spark.local import stop
    from ottla.spark.noise import silence_spark

    silence_spark()
    with tempfile.TemporaryDirectory(prefix="ottla-pipeline-", ignore_cleanup_errors=True) as scratch:
        folder = Path(scratch)
        spark = ottla.spark.session(
            "ottla pipeline", java_home=java_home(), folder=folder, log_file=folder / "spark.log"
        )
        try:
            return _follow(start(spark))
        finally:
            stop(spark)


def _follow(query: StreamingQuery) -> int:
    """Tell of each batch until the query ends or is interrupted."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    print(f"pipeline {query.name} runs; Ctrl-C stops it, and it goes on where it was when started again", flush=True)
    told = -1
    try:
        ended = False
        while not ended:
            ended = bool(query.awaitTermination(PROGRESS_INTERVAL_S))
            for batch in query.recentProgress:
                if batch["batchId"] > told and batch["numInputRows"]:
                    told = batch["batchId"]
                    took = batch["durationMs"].get("triggerExecution", 0) / 1_000
                    print(f"batch {told}: {batch['numInputRows']:,} records in {took:.1f} s", flush=True)
    except KeyboardInterrupt:
        print("stopping", flush=True)
        query.stop()
        return EXIT_INTERRUPTED
    except Exception:
        # The query's own failure is told below, in its own words.
        if query.exception() is None:
            raise
    problem = query.exception()
    if problem is None:
        return 0
    print(f"ottla pipeline: the query ended: {str(problem)[:_LONGEST_REASON]}", file=sys.stderr)
    return EXIT_FAILED


def _refuse(message: str) -> NoReturn:
    print(f"ottla pipeline: {message}", file=sys.stderr)
    sys.exit(EXIT_USAGE)
