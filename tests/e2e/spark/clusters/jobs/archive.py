"""A stream of many small batches from a topic to another topic, and one to Parquet; each batch is reported."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQueryListener
from pyspark.sql.streaming.listener import QueryProgressEvent, QueryStartedEvent, QueryTerminatedEvent

ROWS_PER_BATCH = "60"

servers, topic, copies, rows = sys.argv[1:]


class Reporter(StreamingQueryListener):
    """Prints the end of each batch of the archive."""

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Nothing is reported of a start."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """A batch has ended."""
        if event.progress.name == "archive":
            print(f"batch {event.progress.batchId} has ended", flush=True)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Nothing is reported of an end."""


spark = SparkSession.builder.appName("archive").getOrCreate()
spark.streams.addListener(Reporter())
cluster = {"kafka.bootstrap.servers": servers}
source = spark.readStream.format("ottla").options(**cluster).option("subscribe", topic)
records = source.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", ROWS_PER_BATCH).load()
queries = [
    records.select("partition", "offset", "value")
    .writeStream.format("parquet")
    .option("path", rows)
    .option("checkpointLocation", f"{rows}-checkpoint")
    .queryName("archive")
    .trigger(availableNow=True)
    .start(),
    records.select("key", "value")
    .writeStream.format("ottla")
    .options(**cluster)
    .option("topic", copies)
    .option("checkpointLocation", f"{rows}-copies-checkpoint")
    .trigger(availableNow=True)
    .start(),
]
for query in queries:
    query.awaitTermination()
spark.stop()
