"""Batches to Arrow columns, without an object per record; the columns are those of Spark's Kafka source.

pyarrow is an extra and is imported when the first row set is made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.records.batch import BatchHeader
from ottla.records.consumed import append_timestamp
from ottla.records.errors import BatchError
from ottla.records.extras import require_extra
from ottla.records.record import batch_records
from ottla.records.walk import RowColumns

if TYPE_CHECKING:
    import pyarrow

    from ottla.records._walk import BinaryColumn

MAX_ROWS_BYTES = 64 * 1024 * 1024
"""Record bytes after which a row set is full, however few rows it has: an Arrow binary column ends at 2 GiB."""


def arrow_schema(*, include_headers: bool = False) -> pyarrow.Schema:
    """The columns and their types, in the order of Spark's Kafka source. Raises MissingExtraError."""
    require_extra("reading Arrow", "arrow", "pyarrow")
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

    `start` and `end` bound the offsets taken (`end` itself is not). Add batches until `full`, then `take`. Making one
    raises MissingExtraError without pyarrow.
    """

    def __init__(
        self, topic: str, partition: int, start: int, end: int, *, rows_per_batch: int, include_headers: bool = False
    ) -> None:
        self._topic = topic
        self._partition = partition
        self._start = start
        self._end = end
        self._rows_per_batch = rows_per_batch
        self._include_headers = include_headers
        self._schema = arrow_schema(include_headers=include_headers)
        self._clear()

    def _clear(self) -> None:
        self._bytes = 0
        self._columns = RowColumns(self._include_headers)
        #: How many rows in a row have which type of timestamp.
        self._timestamp_types: list[tuple[int, int]] = []

    @property
    def count(self) -> int:
        """Rows gathered."""
        return self._columns.count

    @property
    def full(self) -> bool:
        """Whether enough is gathered for a record batch."""
        return self._columns.count >= self._rows_per_batch or self._bytes >= MAX_ROWS_BYTES

    def add(self, buf: bytes | bytearray | memoryview, header: BatchHeader) -> None:
        """Add the records of the batch that `header` describes in `buf`; BatchError if they are malformed."""
        payload = batch_records(buf, header)
        added = self._columns.append(
            payload,
            header.records_count,
            header.base_offset,
            header.base_timestamp,
            append_timestamp(header),
            self._start,
            self._end,
        )
        self._bytes += len(payload)
        self._timestamp_types.append((added, int(header.timestamp_type)))

    def take(self) -> list[pyarrow.RecordBatch]:
        """Everything gathered, in record batches of at most `rows_per_batch` rows; none where there is no row."""
        import pyarrow

        rows, count = self._columns, self._columns.count
        if not count:
            self._clear()
            return []
        columns = [
            _binary_array(rows.keys, pyarrow.binary()),
            _binary_array(rows.values, pyarrow.binary()),
            pyarrow.repeat(self._topic, count),
            pyarrow.repeat(pyarrow.scalar(self._partition, pyarrow.int32()), count),
            _int64(rows.offsets, count, pyarrow.int64()),
            self._timestamp_column(),
            _repeated(self._timestamp_types),
        ]
        if self._include_headers:
            columns.append(_headers_array(rows))
        whole = pyarrow.RecordBatch.from_arrays(columns, schema=self._schema)
        self._clear()
        size = self._rows_per_batch
        return [whole.slice(first, size) for first in range(0, count, size)]

    def _timestamp_column(self) -> pyarrow.Array:
        import pyarrow

        rows = self._columns
        milliseconds = _int64(rows.timestamps, rows.count, pyarrow.timestamp("ms", "UTC"))
        try:
            return milliseconds.cast(pyarrow.timestamp("us", "UTC"))
        except pyarrow.ArrowInvalid as error:
            offsets = memoryview(rows.offsets).cast("q")
            where = f"{self._topic}-{self._partition}, offsets {offsets[0]} to {offsets[rows.count - 1]}"
            raise BatchError(f"a timestamp is out of range in {where}: {error}") from None


def _buffer(held: bytearray, size: int) -> pyarrow.Buffer:
    """The first `size` bytes, not copied; what is behind them was never written."""
    import pyarrow

    return pyarrow.py_buffer(memoryview(held)[:size])


def _int64(numbers: bytearray, count: int, kind: pyarrow.DataType) -> pyarrow.Array:
    import pyarrow

    return pyarrow.Array.from_buffers(kind, count, [None, _buffer(numbers, 8 * count)])


def _repeated(runs: list[tuple[int, int]]) -> pyarrow.Array:
    """An array of numbers of which each is repeated."""
    import pyarrow

    return pyarrow.concat_arrays(
        [pyarrow.repeat(pyarrow.scalar(number, pyarrow.int32()), count) for count, number in runs]
    )


def _binary_array(column: BinaryColumn, kind: pyarrow.DataType) -> pyarrow.Array:
    """Finish the column; nothing is copied."""
    import pyarrow

    count = column.count
    valid = _buffer(column.valid, (count + 7) // 8) if column.nulls else None
    buffers = [valid, _buffer(column.ends, 4 * (count + 1)), _buffer(column.data, column.used)]
    return pyarrow.Array.from_buffers(kind, count, buffers, null_count=column.nulls)


def _headers_array(rows: RowColumns) -> pyarrow.Array:
    """Lists of name and value; null where a record has none."""
    import pyarrow
    import pyarrow.compute

    names = _binary_array(rows.header_keys, pyarrow.binary())
    try:
        names = names.cast(pyarrow.string())
    except pyarrow.ArrowInvalid:  # not every client writes UTF-8; invalid bytes are replaced
        names = pyarrow.array([name.decode("utf-8", "replace") for name in names.to_pylist()], pyarrow.string())
    kind = _headers_type()
    pairs = pyarrow.StructArray.from_arrays(
        [names, _binary_array(rows.header_values, pyarrow.binary())], fields=list(kind.value_type)
    )
    ends_buffer = _buffer(rows.header_ends, 4 * (rows.count + 1))
    ends = pyarrow.Array.from_buffers(pyarrow.int32(), rows.count + 1, [None, ends_buffer])
    lists = pyarrow.ListArray.from_arrays(ends, pairs)
    return pyarrow.compute.if_else(
        pyarrow.compute.equal(ends[1:], ends[:-1]), pyarrow.scalar(None, lists.type), lists
    ).cast(kind)


def _headers_type() -> pyarrow.DataType:
    import pyarrow

    return pyarrow.list_(pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())]))
