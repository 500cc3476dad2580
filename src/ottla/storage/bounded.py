"""Decoding a batch on the event loop, within limits.

A few kilobytes of compressed data may expand to millions of records. Where the log has to decode a batch that a client
wrote, that client must not use up the memory and time of all others: the limits grow with the number of bytes sent.
"""

from __future__ import annotations

from typing import Final

from ottla.records.batch import BatchHeader
from ottla.records.compression import Compression
from ottla.records.errors import ExpansionError
from ottla.records.message_set import MessageHeader, decode_message
from ottla.records.record import Record, decode_batch

#: Expanded size that any batch may have, in bytes; a large batch may expand to `LARGEST_RATIO` times its size.
ALWAYS_ALLOWED_BYTES: Final = 32 * 1024 * 1024
LARGEST_RATIO: Final = 32
#: Records that any batch may have, ten times what producers' default settings allow; a large batch may have as many as
#: it could hold uncompressed.
ALWAYS_ALLOWED_RECORDS: Final = 200_000
SMALL_RECORD_BYTES: Final = 8


def most_bytes(length: int) -> int:
    """The limit on the expanded size of a batch of `length` bytes."""
    return max(ALWAYS_ALLOWED_BYTES, length * LARGEST_RATIO)


def most_records(length: int) -> int:
    """The limit on the number of records in a batch of `length` bytes."""
    return max(ALWAYS_ALLOWED_RECORDS, length // SMALL_RECORD_BYTES)


def decode_bounded(buf: memoryview | bytes, header: BatchHeader) -> list[Record]:
    """The records of a batch, as `decode_batch` returns them. Raises BatchError also where a limit is exceeded."""
    most = most_records(header.length)
    # The size of an uncompressed batch limits its record count; a count beyond that is wrong, not large.
    if header.records_count > most and header.compression is not Compression.NONE:
        raise ExpansionError(f"{header.records_count} records in a batch of {header.length} bytes, more than {most}")
    return decode_batch(buf, header, most_bytes(header.length))


def decode_message_bounded(buf: memoryview | bytes, header: MessageHeader) -> list[Record]:
    """The records of a message of format 0 or 1, as `decode_message` returns them, within the same limits."""
    return decode_message(buf, header, most_bytes(header.length), most_records(header.length))
