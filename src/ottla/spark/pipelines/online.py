"""Online aggregation: events, and the sum of a measure, per key and time bucket, updated as the stream runs.

Time is the event's own. A bucket is closed once the stream's latest event is `watermark` past its end; an event that
comes later still is dropped, and Spark counts it. Partitions are read side by side, so the watermark must exceed the
disorder between partitions as well as within them.

The result is one Parquet file, replaced after each batch. A batch carries the totals of what it touched, so a batch
that is run twice after a crash changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.spark.pipelines.config import PipelineConfig, read_stream, write_stream

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

COLUMNS = ("bucket", "key", "events", "measured", "total")


@dataclass(frozen=True, slots=True, kw_only=True)
class OnlineConfig(PipelineConfig):
    """`output` is the Parquet file. `by`, `measure` and `time` name fields of JSON events.

    Without `by` the record's key groups; without `time` the record's timestamp is the event time; without `measure`
    events are only counted. `bucket` and `watermark` are Spark intervals ("1 hour", "2 days").
    """

    output: str
    by: str | None = None
    measure: str | None = None
    time: str | None = None
    bucket: str = "1 hour"
    watermark: str = "1 day"


@dataclass(slots=True)
class Totals:
    """The totals so far, in memory and in `path`. A row is (bucket start, key): (events, measured, total)."""

    path: Path
    rows: dict[tuple[int, str | None], tuple[int, int, float | None]] = field(default_factory=dict)

    @classmethod
    def load(cls, path: Path) -> Totals:
        """The totals that an earlier run left in `path`, or none."""
        totals = cls(path)
        if path.exists():
            import pyarrow.parquet

            totals.merge(pyarrow.parquet.read_table(path))
        return totals

    def merge(self, table: pyarrow.Table) -> None:
        """Replace the totals of the keys and buckets that `table` (see COLUMNS) holds."""
        import pyarrow

        micros = table.column("bucket").cast(pyarrow.timestamp("us", tz="UTC")).cast(pyarrow.int64()).to_pylist()
        keys, events, measured, total = (table.column(name).to_pylist() for name in COLUMNS[1:])
        self.rows.update(zip(zip(micros, keys, strict=True), zip(events, measured, total, strict=True), strict=True))

    def table(self) -> pyarrow.Table:
        """All totals, by bucket and key."""
        import pyarrow

        ordered = sorted(self.rows.items(), key=lambda row: (row[0][0], row[0][1] or ""))
        micros = pyarrow.array([row[0][0] for row in ordered], pyarrow.int64())
        return pyarrow.table(
            {
                "bucket": micros.cast(pyarrow.timestamp("us", tz="UTC")),
                "key": pyarrow.array([row[0][1] for row in ordered], pyarrow.string()),
                "events": pyarrow.array([row[1][0] for row in ordered], pyarrow.int64()),
                "measured": pyarrow.array([row[1][1] for row in ordered], pyarrow.int64()),
                "total": pyarrow.array([row[1][2] for row in ordered], pyarrow.float64()),
            }
        )

    def save(self) -> None:
        """Replace the file, in one step, by the totals as they are."""
        import pyarrow.parquet

        fresh = self.path.with_name(f".{self.path.name}.new")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        pyarrow.parquet.write_table(self.table(), fresh)
        fresh.replace(self.path)


def start(
    spark: SparkSession, config: OnlineConfig, on_update: Callable[[Totals, int], None] | None = None
) -> StreamingQuery:
    """Start the query. `on_update(totals, batch_id)` is called after each batch that changed something."""
    totals = Totals.load(Path(config.output))

    def update(changed: DataFrame, batch_id: int) -> None:
        table = changed.toArrow()
        if table.num_rows:
            totals.merge(table)
            totals.save()
            if on_update is not None:
                on_update(totals, batch_id)

    grouped = aggregate(read_stream(spark, config), config)
    return write_stream(grouped, config, "online").outputMode("update").foreachBatch(update).start()


def aggregate(records: DataFrame, config: OnlineConfig) -> DataFrame:
    """The aggregation itself, on records of the source, streamed or not; its columns are COLUMNS."""
    from pyspark.sql import functions

    measure = functions.lit(None).cast("double") if config.measure is None else _field(config.measure).cast("double")
    return (
        records.select(
            functions.col("key").cast("string").alias("key") if config.by is None else _field(config.by).alias("key"),
            functions.col("timestamp").alias("time")
            if config.time is None
            else functions.to_timestamp(_field(config.time)).alias("time"),
            measure.alias("measure"),
        )
        .withWatermark("time", config.watermark)
        .groupBy(functions.window("time", config.bucket), "key")
        .agg(
            functions.count("*").alias("events"),
            functions.count("measure").alias("measured"),
            functions.sum("measure").alias("total"),
        )
        .select(functions.col("window.start").alias("bucket"), "key", "events", "measured", "total")
    )


def _field(name: str) -> Column:
    from pyspark.sql import functions

    return functions.get_json_object(functions.col("value").cast("string"), f"$['{name}']")
