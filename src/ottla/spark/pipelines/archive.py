"""Archive: every event once, as Parquet in folders by day and by fields of the event.

Spark's file sink writes the files of a batch and then, in one step, names them in its log (`_spark_metadata`): a batch
that died is run again, and the files it left behind are not in the log. Readers that do not know the log would see
those files, so they are removed when the archive is started again, and by `remove_leftovers`.

Each row keeps the partition and offset it came from, so anybody can check that all are there, once.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlparse

from ottla.spark.pipelines.config import PipelineConfig, PipelineConfigError, read_stream, write_stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

RECORD_COLUMNS = ("record_key", "record_timestamp", "record_partition", "record_offset")
_UNREADABLE = "_unreadable"
_LOG = "_spark_metadata"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveConfig(PipelineConfig):
    """`output` is the folder. `fields` is the events' schema in Spark's DDL ("carrier STRING, dep_delay INT").

    Folders are `<date_column>=2013-01-01`, the day of the event's time in `timezone`, then `<field>=<value>` for each
    of `partition_by`. An event that is no JSON of this schema is kept as text in the column `_unreadable`.
    """

    output: str
    fields: str
    partition_by: tuple[str, ...] = ()
    date_column: str = "date"
    timezone: str = "UTC"


def start(spark: SparkSession, config: ArchiveConfig) -> StreamingQuery:
    """Start the query, after removing what a run that died left behind. Raises PipelineConfigError."""
    output = Path(config.output)
    if committed_files(output) is None and any(output.rglob("*.parquet")):
        raise PipelineConfigError(f"{output} holds Parquet files that are not an archive's; choose another folder")
    remove_leftovers(output)
    rows = arrange(read_stream(spark, config), config)
    folders = (config.date_column, *config.partition_by)
    # One task per folder and batch, so that a batch writes few files.
    writer = write_stream(rows.repartition(*folders), config, "archive")
    return writer.format("parquet").partitionBy(*folders).option("path", config.output).outputMode("append").start()


def arrange(records: DataFrame, config: ArchiveConfig) -> DataFrame:
    """Rows of the archive out of records of the source, streamed or not. Raises PipelineConfigError."""
    from pyspark.sql import functions
    from pyspark.sql.types import StringType, StructField, StructType

    schema = StructType.fromDDL(config.fields)
    assert isinstance(schema, StructType)
    names = [each.name for each in schema]
    taken = [name for name in names if name.lower() in {config.date_column.lower(), _UNREADABLE, *RECORD_COLUMNS}]
    if taken:
        raise PipelineConfigError(f"fields {', '.join(taken)}: these names are the archive's own")
    unknown = [name for name in config.partition_by if name not in names]
    if unknown:
        raise PipelineConfigError(f"partition_by names {', '.join(unknown)}; fields are {', '.join(names)}")
    whole = StructType([*schema, StructField(_UNREADABLE, StringType())])
    event = functions.from_json(
        functions.col("value").cast("string"), whole, {"columnNameOfCorruptRecord": _UNREADABLE}
    )
    local_time = functions.from_utc_timestamp(functions.col("timestamp"), config.timezone)
    return records.select(
        event.alias("event"),
        functions.col("key").cast("string").alias("record_key"),
        functions.col("timestamp").alias("record_timestamp"),
        functions.col("partition").alias("record_partition"),
        functions.col("offset").alias("record_offset"),
        functions.to_date(local_time).alias(config.date_column),
    ).select("event.*", *RECORD_COLUMNS, config.date_column)


def committed_files(output: Path) -> set[Path] | None:
    """The files that the archive's log names; None where there is no log yet."""
    log = output / _LOG
    if not log.is_dir():
        return None
    named: set[Path] = set()
    for batch in log.iterdir():
        if batch.name.startswith(".") or not batch.name.removesuffix(".compact").isdigit():
            continue
        for line in batch.read_text(encoding="utf-8").splitlines()[1:]:
            entry = json.loads(line)
            if entry.get("action", "add") == "add":
                named.add(Path(unquote(urlparse(entry["path"]).path)))
    return named


def remove_leftovers(output: Path) -> int:
    """Remove files that no finished batch wrote; gives their number. Only while no archive runs on the folder."""
    kept = committed_files(output)
    if kept is None:
        return 0
    resolved = {path.resolve() for path in kept}
    leftovers = [path for path in output.rglob("*.parquet") if path.resolve() not in resolved]
    for path in leftovers:
        path.unlink()
    return len(leftovers)
