"""Arrow columns to batches, without an object per record.

pyarrow is an extra and is imported when the first columns come.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ottla.records.batch import NO_TIMESTAMP
from ottla.records.building import RecordsBuilder, SourceColumns, Strings, finish_batch

if TYPE_CHECKING:
    import pyarrow


def strings_of(column: pyarrow.Array | pyarrow.ChunkedArray) -> Strings:
    """A column of binary, string, large ones or views of both, or fixed-size binary, plain or as a dictionary.

    The bytes of binary and string are copied only where a column has several chunks. pyarrow.ArrowInvalid or
    ArrowNotImplementedError where the column is of another kind.
    """
    import pyarrow

    column = _whole(column)
    wide = column if pyarrow.types.is_large_binary(column.type) else column.cast(pyarrow.large_binary())
    valid, starts, data = wide.buffers()
    return Strings(_longs(starts), _octets(data), _octets(valid) if wide.null_count else None, wide.offset, len(wide))


def source_of(
    values: pyarrow.Array | pyarrow.ChunkedArray | None,
    keys: pyarrow.Array | pyarrow.ChunkedArray | None = None,
    timestamps: pyarrow.Array | pyarrow.ChunkedArray | None = None,
    headers: pyarrow.Array | pyarrow.ChunkedArray | None = None,
    *,
    timestamp: int = NO_TIMESTAMP,
) -> SourceColumns:
    """Columns of equal length as records, for `RecordsBuilder.append_rows`.

    Timestamps are Arrow's (of any unit; a finer one is cut to milliseconds) or integers of milliseconds; null ones, and
    all if the column is missing, are `timestamp`. Headers are lists of structs of `key` and `value`, or null.
    ValueError where lengths differ or headers or timestamps are of another kind; pyarrow's errors where keys or values
    are, or a timestamp is too large.
    """
    columns = [column for column in (values, keys, timestamps, headers) if column is not None]
    counts = {len(column) for column in columns}
    if len(counts) != 1:
        raise ValueError(f"columns must have one length, these have {sorted(counts) or 'none'}")
    return SourceColumns(
        counts.pop(),
        None if keys is None else strings_of(keys),
        None if values is None else strings_of(values),
        None if timestamps is None else _milliseconds(timestamps, timestamp),
        timestamp,
        None if headers is None else _headers(headers),
    )


def encode_arrow(source: SourceColumns, limit: int, rows: Any = None, **options: Any) -> Iterator[bytes]:
    """The records of `source`, or of some of its rows, as batches of at most `limit` bytes of records each.

    `rows` is a buffer of numbers of 64 bits, as `rows_by_partition` gives them; `options` are those of `finish_batch`.
    A batch has one record at least, however large that is.
    """
    at, end = 0, source.count if rows is None else len(rows)
    while at < end:
        builder = RecordsBuilder(limit)
        at = builder.append_rows(source, at, end, rows)
        yield finish_batch(builder, **options)


def _milliseconds(column: pyarrow.Array | pyarrow.ChunkedArray, default: int) -> memoryview:
    import pyarrow
    import pyarrow.compute

    column = _whole(column)
    if pyarrow.types.is_timestamp(column.type):
        # Seconds may be too large for milliseconds; of finer ones it is known that something is cut off.
        column = column.cast(pyarrow.timestamp("ms", column.type.tz), safe=column.type.unit == "s")
    elif not (pyarrow.types.is_integer(column.type) or pyarrow.types.is_null(column.type)):
        raise ValueError(f"timestamps are Arrow's or integers of milliseconds, not {column.type}")
    numbers = column.cast(pyarrow.int64())
    if numbers.null_count:
        numbers = pyarrow.compute.fill_null(numbers, default)
    return _longs(numbers.buffers()[1])[numbers.offset : numbers.offset + len(numbers)]


def _headers(column: pyarrow.Array | pyarrow.ChunkedArray) -> tuple[memoryview, memoryview, Strings, Strings]:
    """The starts and ends of rows' headers, and all names and values. Raises ValueError for other types."""
    import pyarrow
    import pyarrow.compute

    column = _whole(column)
    kind = column.type
    is_list = pyarrow.types.is_list(kind) or pyarrow.types.is_large_list(kind)
    if not (is_list and pyarrow.types.is_struct(kind.value_type)):
        raise ValueError(f"headers are lists of structs of key and value, not {kind}")
    names = {field.name for field in kind.value_type}
    if names != {"key", "value"}:
        raise ValueError(f"headers are structs of key and value, these are of {', '.join(sorted(names))}")
    offsets = column.offsets.cast(pyarrow.int64())
    starts, ends = offsets[:-1], offsets[1:]
    if column.null_count:  # a null list may have a stretch of its own
        ends = pyarrow.compute.if_else(column.is_valid(), ends, starts)
    pairs = column.values
    found = dict(zip([field.name for field in kind.value_type], pairs.flatten(), strict=True))
    return _numbers(starts), _numbers(ends), strings_of(found["key"]), strings_of(found["value"])


def _whole(column: pyarrow.Array | pyarrow.ChunkedArray) -> pyarrow.Array:
    """A chunked array as one array."""
    import pyarrow

    if not isinstance(column, pyarrow.ChunkedArray):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    if pyarrow.types.is_binary(column.type) or pyarrow.types.is_string(column.type):
        column = column.cast(pyarrow.large_binary())  # together they may be beyond 2 GiB
    whole = column.combine_chunks()
    return pyarrow.concat_arrays(whole.chunks) if isinstance(whole, pyarrow.ChunkedArray) else whole


def _numbers(column: pyarrow.Array) -> memoryview:
    return _longs(column.buffers()[1])[column.offset : column.offset + len(column)]


def _longs(buffer: pyarrow.Buffer | None) -> memoryview:
    """A buffer of numbers of 64 bits; a zero for an empty one."""
    octets = memoryview(buffer) if buffer is not None and buffer.size else memoryview(bytes(8))
    return octets.cast("B")[: len(octets) // 8 * 8].cast("q")


def _octets(buffer: pyarrow.Buffer | None) -> memoryview:
    return memoryview(buffer).cast("B") if buffer is not None and buffer.size else memoryview(b"")
