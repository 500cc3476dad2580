"""The Spark sink: `df.write.format("ottla")` and `df.writeStream.format("ottla")`.

Columns are those of Spark's Kafka sink: `value`, and if present `key`, `headers`, `topic`, `partition`; and one more,
`timestamp`, which is kept as the record's own time. The option `topic` wins over the column. Columns are encoded as
they come, without an object per row. Records of one task that have the same key, or name the same partition, keep the
order of its rows; so do those that have neither, among each other. They are sent by an idempotent producer and
acknowledged before the task ends. A task that Spark runs again sends its records again: at least once, as with Spark's
Kafka sink.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ottla.records.extras import require_extra

require_extra("ottla.spark", "spark", "pyspark", "pyarrow")

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

    from ottla.client.producer.bulk_future import BulkFuture
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
    """Check that the frame's columns can be written. Raises OptionError."""
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

    Raises OptionError for a row without a topic, DeliveryError where a record is not acknowledged.
    """
    from ottla.client.sync import Producer

    count = 0
    sent: deque[BulkFuture] = deque()
    producer: Producer[bytes, bytes] = Producer(**_producer_settings(options))
    with producer:
        for batch in batches:
            sent.append(_send(producer, batch, options.topic))
            count += batch.num_rows
            while sent and sent[0].done():
                sent.popleft().result()
        producer.flush()
        for future in sent:
            future.result()
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


def _send(producer: Producer[bytes, bytes], batch: pyarrow.RecordBatch, topic: str | None) -> BulkFuture:
    if topic is None and batch.column("topic").null_count:
        raise OptionError("a row has no topic (its topic column is null); give the option topic or filter such rows")
    return producer.send_arrow(batch, topic)
