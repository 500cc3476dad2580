"""Decoding a batch on the event loop, within bounds.

A few kilobytes of compressed data may expand to millions of records. Where the log has to look into a batch that a
client wrote, that client must not take the memory and the time of all others: what it may cost grows with the bytes
that it sent.
"""

from __future__ import annotations

from typing import Final

from ottla.records.batch import BatchHeader
from ottla.records.compression import Compression
from ottla.records.errors import ExpansionError
from ottla.records.message_set import MessageHeader, decode_message
from ottla.records.record import Record, decode_batch

#: What the records of any batch may expand to, bytes; a large batch may expand to `LARGEST_RATIO` times its size.
ALWAYS_ALLOWED_BYTES: Final = 32 * 1024 * 1024
LARGEST_RATIO: Final = 32
#: Records that any batch may have, ten times what default settings of producers allow; a large one may have as many
#: as it would hold uncompressed.
ALWAYS_ALLOWED_RECORDS: Final = 200_000
SMALL_RECORD_BYTES: Final = 8


def most_bytes(length: int) -> int:
    """What the records of a batch of `length` bytes may expand to."""
    return max(ALWAYS_ALLOWED_BYTES, length * LARGEST_RATIO)


def most_records(length: int) -> int:
    """How many records a batch of `length` bytes may have."""
    return max(ALWAYS_ALLOWED_RECORDS, length // SMALL_RECORD_BYTES)


def decode_bounded(buf: memoryview | bytes, header: BatchHeader) -> list[Record]:
    """The records of a batch as `decode_batch` gives them. Raises BatchError also where it expands beyond measure."""
    most = most_records(header.length)
    # Uncompressed bytes hold what they hold, and a count beyond that is wrong, not large.
    if header.records_count > most and header.compression is not Compression.NONE:
        raise ExpansionError(f"{header.records_count} records in a batch of {header.length} bytes, more than {most}")
    return decode_batch(buf, header, most_bytes(header.length))


def decode_message_bounded(buf: memoryview | bytes, header: MessageHeader) -> list[Record]:
    """The records of a message of format 0 or 1, as `decode_message` gives them, within the same bounds."""
    return decode_message(buf, header, most_bytes(header.length), most_records(header.length))
