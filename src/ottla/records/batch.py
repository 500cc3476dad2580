"""The layout of a record batch v2: a header of 61 bytes, then the records, compressed as a whole or not.

Source: https://kafka.apache.org/documentation/#recordbatch. Offsets and leader epoch lie outside the checksum, so that
a broker can set them in place without touching the rest.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum

from ottla.records.compression import Compression
from ottla.records.crc import crc32c, crc32c_on
from ottla.records.errors import BatchError, UnsupportedMagicError

MAGIC = 2

BASE_OFFSET_AT = 0
LENGTH_AT = 8
LEADER_EPOCH_AT = 12
MAGIC_AT = 16
CRC_AT = 17
ATTRIBUTES_AT = 21
LAST_OFFSET_DELTA_AT = 23
BASE_TIMESTAMP_AT = 27
MAX_TIMESTAMP_AT = 35
PRODUCER_ID_AT = 43
PRODUCER_EPOCH_AT = 51
BASE_SEQUENCE_AT = 53
RECORDS_COUNT_AT = 57
RECORDS_AT = 61

LOG_OVERHEAD = 12
"""Bytes of base offset and length, which the length field does not count."""
BATCH_OVERHEAD = RECORDS_AT
"""Bytes of a batch without records."""
SMALLEST_SIZE = 14
"""What the length field of the smallest message of any format says: that of format 0, without key and value."""

COMPRESSION_MASK = 0x07
LOG_APPEND_TIME_FLAG = 0x08
TRANSACTIONAL_FLAG = 0x10
CONTROL_FLAG = 0x20
DELETE_HORIZON_FLAG = 0x40

NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_LEADER_EPOCH = -1

MAX_INT32 = 0x7FFFFFFF

#: The head of a batch, field by field.
BATCH_HEAD = struct.Struct(">qiibIhiqqqhii")
_LENGTH = struct.Struct(">i")
_OFFSET = struct.Struct(">q")
_CHECKSUM = struct.Struct(">I")
_TIMESTAMP_FIELDS = struct.Struct(">h")


class TimestampType(IntEnum):
    """The source of a batch's timestamps: the producer, or the broker on append."""

    NO_TIMESTAMP_TYPE = -1
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


@dataclass(slots=True)
class BatchHeader:
    """The header of one batch, and where the batch lies in the buffer it was read from.

    `length` and `position` are in bytes; `length` is that of the whole batch, the first 12 bytes included. Timestamps
    are milliseconds since the Unix epoch. `producer_id`, `producer_epoch` and `base_sequence` are -1 without
    idempotence.
    """

    base_offset: int
    length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int
    position: int

    @property
    def compression(self) -> Compression:
        """How the records are compressed; BatchError for a number that stands for nothing."""
        codec = self.attributes & COMPRESSION_MASK
        try:
            return Compression(codec)
        except ValueError:
            raise BatchError(f"unknown compression type {codec}") from None

    @property
    def timestamp_type(self) -> TimestampType:
        """The source of the timestamps."""
        if self.attributes & LOG_APPEND_TIME_FLAG:
            return TimestampType.LOG_APPEND_TIME
        return TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction."""
        return bool(self.attributes & TRANSACTIONAL_FLAG)

    @property
    def is_control(self) -> bool:
        """Whether the batch holds a control record, which is not for applications."""
        return bool(self.attributes & CONTROL_FLAG)

    @property
    def last_offset(self) -> int:
        """Offset of the last record that the batch had when it was written; compaction keeps it."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """Offset after the batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """Sequence number of the last record, -1 without; numbers go from 2^31-1 on to 0."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & MAX_INT32

    @property
    def delete_horizon(self) -> int | None:
        """From when on the cleaner may drop the tombstones of the batch (KIP-534), None where it is not set yet."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_FLAG else None

    @property
    def end_position(self) -> int:
        """The start of the next batch in the buffer."""
        return self.position + self.length


def parse_batch_header(buf: bytes | bytearray | memoryview, position: int = 0) -> BatchHeader:
    """Read the header of the batch that begins at `position`; the whole batch must lie within `buf`.

    Raises BatchError where it does not, where its length cannot be, or where it is of another format
    (UnsupportedMagicError). Neither checksum nor records are looked at.
    """
    available = len(buf) - position
    if available < BATCH_OVERHEAD:
        if available > MAGIC_AT and (magic := _magic(buf, position)) != MAGIC:
            raise UnsupportedMagicError(magic)
        raise BatchError(f"a record batch needs at least {BATCH_OVERHEAD} bytes, there are {available}")
    header = BatchHeader(*(*BATCH_HEAD.unpack_from(buf, position), position))
    if header.magic != MAGIC:
        raise UnsupportedMagicError(header.magic)
    header.length = length = header.length + LOG_OVERHEAD
    if length < BATCH_OVERHEAD:
        raise BatchError(f"record batch of {length} bytes is smaller than its header of {BATCH_OVERHEAD}")
    if length > available:
        raise BatchError(f"record batch is cut off: it says {length} bytes, there are {available}")
    return header


def split_batches(
    buf: bytes | bytearray | memoryview, *, partial_tail: bool = False, intact_only: bool = False
) -> list[BatchHeader]:
    """The headers of the batches that fill `buf`, in order.

    With `partial_tail` a last batch that is cut off is left out without complaint, as in fetch responses; the caller
    sees how far it got by the last header's `end_position`. Raises BatchError as `parse_batch_header` does; with
    `intact_only` it does so for the first batch alone, and the headers end before a later one that is damaged.
    """
    headers: list[BatchHeader] = []
    position, end = 0, len(buf)
    while position < end:
        if partial_tail and is_cut_off(buf, position):
            break
        try:
            header = parse_batch_header(buf, position)
        except BatchError:
            if intact_only and headers:
                break
            raise
        headers.append(header)
        position += header.length
    return headers


def check_crc(buf: bytes | bytearray | memoryview, header: BatchHeader) -> bool:
    """Whether the checksum in the header is that of the batch's bytes."""
    view = buf if type(buf) is memoryview else memoryview(buf)
    position = header.position
    return crc32c(view[position + ATTRIBUTES_AT : position + header.length]) == header.crc


def patch_batch(buf: bytearray | memoryview, position: int, base_offset: int, leader_epoch: int) -> None:
    """Give the batch at `position` its base offset and leader epoch, in place; the checksum stays right."""
    _OFFSET.pack_into(buf, position, base_offset)
    _LENGTH.pack_into(buf, position + LEADER_EPOCH_AT, leader_epoch)


def patch_max_timestamp(buf: bytearray | memoryview, position: int, max_timestamp: int, timestamp_type: int) -> int:
    """Set timestamp type and largest timestamp (milliseconds) in place, recompute the checksum and return it.

    This is how a broker stamps a batch with the time of append: the records keep their own timestamps, and the reader
    takes the header's for all of them.
    """
    view = memoryview(buf)
    length = _LENGTH.unpack_from(view, position + LENGTH_AT)[0] + LOG_OVERHEAD
    (attributes,) = _TIMESTAMP_FIELDS.unpack_from(view, position + ATTRIBUTES_AT)
    if timestamp_type == TimestampType.LOG_APPEND_TIME:
        attributes |= LOG_APPEND_TIME_FLAG
    else:
        attributes &= ~LOG_APPEND_TIME_FLAG
    _TIMESTAMP_FIELDS.pack_into(view, position + ATTRIBUTES_AT, attributes)
    _OFFSET.pack_into(view, position + MAX_TIMESTAMP_AT, max_timestamp)
    crc = crc32c(view[position + ATTRIBUTES_AT : position + length])
    _CHECKSUM.pack_into(view, position + CRC_AT, crc)
    return crc


def frame_batch(payload: bytes | memoryview, header: BatchHeader) -> bytes:
    """A whole batch from the header's fields and the (compressed) records; length and checksum are computed here."""
    head = bytearray(BATCH_OVERHEAD)
    BATCH_HEAD.pack_into(
        head,
        0,
        header.base_offset,
        BATCH_OVERHEAD + len(payload) - LOG_OVERHEAD,
        header.partition_leader_epoch,
        MAGIC,
        0,
        header.attributes,
        header.last_offset_delta,
        header.base_timestamp,
        header.max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.records_count,
    )
    checksum = crc32c_on(crc32c(memoryview(head)[ATTRIBUTES_AT:]), payload)
    _CHECKSUM.pack_into(head, CRC_AT, checksum)
    return b"".join((head, payload))


def frame_in_place(whole: memoryview, *fields: int) -> None:
    """As `frame_batch`, where the records lie behind room for the header: that is written to.

    `fields` are those of `BatchHeader` from `attributes` to `records_count`; the batch begins at offset 0.
    """
    BATCH_HEAD.pack_into(whole, 0, 0, len(whole) - LOG_OVERHEAD, NO_LEADER_EPOCH, MAGIC, 0, *fields)
    _CHECKSUM.pack_into(whole, CRC_AT, crc32c(whole[ATTRIBUTES_AT:]))


def _magic(buf: bytes | bytearray | memoryview, position: int) -> int:
    magic = buf[position + MAGIC_AT]
    return magic - 256 if magic > 127 else magic


def is_cut_off(buf: bytes | bytearray | memoryview, position: int) -> bool:
    """Whether a batch or message of any format may begin at `position` and end after `buf`.

    It is as Apache Kafka has it (`ByteBufferLogInputStream`): what can be seen of it must be possible.
    """
    available = len(buf) - position
    if available < LOG_OVERHEAD:
        return True
    size: int = _LENGTH.unpack_from(buf, position + LENGTH_AT)[0]
    if size < SMALLEST_SIZE:
        return False
    if available <= MAGIC_AT:
        return True
    return 0 <= _magic(buf, position) <= MAGIC and size + LOG_OVERHEAD > available
