"""Converts the records of a fetch to the message sets of older clients (versions 0-3)."""

from __future__ import annotations

from ottla.broker.fetch_sessions import SessionPartition
from ottla.broker.fetches.results import not_converted
from ottla.broker.fetches.versions import code_for_version
from ottla.env.disk import DiskError, FileSlice
from ottla.net.connection import MadePart
from ottla.records.errors import BatchError, UnsupportedCompressionError
from ottla.storage.down_conversion import DownConversion
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.fetch import PartitionData

#: Most converted bytes of one response kept in memory to be sent; more is converted a second time.
CONVERTED_BYTES = 1024 * 1024


class PartitionConversion:
    """The conversion of one partition's range to a message set."""

    __slots__ = ("_conversion", "_data", "_error", "slice", "wanted")

    def __init__(self, wanted: SessionPartition, data: PartitionData, magic: int) -> None:
        self.wanted = wanted
        self.slice: FileSlice = data.records
        self._data = data
        self._error = ErrorCode.NONE
        self._conversion = DownConversion(
            self.slice.file, self.slice.position, self.slice.length, magic, wanted.fetch_offset
        )

    def prepare(self, keep_bytes: int) -> int:
        """Compute the size of the message set, in a thread; return the number of its bytes kept in memory."""
        try:
            return self._conversion.prepare(keep_bytes)
        except UnsupportedCompressionError:
            self._error = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        except BatchError:
            self._error = ErrorCode.CORRUPT_MESSAGE
        except DiskError:
            self._error = ErrorCode.KAFKA_STORAGE_ERROR
        return 0

    def drop(self) -> None:
        """Release the range: there will be no response."""
        if self.slice.release is not None:
            self.slice.release()

    def answer(self, version: int) -> PartitionData:
        """The partition's part of the response."""
        release = self.slice.release
        assert release is not None
        length = self._conversion.left_bytes
        if self._error is not ErrorCode.NONE:
            release()
            return not_converted(self.wanted.index, code_for_version(self._error, version))
        if not length:
            release()
        self._data.records = MadePart(length, self._conversion.next_chunk, release) if length else b""
        return self._data
