"""Messages of formats 0 and 1 made into batches of format 2, offsets and times kept, for readers that know only those.

Brokers send what lies in old segments as it is, whatever the version of the fetch.
"""

from __future__ import annotations

from itertools import pairwise

from ottla.records.batch import LENGTH_AT, LOG_OVERHEAD, MAGIC, MAGIC_AT, MAX_INT32, SMALLEST_SIZE, TimestampType
from ottla.records.errors import BatchError, CorruptMessageError
from ottla.records.message_set import (
    MAX_MESSAGES,
    MessageHeader,
    check_message_crc,
    decode_message,
    parse_message_header,
)
from ottla.records.record import MAX_DECOMPRESSED_BYTES, Record, encode_batch

#: Messages that become one batch at most.
RECORDS_PER_BATCH = 1000
NOTHING = memoryview(b"")


def upgrade(buf: memoryview, *, intact_only: bool = False) -> memoryview:
    """The batches in `buf` and, where there are messages of older formats, batches in their place, uncompressed.

    What is cut off at the end stays as it is. Raises CorruptMessageError for a wrong checksum or size, and BatchError.
    With `intact_only` damaged messages raise only if `buf` begins with them; otherwise the result ends before them.
    """
    if not _has_messages(buf, intact_only=intact_only):
        return buf
    upgraded = _Upgraded()
    position, end = 0, len(buf)
    while end - position > MAGIC_AT:
        try:
            length = _entry_length(buf, position)
            if length > end - position:
                break
            upgraded.add(buf[position : position + length])
        except BatchError:
            if not (intact_only and position):
                raise
            return upgraded.take()
        position += length
    return upgraded.take(buf[position:])


class _Upgraded:
    """Collects batches, and messages as batches."""

    def __init__(self) -> None:
        self._output: list[bytes | memoryview] = []
        #: Messages that become one batch.
        self._waiting: list[Record] = []
        self._stamped = TimestampType.NO_TIMESTAMP_TYPE

    def add(self, entry: memoryview) -> None:
        """Add a batch or message; CorruptMessageError, BatchError."""
        if entry[MAGIC_AT] == MAGIC:
            self._flush()
            self._output.append(entry)
            return
        message = parse_message_header(entry)
        records = _records(entry, message)
        waiting = self._waiting
        if waiting and (
            message.timestamp_type != self._stamped
            or message.timestamp_type == TimestampType.LOG_APPEND_TIME  # which a batch has once for all its records
            or len(waiting) >= RECORDS_PER_BATCH
            or not waiting[-1].offset < records[0].offset
            or records[-1].offset - waiting[0].offset > MAX_INT32
        ):
            self._flush()
        self._stamped = message.timestamp_type
        self._waiting += records

    def take(self, rest: memoryview = NOTHING) -> memoryview:
        """Everything collected, and `rest` behind it."""
        self._flush()
        return memoryview(b"".join([*self._output, rest]))

    def _flush(self) -> None:
        records, self._waiting = self._waiting, []
        if not records:
            return
        stamped = self._stamped == TimestampType.LOG_APPEND_TIME
        self._output.append(
            encode_batch(
                records,
                base_offset=records[0].offset,
                keep_offsets=True,
                timestamp_type=TimestampType.LOG_APPEND_TIME if stamped else TimestampType.CREATE_TIME,
            )
        )


def _has_messages(buf: memoryview, *, intact_only: bool) -> bool:
    position, end = 0, len(buf)
    while end - position > MAGIC_AT:
        if buf[position + MAGIC_AT] < MAGIC:
            return True
        try:
            position += _entry_length(buf, position)
        except BatchError:
            if not (intact_only and position):
                raise
            break  # found by whoever splits the batches
    return False


def _entry_length(buf: memoryview, position: int) -> int:
    size = int.from_bytes(buf[position + LENGTH_AT : position + LOG_OVERHEAD], "big", signed=True)
    if size < SMALLEST_SIZE:
        raise CorruptMessageError(f"a batch of size {size}")
    return size + LOG_OVERHEAD


def _records(entry: memoryview, message: MessageHeader) -> list[Record]:
    if not check_message_crc(entry, message):
        raise CorruptMessageError(f"the message at offset {message.offset} has a wrong checksum")
    records = decode_message(entry, message, MAX_DECOMPRESSED_BYTES, MAX_MESSAGES)
    in_order = all(before.offset < after.offset for before, after in pairwise(records))
    if not in_order or records[-1].offset - records[0].offset > MAX_INT32:
        raise BatchError(f"the messages of the wrapper at offset {message.offset} are not in order")
    return records
