"""The walk over records, byte by byte: the source of `ottla.records._walk_native` and, where that was not built, what
runs in its place. Use it through `ottla.records.walk`.

This is plain Python; the types that make it fast when it is compiled stand in `_walk_native.pxd`. Both must do the
same, so numbers that C would cut to 64 bits are cut here by hand.

A record is: length (varint), attributes (1 byte, unused), timestamp delta (varlong), offset delta (varint), key and
value (length as varint, negative for null), headers (count, then key and value each).
"""

from __future__ import annotations

from ottla.records.errors import BatchError
from ottla.records.walked import KeyScan, RecordFault, RecordsSummary


class Cursor:
    """A place in the data that goes forward only.

    Nothing else reads the data, and never beyond its end: a read there gives 0 and leaves the place beyond the end, as
    does whatever cannot be. A record must end within the data, so one comparison at its end finds every such fault.
    What a walk costs grows with the bytes there are, whatever counts say.
    """

    __slots__ = ("at", "data", "size")

    def __init__(self, data: bytes | bytearray | memoryview) -> None:
        self.data = data
        self.size = len(data)
        self.at = 0

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
        count = self.varint()
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


def _plus(left: int, right: int) -> int:
    """The sum of two signed numbers of 64 bits, cut to 64 bits as Java does it."""
    mask = 0xFFFFFFFFFFFFFFFF
    total = (left + right) & mask
    return total if total <= mask >> 1 else -(mask - total) - 1
