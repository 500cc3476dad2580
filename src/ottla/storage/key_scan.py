"""The columns of a batch's records that compaction looks at, with where each record ends."""

from __future__ import annotations

from typing import NamedTuple

from ottla.records.record import decode_columns
from ottla.records.varint import read_varint


class KeyScan(NamedTuple):
    """What the cleaner has to know of records, column by column; all lists have the same length."""

    offset_deltas: list[int]
    timestamp_deltas: list[int]
    keys: list[bytes | None]
    #: Whether the record has a value; one without is a tombstone.
    has_values: list[bool]
    #: Where each record ends, bytes from the beginning of the records. The next one begins there.
    ends: list[int]


def scan_keys(records: bytes, count: int) -> KeyScan:
    """Take `count` uncompressed records apart; they must fill `records` to the last byte, else BatchError."""
    columns = decode_columns(records, count)
    ends: list[int] = []
    end = 0
    for _ in range(count):
        number, end = read_varint(records, end)
        end += number >> 1
        ends.append(end)
    has_values = [value is not None for value in columns.values]
    return KeyScan(columns.offset_deltas, columns.timestamp_deltas, columns.keys, has_values, ends)
