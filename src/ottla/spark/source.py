"""The Spark source: `spark.read.format("ottla")` and `spark.readStream.format("ottla")`.

The driver plans ranges of offsets, tasks read exactly those ranges. `read` keeps no state and opens its own connection,
so a range read twice gives the same rows. Rows travel as Arrow batches.

Offsets in the group. Spark calls `commit(end)` of a Python stream only when it plans the batch after `end`, so never
for the last one. It does ask `latestOffset(start)` again after each batch, the last included, and `start` is then what
the query has finished. So that is what is committed to the group. The promise: a group's committed offset is never
ahead of what the query has finished, and it follows at the next planning, that is at once while the query runs (with a
trigger interval, at its next tick; with `availableNow`, before the query ends). A query that is stopped between the end
of a batch and the next planning leaves its group behind by that one batch until it runs again. Spark itself resumes
from its checkpoint and never from the group.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ottla.records.extras import require_extra

require_extra("ottla.spark", "spark", "pyspark", "pyarrow")

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ottla.client.model import TopicPartition
from ottla.spark.offsets import Offsets, PartitionRange, from_json, limit_offsets, plan_ranges, to_json
from ottla.spark.options import OptionError, ReadOptions, parse_read_options, parse_write_options
from ottla.spark.partitions import (
    check_not_made_anew,
    check_retained,
    connect,
    earliest_offsets,
    ending_offsets,
    latest_offsets,
    selected_partitions,
    starting_offsets,
)
from ottla.spark.sink import BatchWriter, StreamWriter, check_columns

if TYPE_CHECKING:
    import pyarrow

    from ottla.client.sync import Client

log = logging.getLogger(__name__)

_COLUMNS = (
    StructField("key", BinaryType()),
    StructField("value", BinaryType()),
    StructField("topic", StringType()),
    StructField("partition", IntegerType()),
    StructField("offset", LongType()),
    StructField("timestamp", TimestampType()),
    StructField("timestampType", IntegerType()),
)
_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])


def source_schema(*, include_headers: bool) -> StructType:
    """The columns of Spark's Kafka source; `headers` is the last one, where wanted."""
    fields = list(_COLUMNS)
    if include_headers:
        fields.append(StructField("headers", ArrayType(_HEADER)))
    return StructType(fields)


class OttlaDataSource(DataSource):
    """`format("ottla")`: reads from and writes to any Kafka-compatible cluster, with no jar."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "ottla"

    def schema(self) -> StructType:
        """The columns a read gives. Raises OptionError where `includeHeaders` is neither true nor false."""
        include = str(self.options.get("includeHeaders", "false")).strip().lower()
        return source_schema(include_headers=include == "true")

    def reader(self, schema: StructType) -> DataSourceReader:
        """For `spark.read`. Raises OptionError."""
        options = parse_read_options(self.options, streaming=False)
        _check_schema(schema, options)
        return BatchReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """For `spark.readStream`. Raises OptionError."""
        options = parse_read_options(self.options, streaming=True)
        _check_schema(schema, options)
        return StreamReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """For `df.write`. Raises OptionError."""
        if overwrite:
            raise OptionError("a topic cannot be overwritten; use mode('append')")
        options = parse_write_options(self.options)
        check_columns(schema, options)
        return BatchWriter(options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """For `df.writeStream`. Raises OptionError."""
        if overwrite:
            raise OptionError("a topic cannot be overwritten; use outputMode('append') or outputMode('update')")
        options = parse_write_options(self.options)
        check_columns(schema, options)
        return StreamWriter(options)


class BatchReader(DataSourceReader):
    """Reads everything from the starting to the ending offsets as they were when the query was planned."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """The ranges to read. Raises OptionError, DataLossError."""
        options = self._options
        with connect(options.connection) as client:
            chosen = selected_partitions(client, options.selection)
            start = starting_offsets(client, chosen, options)
            end = ending_offsets(client, chosen, options)
            check_retained(client, start, fail=options.fail_on_data_loss)
        ranges: list[InputPartition] = []
        ranges.extend(plan_ranges(start, end, options.min_partitions))
        return ranges

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        """The rows of one range."""
        return read_rows(partition, self._options)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans the batches of a stream, and commits what is finished to the group; see the module's promise."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._client: Client | None = None
        self._committed: Offsets = {}
        self._latest: Offsets = {}
        self._last_batch_ends_at: Offsets | None = None

    def initialOffset(self) -> dict[str, dict[str, int]]:
        """Where a new query starts."""
        client = self._connected()
        return to_json(starting_offsets(client, selected_partitions(client, self._options.selection), self._options))

    def getDefaultReadLimit(self) -> ReadLimit:
        """What `maxOffsetsPerTrigger` says."""
        most = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end of an `availableNow` query at what is there now."""
        self._last_batch_ends_at = self._newest()

    def latestOffset(self, start: Mapping[str, Any], limit: ReadLimit) -> dict[str, dict[str, int]]:
        """The end of the next batch; and commit `start`, up to which the query has finished. Raises DataLossError."""
        done = from_json(start)
        self._commit(done)
        newest = self._newest() if self._last_batch_ends_at is None else self._last_batch_ends_at
        check_not_made_anew(newest, done, fail=self._options.fail_on_data_loss)
        self._latest = newest
        latest = done | newest
        if not isinstance(limit, ReadMaxRows):
            return to_json(latest)
        known = self._with_new_partitions(done, latest)
        return to_json(limit_offsets(known, latest, limit.max_rows))

    def reportLatestOffset(self) -> dict[str, dict[str, int]] | None:
        """The end of the topic as it was last seen."""
        return to_json(self._latest) if self._latest else None

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[PartitionRange]:
        """The ranges of one batch. Raises DataLossError."""
        last = from_json(end)
        first = self._with_new_partitions(from_json(start), last)
        pending = {each: first[each] for each in last if last[each] > first[each]}
        check_retained(self._connected(), pending, fail=self._options.fail_on_data_loss)
        return plan_ranges(first, last, self._options.min_partitions)

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        """The rows of one range."""
        return read_rows(partition, self._options)

    def commit(self, end: Mapping[str, Any]) -> None:
        """Commit `end`; Spark calls this when it plans the next batch."""
        self._commit(from_json(end))

    def stop(self) -> None:
        """Close the connections."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _connected(self) -> Client:
        if self._client is None:
            self._client = connect(self._options.connection)
        return self._client

    def _newest(self) -> Offsets:
        client = self._connected()
        return latest_offsets(client, selected_partitions(client, self._options.selection))

    def _with_new_partitions(self, known: Offsets, wanted: Offsets) -> Offsets:
        """`known`, and for partitions that appeared since then the earliest offset there is."""
        fresh = [each for each in wanted if each not in known]
        return known | earliest_offsets(self._connected(), fresh)

    def _commit(self, done: Offsets) -> None:
        """Commit to the group. A failure is logged and tried again after the next batch: it must not stop the query."""
        group = self._options.group_id
        changed = {each: offset for each, offset in done.items() if self._committed.get(each) != offset}
        if group is None or not changed:
            return
        from ottla.client.sync import ClientError

        try:
            self._connected().commit(group, changed)
        except ClientError as problem:
            log.warning("offsets not committed to group %s, tried again after the next batch: %s", group, problem)
            return
        self._committed |= changed


def read_rows(partition: InputPartition, options: ReadOptions) -> Iterator[pyarrow.RecordBatch]:
    """The rows of one `PartitionRange`, as Arrow batches in the schema Spark expects. Runs in a worker."""
    import pyarrow
    from pyspark.sql.pandas.types import to_arrow_schema

    if not isinstance(partition, PartitionRange):  # Spark makes up one partition where the plan has none.
        return
    schema = to_arrow_schema(source_schema(include_headers=options.include_headers), timezone="UTC")
    source = TopicPartition(partition.topic, partition.partition)
    with connect(options.connection) as client:
        start = partition.start
        if not options.fail_on_data_loss:
            start = max(start, earliest_offsets(client, [source])[source])
        if start >= partition.end:
            return
        batches = client.read_range_arrow(
            source,
            start,
            partition.end,
            rows_per_batch=options.rows_per_batch,
            fetch_max_bytes=options.fetch_max_bytes,
            include_headers=options.include_headers,
        )
        for batch in batches:
            columns = [batch.column(name).cast(schema.field(name).type) for name in schema.names]
            yield pyarrow.RecordBatch.from_arrays(columns, schema=schema)


def _check_schema(schema: StructType, options: ReadOptions) -> None:
    expected = source_schema(include_headers=options.include_headers)
    if [(each.name, each.dataType) for each in schema] != [(each.name, each.dataType) for each in expected]:
        raise OptionError(
            f"the source has a fixed schema, {expected.simpleString()}; leave .schema(...) out and cast the columns"
        )
