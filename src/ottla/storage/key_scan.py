"""The columns of a batch's records that compaction needs, with the end of each record."""

from __future__ import annotations

from ottla.records import walk
from ottla.records.record import decode_columns
from ottla.records.varint import read_varint
from ottla.records.walked import KeyScan


def scan_keys(records: bytes, count: int) -> KeyScan:
    """Parse `count` uncompressed records; they must fill `records` to the last byte, else BatchError."""
    if walk.COMPILED:
        return walk.scan_keys(records, count)
    # In plain Python this is faster than the walk.
    columns = decode_columns(records, count)
    ends: list[int] = []
    end = 0
    for _ in range(count):
        number, end = read_varint(records, end)
        end += number >> 1
        ends.append(end)
    has_values = [value is not None for value in columns.values]
    return KeyScan(columns.offset_deltas, columns.timestamp_deltas, columns.keys, has_values, ends)
