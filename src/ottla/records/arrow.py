"""Batches to Arrow columns, without an object per record; the columns are those of Spark's Kafka source.

pyarrow is an extra and is imported when the first row set is made.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from typing import TYPE_CHECKING

from ottla.records.batch import BatchHeader
from ottla.records.errors import BatchError
from ottla.records.record import Headers, batch_payload, decode_columns, record_timestamps

if TYPE_CHECKING:
    import pyarrow

MAX_ROWS_BYTES = 64 * 1024 * 1024
"""Record bytes after which a row set is full, however few rows it has: an Arrow binary column ends at 2 GiB."""


def arrow_schema(*, include_headers: bool = False) -> pyarrow.Schema:
    """The columns and their types, in the order of Spark's Kafka source."""
    import pyarrow

    fields = [
        ("key", pyarrow.binary()),
        ("value", pyarrow.binary()),
        ("topic", pyarrow.string()),
        ("partition", pyarrow.int32()),
        ("offset", pyarrow.int64()),
        ("timestamp", pyarrow.timestamp("us", "UTC")),
        ("timestampType", pyarrow.int32()),
    ]
    if include_headers:
        fields.append(("headers", _headers_type()))
    return pyarrow.schema(fields)


class ArrowRows:
    """Gathers the records of one partition and hands them out as Arrow record batches.

    `start` and `end` bound the offsets taken (`end` itself is not). Add batches until `full`, then `take`.
    """

    def __init__(
        self, topic: str, partition: int, start: int, end: int, *, rows_per_batch: int, include_headers: bool = False
    ) -> None:
        self._topic = topic
        self._partition = partition
        self._start = start
        self._end = end
        self._rows_per_batch = rows_per_batch
        self._schema = arrow_schema(include_headers=include_headers)
        self._clear()

    def _clear(self) -> None:
        self._bytes = 0
        self._keys: list[bytes | None] = []
        self._values: list[bytes | None] = []
        self._offsets: list[int] = []
        self._timestamps: list[int] = []
        self._timestamp_types: list[int] = []
        self._headers: list[Headers] = []

    @property
    def full(self) -> bool:
        """Whether enough is gathered for a record batch."""
        return len(self._offsets) >= self._rows_per_batch or self._bytes >= MAX_ROWS_BYTES

    def add(self, buf: bytes | bytearray | memoryview, header: BatchHeader) -> None:
        """Take in the records of the batch that `header` describes in `buf`; BatchError if they are malformed."""
        payload = batch_payload(buf, header)
        columns = decode_columns(payload, header.records_count)
        base_offset, deltas = header.base_offset, columns.offset_deltas
        timestamps = record_timestamps(header, columns)
        keys, values, headers = columns.keys, columns.values, columns.headers
        first, last = 0, len(deltas)
        if base_offset < self._start or base_offset + header.last_offset_delta >= self._end:
            first, last = bisect_left(deltas, self._start - base_offset), bisect_left(deltas, self._end - base_offset)
            deltas, timestamps, headers = deltas[first:last], timestamps[first:last], headers[first:last]
            keys, values = keys[first:last], values[first:last]
        self._bytes += len(payload)
        self._offsets += [base_offset + delta for delta in deltas]
        self._timestamps += timestamps
        self._timestamp_types += [int(header.timestamp_type)] * len(deltas)
        self._keys += keys
        self._values += values
        self._headers += headers

    def take(self) -> list[pyarrow.RecordBatch]:
        """Everything gathered, in record batches of at most `rows_per_batch` rows; none where there is no row."""
        import pyarrow

        count = len(self._offsets)
        if not count:
            self._clear()
            return []
        columns = [
            pyarrow.array(self._keys, pyarrow.binary()),
            pyarrow.array(self._values, pyarrow.binary()),
            pyarrow.repeat(self._topic, count),
            pyarrow.repeat(pyarrow.scalar(self._partition, pyarrow.int32()), count),
            _int64(self._offsets, pyarrow.int64()),
            self._timestamp_column(),
            pyarrow.array(array("i", self._timestamp_types), pyarrow.int32()),
        ]
        if len(self._schema) > len(columns):
            columns.append(pyarrow.array([headers or None for headers in self._headers], _headers_type()))
        whole = pyarrow.RecordBatch.from_arrays(columns, schema=self._schema)
        self._clear()
        size = self._rows_per_batch
        return [whole.slice(first, size) for first in range(0, count, size)]

    def _timestamp_column(self) -> pyarrow.Array:
        import pyarrow

        milliseconds = _int64(self._timestamps, pyarrow.timestamp("ms", "UTC"))
        try:
            return milliseconds.cast(pyarrow.timestamp("us", "UTC"))
        except pyarrow.ArrowInvalid as error:
            where = f"{self._topic}-{self._partition}, offsets {self._offsets[0]} to {self._offsets[-1]}"
            raise BatchError(f"a timestamp is out of range in {where}: {error}") from None


def _int64(numbers: list[int], kind: pyarrow.DataType) -> pyarrow.Array:
    import pyarrow

    try:
        buffer = pyarrow.py_buffer(array("q", numbers))
    except OverflowError:
        raise BatchError("an offset or timestamp does not fit 64 bits") from None
    return pyarrow.Array.from_buffers(kind, len(numbers), [None, buffer])


def _headers_type() -> pyarrow.DataType:
    import pyarrow

    return pyarrow.list_(pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())]))
