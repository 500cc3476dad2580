"""A Spark session that runs the archive of `bench/pipelines.py`: not run by hand.

    python bench/pipeline_session.py CONTESTANT FOLDER BOOTSTRAP [JARS]

The protocol is that of `spark_session.py`. ottla runs a pipeline in the session that `ottla pipeline run` makes for its
settings; Spark's connector in one with Spark's own settings; both with the same heap and cores.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from spark_queries import EVENT_FIELDS, EVENT_SCHEMA, KAFKA_FORMAT
from spark_session import make_session

#: Folders of the archive, by columns of the rows.
FOLDERS = ("record_day", "country")
COMPRESSION = "zstd"
_NAMES = ", ".join(EVENT_FIELDS)


def archive_of_connector(spark: SparkSession, folder: Path, bootstrap: str, **job: Any) -> None:
    """What one writes with Spark's own connector: typed columns by `from_json`, and Spark's file sink."""
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": job["topic"], "startingOffsets": "earliest"}
    options["maxOffsetsPerTrigger"] = str(job["batch"])
    records = spark.readStream.format(KAFKA_FORMAT).options(**options).load()
    event = f.from_json(f.col("value").cast("string"), EVENT_SCHEMA)
    typed = records.select(event.alias("event"), "partition", "offset", "timestamp")
    rows = typed.select("event.*", "partition", "offset", f.to_date("timestamp").alias(FOLDERS[0]))
    writer = rows.writeStream.format("parquet").partitionBy(*FOLDERS).option("path", job["target"])
    writer = writer.option("compression", COMPRESSION).option("checkpointLocation", job["checkpoint"])
    _finish(writer.trigger(availableNow=True).start())


def archive_of_ottla(spark: SparkSession, folder: Path, bootstrap: str, **job: Any) -> None:
    """A pipeline of the kind archive, into a table of the same folders; `sql` stands in place of the usual SELECT."""
    from ottla.spark.pipelines.queries.start import start_pipeline

    _finish(start_pipeline(spark, _settings(bootstrap, job)))


def _settings(bootstrap: str, job: dict[str, Any]) -> Any:
    from ottla.spark.pipelines.settings import model

    usual = f"SELECT {_NAMES}, partition, offset, CAST(timestamp AS DATE) AS record_day FROM events"
    source = model.SourceSettings(
        name="events",
        bootstrap_servers=bootstrap,
        group_id=Path(job["checkpoint"]).name,
        topics=(job["topic"],),
        max_offsets_per_trigger=job["batch"],
        value_format="json",
        schema=EVENT_SCHEMA,
    )
    sink = model.TableSinkSettings(
        format="parquet", path=job["target"], partition_by=FOLDERS, compression=COMPRESSION, compact_to_bytes=None
    )
    return model.PipelineSettings(
        name="bench",
        kind=model.PipelineKind.archive,
        checkpoint=job["checkpoint"],
        trigger=model.TriggerSettings(available_now=True),
        sources=(source,),
        steps=(model.StepSettings(name="rows", sql=job.get("sql", usual)),),
        sink=sink,
    )


def _finish(query: Any) -> None:
    query.awaitTermination()
    if query.exception() is not None:
        raise query.exception()


def _open(contestant: str, folder: Path, jars: str | None, bootstrap: str, job: dict[str, Any]) -> SparkSession:
    if contestant == KAFKA_FORMAT:
        return make_session(folder, jars)
    from ottla.spark.pipelines.running.sessions import open_session

    settings = _settings(bootstrap, job)
    return open_session(settings, java_home=None, folder=folder, log_file=folder / "spark.log", attached=False)


def main() -> None:
    """Serve queries until the input ends; the session is made for the first."""
    contestant, place, bootstrap, *jars = sys.argv[1:]
    replies, folder = sys.stdout, Path(place)
    sys.stdout = sys.stderr
    archive = archive_of_connector if contestant == KAFKA_FORMAT else archive_of_ottla
    replies.write(json.dumps({"ready": pyspark.__version__}) + "\n")
    replies.flush()
    spark: SparkSession | None = None
    for line in sys.stdin:
        arguments = json.loads(line)
        arguments.pop("query")
        if spark is None:
            spark = _open(contestant, folder, jars[0] if jars else None, bootstrap, arguments)
            spark.sparkContext.setLogLevel("ERROR")
        began_s = time.perf_counter()
        archive(spark, folder, bootstrap, **arguments)
        replies.write(json.dumps({"seconds": time.perf_counter() - began_s, "found": None}) + "\n")
        replies.flush()
    if spark is not None:
        spark.stop()


if __name__ == "__main__":
    main()
