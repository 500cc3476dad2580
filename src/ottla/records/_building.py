"""Encoding of records into a batch's payload, and the hash of keys: the source of
`ottla.records._building_native` and, where that was not built, what runs in its place. Use it through
`ottla.records.building`.

This is plain Python; the types that make it fast when it is compiled stand in `_building_native.pxd`.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Any

try:
    import cython
except ImportError:
    from ottla.records import uncompiled as cython
if not cython.compiled:
    from ottla.records.uncompiled import copy_bytes, copy_octets, octets_from, resize

HEADER_ROOM = 61
"""Bytes in front of the records that a builder leaves for the batch's header."""
FIRST_ROOM = 512
"""Initial size of a builder's buffer in bytes; it doubles as needed."""
LAST_DOUBLED_ROOM = 16 * 1024
"""From this size on the buffer grows to the limit at once, up to `MOST_ROOM_AT_ONCE`; untouched memory is free."""
MOST_ROOM_AT_ONCE = 1024 * 1024
MOST_BYTES = 0x7FFFFFFF - 61
"""A batch says its length in 32 bits, its header included."""
LARGEST = 0x7FFFFFFFFFFFFFFF
SEED = 0x9747B28C
MULTIPLIER = 0x5BD1E995
MASK = 0xFFFFFFFF
POSITIVE = 0x7FFFFFFF
NO_PARTITION = -1
PAIR = 2


class RecordsBuilder:
    """Records of one batch, encoded as they come; nothing is kept of them but their bytes.

    `limit` bounds the bytes of the records, without the batch's header and before compression; a first record may be
    larger. `count` says how many records there are, `size` how many bytes they have. `base_timestamp` is that of the
    first, `max_timestamp` the largest, in milliseconds since the Unix epoch; -1 while there is none.

    Where it is compiled, `append` is one step for all threads, and so is `close`: a record of bytes is in the batch, or
    the batch was closed before it.
    """

    __slots__ = ("_buffer", "base_timestamp", "count", "is_closed", "limit", "max_timestamp", "size")

    def __init__(self, limit: int = MOST_BYTES) -> None:
        if not 0 < limit <= MOST_BYTES:
            raise ValueError(f"a limit of {limit} bytes, where 1 to {MOST_BYTES} can be")
        self._buffer = bytearray(HEADER_ROOM + FIRST_ROOM)
        self.limit = limit
        self.is_closed = False
        self.size = 0
        self.count = 0
        self.base_timestamp = -1
        self.max_timestamp = -1

    def append(
        self,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Iterable[tuple[str, bytes | None]] | None = None,
    ) -> int:
        """Add a record, and give its number in the batch, from 0; -1 where the limit leaves no room, or it is closed.

        Key, value and the values of headers may be bytes, bytearray or memoryview; TypeError for anything else.
        OverflowError for a timestamp beyond 64 bits, or a record beyond 2 GiB. Nothing is added then.
        """
        if key is not None:
            key = octets_of(key)
        if value is not None:
            value = octets_of(value)
        return self.add(timestamp, key, value, header_octets(headers) if headers else None)

    def close(self) -> None:
        """Close the builder: no record is added any more."""
        self.is_closed = True

    def add(self, timestamp: int, key: bytes | None, value: bytes | None, pairs: list[bytes | None] | None) -> int:
        """As `append`, for compiled code: bytes alone, and names and values of headers in turns."""
        key_size = -1 if key is None else len(key)
        value_size = -1 if value is None else len(value)
        at = self._begin(timestamp, key_size, value_size, 1 if pairs is None else header_octets_size(pairs))
        if at < 0:
            return -1
        at = self._put_octets(at, key)
        at = self._put_octets(at, value)
        if pairs is None:
            at = self._put(at, 0)
        else:
            at = self._put(at, len(pairs) >> 1)
            for octets in pairs:
                at = self._put_octets(at, octets)
        return self._end(timestamp, at)

    def append_rows(self, columns: SourceColumns, start: int, stop: int, rows: Any = None) -> int:
        """Add rows `start` to `stop` (exclusive) of columns, as far as the limit leaves room; the next row.

        With `rows`, a buffer of numbers of 64 bits, those are the rows, and `start` and `stop` count in it.
        IndexError for a row that is not there, ValueError for a header without a name; what came before is added.
        """
        chosen = rows
        is_chosen = rows is not None
        at = start
        if at < 0:
            raise IndexError("no such row")
        while at < stop:
            row = chosen[at] if is_chosen else at
            if not self._append_row(columns, row):
                break
            at += 1
        return at

    def _append_row(self, columns: SourceColumns, row: int) -> bool:
        """Add a row; False if it does not fit."""
        columns.check(row)
        keys, values = columns.keys, columns.values
        key_size = keys.length(row) if columns.has_keys else -1
        value_size = values.length(row) if columns.has_values else -1
        headers_size = columns.headers_size(row) if columns.has_headers else 1
        timestamp = columns.timestamp_of(row)
        at = self._begin(timestamp, key_size, value_size, headers_size)
        if at < 0:
            return False
        at = self._put_string(at, keys, row, key_size)
        at = self._put_string(at, values, row, value_size)
        at = self._put_headers(at, columns, row) if columns.has_headers else self._put(at, 0)
        self._end(timestamp, at)
        return True

    def _put_octets(self, at: int, octets: bytes | None) -> int:
        """Write a length and its bytes at a position; returns the position behind them. There must be space."""
        if octets is None:
            return self._put(at, -1)
        at = self._put(at, len(octets))
        copy_bytes(self._buffer, at, octets, 0, len(octets))
        return at + len(octets)

    def _put_string(self, at: int, strings: Strings, row: int, size: int) -> int:
        """As `_put_octets`."""
        at = self._put(at, size)
        if size > 0:
            copy_octets(self._buffer, at, strings.data, strings.starts[strings.offset + row], size)
            at += size
        return at

    def _put_headers(self, at: int, columns: SourceColumns, row: int) -> int:
        number = columns.header_starts[row]
        end = columns.header_ends[row]
        at = self._put(at, end - number)
        while number < end:
            at = self._put_string(at, columns.header_names, number, columns.header_names.length(number))
            at = self._put_string(at, columns.header_values, number, columns.header_values.length(number))
            number += 1
        return at

    def payload(self) -> bytes:
        """The records so far, as they lie in an uncompressed batch."""
        return bytes(self.view())

    def view(self) -> memoryview:
        """As `payload`, not copied: nothing can be added as long as it is there."""
        return self.framed()[HEADER_ROOM:]

    def framed(self) -> memoryview:
        """As `view`, behind space reserved for a batch's header."""
        return memoryview(self._buffer)[: HEADER_ROOM + self.size]

    def _begin(self, timestamp: int, key_size: int, value_size: int, headers_size: int) -> int:
        """Reserve space for a record and write its fields before the key; returns the key's position, -1 without space.

        The builder does not have the record before `_end` says so.
        """
        if timestamp > LARGEST or timestamp < -LARGEST - 1:
            raise OverflowError(f"a timestamp of {timestamp}, which does not fit 64 bits")
        delta = 0 if self.count == 0 else minus(timestamp, self.base_timestamp)
        body = 1 + varint_size(delta) + varint_size(self.count) + varint_size(key_size) + varint_size(value_size)
        body += headers_size
        if key_size > 0:
            body += key_size
        if value_size > 0:
            body += value_size
        needed = self.size + varint_size(body) + body
        if self.is_closed or (self.count > 0 and needed > self.limit):
            return -1
        if needed > MOST_BYTES:
            raise OverflowError(f"a record of {body} bytes, where a batch has {MOST_BYTES} at most")
        if len(self._buffer) < HEADER_ROOM + needed:
            self._grow(needed)
        at = self._put(HEADER_ROOM + self.size, body)
        self._buffer[at] = 0
        at = self._put(at + 1, delta)
        return self._put(at, self.count)

    def _grow(self, needed: int) -> None:
        """Grow the buffer to hold this many bytes of records."""
        room = len(self._buffer) - HEADER_ROOM
        wanted = 2 * room
        if room >= LAST_DOUBLED_ROOM and wanted < MOST_ROOM_AT_ONCE:
            wanted = MOST_ROOM_AT_ONCE
        if wanted > self.limit:
            wanted = self.limit
        resize(self._buffer, HEADER_ROOM + max(needed, wanted))

    def _end(self, timestamp: int, at: int) -> int:
        """Finish a record that ends at a position in the buffer; returns its number."""
        if self.count == 0:
            self.base_timestamp = self.max_timestamp = timestamp
        elif timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
        self.size = at - HEADER_ROOM
        self.count += 1
        return self.count - 1

    def _put(self, at: int, value: int) -> int:
        """Write a signed number as a zig-zag varint; returns the position behind it. There must be space."""
        number = zigzag(value)
        while number > 127:
            self._buffer[at] = number & 127 | 128
            number >>= 7
            at += 1
        self._buffer[at] = number
        return at + 1


class Strings:
    """A column of byte strings as Arrow keeps them, seen from row `offset` on.

    `starts` is a buffer of numbers of 64 bits, one more than there are strings; `data` has their bytes; `valid` is the
    bitmap of those that are not null, None where none is.
    """

    __slots__ = ("count", "data", "has_nulls", "offset", "starts", "valid")

    def __init__(self, starts: Any, data: Any, valid: Any, offset: int, count: int) -> None:
        self.starts = starts
        self.data = data
        self.has_nulls = valid is not None
        self.valid = data if valid is None else valid
        self.offset = offset
        self.count = count

    def length(self, row: int) -> int:
        """The bytes of a row, -1 for null; IndexError if the row or its bytes are missing."""
        if row < 0 or row >= self.count:
            raise IndexError("no such row")
        at = self.offset + row
        if self.has_nulls and not self.valid[at >> 3] >> (at & 7) & 1:
            return -1
        first = self.starts[at]
        end = self.starts[at + 1]
        if first < 0 or end < first or end > len(self.data):
            raise IndexError("a row that is not within the data")
        size: int = end - first
        return size


class SourceColumns:
    """Records in columns of `count` rows, to be encoded; `ottla.records.from_arrow.source_of` makes it.

    Keys and values are `Strings` or None for nothing but nulls. `timestamps` is a buffer of numbers of 64 bits, or None
    where all have `timestamp`. The headers of row i are those from number i of `header_starts` to number i of
    `header_ends` (buffers of numbers of 64 bits) in `header_names` and `header_values`; None where there are none.
    """

    __slots__ = (
        "_times", "count", "has_headers", "has_keys", "has_times", "has_values", "header_ends", "header_names",
        "header_starts", "header_values", "keys", "timestamp", "values",
    )  # fmt: skip

    def __init__(
        self,
        count: int,
        keys: Strings | None,
        values: Strings | None,
        timestamps: Any,
        timestamp: int,
        headers: tuple[Any, Any, Strings, Strings] | None,
    ) -> None:
        """ValueError where a column has fewer than `count` rows."""
        for column in (timestamps, *(headers or ())[:2]):
            if column is not None and len(column) < count:
                raise ValueError(f"a column of {len(column)} rows, where {count} are expected")
        none = memoryview(bytes(8)).cast("q")
        nothing = Strings(none, b"", None, 0, 0)
        self.count = count
        self.has_keys = keys is not None
        self.keys = nothing if keys is None else keys
        self.has_values = values is not None
        self.values = nothing if values is None else values
        self.has_times = timestamps is not None
        self._times = none if timestamps is None else timestamps
        self.timestamp = timestamp
        self.has_headers = headers is not None
        starts, ends, names, texts = (none, none, nothing, nothing) if headers is None else headers
        self.header_starts = starts
        self.header_ends = ends
        self.header_names = names
        self.header_values = texts

    def check(self, row: int) -> None:
        """IndexError if the row is missing."""
        if row < 0 or row >= self.count:
            raise IndexError(f"row {row} of columns that have {self.count}")

    def timestamp_of(self, row: int) -> int:
        """In milliseconds; the row is known to be there."""
        if self.has_times:
            number: int = self._times[row]
            return number
        return self.timestamp

    def headers_size(self, row: int) -> int:
        """The bytes of a row's headers with their count."""
        at = self.header_starts[row]
        end = self.header_ends[row]
        if end < at:
            raise IndexError("headers that end before they begin")
        size = varint_size(end - at)
        while at < end:
            length = self.header_names.length(at)
            if length < 0:
                raise ValueError(f"a header of row {row} has no name")
            size += varint_size(length) + length
            length = self.header_values.length(at)
            size += varint_size(length) + max(length, 0)
            at += 1
        return size


def rows_by_partition(partitions: Any, partition_count: int) -> list[array[int]]:
    """The rows of each partition in their order, and, as the last, those that have none (-1).

    `partitions` is what `partitions_for_keys` gives. ValueError for a partition that is not there.
    """
    check_count(partition_count)
    chosen = partitions
    counts = array("q", bytes(8 * (partition_count + 1)))
    places = counts
    rows = len(chosen)
    for row in range(rows):
        partition = chosen[row]
        if partition < NO_PARTITION or partition >= partition_count:
            raise ValueError(f"partition {partition}, where there are {partition_count}")
        if partition < 0:
            partition = partition_count
        places[partition] += 1
    first = 0
    for partition in range(partition_count + 1):
        size = places[partition]
        places[partition] = first
        first += size
    order = array("q", bytes(8 * rows))
    numbers = order
    for row in range(rows):
        partition = chosen[row]
        if partition < 0:
            partition = partition_count
        numbers[places[partition]] = row
        places[partition] += 1
    ends = [0, *counts]
    return [order[ends[at] : ends[at + 1]] for at in range(partition_count + 1)]


def octets_of(data: bytes | bytearray | memoryview) -> bytes:
    """A key or value as bytes; TypeError for any other type."""
    if isinstance(data, bytes):
        return data
    if isinstance(data, bytearray | memoryview):
        return bytes(data)
    raise TypeError(f"keys, values and headers are bytes here, not {type(data).__name__}; serialize them first")


def header_octets(headers: Iterable[tuple[str, bytes | None]]) -> list[bytes | None]:
    """Names and values in turns, as they are written."""
    pairs: list[bytes | None] = []
    for name, value in headers:
        if not isinstance(name, str):
            raise TypeError(f"names of headers are strings, not {type(name).__name__}")
        pairs.append(name.encode("utf-8"))
        pairs.append(None if value is None else octets_of(value))
    return pairs


def header_octets_size(pairs: list[bytes | None]) -> int:
    """The bytes of the headers with their count."""
    size = varint_size(len(pairs) >> 1)
    for octets in pairs:
        if octets is None:
            size += 1
        else:
            size += varint_size(len(octets)) + len(octets)
    return size


def minus(left: int, right: int) -> int:
    """The difference of two signed numbers of 64 bits, cut to 64 bits as Java does it."""
    mask = 0xFFFFFFFFFFFFFFFF
    difference = (left - right) & mask
    return difference if difference <= mask >> 1 else -(mask - difference) - 1


def zigzag(value: int) -> int:
    """The unsigned number that stands for a signed one: 0, -1, 1, -2 become 0, 1, 2, 3."""
    return value << 1 if value >= 0 else ((-(value + 1)) << 1) + 1


def varint_size(value: int) -> int:
    """The bytes of a signed number as a zig-zag varint."""
    number = zigzag(value)
    size = 1
    while number > 127:
        number >>= 7
        size += 1
    return size


def murmur2(data: bytes) -> int:
    """The 32-bit murmur2 hash, unsigned, as `org.apache.kafka.common.utils.Utils.murmur2` has it."""
    return hash_of(data)


def hash_of(data: bytes) -> int:
    """As `murmur2`, for compiled code, which makes no object of the number."""
    return _murmur2(data, 0, len(data))


def check_count(partition_count: int) -> None:
    """ValueError without partitions."""
    if partition_count < 1:
        raise ValueError(f"{partition_count} partitions, where there must be one")


def partitions_for_keys(keys: Strings, partition_count: int) -> array[int]:
    """The partition of each key as the Java producer's default has it, -1 for null."""
    check_count(partition_count)
    chosen = array("i", bytes(4 * keys.count))
    numbers = chosen
    for row in range(keys.count):
        size = keys.length(row)
        if size < 0:
            numbers[row] = NO_PARTITION
        else:
            hashed = _murmur2(octets_from(keys.data), keys.starts[keys.offset + row], size)
            numbers[row] = (hashed & POSITIVE) % partition_count
    return chosen


def append_pairs(
    pairs: list[Any], at: int, stop: int, builders: list[RecordsBuilder | None], partition_count: int, timestamp: int
) -> int:
    """Add pairs of key and value, numbers `at` to `stop` (exclusive), each to its partition's builder; the next number.

    `builders` has one for each partition, as the Java producer's default chooses it, and at the end one for what has no
    key. It stops at what is not a tuple of two that are bytes or None, and at a missing or full builder.
    """
    check_count(partition_count)
    end = min(stop, len(pairs))
    while at < end:
        item = pairs[at]
        if type(item) is not tuple:
            break
        pair = item
        if len(pair) != PAIR:
            break
        key = pair[0]
        value = pair[1]
        number = partition_count
        if key is not None:
            if type(key) is not bytes:
                break
            number = (hash_of(key) & POSITIVE) % partition_count
        if value is not None and type(value) is not bytes:
            break
        builder = builders[number]
        if builder is None or builder.add(timestamp, key, value, None) < 0:
            break
        at += 1
    return at


def _murmur2(data: Any, start: int, size: int) -> int:
    # Its callers have seen that all of the key is there.
    hashed = SEED ^ size
    at = start
    end = start + (size & ~3)
    while at < end:
        k = data[at + 3]
        k = k << 8 | data[at + 2]
        k = k << 8 | data[at + 1]
        k = k << 8 | data[at]
        k = (k * MULTIPLIER) & MASK
        k = ((k ^ (k >> 24)) * MULTIPLIER) & MASK
        hashed = ((hashed * MULTIPLIER) & MASK) ^ k
        at += 4
    left = size & 3
    if left:
        if left == 3:
            hashed ^= data[at + 2] << 16
        if left >= 2:
            hashed ^= data[at + 1] << 8
        hashed = ((hashed ^ data[at]) * MULTIPLIER) & MASK
    hashed = ((hashed ^ (hashed >> 13)) * MULTIPLIER) & MASK
    return hashed ^ (hashed >> 15)
