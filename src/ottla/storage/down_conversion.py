"""Down-conversion: ranges of the log as message sets of formats 0 and 1, for Fetch 0-3 (KIP-31, KIP-32, KIP-283).

As in Apache Kafka (`LazyDownConversionRecords`): the size of the response is fixed before all of it is converted, as
that of the range, or of its first converted batch if that is larger. Converted data beyond that size is cut off; a
shortfall is filled with the head of a message that is too large for the rest, which clients ignore. So only the current
batches are ever in memory.

A conversion is used by one thread at a time. Headers, transaction markers and batch boundaries are lost.
"""

from __future__ import annotations

import struct
from typing import Final

from ottla.env.disk import DiskFile
from ottla.records.batch import (
    BATCH_OVERHEAD,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_AT,
    NO_TIMESTAMP,
    TimestampType,
    parse_batch_header,
)
from ottla.records.compression import Compression
from ottla.records.errors import BatchError, UnsupportedCompressionError
from ottla.records.message_set import encode_messages, parse_message_header
from ottla.storage.bounded import decode_bounded, decode_message_bounded

#: Bytes of the log that are converted at a time; a larger batch is converted whole.
CHUNK_BYTES: Final = 128 * 1024
_HEAD_BYTES: Final = MAGIC_AT + 1
_OVERFLOW_HEAD: Final = struct.Struct(">qi")


def down_convert(data: memoryview, magic: int, first_offset: int) -> bytes:
    """Convert one batch to messages of format `magic`; empty if nothing of it is left.

    Records below `first_offset` are left out unless the batch is compressed. Raises UnsupportedCompressionError for
    zstd, and BatchError where the batch is malformed.
    """
    source_magic = data[MAGIC_AT]
    if source_magic <= magic:
        return bytes(data)
    log_append_time_ms = NO_TIMESTAMP
    if source_magic == MAGIC:
        batch = parse_batch_header(data)
        if batch.is_control:
            return b""
        compression, timestamp_type, timestamp = batch.compression, batch.timestamp_type, batch.max_timestamp
        if compression == Compression.ZSTD:
            raise UnsupportedCompressionError("batches compressed with zstd cannot be converted to older formats")
        records = decode_bounded(data, batch)
    else:
        message = parse_message_header(data)
        compression, timestamp_type, timestamp = message.compression, message.timestamp_type, message.timestamp
        records = decode_message_bounded(data, message)
    if compression == Compression.NONE:
        records = [record for record in records if record.offset >= first_offset]
    if not records:
        return b""
    if timestamp_type == TimestampType.LOG_APPEND_TIME:
        log_append_time_ms = timestamp
    try:
        return encode_messages(
            records,
            magic,
            compression=compression,
            timestamp_type=timestamp_type,
            log_append_time_ms=log_append_time_ms,
        )
    except (ValueError, struct.error) as error:
        # Offsets that do not increase, timestamps beyond 64 bits: clients can write them, since records are not
        # checked.
        raise BatchError(f"the records cannot be written in format {magic}: {error}") from error


class DownConversion:
    """A range of a segment, converted chunk by chunk: call `prepare` once, then `next_chunk` until all is taken."""

    __slots__ = ("_ahead", "_end", "_file", "_first_offset", "_magic", "_position", "left_bytes")

    def __init__(self, file: DiskFile, position: int, length: int, magic: int, first_offset: int) -> None:
        self._file = file
        self._position = position
        self._end = position + length
        self._magic = magic
        self._first_offset = first_offset
        self._ahead = b""
        #: Bytes of the response that have not been taken yet; known after `prepare`.
        self.left_bytes = 0

    def prepare(self, keep_bytes: int) -> int:
        """Fix the size of the response, by converting up to the first batch of which something is left.

        The converted data is kept if it has at most `keep_bytes`, else it is converted again when needed; returns the
        bytes kept. Raises DiskError, and as `down_convert`.
        """
        start = self._position
        length = self._end - start
        self._ahead = self._convert(one_batch=True)
        if self._ahead:
            self.left_bytes = max(length, len(self._ahead))
        else:
            # If whole batches convert to nothing, the client must still see that there was data.
            self.left_bytes = _OVERFLOW_HEAD.size if self._position > start else 0
        if len(self._ahead) > keep_bytes:
            self._position, self._ahead = start, b""
        return len(self._ahead)

    def next_chunk(self) -> bytes:
        """The next bytes of the response, at least one while any are left. Raises DiskError."""
        chunk = self._ahead
        self._ahead = b""
        if not chunk:
            try:
                chunk = self._convert(one_batch=False)
            except BatchError:
                # Return the batches converted so far; the client meets the error when it reads on from there.
                self._position = self._end
        chunk = chunk[: self.left_bytes] if chunk else _overflow(self.left_bytes)
        self.left_bytes -= len(chunk)
        return chunk

    def _convert(self, *, one_batch: bool) -> bytes:
        """Convert the next batches, as many as fit into a chunk; empty at the end of the range."""
        converted: list[bytes] = []
        read = 0
        while True:
            data = self._next_batch(CHUNK_BYTES - read if converted else None)
            if data is None:
                return b"".join(converted)
            try:
                messages = down_convert(data, self._magic, self._first_offset)
            except BatchError:
                if not converted:
                    raise
                self._position -= len(data)
                return b"".join(converted)
            read += len(data)
            if messages:
                converted.append(messages)
                if one_batch:
                    return messages

    def _next_batch(self, most_bytes: int | None) -> memoryview | None:
        """The next whole batch; None if there is none or it has more than `most_bytes`."""
        left = self._end - self._position
        if left < _HEAD_BYTES:
            return None
        data = self._file.pread(min(left, CHUNK_BYTES // 8), self._position)
        if len(data) < _HEAD_BYTES:
            return None
        length = int.from_bytes(data[8:LOG_OVERHEAD], "big", signed=True) + LOG_OVERHEAD
        if length > left or (most_bytes is not None and length > most_bytes):
            return None
        if length < _HEAD_BYTES:
            raise BatchError(f"{self._file.path}: no record batch at position {self._position}")
        if length > len(data):
            data = self._file.pread(length, self._position)
        self._position += length
        return memoryview(data)[:length]


def _overflow(missing: int) -> bytes:
    """The beginning of a message that claims to be larger than the `missing` bytes."""
    size = min(missing, CHUNK_BYTES)
    return (_OVERFLOW_HEAD.pack(-1, max(missing + 1, BATCH_OVERHEAD)) + bytes(max(0, size - 12)))[:size]
