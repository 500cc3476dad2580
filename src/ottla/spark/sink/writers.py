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
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from ottla.spark.errors import OptionError, one_sentence
from ottla.spark.sink.options import WriteOptions
from ottla.spark.versions import Versioned

if TYPE_CHECKING:
    import pyarrow

    from ottla.client.producer.bulk_future import BulkFuture
    from ottla.client.sync import Producer


@dataclass(frozen=True, slots=True)
class RecordsWritten(WriterCommitMessage):
    """The result of one task: how many records were acknowledged."""

    count: int


class BatchWriter(Versioned, DataSourceArrowWriter):
    """Writes a frame to topics, each task its own rows."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> RecordsWritten:
        """Send the rows of one task."""
        return write_rows(iterator, self._options)


class StreamWriter(Versioned, DataSourceStreamArrowWriter):
    """Writes the batches of a stream to topics, each task its own rows."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> RecordsWritten:
        """Send the rows of one task."""
        return write_rows(iterator, self._options)


@one_sentence
def write_rows(batches: Iterator[pyarrow.RecordBatch], options: WriteOptions) -> RecordsWritten:
    """Send the rows in order and wait until they are acknowledged. Runs in a worker.

    Raises OptionError for a row without a topic, DeliveryError where a record is not acknowledged.
    """
    from ottla.client.sync import Producer

    count = 0
    sent: deque[BulkFuture] = deque()
    producer: Producer[bytes, bytes] = Producer(options.connection.all_settings)
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


def _send(producer: Producer[bytes, bytes], batch: pyarrow.RecordBatch, topic: str | None) -> BulkFuture:
    if topic is None and batch.column("topic").null_count:
        raise OptionError("a row has no topic (its topic column is null); give the option topic or filter such rows")
    return producer.send_arrow(batch, topic)
