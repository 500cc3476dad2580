"""How far the tree on disk came: a small file beside its log and its snapshot, so that a loss of either is noticed.

`ottla-tree.marker` holds entries `last transaction (i64) | transaction of the snapshot (i64) | crc32c (u32)`; the last
whole one counts. An entry is added when the disk has confirmed what it speaks of, so that it never promises too much,
whatever a loss of power leaves; it is not forced itself, and may promise too little then.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.env.disk import DiskError
from ottla.records.crc import crc32c

if TYPE_CHECKING:
    from ottla.env.disk import Disk, DiskFile

MARKER_NAME: Final = "ottla-tree.marker"
#: A longer marker is begun anew.
MARKER_BYTES: Final = 64 * 1024

_NUMBERS: Final = struct.Struct(">qq")
_CRC: Final = struct.Struct(">I")
_ENTRY_BYTES: Final = _NUMBERS.size + _CRC.size


class Marked(NamedTuple):
    """What was on the disk: the last transaction in log or snapshot, and that of the snapshot (0: there was none)."""

    zxid: int
    snapshot_zxid: int


def encode_marked(marked: Marked) -> bytes:
    """An entry of the file."""
    numbers = _NUMBERS.pack(*marked)
    return numbers + _CRC.pack(crc32c(numbers))


def decode_marked(content: bytes) -> Marked | None:
    """The last whole entry; None where there is none."""
    for start in range(len(content) - len(content) % _ENTRY_BYTES - _ENTRY_BYTES, -1, -_ENTRY_BYTES):
        numbers = content[start : start + _NUMBERS.size]
        if _CRC.unpack_from(content, start + _NUMBERS.size)[0] == crc32c(numbers):
            return Marked(*_NUMBERS.unpack(numbers))
    return None


class TreeMarker:
    """The marker of one folder. A disk that does not take an entry costs the check, nothing else."""

    def __init__(self, disk: Disk, folder: str) -> None:
        self._disk = disk
        self._path = f"{folder}/{MARKER_NAME}"
        self._file: DiskFile | None = None
        self._noted: Marked | None = None

    def read(self) -> Marked | None:
        """What the file says; None where it says nothing. Raises DiskError."""
        return decode_marked(self._disk.read_bytes(self._path)) if self._disk.exists(self._path) else None

    def note(self, marked: Marked) -> None:
        """So much is on the disk now."""
        if marked == self._noted:
            return
        self._noted = marked
        entry = encode_marked(marked)
        try:
            if self._file is None or self._file.damaged or self._file.size >= MARKER_BYTES:
                self.close()
                self._disk.write_atomic(self._path, entry, sync=False)
                self._file = self._disk.open(self._path)
            else:
                self._file.append([entry])
        except DiskError:
            self.close()

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            self._file.close()
            self._file = None
