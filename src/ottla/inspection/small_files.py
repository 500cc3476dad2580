"""Reads every kind of file but the log itself, in pieces, as Kafka's formats have them."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from ottla.env.file_reader import ReadableFile
from ottla.records.crc import crc32c

#: Files of text (checkpoints, properties) and snapshots are read whole; larger ones are none.
LARGEST_WHOLE_FILE: Final = 256 * 1024 * 1024
_PIECE_ENTRIES: Final = 64 * 1024

OFFSET_ENTRY: Final = struct.Struct(">II")
TIME_ENTRY: Final = struct.Struct(">qI")

_SNAPSHOT_HEAD: Final = struct.Struct(">hI")
_SNAPSHOT_COUNT: Final = struct.Struct(">i")
_SNAPSHOT_ENTRY: Final = struct.Struct(">qhiqiqiq")
SNAPSHOT_VERSION: Final = 1


class TooLarge(ValueError):
    """A file is larger than anything of its kind; the message names it."""


class SnapshotProblem(ValueError):
    """A snapshot is damaged; the message says how."""


class AbortedEntry(NamedTuple):
    """An entry of a transaction index."""

    version: int
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class SnapshotProducer(NamedTuple):
    """A producer in a snapshot; `last_offset` and `transaction_start` are -1 without."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    last_timestamp: int
    coordinator_epoch: int
    transaction_start: int


def read_whole(file: ReadableFile) -> bytes:
    """The content of a small file. Raises TooLarge, DiskError."""
    if file.size > LARGEST_WHOLE_FILE:
        raise TooLarge(f"{file.path}: {file.size} bytes, no file of this kind is larger than {LARGEST_WHOLE_FILE}")
    return file.pread(file.size, 0)


def entries(file: ReadableFile, entry: struct.Struct) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Position and fields of each whole entry of a file that holds nothing else. Raises DiskError."""
    position = 0
    while position + entry.size <= file.size:
        piece = file.pread(min(_PIECE_ENTRIES * entry.size, file.size - position), position)
        piece = piece[: len(piece) - len(piece) % entry.size]
        if not piece:
            return
        for fields in entry.iter_unpack(piece):
            yield position, fields
            position += entry.size


def first_of_zero_tail(file: ReadableFile, entry_size: int) -> int:
    """How many entries come before those at the end that are nothing but zeros. Raises DiskError."""
    end = file.size - file.size % entry_size
    while end > 0:
        start = max(0, end - _PIECE_ENTRIES * entry_size)
        kept = len(file.pread(end - start, start).rstrip(b"\x00"))
        if kept:
            return (start + kept + entry_size - 1) // entry_size
        end = start
    return 0


def read_snapshot(data: bytes) -> tuple[int, list[SnapshotProducer]]:
    """Version and producers of a snapshot file. Raises SnapshotProblem."""
    head = _SNAPSHOT_HEAD.size + _SNAPSHOT_COUNT.size
    if len(data) < head:
        raise SnapshotProblem(f"{len(data)} bytes, the head of a snapshot takes {head}")
    version, checksum = _SNAPSHOT_HEAD.unpack_from(data)
    if version != SNAPSHOT_VERSION:
        raise SnapshotProblem(f"version {version}, only {SNAPSHOT_VERSION} is known")
    computed = crc32c(memoryview(data)[_SNAPSHOT_HEAD.size :])
    if checksum != computed:
        raise SnapshotProblem(f"wrong checksum: {checksum} in its head, {computed} by its bytes")
    (count,) = _SNAPSHOT_COUNT.unpack_from(data, _SNAPSHOT_HEAD.size)
    if len(data) != head + count * _SNAPSHOT_ENTRY.size:
        raise SnapshotProblem(f"{count} producers in {len(data)} bytes")
    return version, [SnapshotProducer(*each) for each in _SNAPSHOT_ENTRY.iter_unpack(memoryview(data)[head:])]
