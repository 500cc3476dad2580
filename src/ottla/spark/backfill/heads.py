"""Iterating over the heads of the batches of a segment, without reading their records."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from ottla.env.file_reader import ReadableFile
from ottla.records.batch import (
    BATCH_OVERHEAD,
    CONTROL_FLAG,
    LOG_OVERHEAD,
    MAGIC,
    NO_PRODUCER_ID,
    TRANSACTIONAL_FLAG,
    parse_batch_header,
)
from ottla.records.control import ControlRecordType, control_record_type
from ottla.records.errors import BatchError
from ottla.records.message_set import SMALLEST_MESSAGE, SMALLEST_SIZE
from ottla.records.record import decode_batch
from ottla.spark.backfill.errors import DamagedBatchError

#: Bytes that are read at a time.
WINDOW_BYTES: Final = 64 * 1024
#: Size of the smallest batch or message, by magic.
SMALLEST: Final = (*(LOG_OVERHEAD + size for size in SMALLEST_SIZE), BATCH_OVERHEAD)

#: Base offset, length, magic, attributes, last offset delta, producer id and number of records.
_HEAD: Final = struct.Struct(">qi4xb4xhi16xq6xi")


class BatchHead(NamedTuple):
    """The place of a batch (or message of an old format) in its file, and what is known without its records.

    Of messages of old formats, wrappers included, `base_offset` is the last offset: the others are known only after
    decompression.
    """

    position: int
    length: int
    base_offset: int
    last_offset: int
    attributes: int
    producer_id: int
    records_count: int

    @property
    def has_gaps(self) -> bool:
        """Whether it has fewer records than offsets."""
        return self.records_count != self.last_offset - self.base_offset + 1

    @property
    def is_control(self) -> bool:
        """Whether it holds a control record."""
        return bool(self.attributes & CONTROL_FLAG)

    @property
    def is_transactional(self) -> bool:
        """Whether it belongs to a transaction."""
        return bool(self.attributes & TRANSACTIONAL_FLAG)


def walk_heads(file: ReadableFile, position: int) -> Iterator[BatchHead]:
    """The heads from `position` (the start of a batch) to the last one whose batch is complete.

    A batch that is being written, or zeros, may follow. Checksums are not checked. Raises DiskError, and
    DamagedBatchError at bytes that are not a batch.
    """
    window, window_at = b"", position
    size = file.measure()
    last_offset = -1
    while size - position >= SMALLEST_MESSAGE:
        at = position - window_at
        if at < 0 or at + _HEAD.size > len(window):
            window, window_at, at = file.pread(min(WINDOW_BYTES, size - position), position), position, 0
            if len(window) < SMALLEST_MESSAGE:
                return  # cut meanwhile
            window = window.ljust(_HEAD.size, b"\0")
        base_offset, length, magic, attributes, delta, producer_id, count = _HEAD.unpack_from(window, at)
        length += LOG_OVERHEAD
        if not 0 <= magic <= MAGIC or length < SMALLEST[magic]:
            if is_zero(file, position):
                return
            reason = f"there is no batch: its format would be {magic}, its length {length}"
            raise DamagedBatchError(file.path, position, last_offset + 1, reason)
        if position + length > size:
            return
        if magic < MAGIC:
            last_offset, attributes, producer_id, count = base_offset, 0, NO_PRODUCER_ID, 1
        else:
            last_offset = base_offset + delta
        yield BatchHead(position, length, base_offset, last_offset, attributes, producer_id, count)
        position += length


def is_zero(file: ReadableFile, position: int) -> bool:
    """Whether nothing but zeros follows: space that was allocated and not written yet. Raises DiskError."""
    while piece := file.pread(WINDOW_BYTES, position):
        if piece.count(0) != len(piece):
            return False
        position += len(piece)
    return True


def marker_type(file: ReadableFile, head: BatchHead) -> ControlRecordType:
    """The kind of a control batch. Raises DiskError, DamagedBatchError."""
    data = memoryview(file.pread(head.length, head.position))
    try:
        records = decode_batch(data, parse_batch_header(data))
        return control_record_type(records[0].key) if records else ControlRecordType.UNKNOWN
    except BatchError as error:
        raise DamagedBatchError(file.path, head.position, head.base_offset, str(error)) from None
