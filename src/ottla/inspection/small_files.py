"""Readers for every kind of file except the log itself, incremental, in Kafka's formats."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from ottla.env.file_reader import ReadableFile

#: Text files (checkpoints, properties) and snapshots are read whole; larger files are invalid.
LARGEST_WHOLE_FILE: Final = 256 * 1024 * 1024
_PIECE_ENTRIES: Final = 64 * 1024


class TooLarge(ValueError):
    """A file is larger than any valid one of its kind; the message names it."""


class AbortedEntry(NamedTuple):
    """An entry of a transaction index."""

    version: int
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def read_whole(file: ReadableFile) -> bytes:
    """The content of a small file. Raises TooLarge, DiskError."""
    if file.size > LARGEST_WHOLE_FILE:
        raise TooLarge(f"{file.path}: {file.size} bytes, no file of this kind is larger than {LARGEST_WHOLE_FILE}")
    return file.pread(file.size, 0)


def entries(file: ReadableFile, entry: struct.Struct) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Position and fields of each complete entry of a file of fixed-size entries. Raises DiskError."""
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
    """The number of entries before the trailing ones that are all zeros. Raises DiskError."""
    end = file.size - file.size % entry_size
    while end > 0:
        start = max(0, end - _PIECE_ENTRIES * entry_size)
        length = len(file.pread(end - start, start).rstrip(b"\x00"))
        if length:
            return (start + length + entry_size - 1) // entry_size
        end = start
    return 0
