"""`ottla pipeline`: one of the three pipelines alone, on a local Spark, by a small TOML file."""

from __future__ import annotations

import signal
import tempfile
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.command import EXIT_INTERRUPTED, Command

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    Starter = Callable[[SparkSession], StreamingQuery]

COMMAND = Command("ottla pipeline")
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
    servers: Annotated[
        str | None,
        typer.Option(
            "--bootstrap-server",
            "-b",
            help="Brokers, host:port, if the file names none.",
            envvar="OTTLA_BOOTSTRAP_SERVER",
        ),
    ] = None,
) -> None:
    """Run one pipeline on a local Spark until Ctrl-C. With `once = true` in its file it ends when it is done."""

    def work() -> int:
        return _run(_starter(name, config, {} if servers is None else {"bootstrap_servers": servers}))

    COMMAND.require("the pipeline", ("pyspark", "pyarrow"), "spark")
    COMMAND.run(work, _expected())


def _expected() -> tuple[type[Exception], ...]:
    from ottla.client.errors import ClientError
    from ottla.spark.java import JavaNotFound
    from ottla.spark.pipelines.config import PipelineConfigError

    return (ClientError, JavaNotFound, PipelineConfigError)


def _starter(name: PipelineName, path: Path, defaults: dict[str, str]) -> Starter:
    """What starts the pipeline, its settings read. Raises PipelineConfigError."""
    from ottla.spark.pipelines import archive, mirror, online
    from ottla.spark.pipelines.config import load_config

    if name is PipelineName.online:
        totals = load_config(online.OnlineConfig, path, defaults)
        return lambda spark: online.start(spark, totals)
    if name is PipelineName.archive:
        archive_config = load_config(archive.ArchiveConfig, path, defaults)
        return lambda spark: archive.start(spark, archive_config)
    target = load_config(mirror.MirrorConfig, path, defaults)
    return lambda spark: mirror.start(spark, target)


def _run(start: Starter) -> int:
    import ottla.spark
    from ottla.cli.java_home import java_home
    from ottla.spark.local import stop
    from ottla.spark.noise import silence_spark

    silence_spark()
    with tempfile.TemporaryDirectory(prefix="ottla-pipeline-", ignore_cleanup_errors=True) as scratch:
        directory = Path(scratch)
        spark = ottla.spark.session(
            "ottla pipeline", java_home=java_home(), folder=directory, log_file=directory / "spark.log"
        )
        try:
            return _follow(start(spark))
        finally:
            stop(spark)


def _follow(query: StreamingQuery) -> int:
    """Print a line for each batch until the query ends or is interrupted."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    print(f"pipeline {query.name} runs; Ctrl-C stops it, and it goes on where it was when started again", flush=True)
    printed = -1
    try:
        ended = False
        while not ended:
            ended = bool(query.awaitTermination(PROGRESS_INTERVAL_S))
            for batch in query.recentProgress:
                if batch["batchId"] > printed and batch["numInputRows"]:
                    printed = batch["batchId"]
                    took = batch["durationMs"].get("triggerExecution", 0) / 1_000
                    print(f"batch {printed}: {batch['numInputRows']:,} records in {took:.1f} s", flush=True)
    except KeyboardInterrupt:
        print("stopping", flush=True)
        query.stop()
        return EXIT_INTERRUPTED
    except Exception:
        # The query's own failure is reported below.
        if query.exception() is None:
            raise
    problem = query.exception()
    if problem is None:
        return 0
    return COMMAND.report(f"the query ended: {str(problem)[:_LONGEST_REASON]}")
