"""Settings of small pipelines, and what their queries made."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.records.record import Record
from ottla.spark.pipelines.queries.ending import why_it_ended
from ottla.spark.pipelines.queries.start import start_pipeline
from ottla.spark.pipelines.settings.model import (
    DatabaseSinkSettings,
    PipelineKind,
    PipelineSettings,
    SinkSettings,
    SourceSettings,
    StepSettings,
    TriggerSettings,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from support.brokers import Bootstrapped


def json_record(at_ms: int, key: str = "", **fields: Any) -> Record:
    """A record with a JSON value."""
    return Record(0, at_ms, key.encode() or None, json.dumps(fields).encode())


def source(broker: Bootstrapped, topic: str, schema: str | None, name: str = "events", **more: Any) -> SourceSettings:
    """A source of JSON records, or of bytes where there is no schema."""
    settings: dict[str, Any] = {
        "name": name,
        "bootstrap_servers": broker.bootstrap,
        "group_id": f"{topic}-group",
        "topics": (topic,),
        "value_format": "raw" if schema is None else "json",
        "schema": schema,
    }
    return SourceSettings(**settings | more)


def pipeline(
    folder: Path, sources: SourceSettings | tuple[SourceSettings, ...], sink: SinkSettings, sql: str = "", **more: Any
) -> PipelineSettings:
    """A pipeline that ends when it has read what is there."""
    settings: dict[str, Any] = {
        "name": "p",
        "kind": PipelineKind.stream,
        "checkpoint": str(folder / "checkpoint"),
        "trigger": TriggerSettings(available_now=True),
        "sources": sources if isinstance(sources, tuple) else (sources,),
        "steps": (StepSettings(name="result", sql=sql),) if sql else (),
        "sink": sink,
    }
    return PipelineSettings(**settings | more)


def database(folder: Path, *keys: str) -> DatabaseSinkSettings:
    """The table `results` of a SQLite file in the folder."""
    return DatabaseSinkSettings(url=f"sqlite:{folder / 'results.db'}", table="results", key_columns=keys)


def results(folder: Path, sql: str = "SELECT * FROM results") -> list[tuple[Any, ...]]:
    """The rows of that table, in order."""
    connection = sqlite3.connect(folder / "results.db")
    try:
        return sorted(connection.execute(sql).fetchall(), key=str)
    finally:
        connection.close()


def run(spark: SparkSession, settings: PipelineSettings, **how: Any) -> StreamingQuery:
    """Run to the end. Raises PipelineError with the sentence that ended the query."""
    query = start_pipeline(spark, settings, **how)
    try:
        query.awaitTermination()
    except Exception as problem:
        sentence = why_it_ended(problem)
        raise problem if sentence is None else sentence from None
    return query


def forget_last_batch(settings: PipelineSettings) -> int:
    """Take the last batch out of Spark's log of finished ones, as if the driver had died before it was written."""
    commits = Path(settings.checkpoint) / "commits"
    last = max(int(each.name) for each in commits.iterdir() if each.name.isdigit())
    for path in (commits / str(last), commits / f".{last}.crc"):
        path.unlink(missing_ok=True)
    return last
