"""Reading in a task: exactly the range of offsets that was planned.

A read keeps no state and opens its own connection, so a range read twice gives the same rows. Rows travel as Arrow
batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import InputPartition

from ottla.client.model import TopicPartition
from ottla.spark.connection import connect
from ottla.spark.errors import TIMESTAMP_CURE, message_only
from ottla.spark.source.options import ReadOptions
from ottla.spark.source.partitions import report_deleted
from ottla.spark.source.planning import PartitionRange
from ottla.spark.source.schema import read_schema

if TYPE_CHECKING:
    import pyarrow

    from ottla.client.sync import Client
    from ottla.spark.decoding import ValueDecoder


_TIMESTAMP_CURES = (
    "set failOnBadTimestamp to false, in a pipeline among the options of its source, and it is NULL there; or "
    f"{TIMESTAMP_CURE}"
)
#: The farthest timestamp of a record, from 1970 either way, that Spark's columns hold: they count microseconds.
_FARTHEST_MS = (2**63 - 1) // 1000
BYTES_PER_BATCH = 4 * 1024 * 1024
"""Bytes of records after which an Arrow batch ends before `rowsPerBatch`: it is in memory both here and in Java."""


def read_rows(partition: InputPartition, options: ReadOptions) -> Iterator[pyarrow.RecordBatch]:
    """The rows of one `PartitionRange`, as Arrow batches in the schema Spark expects. Runs in a worker."""
    if isinstance(partition, PartitionRange):  # Spark makes up another one where the plan has none.
        yield from read_ranges([partition], options)


def read_ranges(ranges: Sequence[PartitionRange], options: ReadOptions) -> Iterator[pyarrow.RecordBatch]:
    """The rows of these ranges one after the other, over one connection. Runs in a worker."""
    extra = optional_columns(options)
    with message_only(), connect(options.connection, options.fetch.poll_timeout_ms) as client:
        batches = (_batches(client, each, options, extra) for each in ranges)
        yield from in_columns(chain.from_iterable(batches), options)


def optional_columns(options: ReadOptions) -> dict[str, Any]:
    """Which columns that are not always made are wanted, as arguments of `read_range_arrow`."""
    names = read_schema(options).names
    unit = (
        "us" if options.fail_on_bad_timestamp else "ms"
    )  # Milliseconds hold all: `in_columns` leaves out what it must.
    return {"include_headers": "headers" in names, "timestamp_unit": unit if "timestamp" in names else None}


def read_as_written(partition: PartitionRange, options: ReadOptions) -> Iterator[pyarrow.RecordBatch]:
    """The rows of a range with all columns and headers, and timestamps in milliseconds, which hold any of them."""
    with message_only(), connect(options.connection, options.fetch.poll_timeout_ms) as client:
        yield from _batches(client, partition, options, {"include_headers": True, "timestamp_unit": "ms"})


def in_columns(batches: Iterable[pyarrow.RecordBatch], options: ReadOptions) -> Iterator[pyarrow.RecordBatch]:
    """Batches of records in the columns that the options choose, values decoded where they say so."""
    import pyarrow
    from pyspark.sql.pandas.types import to_arrow_schema

    schema = to_arrow_schema(read_schema(options), timezone="UTC")
    decoding: ValueDecoder | None = None
    if options.decoding is not None:
        from ottla.spark.decoding import decoder_of

        decoding = decoder_of(options.decoding, schema.names)
    for batch in batches:
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        if not options.fail_on_bad_timestamp and "timestamp" in columns:
            columns["timestamp"] = _that_fit(columns["timestamp"])
        if decoding is not None:
            values = columns.pop("value")
            columns |= zip(decoding.fields.names, decoding.decode(values), strict=True)
        yield pyarrow.RecordBatch.from_arrays([_as(columns[each.name], each.type) for each in schema], schema=schema)


def _as(column: pyarrow.Array, kind: pyarrow.DataType) -> pyarrow.Array:
    return column if column.type == kind else column.cast(kind)


def _that_fit(times: pyarrow.Array) -> pyarrow.Array:
    """Timestamps in milliseconds; null in the place of those that Spark's columns cannot hold."""
    import pyarrow
    import pyarrow.compute as pc

    numbers = times.cast(pyarrow.int64())
    fit = pc.and_(pc.greater_equal(numbers, -_FARTHEST_MS), pc.less_equal(numbers, _FARTHEST_MS))
    return pc.if_else(fit, times, None)


def _batches(
    client: Client, partition: PartitionRange, options: ReadOptions, extra: dict[str, Any]
) -> Iterator[pyarrow.RecordBatch]:
    """The records of the range. Those deleted meanwhile are passed over where `failOnDataLoss` is false.

    Records before an error come first. Raises DataLossError and errors of the client. Offsets without a record, as
    compaction and transactions leave them, are not a loss; those before the log start offset or past the log's end are.
    """
    from ottla.client.errors import OffsetOutOfRange, RecordTimestampError, UnknownTopicError

    source = TopicPartition(partition.topic, partition.partition)
    fetch, fail = options.fetch, options.fail_on_data_loss
    position = partition.start
    while position < partition.end:
        batches = client.read_range_arrow(
            source,
            position,
            partition.end,
            rows_per_batch=options.rows_per_batch,
            bytes_per_batch=BYTES_PER_BATCH,
            fetch_max_bytes=fetch.max_bytes,
            read_committed=fetch.read_committed,
            check_crcs=fetch.check_crcs,
            rack=fetch.rack,
            **extra,
        )
        try:
            for batch in batches:
                yield batch
                position = batch.column("offset")[-1].as_py() + 1
            return
        except OffsetOutOfRange as error:
            earliest = error.earliest
            if earliest is None:
                raise
            report_deleted(f"{source} wanted {error.offset}, has {earliest} to {error.latest}", fail=fail)
            if earliest <= error.offset:  # The log ends before the range does.
                return
            position = earliest
        except UnknownTopicError:
            if fail:
                raise
            return
        except RecordTimestampError as error:
            raise RecordTimestampError(source, error.offset, error.timestamp, _TIMESTAMP_CURES) from error
