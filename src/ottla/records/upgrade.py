"""Messages of formats 0 and 1 made into batches of format 2, offsets and times kept, for readers that know only those.

Brokers send what lies in old segments as it is, whatever the version of the fetch.
"""

from __future__ import annotations

from itertools import pairwise

from ottla.records.batch import MAGIC, MAGIC_AT, MAX_INT32, TimestampType
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


def upgrade(buf: memoryview) -> memoryview:
    """The batches in `buf` and, where there are messages of older formats, batches in their place, uncompressed.

    What is cut off at the end stays as it is. Raises CorruptMessageError for a wrong checksum or size, and BatchError.
    """
    if not _has_messages(buf):
        return buf
    output: list[bytes | memoryview] = []
    waiting: list[Record] = []
    stamped = TimestampType.NO_TIMESTAMP_TYPE
    position, end = 0, len(buf)
    while end - position > MAGIC_AT:
        length = _entry_length(buf, position)
        if length > end - position:
            break
        entry = buf[position : position + length]
        position += length
        if entry[MAGIC_AT] == MAGIC:
            _flush(output, waiting, stamped)
            waiting = []
            output.append(entry)
            continue
        message = parse_message_header(entry)
        records = _records(entry, message)
        if waiting and (
            message.timestamp_type != stamped
            or message.timestamp_type == TimestampType.LOG_APPEND_TIME  # which a batch has once for all its records
            or len(waiting) >= RECORDS_PER_BATCH
            or not waiting[-1].offset < records[0].offset
            or records[-1].offset - waiting[0].offset > MAX_INT32
        ):
            _flush(output, waiting, stamped)
            waiting = []
        stamped = message.timestamp_type
        waiting += records
    _flush(output, waiting, stamped)
    output.append(buf[position:])
    return memoryview(b"".join(output))


def _has_messages(buf: memoryview) -> bool:
    position, end = 0, len(buf)
    while end - position > MAGIC_AT:
        if buf[position + MAGIC_AT] < MAGIC:
            return True
        position += _entry_length(buf, position)
    return False


def _entry_length(buf: memoryview, position: int) -> int:
    size = int.from_bytes(buf[position + 8 : position + 12], "big", signed=True)
    if size <= 0:
        raise CorruptMessageError(f"a batch of size {size}")
    return size + 12


def _records(entry: memoryview, message: MessageHeader) -> list[Record]:
    if not check_message_crc(entry, message):
        raise CorruptMessageError(f"the message at offset {message.offset} has a wrong checksum")
    records = decode_message(entry, message, MAX_DECOMPRESSED_BYTES, MAX_MESSAGES)
    in_order = all(before.offset < after.offset for before, after in pairwise(records))
    if not in_order or records[-1].offset - records[0].offset > MAX_INT32:
        raise BatchError(f"the messages of the wrapper at offset {message.offset} are not in order")
    return records


def _flush(output: list[bytes | memoryview], records: list[Record], timestamp_type: TimestampType) -> None:
    if not records:
        return
    stamped = timestamp_type == TimestampType.LOG_APPEND_TIME
    output.append(
        encode_batch(
            records,
            base_offset=records[0].offset,
            keep_offsets=True,
            timestamp_type=TimestampType.LOG_APPEND_TIME if stamped else TimestampType.CREATE_TIME,
        )
    )
