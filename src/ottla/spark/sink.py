"""The Spark sink: `df.write.format("ottla")` and `df.writeStream.format("ottla")`.

Columns are those of Spark's Kafka sink: `value`, and if present `key`, `headers`, `topic`, `partition`; and one more,
`timestamp`, which is kept as the record's own time. The option `topic` wins over the column. Records of one task are
sent in the order of its rows, by an idempotent producer, and are acknowledged before the task ends. A task that Spark
runs again sends its records again: at least once, as with Spark's Kafka sink.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructType,
    TimestampType,
)

from ottla.spark.options import OptionError, WriteOptions

if TYPE_CHECKING:
    import pyarrow

    from ottla.client.sync import Producer

BATCH_SIZE = 128 * 1024
"""Bytes of a batch unless `kafka.batch.size` says otherwise: a task has all its rows at hand."""
LINGER_MS = 5

_ACCEPTED: dict[str, tuple[type[DataType], ...]] = {
    "key": (StringType, BinaryType),
    "value": (StringType, BinaryType),
    "headers": (ArrayType,),
    "topic": (StringType,),
    "partition": (IntegerType,),
    "timestamp": (TimestampType,),
}
# Columns that a frame read from a topic has besides, so that it can be written as it is.
_IGNORED = frozenset({"offset", "timestampType"})


@dataclass(frozen=True, slots=True)
class RecordsWritten(WriterCommitMessage):
    """What one task wrote: how many records were acknowledged."""

    count: int


def check_columns(schema: StructType, options: WriteOptions) -> None:
    """See that the frame's columns can be written. Raises OptionError."""
    types = {each.name: each.dataType for each in schema}
    if "value" not in types:
        raise OptionError(f"the frame has no column named value; it has {', '.join(types)}")
    if options.topic is None and "topic" not in types:
        raise OptionError("where to write to is missing; give the option topic or a column of that name")
    for name, found in types.items():
        if name in _IGNORED:
            continue
        if name not in _ACCEPTED:
            raise OptionError(f"column {name} has no place in a record; select {', '.join(_ACCEPTED)} or some of them")
        if not isinstance(found, _ACCEPTED[name]):
            wanted = " or ".join(each.typeName() for each in _ACCEPTED[name])
            raise OptionError(f"column {name} is {found.simpleString()}; cast it to {wanted}")


class BatchWriter(DataSourceArrowWriter):
    """Writes a frame to topics, each task its own rows."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> RecordsWritten:
        """Send the rows of one task."""
        return write_rows(iterator, self._options)


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a stream to topics, each task its own rows."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> RecordsWritten:
        """Send the rows of one task."""
        return write_rows(iterator, self._options)


def write_rows(batches: Iterator[pyarrow.RecordBatch], options: WriteOptions) -> RecordsWritten:
    """Send the rows in order and wait until they are acknowledged. Runs in a worker.

    Raises OptionError for a row without a topic.
    """
    from ottla.client.sync import Producer

    count = 0
    producer: Producer[bytes, bytes] = Producer(**_producer_settings(options))
    with producer:
        for batch in batches:
            _send(producer, batch, options.topic)
            count += batch.num_rows
        producer.flush()
    return RecordsWritten(count)


def _producer_settings(options: WriteOptions) -> dict[str, Any]:
    connection = options.connection
    return {
        "bootstrap_servers": connection.bootstrap_servers,
        "client_id": connection.client_id,
        "request_timeout_ms": connection.request_timeout_ms,
        "acks": options.acks,
        "compression_type": options.compression_type,
        "batch_size": options.batch_size or BATCH_SIZE,
        "linger_ms": LINGER_MS,
    }


def _send(producer: Producer[bytes, bytes], batch: pyarrow.RecordBatch, topic: str | None) -> None:
    size = batch.num_rows
    topics = [topic] * size if topic is not None else batch.column("topic").to_pylist()
    if None in topics:
        raise OptionError("a row has no topic (its topic column is null); give the option topic or filter such rows")
    rows = zip(
        topics,
        _binary(batch, "key"),
        _binary(batch, "value"),
        _milliseconds(batch),
        _headers(batch),
        _optional(batch, "partition"),
        strict=True,
    )
    send = producer.send
    for to, key, value, timestamp, headers, partition in rows:
        send(to, value, key, partition, timestamp, headers)


def _optional(batch: pyarrow.RecordBatch, name: str) -> list[Any]:
    return batch.column(name).to_pylist() if name in batch.schema.names else [None] * batch.num_rows


def _binary(batch: pyarrow.RecordBatch, name: str) -> list[bytes | None]:
    import pyarrow

    if name not in batch.schema.names:
        return [None] * batch.num_rows
    values: list[bytes | None] = batch.column(name).cast(pyarrow.binary()).to_pylist()
    return values


def _milliseconds(batch: pyarrow.RecordBatch) -> list[int | None]:
    import pyarrow

    if "timestamp" not in batch.schema.names:
        return [None] * batch.num_rows
    instants = batch.column("timestamp").cast(pyarrow.timestamp("ms", tz="UTC"), safe=False)
    milliseconds: list[int | None] = instants.cast(pyarrow.int64()).to_pylist()
    return milliseconds


def _headers(batch: pyarrow.RecordBatch) -> list[tuple[tuple[str, bytes | None], ...]]:
    if "headers" not in batch.schema.names or batch.column("headers").null_count == batch.num_rows:
        return [()] * batch.num_rows
    return [
        tuple((each["key"], each["value"]) for each in headers or ()) for headers in batch.column("headers").to_pylist()
    ]
