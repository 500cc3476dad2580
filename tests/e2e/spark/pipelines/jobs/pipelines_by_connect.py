"""Run pipelines by a server of Spark Connect: into SQLite, into a table, and one that is refused."""

import sqlite3
import sys
from dataclasses import replace
from pathlib import Path

from pyspark.sql import SparkSession

from ottla.spark.pipelines.errors import PipelineError
from ottla.spark.pipelines.queries.ending import run_pipeline
from ottla.spark.pipelines.settings.model import (
    DatabaseSinkSettings,
    NewFields,
    PipelineKind,
    PipelineSettings,
    SourceSettings,
    StepSettings,
    TableSinkSettings,
    TopicSinkSettings,
    TriggerSettings,
)

remote, servers, topic, folder = sys.argv[1:]
spark = SparkSession.builder.remote(remote).getOrCreate()
events = SourceSettings(
    name="events",
    bootstrap_servers=servers,
    group_id=f"{topic}-connect",
    topics=(topic,),
    max_offsets_per_trigger=20,
    value_format="json",
    schema="id BIGINT, user STRING",
)
online = PipelineSettings(
    name="online",
    kind=PipelineKind.online,
    checkpoint=f"{folder}/online-checkpoint",
    trigger=TriggerSettings(available_now=True),
    sources=(events,),
    steps=(StepSettings(name="totals", sql="SELECT user, count(*) AS n FROM events GROUP BY user"),),
    output_mode="update",
    dead_letters=TopicSinkSettings(bootstrap_servers=servers, topic=f"{topic}-bad"),
    sink=DatabaseSinkSettings(url=f"sqlite:{folder}/results.db", table="totals", key_columns=("user",)),
)
run_pipeline(spark, online)
rows = sqlite3.connect(Path(folder) / "results.db").execute("SELECT user, n FROM totals ORDER BY user")
print(", ".join(f"{user} {count}" for user, count in rows))

archive = replace(
    online,
    name="archive",
    kind=PipelineKind.archive,
    checkpoint=f"{folder}/archive-checkpoint",
    steps=(StepSettings(name="rows", sql="SELECT * FROM events"),),
    output_mode="append",
    dead_letters=None,
    sink=TableSinkSettings(format="parquet", path=f"{folder}/table", partition_by=("user",)),
)
run_pipeline(spark, archive)
strict = replace(
    online,
    name="strict",
    checkpoint=f"{folder}/strict-checkpoint",
    sources=(replace(events, schema="id BIGINT"),),
    steps=(StepSettings(name="totals", sql="SELECT id AS user, count(*) AS n FROM events GROUP BY id"),),
    dead_letters=None,
    new_fields=NewFields.fail,
)
try:
    run_pipeline(spark, strict)
except PipelineError as refusal:
    print(f"refused: {refusal}")
spark.stop()
