"""Iterates over the batches of a log file and, unlike a broker, continues behind damaged ranges.

Batches of all formats are read. Behind a damaged one, the next intact one is searched for: at the end given by the
damaged one's length field, else byte by byte. For a damaged range it is checked whether only the header fields outside
the checksum (length, format) are wrong: then nothing is lost, and their correct values are known.

Memory: a window of `WINDOW_BYTES`, or one batch if that is larger; the checksum of a batch above `WHOLE_BYTES` is
computed incrementally before any of it is kept, so that a damaged length costs nothing. Time: the search computes
checksums over at most `SEARCH_RATIO` times the size of the file.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from fastcrc.crc32 import iscsi

from ottla.env.file_reader import ReadableFile
from ottla.records.batch import (
    ATTRIBUTES_AT,
    BATCH_HEAD,
    BATCH_OVERHEAD,
    CRC_AT,
    LENGTH_AT,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_AT,
    BatchHeader,
)
from ottla.records.message_set import MAGIC_1, MESSAGE_HEAD, SMALLEST_SIZE, MessageHeader

WINDOW_BYTES: Final = 1024 * 1024
#: Batches up to this size are read in one piece.
WHOLE_BYTES: Final = 16 * 1024 * 1024
SEARCH_RATIO: Final = 8
SEARCH_ALLOWANCE_BYTES: Final = 64 * 1024 * 1024

_HEAD: Final = struct.Struct(">qi4xb")
_TIMESTAMP: Final = struct.Struct(">q")
_LENGTH: Final = struct.Struct(">i")
_CRC: Final = struct.Struct(">I")
_MESSAGE_CRC_AT: Final = 12
_MESSAGE_CHECKED_AT: Final = 16
#: Size of the smallest batch or message, by magic.
SMALLEST: Final = (*(LOG_OVERHEAD + size for size in SMALLEST_SIZE), BATCH_OVERHEAD)
#: Possible start of a batch: an offset below 2^56, a length from 14 to 2^31 - 1, any four bytes, a known format.
_BEGINNING: Final = re.compile(rb"(?=\x00.{7}(?!\x00\x00\x00[\x00-\x0d])[\x00-\x7f].{3}.{4}[\x00-\x02])", re.DOTALL)
_BEGINNING_BYTES: Final = MAGIC_AT + 1


@dataclass(slots=True)
class LogBatch:
    """A complete batch (or message of an old format) with a correct checksum.

    `data` is the whole batch, None if it is larger than `WHOLE_BYTES`. For a wrapper message of an old format
    `base_offset` is also its last offset: the others are known only after decompression.
    """

    position: int
    length: int
    header: BatchHeader | MessageHeader
    data: memoryview | None

    @property
    def magic(self) -> int:
        """The format, 0 to 2."""
        return self.header.magic

    @property
    def base_offset(self) -> int:
        """Its first offset."""
        return self.header.base_offset if isinstance(self.header, BatchHeader) else self.header.offset

    @property
    def last_offset(self) -> int:
        """Its last offset."""
        return self.header.last_offset if isinstance(self.header, BatchHeader) else self.header.offset

    @property
    def max_timestamp(self) -> int:
        """Its largest timestamp, -1 if it has none."""
        return self.header.max_timestamp if isinstance(self.header, BatchHeader) else self.header.timestamp

    @property
    def leader_epoch(self) -> int:
        """The leader epoch, -1 in old formats."""
        return self.header.partition_leader_epoch if isinstance(self.header, BatchHeader) else -1


class Patch(NamedTuple):
    """The correct bytes at a position of a file."""

    position: int
    data: bytes


@dataclass(slots=True)
class DamagedRange:
    """Bytes that are not an intact batch. `header` is what its beginning claims, None if nothing in it is plausible.

    `patches` are the bytes that repair it, if they are certain. `zeros` says that all bytes are zero, `cut_off` that
    the file ends within what looks like a batch.
    """

    position: int
    length: int
    reason: str
    header: BatchHeader | MessageHeader | None = None
    patches: list[Patch] = field(default_factory=list)
    zeros: bool = False
    cut_off: bool = False


class _Fault(NamedTuple):
    reason: str
    header: BatchHeader | MessageHeader | None = None
    #: Whether its length is plausible.
    plausible: bool = False
    cut_off: bool = False


class LogWalker:
    """Iterates over one log file from `position` to `end` (by default the file's end when it was opened)."""

    def __init__(self, file: ReadableFile, position: int = 0, end: int | None = None) -> None:
        self._file = file
        self._position = position
        self.end = file.size if end is None else end
        self._window = b""
        self._window_at = 0
        self._search_left = SEARCH_RATIO * self.end + SEARCH_ALLOWANCE_BYTES
        #: The smaller of the last offsets of the two batches before, since one of them may be damaged; -1 at first.
        self._last_offset = -1
        self._previous = -1

    def __iter__(self) -> Iterator[LogBatch | DamagedRange]:
        """Intact batches and damaged ranges in order; together they cover the file. Raises DiskError."""
        position = self._position
        while position < self.end:
            found = self._read(position)
            if isinstance(found, LogBatch):
                self._last_offset = min(self._previous, found.last_offset)
                self._previous = found.last_offset
                yield found
                position += found.length
                continue
            following = self._next_intact(position, found)
            yield self._damaged(position, following, found)
            position = following

    # -- one batch

    def _bytes(self, position: int, length: int) -> memoryview:
        """The bytes there, fewer only at the end of the file; from the window if it contains them."""
        at = position - self._window_at
        if at < 0 or at + length > len(self._window):
            wanted = max(length, min(WINDOW_BYTES, self.end - position))
            self._window, self._window_at, at = self._file.pread(wanted, position), position, 0
        return memoryview(self._window)[at : at + length]

    def _header(self, position: int) -> BatchHeader | MessageHeader | _Fault:
        """The header that begins there, as far as it is valid."""
        left = self.end - position
        head = self._bytes(position, min(BATCH_OVERHEAD, left))
        if len(head) < SMALLEST[0]:
            return _Fault(f"{left} bytes at the end are too few for a batch", cut_off=True)
        offset, size, magic = _HEAD.unpack_from(head)
        if not 0 <= magic <= MAGIC:
            return _Fault(f"no batch: its format would be {magic}")
        length = size + LOG_OVERHEAD
        if length < SMALLEST[magic]:
            return _Fault(f"no batch: its length would be {length}, and {SMALLEST[magic]} is the least")
        if len(head) < SMALLEST[magic]:
            return _Fault(f"the file ends within the head of a batch, after {len(head)} bytes of it", cut_off=True)
        header: BatchHeader | MessageHeader
        if magic == MAGIC:
            header = BatchHeader(*(*BATCH_HEAD.unpack_from(head), position))
            header.length = length
        else:
            _, _, crc, _, attributes = MESSAGE_HEAD.unpack_from(head)
            timestamp = _TIMESTAMP.unpack_from(head, 18)[0] if magic == MAGIC_1 else -1
            header = MessageHeader(offset, length, crc, magic, attributes & 0xFF, timestamp, position)
        if length > left:
            reason = f"the file ends within a batch: it says {length} bytes, there are {left}"
            return _Fault(reason, header, cut_off=_plausible(header, self._last_offset))
        return header

    def _read(self, position: int) -> LogBatch | _Fault:
        header = self._header(position)
        if isinstance(header, _Fault):
            return header
        length = header.length
        plausible = _plausible(header, self._last_offset)
        data = self._bytes(position, length) if length <= WHOLE_BYTES else None
        checksum = self._checksum(position, header, data)
        if checksum != header.crc:
            return _Fault(f"wrong checksum: {header.crc} in its head, {checksum} by its bytes", header, plausible)
        if isinstance(header, BatchHeader) and (header.last_offset_delta < 0 or header.records_count < 0):
            return _Fault("no batch: the number of its offsets or records is negative", header, plausible)
        return LogBatch(position, length, header, data)

    def _checksum(self, position: int, header: BatchHeader | MessageHeader, data: memoryview | None) -> int:
        checked_at = ATTRIBUTES_AT if isinstance(header, BatchHeader) else _MESSAGE_CHECKED_AT
        if data is not None:
            return iscsi(data[checked_at:]) if isinstance(header, BatchHeader) else zlib.crc32(data[checked_at:])
        checksum = 0
        at, stop = position + checked_at, position + header.length
        while at < stop:
            piece = self._file.pread(min(WINDOW_BYTES, stop - at), at)
            if not piece:
                break
            checksum = iscsi(piece, checksum) if isinstance(header, BatchHeader) else zlib.crc32(piece, checksum)
            at += len(piece)
        return checksum

    def whole(self, batch: LogBatch) -> memoryview:
        """All bytes of a batch that was read. Raises DiskError."""
        return batch.data if batch.data is not None else memoryview(self._file.pread(batch.length, batch.position))

    # -- behind a damaged range

    def _next_intact(self, position: int, fault: _Fault) -> int:
        """Find the next plausible batch's position, else the end."""
        if fault.header is not None:
            claimed = position + fault.header.length
            begins = claimed < self.end and (self._is_intact(claimed) or (fault.plausible and self._may_begin(claimed)))
            if begins or (claimed == self.end and fault.plausible):
                return self._skipped(position + 1, claimed) if fault.header.length <= WHOLE_BYTES else claimed
        return self._search(position + 1, self.end)

    def _may_begin(self, position: int) -> bool:
        header = self._header(position)
        return not isinstance(header, _Fault) and _plausible(header, self._last_offset)

    def _skipped(self, position: int, end: int) -> int:
        """Find the position of the first intact batch that a wrong length skipped, else `end`.

        Intact batches follow each other at least up to `end`; those within a record end before it.
        """
        found = self._search(position, end)
        at = found
        while at < end and self._is_intact(at):
            header = self._header(at)
            assert not isinstance(header, _Fault), "it is intact"
            at += header.length
        return found if at >= end else end

    def _search(self, position: int, end: int) -> int:
        """Find the position of the first intact batch from `position` on; `end` if there is none before."""
        while position < end:
            window = self._file.pread(min(WINDOW_BYTES, self.end - position), position)
            if len(window) < _BEGINNING_BYTES:
                break
            if window.count(0) != len(window):
                for match in _BEGINNING.finditer(window):
                    if position + match.start() >= end:
                        return end
                    if self._is_intact(position + match.start()):
                        return position + match.start()
                    if self._search_left <= 0:
                        return end
            if position + len(window) >= self.end:
                break
            position += len(window) - _BEGINNING_BYTES + 1
        return end

    def _is_intact(self, position: int) -> bool:
        header = self._header(position)
        if isinstance(header, _Fault) or not _plausible(header, -1):
            return False
        self._search_left -= header.length
        data = self._file.pread(header.length, position) if header.length <= WHOLE_BYTES else None
        return self._checksum(position, header, None if data is None else memoryview(data)) == header.crc

    def _damaged(self, position: int, following: int, fault: _Fault) -> DamagedRange:
        length = following - position
        zeros = following == self.end and self._only_zeros(position)
        reason = "nothing but zeros to the end of the file" if zeros else fault.reason
        header = None if zeros else fault.header
        damaged = DamagedRange(position, length, reason, header, [], zeros, fault.cut_off and following == self.end)
        if not zeros and BATCH_OVERHEAD <= length <= WHOLE_BYTES:
            damaged.patches = _patches_for(self._file.pread(length, position), position)
        return damaged

    def _only_zeros(self, position: int) -> bool:
        while position < self.end:
            piece = self._file.pread(min(WINDOW_BYTES, self.end - position), position)
            if not piece or piece.count(0) != len(piece):
                return not piece
            position += len(piece)
        return True


def _plausible(header: BatchHeader | MessageHeader, last_offset: int) -> bool:
    """Whether a header is plausible for a batch behind `last_offset`."""
    if isinstance(header, BatchHeader):
        return header.base_offset > last_offset and header.last_offset_delta >= 0 and header.records_count >= 0
    return header.offset > last_offset


def _patches_for(data: bytes, position: int) -> list[Patch]:
    """The patches that make `data` an intact batch, if only length and format in its header are wrong; else none."""
    view = memoryview(data)
    length = _LENGTH.pack(len(data) - LOG_OVERHEAD)
    patches: list[Patch] = []
    if iscsi(view[ATTRIBUTES_AT:]) == _CRC.unpack_from(data, CRC_AT)[0]:
        if data[MAGIC_AT] != MAGIC:
            patches.append(Patch(position + MAGIC_AT, bytes((MAGIC,))))
    elif zlib.crc32(view[_MESSAGE_CHECKED_AT:]) != _CRC.unpack_from(data, _MESSAGE_CRC_AT)[0]:
        return []
    if data[LENGTH_AT : LENGTH_AT + len(length)] != length:
        patches.append(Patch(position + LENGTH_AT, length))
    return patches
