"""The walk over records, byte by byte: the source of `ottla.records._walk_native` and, where that was not built, what
runs in its place. Use it through `ottla.records.walk`.

This is plain Python; the types that make it fast when it is compiled stand in `_walk_native.pxd`. Both must do the
same, so numbers that C would cut to 64 bits are cut here by hand.

A record is: length (varint), attributes (1 byte, unused), timestamp delta (varlong), offset delta (varint), key and
value (length as varint, negative for null), headers (count, then key and value each).
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any

from ottla.records.errors import BatchError
from ottla.records.headers import read_headers
from ottla.records.walked import KeyScan, RecordFault, RecordsSummary

try:
    import cython
except ImportError:
    from ottla.records import uncompiled as cython
if not cython.compiled:
    from ottla.records.uncompiled import copy_octets, octets_of, resize, tuple_of

SMALLEST_RECORD = 7
NULL_SIZE = -1
NO_HEADERS = -1


class Cursor:
    """A place in the data that goes forward only.

    Nothing else reads the data, and never beyond its end: a read there gives 0 and leaves the place beyond the end, as
    does whatever cannot be. A record must end within the data, so one comparison at its end finds every such fault.
    What a walk costs grows with the bytes there are, whatever counts say.
    """

    __slots__ = (
        "at", "data", "headers_at", "key_at", "key_size", "offset_delta", "record_end", "size", "timestamp_delta",
        "value_at", "value_size",
    )  # fmt: skip

    def __init__(self, data: bytes | bytearray | memoryview) -> None:
        self.data = data
        self.size = len(data)
        self.at = 0
        # Where the record lies that `read_record` came by last. Sizes are -1 for null, `headers_at` is for no headers.
        self.offset_delta = self.timestamp_delta = self.record_end = 0
        self.key_at = self.key_size = self.value_at = self.value_size = self.headers_at = 0

    def varint(self) -> int:
        """A signed number of 32 bits, in five bytes at most."""
        at = self.at
        if at < self.size:
            number = self.data[at]
            if number < 128:
                self.at = at + 1
                return (number >> 1) ^ -(number & 1)
        mask = 0xFFFFFFFF
        number = self._long_number(5) & mask
        return (number >> 1) ^ -(number & 1)

    def varlong(self) -> int:
        """A signed number of 64 bits, in ten bytes at most."""
        number = self._long_number(10)
        return (number >> 1) ^ -(number & 1)

    def _long_number(self, most_bytes: int) -> int:
        at = self.at
        size = self.size
        mask = 0xFFFFFFFFFFFFFFFF
        number = shift = 0
        while at < size and most_bytes > 0:
            byte = self.data[at]
            at += 1
            number |= (byte & 127) << shift
            if byte < 128:
                self.at = at
                return number & mask
            shift += 7
            most_bytes -= 1
        self.at = size + 1
        return 0

    def skip_value_and_headers(self) -> None:
        """Go where the record ends whose value begins here."""
        length = self.varint()
        if length > 0:
            self.at += length
        self.skip_headers(self.varint())

    def skip_headers(self, count: int) -> None:
        """Go behind so many headers."""
        # A header has two bytes at least.
        if count < 0 or count > (self.size - self.at) >> 1:
            if count != 0:
                self.at = self.size + 1
            return
        while count > 0:
            count -= 1
            length = self.varint()
            if length < 0:
                self.at = self.size + 1
                return
            self.at += length
            length = self.varint()
            if length > 0:
                self.at += length

    def read_record(self, index: int) -> int:
        """Go behind the record that begins here, number `index` of its batch, and note where its fields lie.

        Raises BatchError where it is malformed; else its fields lie within the data.
        """
        length = self.varint()
        left = self.size - self.at
        if length < 0 or length > left:
            raise BatchError(f"record {index} says it has {length} bytes, but {max(left, 0)} are left")
        self.record_end = self.at + length
        self.at += 1
        self.timestamp_delta = self.varlong()
        self.offset_delta = self.varint()
        size = self.varint()
        self.key_at = self.at
        self.key_size = size
        if size < 0:
            self.key_size = NULL_SIZE
        elif size > self.record_end - self.at:
            raise BatchError(f"record {index} has a key that does not end with it, at byte {self.record_end}")
        else:
            self.at += size
        size = self.varint()
        self.value_at = self.at
        self.value_size = size
        if size < 0:
            self.value_size = NULL_SIZE
        elif size > self.record_end - self.at:
            raise BatchError(f"record {index} has a value that does not end with it, at byte {self.record_end}")
        else:
            self.at += size
        self.headers_at = self.at
        size = self.varint()
        if size == 0:
            self.headers_at = NO_HEADERS
        else:
            self.skip_headers(size)
        if self.at != self.record_end:
            raise BatchError(f"record {index} has fields that do not end with it, at byte {self.record_end}")
        return 0


def check_records(
    records: bytes | bytearray | memoryview, count: int, base_timestamp: int
) -> RecordsSummary | RecordFault:
    """See `ottla.records.walk`."""
    cursor = Cursor(records)
    keyless = 0
    counts_up = True
    lowest = 0x7FFFFFFFFFFFFFFF
    highest = -1
    for index in range(count):
        length = cursor.varint()
        left = cursor.size - cursor.at
        if length < 0 or length > left:
            return RecordFault(index, f"it says it has {length} bytes, but {max(left, 0)} are left in the batch")
        record_end = cursor.at + length
        cursor.at += 1
        timestamp = _plus(base_timestamp, cursor.varlong())
        if cursor.varint() != index:
            counts_up = False
        key_size = cursor.varint()
        if key_size < 0:
            keyless += 1
        else:
            cursor.at += key_size
        cursor.skip_value_and_headers()
        if cursor.at != record_end:
            return RecordFault(index, f"its fields do not end with it, at byte {record_end} of the records")
        if timestamp > highest:
            highest = timestamp
        if timestamp < lowest and timestamp != -1:
            lowest = timestamp
    left = cursor.size - cursor.at
    if left != 0:
        return RecordFault(max(count - 1, 0), f"the batch declares {count} records, but {left} bytes follow them")
    return RecordsSummary(lowest, highest, keyless, counts_up)


def scan_keys(records: bytes, count: int) -> KeyScan:
    """See `ottla.records.walk`."""
    cursor = Cursor(records)
    offset_deltas: list[int] = []
    timestamp_deltas: list[int] = []
    keys: list[bytes | None] = []
    has_values: list[bool] = []
    ends: list[int] = []
    for index in range(count):
        length = cursor.varint()
        left = cursor.size - cursor.at
        if length < 0 or length > left:
            raise BatchError(f"record {index} says it has {length} bytes, but {max(left, 0)} are left")
        record_end = cursor.at + length
        cursor.at += 1
        timestamp_deltas.append(cursor.varlong())
        offset_deltas.append(cursor.varint())
        key_size = cursor.varint()
        at = cursor.at
        if key_size < 0:
            keys.append(None)
        else:
            if key_size > record_end - at:
                raise BatchError(f"record {index} has a key that does not end with it, at byte {record_end}")
            keys.append(records[at : at + key_size])
            cursor.at = at = at + key_size
        has_values.append(cursor.varint() >= 0)
        cursor.at = at
        cursor.skip_value_and_headers()
        if cursor.at != record_end:
            raise BatchError(f"record {index} has fields that do not end with it, at byte {record_end}")
        ends.append(record_end)
    left = cursor.size - cursor.at
    if left != 0:
        raise BatchError(f"{count} records declared, but {left} bytes follow them")
    return KeyScan(offset_deltas, timestamp_deltas, keys, has_values, ends)


def read_records(
    records: bytes | bytearray | memoryview,
    count: int,
    kind: Any,
    topic: str,
    partition: int,
    base_offset: int,
    base_timestamp: int,
    timestamp_type: Any,
    append_timestamp: int | None,
    leader_epoch: int,
    start_offset: int,
    key_deserializer: Callable[[str, Any, bytes | None], Any] | None,
    value_deserializer: Callable[[str, Any, bytes | None], Any] | None,
) -> list[Any]:
    """See `ottla.records.consumed.decode_consumed`; `kind` is the class of tuples to make."""
    _check_count(len(records), count)
    cursor = Cursor(records)
    made: list[Any] = []
    if not issubclass(kind, tuple):
        raise TypeError(f"{kind!r} is not a kind of tuple")
    for index in range(count):
        cursor.read_record(index)
        offset = _plus(base_offset, cursor.offset_delta)
        if offset < start_offset:
            continue
        key: Any = None
        if cursor.key_size >= 0:
            key = octets_of(cursor.data, cursor.key_at, cursor.key_size)
        value: Any = None
        if cursor.value_size >= 0:
            value = octets_of(cursor.data, cursor.value_at, cursor.value_size)
        headers: Any = ()
        if cursor.headers_at != NO_HEADERS:
            size = cursor.record_end - cursor.headers_at
            headers = read_headers(octets_of(cursor.data, cursor.headers_at, size), 0, size)
        if key_deserializer is not None:
            key = key_deserializer(topic, headers, key)
        if value_deserializer is not None:
            value = value_deserializer(topic, headers, value)
        timestamp: Any = append_timestamp
        if append_timestamp is None:
            timestamp = _plus(base_timestamp, cursor.timestamp_delta)
        key_size, value_size = cursor.key_size, cursor.value_size
        fields = (
            topic, partition, offset, timestamp, timestamp_type, key, value, headers, leader_epoch, key_size, value_size
        )  # fmt: skip
        made.append(tuple_of(kind, fields))
    _check_end(cursor, count)
    return made


def _check_count(size: int, count: int) -> None:
    if count < 0 or count > size // SMALLEST_RECORD:
        raise BatchError(f"{size} bytes cannot hold the declared number of {count} records")


def _check_end(cursor: Cursor, count: int) -> None:
    left = cursor.size - cursor.at
    if left != 0:
        raise BatchError(f"{count} records declared, but {left} bytes follow them")


def grown(numbers: array[int], room: int) -> array[int]:
    """A copy with room for `room` numbers and for as many again as there were.

    A new one, since what a compiled module looks into cannot be made longer.
    """
    longer = array(numbers.typecode, bytes(numbers.itemsize * max(room, 2 * len(numbers))))
    longer[: len(numbers)] = numbers
    return longer


class BinaryColumn:
    """Byte strings, one behind the other, and nulls: what Arrow's binary arrays are made of.

    String i begins at `ends[i]` in `data` and ends at `ends[i + 1]`; bit i of `valid` is 1 unless it is null.
    """

    __slots__ = ("_ends", "count", "data", "ends", "nulls", "used", "valid")

    def __init__(self) -> None:
        self.count = 0
        self.used = 0
        self.nulls = 0
        self.ends = self._ends = array("i", bytes(4))
        self.data = bytearray()
        self.valid = bytearray()

    def reserve(self, rows: int, size: int) -> None:
        """Make room for so many more strings of so many bytes in all."""
        room = self.count + rows + 1
        if len(self.ends) < room:
            self.ends = self._ends = grown(self.ends, room)
        room = (self.count + rows + 7) >> 3
        if len(self.valid) < room:
            self.valid.extend(bytes(max(room, 2 * len(self.valid)) - len(self.valid)))
        self._reserve_bytes(size)

    def _reserve_bytes(self, size: int) -> None:
        room = self.used + size
        if len(self.data) < room:
            resize(self.data, max(room, 2 * len(self.data)))

    def append(self, source: bytes | bytearray | memoryview, at: int, size: int) -> None:
        """Add `size` bytes of `source`, or null for a negative size. There has to be a row for it."""
        row = self.count
        if size < 0:
            self.nulls += 1
        else:
            if size > len(self.data) - self.used:
                self._reserve_bytes(size)
            copy_octets(self.data, self.used, source, at, size)
            self.used += size
            self.valid[row >> 3] |= 1 << (row & 7)
        self.count = row + 1
        self._ends[row + 1] = self.used


class RowColumns:
    """Records column by column, gathered from several batches, as `array` and bytes that Arrow takes over as they are.

    The headers of a row lie in `header_keys` and `header_values` up to `header_ends[row + 1]`; they are gathered where
    `with_headers` says so.
    """

    __slots__ = (
        "_offsets", "_timestamps", "count", "header_ends", "header_keys", "header_values", "keys", "offsets",
        "timestamps", "values", "with_headers",
    )  # fmt: skip

    def __init__(self, with_headers: bool = False) -> None:
        self.with_headers = with_headers
        self.count = 0
        self.offsets = self._offsets = array("q")
        self.timestamps = self._timestamps = array("q")
        self.keys = BinaryColumn()
        self.values = BinaryColumn()
        self.header_ends = array("i", bytes(4))
        self.header_keys = BinaryColumn()
        self.header_values = BinaryColumn()

    def reserve(self, rows: int, size: int) -> None:
        """Make room for so many more rows, which have so many bytes in all."""
        room = self.count + rows
        if len(self.offsets) < room:
            self.offsets = self._offsets = grown(self.offsets, room)
            self.timestamps = self._timestamps = grown(self.timestamps, room)
        self.keys.reserve(rows, 0)  # few have large keys: their room grows as it is needed
        self.values.reserve(rows, size)
        if self.with_headers and len(self.header_ends) <= room:
            self.header_ends = grown(self.header_ends, room + 1)

    def append(
        self,
        records: bytes | bytearray | memoryview,
        count: int,
        base_offset: int,
        base_timestamp: int,
        append_timestamp: int | None,
        start_offset: int,
        end_offset: int,
    ) -> int:
        """Add the records of a batch whose offsets are from `start_offset` to `end_offset` (exclusive); how many.

        Raises BatchError where a record is malformed; what came before it in the batch may have been added then.
        """
        _check_count(len(records), count)
        self.reserve(count, len(records))
        cursor = Cursor(records)
        before = self.count
        is_append_time = append_timestamp is not None
        fixed_timestamp = append_timestamp or 0
        for index in range(count):
            cursor.read_record(index)
            offset = _plus(base_offset, cursor.offset_delta)
            if offset < start_offset or offset >= end_offset:
                continue
            row = self.count
            self._offsets[row] = offset
            self._timestamps[row] = fixed_timestamp if is_append_time else _plus(base_timestamp, cursor.timestamp_delta)
            self.keys.append(cursor.data, cursor.key_at, cursor.key_size)
            self.values.append(cursor.data, cursor.value_at, cursor.value_size)
            if self.with_headers:
                self._add_headers(records, cursor.headers_at, row)
            self.count = row + 1
        _check_end(cursor, count)
        return self.count - before

    def _add_headers(self, records: bytes | bytearray | memoryview, at: int, row: int) -> None:
        """Add the headers that begin with their count at `at`; they were found to be sound."""
        if at != NO_HEADERS:
            cursor = Cursor(records)
            cursor.at = at
            count = cursor.varint()
            while count > 0:
                count -= 1
                size = cursor.varint()
                self.header_keys.reserve(1, size)
                self.header_keys.append(cursor.data, cursor.at, size)
                cursor.at += size
                size = cursor.varint()
                self.header_values.reserve(1, max(size, 0))
                self.header_values.append(cursor.data, cursor.at, size)
                if size > 0:
                    cursor.at += size
        self.header_ends[row + 1] = self.header_keys.count


def _plus(left: int, right: int) -> int:
    """The sum of two signed numbers of 64 bits, cut to 64 bits as Java does it."""
    mask = 0xFFFFFFFFFFFFFFFF
    total = (left + right) & mask
    return total if total <= mask >> 1 else -(mask - total) - 1
