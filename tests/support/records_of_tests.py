"""Records that say where they stand."""

from __future__ import annotations

from ottla.records.record import Record

#: 2013-01-01 05:15:00.123.
START_MS = 1_357_017_300_123


def numbered(count: int, first: int = 0) -> list[Record]:
    """`count` records: seven keys in turn, `value N`, a millisecond apart."""
    return [Record(0, START_MS + n, b"k%d" % (n % 7), b"value %d" % n) for n in range(first, first + count)]
