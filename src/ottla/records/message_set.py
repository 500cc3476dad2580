"""Message sets, the record formats 0 and 1 that came before batches: parse, check, decode, build.

A message is: offset (8 bytes), size of what follows (4), CRC-32 of what follows it (4), magic (1), attributes (1), in
format 1 a timestamp (8), then key and value, each behind its size in 4 bytes, -1 for null. Attributes: the low three
bits name the compression, bit 3 says (format 1) that the broker set the timestamp. A compressed message is a
*wrapper*: its value is a message set, compressed as a whole, and its offset is that of its last message. Within a
wrapper of format 0 offsets are absolute; of format 1 they count from 0, and the wrapper's own says where that is
(KIP-31). A wrapper of format 1 stamped by the broker gives its time to all its messages (KIP-32).

Source: https://kafka.apache.org/documentation/#messageset
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from ottla.records.batch import (
    COMPRESSION_MASK,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD,
    NO_TIMESTAMP,
    TimestampType,
)
from ottla.records.compression import Bytes, Compression, compress, decompress
from ottla.records.errors import BatchError, CorruptMessageError
from ottla.records.record import Record

MAGIC_0: Final = 0
MAGIC_1: Final = 1

#: Bytes of the smallest message: offset and size, then 14 bytes in format 0 and 22 in format 1.
SMALLEST_MESSAGE: Final = LOG_OVERHEAD + 14
#: What the size of a message is at least, by magic.
SMALLEST_SIZE: Final = (14, 22)
_CRC_AT: Final = 12
_CHECKED_AT: Final = 16
#: Where the size of the key stands, by magic.
_KEY_AT: Final = (18, 26)
#: What a message set may hold at most, unless the caller says otherwise.
MAX_MESSAGES: Final = 10_000_000

#: What messages of both formats begin with: offset, size, checksum, magic, attributes.
MESSAGE_HEAD: Final = struct.Struct(">qiIbb")
_HEAD_1: Final = struct.Struct(">qiIbbq")
_TIMESTAMP: Final = struct.Struct(">q")
_SIZE: Final = struct.Struct(">i")
_CHECKED_HEAD: Final = (struct.Struct(">bb"), struct.Struct(">bbq"))
_SET_HEAD: Final = struct.Struct(">qiI")


@dataclass(slots=True)
class MessageHeader:
    """The head of one message, which may be a wrapper, and where it lies in its buffer.

    `length` and `position` are in bytes, `length` counts the 12 bytes of offset and size too; `offset` is that of the
    last message in a wrapper. `timestamp` is in milliseconds since the Unix epoch, -1 in format 0.
    """

    offset: int
    length: int
    crc: int
    magic: int
    attributes: int
    timestamp: int
    position: int

    @property
    def compression(self) -> Compression:
        """How the value is compressed; BatchError for a number that stands for nothing in these formats."""
        codec = self.attributes & COMPRESSION_MASK
        if codec > Compression.LZ4:
            raise BatchError(f"a message of format {self.magic} cannot have compression type {codec}")
        return Compression(codec)

    @property
    def is_wrapper(self) -> bool:
        """Whether the value is a compressed message set."""
        return bool(self.attributes & COMPRESSION_MASK)

    @property
    def timestamp_type(self) -> TimestampType:
        """The source of the timestamp; format 0 has none."""
        if self.magic == MAGIC_0:
            return TimestampType.NO_TIMESTAMP_TYPE
        if self.attributes & LOG_APPEND_TIME_FLAG:
            return TimestampType.LOG_APPEND_TIME
        return TimestampType.CREATE_TIME

    @property
    def end_position(self) -> int:
        """The start of the next message in the buffer."""
        return self.position + self.length


def parse_message_header(buf: Bytes, position: int = 0) -> MessageHeader:
    """Read the head of the message at `position`; the whole message must lie within `buf`.

    Raises CorruptMessageError where it does not, where its size cannot be, or where it is of another format. Neither
    checksum nor key and value are looked at.
    """
    available = len(buf) - position
    if available < SMALLEST_MESSAGE:
        raise CorruptMessageError(f"a message needs at least {SMALLEST_MESSAGE} bytes, there are {available}")
    offset, size, crc, magic, attributes = MESSAGE_HEAD.unpack_from(buf, position)
    if magic not in (MAGIC_0, MAGIC_1):
        raise CorruptMessageError(f"a message of format {magic}, where only 0 and 1 can be")
    if size < SMALLEST_SIZE[magic]:
        raise CorruptMessageError(f"a message of size {size}, smaller than its head of {SMALLEST_SIZE[magic]}")
    if size + LOG_OVERHEAD > available:
        raise CorruptMessageError(f"a message is cut off: it says {size + LOG_OVERHEAD} bytes, there are {available}")
    timestamp = _TIMESTAMP.unpack_from(buf, position + 18)[0] if magic == MAGIC_1 else NO_TIMESTAMP
    return MessageHeader(offset, size + LOG_OVERHEAD, crc, magic, attributes & 0xFF, timestamp, position)


def check_message_crc(buf: Bytes, header: MessageHeader) -> bool:
    """Whether the checksum in the head is that of the message's bytes."""
    return zlib.crc32(memoryview(buf)[header.position + _CHECKED_AT : header.end_position]) == header.crc


def decode_message(
    buf: Bytes, header: MessageHeader, max_decompressed_bytes: int, max_messages: int = MAX_MESSAGES
) -> list[Record]:
    """The records of a message: itself, or those in the wrapper that it is, with absolute offsets.

    The outer checksum is not looked at, those of messages in a wrapper are. Raises BatchError where the content is
    malformed or grows beyond a limit, its subclass CorruptMessageError where a message inside is damaged.
    """
    if not header.is_wrapper:
        key, value = _key_and_value(buf, header.position + _KEY_AT[header.magic], header.end_position)
        return [Record(header.offset, header.timestamp, key, value)]
    compression = header.compression
    _, value = _key_and_value(buf, header.position + _KEY_AT[header.magic], header.end_position)
    if value is None:
        raise BatchError(f"a wrapper message of format {header.magic} has no value")
    data = bytes(decompress(compression, value, max_decompressed_bytes, broken_lz4=header.magic == MAGIC_0))
    records = _decode_inner(data, header.magic, max_messages)
    if not records:
        raise BatchError("a wrapper message holds no messages")
    if header.magic == MAGIC_1:
        _make_absolute(records, header.offset)
        if header.timestamp_type == TimestampType.LOG_APPEND_TIME:
            for record in records:
                record.timestamp = header.timestamp
    return records


def _make_absolute(records: list[Record], wrapper_offset: int) -> None:
    """Count the offsets of messages in a wrapper of format 1 from where it begins.

    Certain versions of librdkafka leave the wrapper's offset at 0 when they produce: then they count from 0.
    """
    last = records[-1].offset
    if wrapper_offset == 0:
        return
    if wrapper_offset < last:
        raise BatchError(f"the wrapper's offset {wrapper_offset} is less than that of its last message, {last}")
    base = wrapper_offset - last
    for record in records:
        record.offset += base


def _decode_inner(data: bytes, magic: int, max_messages: int) -> list[Record]:
    """The messages of a decompressed set, as they stand there. One that is cut off at the end is left out."""
    records: list[Record] = []
    position, end = 0, len(data)
    key_at = _KEY_AT[magic]
    while end - position >= LOG_OVERHEAD:
        size = _SIZE.unpack_from(data, position + 8)[0]
        if size < SMALLEST_SIZE[MAGIC_0]:
            raise CorruptMessageError(f"a message of size {size} within a wrapper")
        stop = position + LOG_OVERHEAD + size
        if stop > end:
            break
        header = parse_message_header(data, position)
        if header.crc != zlib.crc32(memoryview(data)[position + _CHECKED_AT : stop]):
            raise CorruptMessageError(f"wrong checksum of the message at byte {position} of a wrapper")
        if header.magic != magic:
            raise BatchError(f"a message of format {header.magic} within a wrapper of format {magic}")
        if header.is_wrapper:
            raise BatchError("a compressed message within a wrapper")
        if len(records) >= max_messages:
            raise BatchError(f"more than {max_messages} messages in a wrapper")
        key, value = _key_and_value(data, position + key_at, stop)
        records.append(Record(header.offset, header.timestamp, key, value))
        position = stop
    return records


def _key_and_value(buf: Bytes, position: int, end: int) -> tuple[bytes | None, bytes | None]:
    key: bytes | None = None
    (size,) = _SIZE.unpack_from(buf, position)
    position += 4
    if size >= 0:
        if size > end - position - 4:
            raise BatchError(f"a key of {size} bytes, where {end - position} are left in the message")
        key = bytes(buf[position : position + size])
        position += size
    (size,) = _SIZE.unpack_from(buf, position)
    position += 4
    if size < 0:
        return key, None
    if size > end - position:
        raise BatchError(f"a value of {size} bytes, where {end - position} are left in the message")
    return key, bytes(buf[position : position + size])


def encode_messages(
    records: Sequence[Record],
    magic: int,
    *,
    compression: Compression = Compression.NONE,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    log_append_time_ms: int = NO_TIMESTAMP,
    compression_level: int | None = None,
) -> bytes:
    """A message set of at least one record, in one wrapper where it is compressed; headers are left out.

    The records' own offsets are kept and must rise. With LOG_APPEND_TIME all get `log_append_time_ms`. ValueError for
    zstd, which these formats do not know.
    """
    if compression > Compression.LZ4:
        raise ValueError(f"format {magic} cannot be compressed with {compression.name.lower()}")
    if any(after.offset <= before.offset for before, after in pairwise(records)):
        raise ValueError("offsets must rise")
    stamped = magic == MAGIC_1 and timestamp_type == TimestampType.LOG_APPEND_TIME
    attributes = LOG_APPEND_TIME_FLAG if stamped else 0
    base = records[0].offset if magic == MAGIC_1 and compression != Compression.NONE else 0
    output: list[bytes] = []
    for record in records:
        timestamp = log_append_time_ms if stamped else record.timestamp
        _append_message(output, record.offset - base, magic, attributes, timestamp, record.key, record.value)
    data = b"".join(output)
    if compression == Compression.NONE:
        return data
    timestamp = log_append_time_ms if stamped else max(record.timestamp for record in records)
    value = compress(compression, data, compression_level, broken_lz4=magic == MAGIC_0)
    wrapper: list[bytes] = []
    _append_message(wrapper, records[-1].offset, magic, attributes | compression, timestamp, None, value)
    return b"".join(wrapper)


def _append_message(
    output: list[bytes],
    offset: int,
    magic: int,
    attributes: int,
    timestamp: int,
    key: bytes | None,
    value: bytes | None,
) -> None:
    head = _CHECKED_HEAD[magic]
    checked = head.pack(magic, attributes, timestamp) if magic else head.pack(magic, attributes)
    checked += b"\xff\xff\xff\xff" if key is None else _SIZE.pack(len(key)) + key
    checked += b"\xff\xff\xff\xff" if value is None else _SIZE.pack(len(value))
    crc = zlib.crc32(checked)
    size = len(checked) + 4
    if value is None:
        output.append(_SET_HEAD.pack(offset, size, crc) + checked)
        return
    output.append(_SET_HEAD.pack(offset, size + len(value), zlib.crc32(value, crc)) + checked)
    output.append(value)
