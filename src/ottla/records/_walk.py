"""The walk over records, byte by byte: the source of `ottla.records._walk_native` and, where that was not built, what
runs in its place. Use it through `ottla.records.walk`.

This is plain Python; the types that make it fast when it is compiled stand in `_walk_native.pxd`. Both must do the
same, so numbers that C would cut to 64 bits are cut here by hand.

A record is: length (varint), attributes (1 byte, unused), timestamp delta (varlong), offset delta (varint), key and
value (length as varint, negative for null), headers (count, then key and value each).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.records.errors import BatchError
from ottla.records.walked import KeyScan, RecordFault, RecordsSummary

try:
    import cython
except ImportError:
    from ottla.records import uncompiled as cython
if not cython.compiled:
    from ottla.records.uncompiled import copy_octets, octets_of, put_int, put_long, record_of, resize, text_of

SMALLEST_RECORD = 7
NULL_SIZE = -1
NO_HEADERS = -1


class Cursor:
    """A cursor over the data that only moves forward.

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
        """Move to the end of the record whose value begins here."""
        length = self.varint()
        if length > 0:
            self.at += length
        self.skip_headers(self.varint())

    def skip_headers(self, count: int) -> None:
        """Move past this many headers."""
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
            keys.append(octets_of(cursor.data, at, key_size))
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
    key_deserializer: Callable[[str, Any, bytes], Any] | None,
    value_deserializer: Callable[[str, Any, bytes], Any] | None,
) -> list[Any]:
    """See `ottla.records.consumed.decode_consumed`; `kind` is the class of tuples to make."""
    reader = _reader(records, count)
    made: list[Any] = []
    if not issubclass(kind, tuple):
        raise TypeError(f"{kind!r} is not a kind of tuple")
    is_plain = key_deserializer is None and value_deserializer is None
    is_append_time = append_timestamp is not None
    timestamp = base_timestamp
    time: Any = append_timestamp if is_append_time else base_timestamp
    for index in range(count):
        reader.read_record(index)
        offset = _plus(base_offset, reader.offset_delta)
        if offset < start_offset:
            continue
        key: Any = None
        if reader.key_size >= 0:
            key = octets_of(reader.data, reader.key_at, reader.key_size)
        value: Any = None
        if reader.value_size >= 0:
            value = octets_of(reader.data, reader.value_at, reader.value_size)
        headers: Any = ()
        if reader.headers_at != NO_HEADERS:
            headers = _headers(reader)
        if not is_plain:
            if key_deserializer is not None and key is not None:
                key = key_deserializer(topic, headers, key)
            if value_deserializer is not None and value is not None:
                value = value_deserializer(topic, headers, value)
        if not is_append_time:
            added = _plus(base_timestamp, reader.timestamp_delta)
            if added != timestamp:  # records that follow each other often have the same
                time = timestamp = added
        made.append(
            record_of(
                kind, is_plain, topic, partition, offset, time, timestamp_type, key, value, headers, leader_epoch,
                reader.key_size, reader.value_size,
            )
        )  # fmt: skip
    _check_end(reader, count)
    return made


def _headers(reader: Cursor) -> tuple[tuple[str, bytes | None], ...]:
    """The headers of the last record read, which are well-formed. Invalid UTF-8 in their names is replaced."""
    behind = reader.at
    reader.at = reader.headers_at
    count = reader.varint()
    headers: list[tuple[str, bytes | None]] = []
    value: bytes | None
    while count > 0:
        count -= 1
        size = reader.varint()
        name = text_of(reader.data, reader.at, size)
        reader.at += size
        size = reader.varint()
        value = None
        if size >= 0:
            value = octets_of(reader.data, reader.at, size)
            reader.at += size
        headers.append((name, value))
    reader.at = behind
    return tuple(headers)


def read_columns(
    records: bytes | bytearray | memoryview, count: int
) -> tuple[list[int], list[int], list[bytes | None], list[bytes | None], list[tuple[tuple[str, bytes | None], ...]]]:
    """See `ottla.records.record.decode_columns`."""
    reader = _reader(records, count)
    offset_deltas: list[int] = []
    timestamp_deltas: list[int] = []
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    headers: list[tuple[tuple[str, bytes | None], ...]] = []
    for index in range(count):
        reader.read_record(index)
        offset_deltas.append(reader.offset_delta)
        timestamp_deltas.append(reader.timestamp_delta)
        keys.append(None if reader.key_size < 0 else octets_of(reader.data, reader.key_at, reader.key_size))
        values.append(None if reader.value_size < 0 else octets_of(reader.data, reader.value_at, reader.value_size))
        headers.append(() if reader.headers_at == NO_HEADERS else _headers(reader))
    _check_end(reader, count)
    return offset_deltas, timestamp_deltas, keys, values, headers


def _reader(records: bytes | bytearray | memoryview, count: int) -> Cursor:
    _check_count(len(records), count)
    return Cursor(records)


def _check_count(size: int, count: int) -> None:
    if count < 0 or count > size // SMALLEST_RECORD:
        raise BatchError(f"{size} bytes cannot hold the declared number of {count} records")


def _check_end(cursor: Cursor, count: int) -> None:
    left = cursor.size - cursor.at
    if left != 0:
        raise BatchError(f"{count} records declared, but {left} bytes follow them")


def room_for(buffer: bytearray, size: int) -> None:
    """Double the buffer until it has `size` bytes; new bytes are undefined."""
    if len(buffer) < size:
        resize(buffer, max(size, 2 * len(buffer)))


class BinaryColumn:
    """Byte strings, one behind the other, and nulls: what Arrow's binary arrays are made of.

    String i lies in `data` from number i of `ends` (of 32 bits each) to number i + 1; bit i of `valid` is 1 unless it
    is null. The buffers have room behind what they hold.
    """

    __slots__ = ("count", "data", "ends", "nulls", "used", "valid")

    def __init__(self) -> None:
        self.count = 0
        self.used = 0
        self.nulls = 0
        self.ends = bytearray(4)
        self.data = bytearray()
        self.valid = bytearray()

    def reserve(self, rows: int, size: int) -> None:
        """Make room for `rows` more strings of `size` bytes in all. OverflowError beyond 2 GiB."""
        most = 0x7FFFFFFF
        if size > most - self.used:
            raise OverflowError("a column holds at most 2 GiB; take what was gathered first")
        room_for(self.ends, 4 * (self.count + rows + 1))
        room_for(self.valid, (self.count + rows + 7) >> 3)
        room_for(self.data, self.used + size)

    def append(self, source: Cursor, at: int, size: int) -> None:
        """Add `size` bytes of what `source` reads, or null for a negative size. There has to be a row for it."""
        row = self.count
        bit = row & 7
        if bit == 0:
            self.valid[row >> 3] = 0
        if size < 0:
            self.nulls += 1
        else:
            if size > len(self.data) - self.used:
                self.reserve(0, size)
            copy_octets(self.data, self.used, source.data, at, size)
            self.used += size
            self.valid[row >> 3] |= 1 << bit
        self.count = row + 1
        put_int(self.ends, row + 1, self.used)

    def cut(self, count: int, used: int, nulls: int) -> None:
        """Remove what was added after this many."""
        self.count, self.used, self.nulls = count, used, nulls
        if count & 7:
            self.valid[count >> 3] &= (1 << (count & 7)) - 1


class RowColumns:
    """Records column by column, gathered from several batches, as buffers that Arrow takes over as they are.

    `offsets` and `timestamps` are numbers of 64 bits. The headers of row i lie in `header_keys` and `header_values`
    from number i of `header_ends` (of 32 bits each) to number i + 1; they are gathered where `with_headers` says so.
    """

    __slots__ = (
        "count", "header_ends", "header_keys", "header_values", "keys", "offsets", "timestamps", "values",
        "with_headers",
    )  # fmt: skip

    def __init__(self, with_headers: bool = False) -> None:
        self.with_headers = with_headers
        self.count = 0
        self.offsets = bytearray()
        self.timestamps = bytearray()
        self.keys = BinaryColumn()
        self.values = BinaryColumn()
        self.header_ends = bytearray(4)
        self.header_keys = BinaryColumn()
        self.header_values = BinaryColumn()

    def reserve(self, rows: int, size: int) -> None:
        """Make room for `rows` more rows of `size` bytes in all."""
        room = self.count + rows
        self.keys.reserve(rows, 0)  # few have large keys: their room grows as it is needed
        self.values.reserve(rows, size)
        room_for(self.offsets, 8 * room)
        room_for(self.timestamps, 8 * room)
        if self.with_headers:
            room_for(self.header_ends, 4 * (room + 1))

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

        BatchError where a record is malformed, OverflowError where a column would have more than 2 GiB; nothing is
        added then.
        """
        reader = _reader(records, count)
        self.reserve(count, len(records))
        before = self.count
        columns = (self.keys, self.values, self.header_keys, self.header_values)
        held = [(column.count, column.used, column.nulls) for column in columns]
        is_append_time = append_timestamp is not None
        timestamp = append_timestamp or 0
        try:
            for index in range(count):
                reader.read_record(index)
                offset = _plus(base_offset, reader.offset_delta)
                if offset < start_offset or offset >= end_offset:
                    continue
                if not is_append_time:
                    timestamp = _plus(base_timestamp, reader.timestamp_delta)
                self._add(reader, offset, timestamp)
            _check_end(reader, count)
        except Exception:
            self.count = before
            for column, (rows, used, nulls) in zip(columns, held, strict=True):
                column.cut(rows, used, nulls)
            raise
        return self.count - before

    def _add(self, reader: Cursor, offset: int, timestamp: int) -> None:
        row = self.count
        put_long(self.offsets, row, offset)
        put_long(self.timestamps, row, timestamp)
        self.keys.append(reader, reader.key_at, reader.key_size)
        self.values.append(reader, reader.value_at, reader.value_size)
        if self.with_headers:
            if reader.headers_at != NO_HEADERS:
                self._add_headers(reader)
            put_int(self.header_ends, row + 1, self.header_keys.count)
        self.count = row + 1

    def _add_headers(self, reader: Cursor) -> None:
        """Add the headers of the last record read, which are well-formed."""
        behind = reader.at
        reader.at = reader.headers_at
        count = reader.varint()
        while count > 0:
            count -= 1
            size = reader.varint()
            self.header_keys.reserve(1, size)
            self.header_keys.append(reader, reader.at, size)
            reader.at += size
            size = reader.varint()
            self.header_values.reserve(1, max(size, 0))
            self.header_values.append(reader, reader.at, size)
            if size > 0:
                reader.at += size
        reader.at = behind


def _plus(left: int, right: int) -> int:
    """The sum of two signed numbers of 64 bits, cut to 64 bits as Java does it."""
    mask = 0xFFFFFFFFFFFFFFFF
    total = (left + right) & mask
    return total if total <= mask >> 1 else -(mask - total) - 1
