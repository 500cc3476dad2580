"""The sink that settings describe; and the simplest one, the console."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from pyspark.sql import DataFrame

from ottla.spark.pipelines.errors import PipelineSettingsError
from ottla.spark.pipelines.settings.model import (
    ConsoleSinkSettings,
    DatabaseSinkSettings,
    PipelineSettings,
    TableSinkSettings,
    TopicSinkSettings,
)
from ottla.spark.pipelines.sinks.databases import SQLITE, JdbcSink, SqliteSink
from ottla.spark.pipelines.sinks.sink import BatchInWork, BatchSink
from ottla.spark.pipelines.sinks.tables import TableSink
from ottla.spark.pipelines.sinks.topics import TopicSink

APPEND = "append"


@dataclass(frozen=True, slots=True)
class ConsoleSink(BatchSink):
    """Prints the first `rows` of each batch; with Spark Connect the server prints them."""

    rows: int

    def prepare(self) -> None:
        """Nothing."""

    def check(self, rows: DataFrame) -> None:
        """Any columns can be printed."""

    def take(self, frame: DataFrame, batch: BatchInWork) -> None:
        """Print the first rows. All of them are made first: a query's state needs every task to run, once."""
        kept = frame.persist()
        try:
            count = kept.count()
            if count:
                sys.stdout.write(f"{batch.pipeline}: batch {batch.batch_id}, {count} rows\n")
                kept.show(self.rows, truncate=False)
        finally:
            kept.unpersist()


def open_sink(settings: PipelineSettings) -> BatchSink:
    """The sink of a pipeline. Raises PipelineSettingsError if its output mode does not fit."""
    sink = settings.sink
    if isinstance(sink, TableSinkSettings):
        if settings.output_mode != APPEND:
            raise PipelineSettingsError(
                f"output_mode = {settings.output_mode} writes rows again that changed, and a table takes new ones "
                "only; use append, or a topic or database with key_columns"
            )
        return TableSink(sink, settings.name)
    if isinstance(sink, TopicSinkSettings):
        return TopicSink(sink)
    if isinstance(sink, DatabaseSinkSettings):
        return SqliteSink(sink) if sink.url.startswith(SQLITE) else JdbcSink(sink)
    if isinstance(sink, ConsoleSinkSettings):
        return ConsoleSink(sink.rows)
    raise PipelineSettingsError(f"pipeline {settings.name} has no sink; say where its rows go in [sink]")


def open_dead_letters(settings: PipelineSettings) -> BatchSink | None:
    """Open the sink of dead letters; None where they are only counted."""
    if isinstance(settings.dead_letters, TableSinkSettings):
        # A table keeps one pipeline's batches under one name; that of the rows is taken.
        return TableSink(settings.dead_letters, f"{settings.name}/dead-letters", keep_offsets=False)
    if isinstance(settings.dead_letters, TopicSinkSettings):
        return TopicSink(settings.dead_letters, dead_letters=True)
    return None
