"""Decoding a batch on the event loop, within bounds.

A few kilobytes of compressed data may expand to millions of records. Where the log has to look into a batch that a
client wrote, that client must not take the memory and the time of all others: what it may cost grows with the bytes
that it sent.
"""

from __future__ import annotations

from typing import Final

from ottla.records.batch import BatchHeader
from ottla.records.errors import BatchError
from ottla.records.record import Record, decode_batch

#: What the records of any batch may expand to, bytes; a large batch may expand to `LARGEST_RATIO` times its size.
ALWAYS_ALLOWED_BYTES: Final = 32 * 1024 * 1024
LARGEST_RATIO: Final = 32
#: Records that any batch may have, ten times what default settings of producers allow; a large one may have as many
#: as it would hold uncompressed.
ALWAYS_ALLOWED_RECORDS: Final = 200_000
SMALL_RECORD_BYTES: Final = 8


def decode_bounded(buf: memoryview | bytes, header: BatchHeader) -> list[Record]:
    """The records of a batch as `decode_batch` gives them. Raises BatchError also where it expands beyond measure."""
    most = max(ALWAYS_ALLOWED_RECORDS, header.length // SMALL_RECORD_BYTES)
    if header.records_count > most:
        raise BatchError(f"{header.records_count} records in a batch of {header.length} bytes, more than {most}")
    return decode_batch(buf, header, max(ALWAYS_ALLOWED_BYTES, header.length * LARGEST_RATIO))
