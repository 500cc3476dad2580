"""The last durable transactions of a tree: a small file beside log and snapshot, to notice a loss of either.

`ottla-tree.marker` holds entries `last transaction (i64) | transaction of the snapshot (i64) | crc32c (u32)`; the last
complete one counts. An entry is added after the disk has confirmed the sync, so that it never claims too much, whatever
a power failure leaves; it is not synced itself, and may claim too little then.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.env.disk import DiskError
from ottla.records.crc import crc32c

if TYPE_CHECKING:
    from ottla.env.disk import Disk, DiskFile

MARKER_NAME: Final = "ottla-tree.marker"
#: A longer marker file is rewritten.
MARKER_BYTES: Final = 64 * 1024

_NUMBERS: Final = struct.Struct(">qq")
_CRC: Final = struct.Struct(">I")
_ENTRY_BYTES: Final = _NUMBERS.size + _CRC.size


class Marked(NamedTuple):
    """The last durable transaction in log or snapshot, and that of the snapshot (0: there was none)."""

    zxid: int
    snapshot_zxid: int


def encode_marked(marked: Marked) -> bytes:
    """An entry of the file."""
    numbers = _NUMBERS.pack(*marked)
    return numbers + _CRC.pack(crc32c(numbers))


def decode_marked(content: bytes) -> Marked | None:
    """The last complete entry; None if there is none."""
    for start in range(len(content) - len(content) % _ENTRY_BYTES - _ENTRY_BYTES, -1, -_ENTRY_BYTES):
        numbers = content[start : start + _NUMBERS.size]
        if _CRC.unpack_from(content, start + _NUMBERS.size)[0] == crc32c(numbers):
            return Marked(*_NUMBERS.unpack(numbers))
    return None


class TreeMarker:
    """The marker of one directory. If an entry cannot be written only the check is lost."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._path = f"{directory}/{MARKER_NAME}"
        self._file: DiskFile | None = None
        self._noted: Marked | None = None

    def read(self) -> Marked | None:
        """The file's last entry; None if there is none. Raises DiskError."""
        return decode_marked(self._disk.read_bytes(self._path)) if self._disk.exists(self._path) else None

    def note(self, marked: Marked) -> None:
        """Add an entry for what is durable now."""
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
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None
