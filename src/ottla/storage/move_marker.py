"""The file that says which of two directories of one partition is the newer one.

A log that moves to another log directory takes its name there before the former one loses it. A broker that is killed
in between leaves two directories of that name: the one with the highest number in this file has everything. It stays
as long as the former directory may come back, since its log directory is out of service.
"""

from __future__ import annotations

from typing import Final

from ottla.env.disk import Disk
from ottla.storage.checkpoints import CheckpointError, decode_entries, encode_entries

MOVED_FILE: Final = "ottla-moved"
#: The number of a directory that was never moved to.
NEVER_MOVED: Final = 0


def read_moves(disk: Disk, directory: str) -> int:
    """How often the log had been moved when it came to this directory; a damaged file counts as once.

    Raises DiskError.
    """
    path = f"{directory}/{MOVED_FILE}"
    if not disk.exists(path):
        return NEVER_MOVED
    try:
        entries = decode_entries(disk.read_bytes(path), path)
        return int(entries[0]) if entries else NEVER_MOVED + 1
    except (CheckpointError, ValueError):
        return NEVER_MOVED + 1


def write_moves(disk: Disk, directory: str, number: int) -> None:
    """Write it, synced. Raises DiskError."""
    disk.write_atomic(f"{directory}/{MOVED_FILE}", encode_entries([str(number)]))


def forget_moves(disk: Disk, directory: str) -> None:
    """Remove it, synced: no other directory of this partition can come back. Raises DiskError."""
    disk.remove(f"{directory}/{MOVED_FILE}")
    # Were it there again after a loss of power, the next move's number would not be higher.
    disk.fsync_dir(directory)
