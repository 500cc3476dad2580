"""`ottla pipeline`: data pipelines on Spark, each by one TOML file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.cli.command import Command, CommandError

if TYPE_CHECKING:
    from ottla.spark.pipelines.settings.model import PipelineSettings

COMMAND = Command("ottla pipeline")


def load(file: Path, servers: str | None, of_cluster: Mapping[str, str]) -> PipelineSettings:
    """A pipeline's file, checked, with brokers and client settings for where it names none. Raises CommandError."""
    import os

    from ottla.spark.pipelines.errors import PipelineError
    from ottla.spark.pipelines.settings.file import load_pipeline
    from ottla.spark.pipelines.settings.sections import BOOTSTRAP_VARIABLE

    environment = dict(os.environ)
    if servers is not None:
        environment[BOOTSTRAP_VARIABLE] = servers
    try:
        return load_pipeline(file, environment, of_cluster)
    except PipelineError as problem:
        raise CommandError(str(problem)) from None


@contextmanager
def refusals(settings: PipelineSettings) -> Iterator[None]:
    """Turn errors that a user can cure into CommandError whose message shows no secret."""
    from ottla.client.errors import ClientError
    from ottla.records.extras import MissingExtraError
    from ottla.spark.errors import SparkRefusal
    from ottla.spark.java import JavaNotFound
    from ottla.spark.pipelines.errors import PipelineError
    from ottla.spark.pipelines.settings.references import redacted

    try:
        yield
    except (ClientError, JavaNotFound, MissingExtraError, PipelineError, SparkRefusal) as problem:
        raise CommandError(redacted(str(problem), settings.secrets)) from None


def java_end(problem: Exception) -> str | None:
    """That Spark's Java, which this process has started, has ended: a sentence with the cure; None while it runs.

    `problem` is the error by which something was noticed.
    """
    from ottla.spark.local import how_java_ended

    ended = how_java_ended(problem)
    if ended is None:
        return None
    return (
        f"Spark's Java process ended {ended}. It was killed, or memory ran out (--spark-log keeps what it said, "
        f"memory under [spark] limits it). Run the pipeline again: it continues where it was"
    )


@contextmanager
def spark_refusals(settings: PipelineSettings) -> Iterator[None]:
    """Turn what Spark refuses before a query runs into CommandError of one line; Spark gives the text while it lives.

    The end of Spark's Java becomes one, too, whatever error shows it.
    """
    from ottla.spark.pipelines.queries.ending import why_it_ended
    from ottla.spark.pipelines.running.reasons import is_of_spark, short_reason
    from ottla.spark.pipelines.settings.references import redacted

    try:
        yield
    except Exception as problem:
        ended = java_end(problem)
        if ended is not None:
            raise CommandError(f"{settings.name} ended: {ended}") from None
        if not is_of_spark(problem):
            raise
        text = why_it_ended(problem) or short_reason(str(problem))
        raise CommandError(redacted(f"{settings.name} cannot start: {text}", settings.secrets)) from None
