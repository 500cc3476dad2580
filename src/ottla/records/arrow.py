"""Batches to Arrow columns, without an object per record; the columns are those of Spark's Kafka source.

pyarrow is an extra and is imported when the first row set is made.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ottla.records.batch import BatchHeader
from ottla.records.consumed import append_timestamp
from ottla.records.errors import TimestampRangeError
from ottla.records.extras import require_extra
from ottla.records.record import batch_records
from ottla.records.walk import RowColumns

if TYPE_CHECKING:
    import pyarrow

    from ottla.records._walk import BinaryColumn

MAX_ROWS_BYTES = 64 * 1024 * 1024
"""Record bytes after which a row set is full, however few rows it has: an Arrow binary column ends at 2 GiB."""
_MOST_MS = (2**63 - 1) // 1000
"""The farthest timestamps from 1970, in milliseconds, that a column of microseconds holds."""


def arrow_schema(*, include_headers: bool = False, timestamp_unit: str | None = "us") -> pyarrow.Schema:
    """The columns and their types, in the order of Spark's Kafka source; without a unit, timestamps are left out.

    Raises MissingExtraError.
    """
    require_extra("reading Arrow", "arrow", "pyarrow")
    import pyarrow

    fields = [
        ("key", pyarrow.binary()),
        ("value", pyarrow.binary()),
        ("topic", pyarrow.string()),
        ("partition", pyarrow.int32()),
        ("offset", pyarrow.int64()),
        ("timestampType", pyarrow.int32()),
    ]
    if timestamp_unit is not None:
        fields.insert(5, ("timestamp", pyarrow.timestamp(timestamp_unit, "UTC")))
    if include_headers:
        fields.append(("headers", _headers_type()))
    return pyarrow.schema(fields)


class ArrowRows:
    """Gathers the records of one partition and hands them out as Arrow record batches.

    `start` and `end` bound the offsets taken (`end` itself is not). Add batches until `full`, then `take`: that is at
    `rows_per_batch` rows, or once the records have `bytes_per_batch`. Timestamps are microseconds; milliseconds hold
    those that microseconds cannot, and None leaves the column out. Making one without pyarrow raises MissingExtraError.
    """

    def __init__(
        self,
        topic: str,
        partition: int,
        start: int,
        end: int,
        *,
        rows_per_batch: int,
        bytes_per_batch: int = MAX_ROWS_BYTES,
        include_headers: bool = False,
        timestamp_unit: str | None = "us",
    ) -> None:
        self._start = start
        self._end = end
        self._rows_per_batch = rows_per_batch
        self._bytes_per_batch = min(bytes_per_batch, MAX_ROWS_BYTES)
        self._include_headers = include_headers
        self._timestamp_unit = timestamp_unit
        self._schema = arrow_schema(include_headers=include_headers, timestamp_unit=timestamp_unit)
        self._constants = _Constants(topic, partition)
        #: Rows that the last batch added: the next one is expected to add as many.
        self._added = 0
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
        """Whether enough is gathered for a record batch: one batch more would leave a rest behind it."""
        count = self._columns.count
        return (count > 0 and count + self._added > self._rows_per_batch) or self._bytes >= self._bytes_per_batch

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
        self._added = added
        self._timestamp_types.append((added, int(header.timestamp_type)))

    def take(self) -> Iterator[pyarrow.RecordBatch]:
        """Everything gathered, in record batches of at most `rows_per_batch` rows; none without rows.

        Raises TimestampRangeError at a record whose timestamp Arrow cannot hold, after the rows before it.
        """
        import pyarrow

        rows, count = self._columns, self._columns.count
        if not count:
            self._clear()
            return
        columns = [
            _binary_array(rows.keys, pyarrow.binary()),
            _binary_array(rows.values, pyarrow.binary()),
            self._constants.topics(count),
            self._constants.partitions(count),
            _int64(rows.offsets, count, pyarrow.int64()),
            self._constants.timestamp_types(self._timestamp_types),
        ]
        if self._timestamp_unit is not None:
            columns.insert(5, _timestamps(rows, self._timestamp_unit))
        if self._include_headers:
            columns.append(_headers_array(rows))
        self._clear()
        held = min(map(len, columns))
        whole = pyarrow.RecordBatch.from_arrays([column[:held] for column in columns], schema=self._schema)
        size = self._rows_per_batch
        for first in range(0, held, size):
            yield whole.slice(first, size)
        if held < count:
            raise TimestampRangeError(_number(rows.offsets, held), _number(rows.timestamps, held))


class _Constants:
    """Columns that are the same for all rows of a partition, made once and sliced.

    They are made of buffers: pyarrow.scalar, array and repeat import pandas where it is installed, which costs a
    process 30 MB and 0.2 s.
    """

    def __init__(self, topic: str, partition: int) -> None:
        self._topic = topic.encode()
        self._partition = partition
        self._made: dict[str | int, pyarrow.Array] = {}

    def topics(self, count: int) -> pyarrow.Array:
        import pyarrow

        made = self._made.get("topics")
        if made is None or len(made) < count:
            size = len(self._topic)
            ends = array("i", range(0, size * count + 1, size)) if size else array("i", [0]) * (count + 1)
            buffers = [None, pyarrow.py_buffer(ends), pyarrow.py_buffer(self._topic * count)]
            made = self._made["topics"] = pyarrow.Array.from_buffers(pyarrow.string(), count, buffers)
        return made[:count]

    def partitions(self, count: int) -> pyarrow.Array:
        made = self._made.get("partitions")
        if made is None or len(made) < count:
            made = self._made["partitions"] = _int32(array("i", [self._partition]) * count)
        return made[:count]

    def timestamp_types(self, runs: list[tuple[int, int]]) -> pyarrow.Array:
        """Types of timestamps, each repeated as often as it is said before it."""
        count = sum(rows for rows, _ in runs)
        first = runs[0][1]
        if any(kind != first for _, kind in runs):
            return _int32(array("i", (kind for rows, kind in runs for _ in range(rows))))
        made = self._made.get(first)
        if made is None or len(made) < count:
            made = self._made[first] = _int32(array("i", [first]) * count)
        return made[:count]


def _buffer(held: bytearray, size: int) -> pyarrow.Buffer:
    """The first `size` bytes, not copied; what is behind them was never written."""
    import pyarrow

    return pyarrow.py_buffer(memoryview(held)[:size])


def _int64(numbers: bytearray, count: int, kind: pyarrow.DataType) -> pyarrow.Array:
    import pyarrow

    return pyarrow.Array.from_buffers(kind, count, [None, _buffer(numbers, 8 * count)])


def _number(numbers: bytearray, row: int) -> int:
    return int(memoryview(numbers)[8 * row : 8 * row + 8].cast("q")[0])


def _timestamps(rows: RowColumns, unit: str) -> pyarrow.Array:
    """The timestamps, up to the first one that the unit cannot hold."""
    import pyarrow

    milliseconds = _int64(rows.timestamps, rows.count, pyarrow.timestamp("ms", "UTC"))
    kind = pyarrow.timestamp(unit, "UTC")
    try:
        return milliseconds.cast(kind)
    except pyarrow.ArrowInvalid:
        numbers = memoryview(rows.timestamps)[: 8 * rows.count].cast("q")
        held = next(row for row, number in enumerate(numbers) if abs(number) > _MOST_MS)
        return milliseconds[:held].cast(kind)


def _int32(numbers: array[int]) -> pyarrow.Array:
    import pyarrow

    return pyarrow.Array.from_buffers(pyarrow.int32(), len(numbers), [None, pyarrow.py_buffer(numbers)])


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
