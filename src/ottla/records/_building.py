"""Records put one behind the other as they lie in a batch, and the hash of keys: the source of
`ottla.records._building_native` and, where that was not built, what runs in its place. Use it through
`ottla.records.building`.

This is plain Python; the types that make it fast when it is compiled stand in `_building_native.pxd`.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Any

from ottla.records.headers import encode_headers as encode_pairs

try:
    import cython
except ImportError:
    from ottla.records import uncompiled as cython
if not cython.compiled:
    from ottla.records.uncompiled import copy_bytes, copy_octets

FIRST_ROOM = 512
"""Bytes that a builder begins with; it doubles them as often as need be."""
MOST_BYTES = 0x7FFFFFFF - 61
"""A batch says its length in 32 bits, its header included."""
LARGEST = 0x7FFFFFFFFFFFFFFF
MOST_VARINT_BYTES = 10
SEED = 0x9747B28C
MULTIPLIER = 0x5BD1E995
MASK = 0xFFFFFFFF
POSITIVE = 0x7FFFFFFF
NO_PARTITION = -1


class RecordsBuilder:
    """Records of one batch, encoded as they come; nothing is kept of them but their bytes.

    `limit` bounds the bytes of the records, without the batch's header and before compression; a first record may be
    larger. `count` says how many records there are, `size` how many bytes they have. `base_timestamp` is that of the
    first, `max_timestamp` the largest, in milliseconds since the Unix epoch; -1 while there is none.
    """

    __slots__ = ("_buffer", "base_timestamp", "count", "limit", "max_timestamp", "size")

    def __init__(self, limit: int = MOST_BYTES) -> None:
        if not 0 < limit <= MOST_BYTES:
            raise ValueError(f"a limit of {limit} bytes, where 1 to {MOST_BYTES} can be")
        self._buffer = bytearray(FIRST_ROOM)
        self.limit = limit
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
        """Add a record, and give its number in the batch, from 0; -1 where the limit leaves it no room.

        Key, value and the values of headers may be bytes, bytearray or memoryview; TypeError for anything else.
        OverflowError for a timestamp beyond 64 bits, or a record beyond 2 GiB. Nothing is added then.
        """
        key_size = value_size = -1
        if key is not None:
            key = octets_of(key)
            key_size = len(key)
        if value is not None:
            value = octets_of(value)
            value_size = len(value)
        encoded_headers = encode_headers(headers) if headers else b"\0"
        if self._begin(timestamp, key_size, value_size, len(encoded_headers)) < 0:
            return -1
        self._put(key_size)
        if key is not None:
            copy_bytes(self._buffer, self.size, key, 0, key_size)
            self.size += key_size
        self._put(value_size)
        if value is not None:
            copy_bytes(self._buffer, self.size, value, 0, value_size)
            self.size += value_size
        copy_bytes(self._buffer, self.size, encoded_headers, 0, len(encoded_headers))
        self.size += len(encoded_headers)
        self.count += 1
        return self.count - 1

    def append_rows(
        self,
        keys: Strings | None,
        values: Strings | None,
        timestamps: Any,
        timestamp: int,
        start: int,
        stop: int,
    ) -> int:
        """Add rows `start` to `stop` (exclusive) of columns, as far as the limit leaves room; the next row.

        `timestamps` is a buffer of numbers of 64 bits, or None where all rows have `timestamp`. IndexError where a
        column is shorter.
        """
        times = timestamps
        has_times = timestamps is not None
        row = start
        while row < stop:
            if has_times:
                timestamp = times[row]
            key_size = -1 if keys is None else keys.length(row)
            value_size = -1 if values is None else values.length(row)
            if self._begin(timestamp, key_size, value_size, 1) < 0:
                break
            self._put(key_size)
            if keys is not None and key_size > 0:
                copy_octets(self._buffer, self.size, keys.data, keys.starts[keys.offset + row], key_size)
                self.size += key_size
            self._put(value_size)
            if values is not None and value_size > 0:
                copy_octets(self._buffer, self.size, values.data, values.starts[values.offset + row], value_size)
                self.size += value_size
            self._put(0)
            self.count += 1
            row += 1
        return row

    def payload(self) -> bytes:
        """The records so far, as they lie in an uncompressed batch."""
        return bytes(self._buffer[: self.size])

    def _begin(self, timestamp: int, key_size: int, value_size: int, headers_size: int) -> int:
        """Make room for a record and write what comes before its key; -1 where the limit leaves no room."""
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
        if self.count > 0 and needed > self.limit:
            return -1
        if needed > MOST_BYTES:
            raise OverflowError(f"a record of {body} bytes, where a batch has {MOST_BYTES} at most")
        room = len(self._buffer)
        if room < needed:
            self._buffer.extend(bytes(max(needed, 2 * room) - room))
        if self.count == 0:
            self.base_timestamp = self.max_timestamp = timestamp
        elif timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
        self._put(body)
        self._buffer[self.size] = 0
        self.size += 1
        self._put(delta)
        self._put(self.count)
        return 0

    def _put(self, value: int) -> None:
        """Write a signed number as a zig-zag varint. There has to be room."""
        number = zigzag(value)
        at = self.size
        while number > 127:
            self._buffer[at] = number & 127 | 128
            number >>= 7
            at += 1
        self._buffer[at] = number
        self.size = at + 1


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
        """The bytes of a row, -1 for null; IndexError where there is no such row, or its bytes are not there."""
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


def octets_of(data: bytes | bytearray | memoryview) -> bytes:
    """What a record takes as key or value; TypeError where that is not clear."""
    if isinstance(data, bytes):
        return data
    if isinstance(data, bytearray | memoryview):
        return bytes(data)
    raise TypeError(f"keys, values and headers are bytes here, not {type(data).__name__}; serialize them first")


def encode_headers(headers: Iterable[tuple[str, bytes | None]]) -> bytes:
    """As `ottla.records.headers.encode_headers`, with the types checked."""
    pairs: list[tuple[str, bytes | None]] = []
    for name, value in headers:
        if not isinstance(name, str):
            raise TypeError(f"names of headers are strings, not {type(name).__name__}")
        pairs.append((name, None if value is None else octets_of(value)))
    return encode_pairs(pairs)


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
    return _murmur2(data, 0, len(data))


def partitions_for_keys(keys: Strings, partition_count: int) -> array[int]:
    """The partition of each key as the Java producer's default has it, -1 for null."""
    chosen = array("i", bytes(4 * keys.count))
    numbers = chosen
    for row in range(keys.count):
        size = keys.length(row)
        if size < 0:
            numbers[row] = NO_PARTITION
        else:
            hashed = _murmur2(keys.data, keys.starts[keys.offset + row], size)
            numbers[row] = (hashed & POSITIVE) % partition_count
    return chosen


def _murmur2(data: Any, start: int, size: int) -> int:
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
