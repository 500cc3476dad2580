"""Iterating over the batches of a log file by their headers, a few KiB at a time.

Only what is needed to find a batch is read: base offset, length, format and last offset. Message sets of the old
formats (magic 0 and 1), which Apache Kafka's log directories may still hold, are supported too: each of their messages,
wrapper messages included, carries the offset of its last record.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Final, NamedTuple

from ottla.env.disk import DiskFile
from ottla.env.warmth import pread
from ottla.records.batch import (
    ATTRIBUTES_AT,
    BATCH_OVERHEAD,
    CRC_AT,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_AT,
    MAX_TIMESTAMP_AT,
    NO_TIMESTAMP,
)
from ottla.records.crc import crc32c, crc32c_on
from ottla.records.errors import BatchError
from ottla.records.message_set import SMALLEST_MESSAGE

#: Base offset, length, magic and last offset delta, at their places in a batch of format 2.
_PLACE: Final = struct.Struct(">qi4xb6xi")
#: Base offset, length, leader epoch, magic, checksum, last offset delta, largest timestamp and producer id.
_HEAD: Final = struct.Struct(">qiibI2xi8xqq")
_MESSAGE: Final = struct.Struct(">qiIbbq")
CHECKSUM_BYTES: Final = 4
_CHECKSUM_END: Final = 16
_TIMESTAMP_END: Final = MAX_TIMESTAMP_AT + 8
#: Read at a time when a single batch is looked for, and when a whole segment is scanned.
LOOKUP_BYTES: Final = 8 * 1024
SCAN_BYTES: Final = 1024 * 1024


class Place(NamedTuple):
    """Position and length of a batch in its file, and its offsets."""

    position: int
    #: At least `SMALLEST_MESSAGE`, so that the next position is larger; the file may end before the batch does.
    length: int
    base_offset: int
    last_offset: int


class ScannedBatch(NamedTuple):
    """A batch found by a scan, with the fields that recovery needs; `data` is the whole batch."""

    position: int
    length: int
    #: For formats 0 and 1, whose messages name their last offset only: the last offset.
    first_offset: int
    last_offset: int
    max_timestamp: int
    magic: int
    #: -1 if the format has none; likewise the producer id.
    leader_epoch: int
    producer_id: int
    data: memoryview


def find_batch(file: DiskFile, position: int, end: int, offset: int) -> Place | None:
    """The first batch from `position` on (which must be the start of a batch) that ends at `offset` or later.

    None if there is none before `end`. Raises DiskError, and BatchError at bytes that are not a batch.
    """
    need = _PLACE.size
    while position < end:
        window = pread(file, min(LOOKUP_BYTES, end - position), position)
        if len(window) < need:
            window = _padded(file, window, position)
        at, last = 0, len(window) - need
        while at <= last:
            base_offset, length, magic, delta = _PLACE.unpack_from(window, at)
            last_offset = base_offset + delta if magic >= 2 else base_offset
            length += LOG_OVERHEAD
            if length < SMALLEST_MESSAGE:
                raise _no_batch(file, position + at, length)
            if last_offset >= offset:
                return Place(position + at, length, base_offset, last_offset)
            at += length
        position += at
    return None


def batch_at(file: DiskFile, position: int) -> Place | None:
    """The batch that begins at `position`; None at the end of the file. Raises as `find_batch`."""
    head = pread(file, _PLACE.size, position)
    if not head:
        return None
    if len(head) < _PLACE.size:
        head = _padded(file, head, position)
    base_offset, length, magic, delta = _PLACE.unpack(head)
    length += LOG_OVERHEAD
    if length < SMALLEST_MESSAGE:
        raise _no_batch(file, position, length)
    return Place(position, length, base_offset, base_offset + delta if magic >= 2 else base_offset)


def _padded(file: DiskFile, head: bytes, position: int) -> bytes:
    """The last bytes of a file, padded for a short message of format 0. Raises BatchError if they are too few for any
    message.
    """
    if len(head) < SMALLEST_MESSAGE:
        raise BatchError(f"{file.path}: no record batch at position {position}: {len(head)} bytes are left")
    return head.ljust(_PLACE.size, b"\0")


def _no_batch(file: DiskFile, position: int, length: int) -> BatchError:
    """A length that is too small for any batch; following it, a scan would not advance."""
    return BatchError(f"{file.path}: no record batch at position {position}: its length would be {length}")


def max_timestamp_at(file: DiskFile, position: int) -> int:
    """The largest timestamp of the batch that begins at `position`, -1 if it has none. Raises DiskError."""
    head = pread(file, _TIMESTAMP_END, position)
    if len(head) < SMALLEST_MESSAGE or head[MAGIC_AT] == 0:
        return NO_TIMESTAMP
    if head[MAGIC_AT] == 1:
        return int.from_bytes(head[18:26], "big", signed=True)
    return int.from_bytes(head[MAX_TIMESTAMP_AT:_TIMESTAMP_END], "big", signed=True)


def scan_batches(file: DiskFile, position: int, end: int, window_bytes: int = SCAN_BYTES) -> Iterator[ScannedBatch]:
    """All intact batches from `position` to `end` (complete, with a correct checksum).

    The scan stops at the first damaged one. `window_bytes` are read at a time, or one batch. Raises DiskError.
    """
    unpack, head_size = _HEAD.unpack_from, BATCH_OVERHEAD
    while position < end:
        window = memoryview(file.pread(min(window_bytes, end - position), position))
        size, at = len(window), 0
        while size - at >= head_size:
            first, length, epoch, magic, crc, delta, timestamp, producer_id = unpack(window, at)
            stop = at + length + LOG_OVERHEAD
            if stop > size or magic != MAGIC:
                break
            if stop - at < head_size or delta < 0 or crc32c(window[at + ATTRIBUTES_AT : stop]) != crc:
                return
            yield ScannedBatch(
                position + at, stop - at, first, first + delta, timestamp, MAGIC, epoch, producer_id, window[at:stop]
            )
            at = stop
        batch = _batch_at(file, position + at, end) if at < size else None
        if batch is not None:
            yield batch
            at += batch.length
        elif at < size or not size:
            return
        position += at


def _batch_at(file: DiskFile, position: int, end: int) -> ScannedBatch | None:
    """One batch of any format, read separately; None if it is not intact."""
    head = file.pread(min(BATCH_OVERHEAD, end - position), position)
    if len(head) < SMALLEST_MESSAGE:
        return None
    length = int.from_bytes(head[8:LOG_OVERHEAD], "big", signed=True) + LOG_OVERHEAD
    if length < SMALLEST_MESSAGE or length > end - position:
        return None
    if length > SCAN_BYTES and not _is_intact(file, position, length, head):
        return None
    data = memoryview(file.pread(length, position))
    return _checked(data, position) if len(data) == length else None


def _is_intact(file: DiskFile, position: int, length: int, head: bytes) -> bool:
    """Whether the checksum of a large batch is right, read in pieces: a damaged length must not lead to reading the
    rest of the file into memory.
    """
    if head[MAGIC_AT] == MAGIC:
        wanted_at, start, checksum_on = CRC_AT, ATTRIBUTES_AT, crc32c_on
    elif head[MAGIC_AT] in (0, 1):
        wanted_at, start, checksum_on = LOG_OVERHEAD, _CHECKSUM_END, _crc32_on
    else:
        return False
    checksum = 0
    for at in range(position + start, position + length, SCAN_BYTES):
        checksum = checksum_on(checksum, file.pread(min(SCAN_BYTES, position + length - at), at))
    return head[wanted_at : wanted_at + CHECKSUM_BYTES] == checksum.to_bytes(CHECKSUM_BYTES, "big")


def _crc32_on(before: int, data: bytes | bytearray | memoryview) -> int:
    return zlib.crc32(data, before)


def _checked(data: memoryview, position: int) -> ScannedBatch | None:
    """The batch in `data`, or None where its checksum is wrong."""
    magic, size = data[MAGIC_AT], len(data)
    if magic == MAGIC and size >= BATCH_OVERHEAD:
        first, _, epoch, _, crc, delta, timestamp, producer_id = _HEAD.unpack_from(data)
        if delta < 0 or crc32c(data[ATTRIBUTES_AT:]) != crc:
            return None
        return ScannedBatch(position, size, first, first + delta, timestamp, magic, epoch, producer_id, data)
    if magic > 1:
        return None
    offset, _, checksum, _, _, timestamp = _MESSAGE.unpack_from(data)
    if zlib.crc32(data[_CHECKSUM_END:]) != checksum:
        return None
    return ScannedBatch(position, size, offset, offset, timestamp if magic == 1 else -1, magic, -1, -1, data)
