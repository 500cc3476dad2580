"""Results of a walk over the records of a batch; see `ottla.records.walk`."""

from __future__ import annotations

from typing import NamedTuple


class RecordsSummary(NamedTuple):
    """A broker's facts about well-formed records. Timestamps are milliseconds since the Unix epoch."""

    #: The smallest timestamp of a record that has one; the largest number of 64 bits where none has.
    lowest_timestamp: int
    #: The largest timestamp, -1 where no record has one.
    highest_timestamp: int
    #: How many records have no key.
    keyless: int
    #: Whether the records' offsets count up from the batch's base offset.
    counts_up: bool


class RecordFault(NamedTuple):
    """A record that is malformed: which one of the batch, from 0, and what is wrong with it."""

    record_index: int
    reason: str


class KeyScan(NamedTuple):
    """The log cleaner's facts about records, column by column; all lists have the same length."""

    offset_deltas: list[int]
    timestamp_deltas: list[int]
    keys: list[bytes | None]
    #: Whether the record has a value; one without is a tombstone.
    has_values: list[bool]
    #: Where each record ends, its length included: bytes from the beginning of the records. The next one begins there.
    ends: list[int]
