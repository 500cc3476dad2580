"""Errors of malformed records and batches."""

from __future__ import annotations


class BatchError(ValueError):
    """The bytes are not a well-formed record batch; the message says what is wrong with them.

    Kafka's name for it on the wire is CORRUPT_MESSAGE, or INVALID_RECORD where the records inside are meant.
    """


class UnsupportedMagicError(BatchError):
    """The batch has a record format other than 2; `magic` says which."""

    def __init__(self, magic: int) -> None:
        super().__init__(f"record format (magic) {magic} is not supported, only 2 is")
        self.magic = magic


class CorruptMessageError(BatchError):
    """A message of format 0 or 1 is damaged: its size cannot be, or its checksum is wrong."""


class UnsupportedCompressionError(BatchError):
    """The record format does not allow this compression (zstd before format 2)."""


class MissingLibraryError(BatchError):
    """The compression library cannot be imported; the bytes themselves are not at fault."""


class TimestampRangeError(ValueError):
    """The timestamp of the record at `offset`, in milliseconds, is one that Arrow's microseconds cannot hold.

    The batch itself is well-formed.
    """

    def __init__(self, offset: int, timestamp: int) -> None:
        super().__init__(f"the record at offset {offset} has the timestamp {timestamp}, which is beyond Arrow's range")
        self.offset = offset
        self.timestamp = timestamp


class ExpansionError(BatchError):
    """Compressed records would exceed the reader's limit; they are not known to be damaged."""
