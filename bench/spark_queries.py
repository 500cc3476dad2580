"""The queries of `bench/spark.py`, the same for both connectors; they run in `spark_session.py`."""

from __future__ import annotations

import itertools
import shutil
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from ottla.client.sync import Producer

OTTLA_FORMAT = "ottla"
KAFKA_FORMAT = "kafka"

#: Records of a micro-batch, where a stream reads a large topic.
ROWS_PER_TRIGGER = 1_000_000
VALUE_BYTES = 100
WRITE_KEYS = 10_000
TEN_DIGITS = 1_000_000_000
TRIGGER_TIMEOUT_S = 60.0
POLL_S = 0.02
SMALL_BATCH = 100
LINGER_MS = 5_000
BATCH_BYTES = 64 * 1024
#: Between two small micro-batches.
IDLE_S = 0.1

#: The fields of an event that a query wants; events have more of them.
EVENT_FIELDS = {
    "id": "BIGINT",
    "user": "STRING",
    "country": "STRING",
    "score": "DOUBLE",
    "amount": "DECIMAL(18,2)",
    "active": "BOOLEAN",
    "at": "TIMESTAMP",
    "day": "DATE",
    "visits": "INT",
    "device": "STRUCT<os: STRING, version: INT, model: STRING>",
    "tags": "ARRAY<STRING>",
    "path": "STRING",
    "latency": "DOUBLE",
    "status": "INT",
}
EVENT_SCHEMA = ", ".join(f"{name} {kind}" for name, kind in EVENT_FIELDS.items())

_numbers = itertools.count(1)


@dataclass(frozen=True)
class Connector:
    """A session, the name of the format, and the broker."""

    spark: SparkSession
    name: str
    bootstrap: str
    folder: Path

    def options(self, topic: str, **more: str) -> dict[str, str]:
        """Options of a read."""
        return {"kafka.bootstrap.servers": self.bootstrap, "subscribe": topic, **more}

    def batch(self, topic: str, **more: str) -> DataFrame:
        """All of a topic, as a batch."""
        options = self.options(topic, startingOffsets="earliest", **more)
        return self.spark.read.format(self.name).options(**options).load()

    def stream(self, topic: str, **more: str) -> DataFrame:
        """All of a topic, as a stream."""
        options = self.options(topic, **{"startingOffsets": "earliest"} | more)
        return self.spark.readStream.format(self.name).options(**options).load()

    def checkpoint(self) -> str:
        """A folder that no query has used."""
        return str(self.folder / f"checkpoint-{next(_numbers)}")


def scan_of_constants(connector: Connector, rows: int) -> Any:
    """What `scan` does, of a source in Python that does nothing else than to yield constants."""
    return _aggregated(connector.spark.read.format(connector.name).option("rows", rows).load())


def scan(connector: Connector, topic: str) -> Any:
    """A batch read to an aggregate that touches key, value, partition, offset and timestamp."""
    return _aggregated(connector.batch(topic))


def _aggregated(rows: DataFrame) -> list[str]:
    found = rows.agg(
        f.count(f.lit(1)),
        f.sum(f.length("key")),
        f.sum(f.length("value")),
        f.sum("partition"),
        f.sum("offset"),
        f.min("timestamp"),
        f.max("timestamp"),
    ).collect()[0]
    return [str(each) for each in found]


def scan_of_columns(connector: Connector, topic: str) -> Any:
    """A batch read to an aggregate of three columns, which ottla is told by its option `columns`."""
    chosen = {"columns": "partition,offset,timestamp"} if connector.name == OTTLA_FORMAT else {}
    rows = connector.batch(topic, **chosen)
    found = rows.agg(f.count(f.lit(1)), f.sum("partition"), f.sum("offset"), f.max("timestamp")).collect()[0]
    return [str(each) for each in found]


def parquet(connector: Connector, topic: str, target: str) -> Any:
    """A batch read to Parquet, all columns."""
    connector.batch(topic).write.mode("overwrite").parquet(target)


def stream_to_parquet(connector: Connector, topic: str, target: str) -> Any:
    """A stream with the trigger `availableNow` to Parquet, a million records in a micro-batch."""
    shutil.rmtree(target, ignore_errors=True)
    rows = connector.stream(topic, maxOffsetsPerTrigger=str(ROWS_PER_TRIGGER))
    writer = rows.writeStream.format("parquet").option("path", target)
    _finish(writer.option("checkpointLocation", connector.checkpoint()).trigger(availableNow=True).start())


def windows(connector: Connector, topic: str) -> Any:
    """A stream with the trigger `availableNow`, aggregated in windows of 10 s by partition."""
    name = f"windows_{next(_numbers)}"
    rows = connector.stream(topic, maxOffsetsPerTrigger=str(ROWS_PER_TRIGGER))
    counted = (
        rows.withWatermark("timestamp", "1 hour")
        .groupBy(f.window("timestamp", "10 seconds"), "partition")
        .agg(f.count(f.lit(1)).alias("rows"), f.sum(f.length("value")).alias("bytes"))
    )
    writer = counted.writeStream.format("memory").queryName(name).outputMode("complete")
    _finish(writer.option("checkpointLocation", connector.checkpoint()).trigger(availableNow=True).start())
    result = connector.spark.table(name).orderBy("window.start", "partition").collect()
    return [[str(row.window.start), row.partition, row.rows, row.bytes] for row in result]


def json_to_parquet(connector: Connector, topic: str, target: str) -> Any:
    """JSON events, as typed columns, to Parquet: with Spark's connector by `from_json`, with ottla in its tasks."""
    if connector.name == OTTLA_FORMAT:
        decoding = {"valueFormat": "json", "valueSchema": EVENT_SCHEMA}
        typed = connector.batch(topic, columns=",".join((*EVENT_FIELDS, "partition", "offset")), **decoding)
    else:
        event = f.from_json(f.col("value").cast("string"), EVENT_SCHEMA)
        rows = connector.batch(topic).select(event.alias("event"), "partition", "offset")
        typed = rows.select("event.*", "partition", "offset")
    typed.write.mode("overwrite").parquet(target)


def write(connector: Connector, topic: str, rows: int) -> Any:
    """Rows with a key and a value of 100 bytes, made by Spark, to a topic."""
    numbers = connector.spark.range(rows, numPartitions=4)
    key = (f.col("id") % WRITE_KEYS).cast("string").cast("binary")
    number = (f.col("id") + TEN_DIGITS).cast("string")
    value = f.concat(f.lit("x" * (VALUE_BYTES - len(str(TEN_DIGITS)))), number).cast("binary")
    frame = numbers.select(key.alias("key"), value.alias("value"))
    options = {"kafka.bootstrap.servers": connector.bootstrap, "topic": topic}
    frame.write.format(connector.name).options(**options).mode("append").save()


def _finish(query: StreamingQuery) -> None:
    query.awaitTermination()
    error = query.exception()
    if error is not None:
        raise error


def micro_batches(connector: Connector, topic: str, batches: int, warm_up: int) -> Any:
    """A stream that follows a topic: the times of triggers with nothing new, and of micro-batches of 100 records."""
    rows = connector.stream(topic, startingOffsets="latest").select("key", "value", "offset", "timestamp")
    writer = rows.writeStream.format("noop").option("checkpointLocation", connector.checkpoint())
    values = [(None, b"x" * VALUE_BYTES)] * SMALL_BATCH
    # Lingering, so that a flush sends the records as one batch, which a trigger sees as a whole.
    with Producer(bootstrap_servers=connector.bootstrap, linger_ms=LINGER_MS, batch_size=BATCH_BYTES) as producer:
        query = writer.start()
        try:
            _wait_until_idle(query, 0)
            for number in range(1, batches + warm_up + 1):
                producer.send_many(values, topic)
                producer.flush()
                _wait_until_idle(query, number)
                time.sleep(IDLE_S)
        finally:
            query.stop()
    progress = list(query.recentProgress)
    idle = [each["durationMs"]["triggerExecution"] for each in progress if not each["numInputRows"]]
    full = [each for each in progress if each["numInputRows"]][warm_up:]
    assert [each["numInputRows"] for each in full] == [SMALL_BATCH] * batches
    durations = {name for each in full for name in each["durationMs"]}
    found = {name: statistics.median(each["durationMs"].get(name, 0) for each in full) for name in sorted(durations)}
    return {"idle": statistics.median(idle[len(idle) // 4 :]), **found}


def _wait_until_idle(query: StreamingQuery, batches: int) -> None:
    """Until a trigger after this many micro-batches with records has found nothing new."""
    deadline = time.monotonic() + TRIGGER_TIMEOUT_S
    while not _is_idle(list(query.recentProgress), batches):
        error = query.exception()
        if error is not None:
            raise error
        if time.monotonic() > deadline:
            raise AssertionError("the query stands still")
        time.sleep(POLL_S)


def _is_idle(progress: list[Any], batches: int) -> bool:
    if not progress or progress[-1]["numInputRows"]:
        return False
    rows: int = sum(each["numInputRows"] for each in progress)
    return rows >= batches * SMALL_BATCH


def copy(connector: Connector, path: str, target: str) -> Any:
    """Read Parquet files by Spark's own reader, and write them again."""
    connector.spark.read.parquet(path).write.mode("overwrite").parquet(target)


def digest(connector: Connector, path: str) -> Any:
    """The names, types, number and a hash of the rows of Parquet files, whatever their order."""
    rows = connector.spark.read.parquet(path)
    return [rows.schema.simpleString(), *_hashed(rows)]


def digest_of_topic(connector: Connector, topic: str) -> Any:
    """The number and a hash of the keys and values of a topic, whatever their order."""
    return _hashed(connector.batch(topic).select("key", "value"))


def _hashed(rows: DataFrame) -> list[str]:
    hashed = rows.select(f.xxhash64(*rows.columns).alias("hash"))
    found = hashed.agg(f.count(f.lit(1)), f.sum(f.col("hash").cast("decimal(38,0)")), f.bit_xor("hash")).collect()[0]
    return [str(each) for each in found]


QUERIES: dict[str, Callable[..., Any]] = {
    query.__name__: query
    for query in (
        scan,
        scan_of_constants,
        scan_of_columns,
        parquet,
        stream_to_parquet,
        windows,
        json_to_parquet,
        write,
        micro_batches,
        copy,
        digest,
        digest_of_topic,
    )
}
