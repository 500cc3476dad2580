"""The layout of `.snapshot` files, Kafka's version 1: the last batch of each producer (`ProducerStateManager`).

version (i16) | crc32c of what follows (u32) | number of producers (i32) | producers
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

from ottla.records.crc import crc32c

SNAPSHOT_VERSION: Final = 1

_HEAD: Final = struct.Struct(">hI")
_COUNT: Final = struct.Struct(">i")
_ENTRY: Final = struct.Struct(">qhiqiqiq")
_FIRST_ENTRY_AT: Final = _HEAD.size + _COUNT.size


class SnapshotProblem(ValueError):
    """A damaged snapshot; the message says what is wrong."""


class SnapshotProducer(NamedTuple):
    """A producer in a snapshot; `last_offset` and `transaction_start` are -1 if there is none."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    last_timestamp: int
    coordinator_epoch: int
    transaction_start: int


def encode_snapshot(producers: Iterable[SnapshotProducer]) -> bytes:
    """Encode the file."""
    entries = [_ENTRY.pack(*producer) for producer in producers]
    body = b"".join((_COUNT.pack(len(entries)), *entries))
    return _HEAD.pack(SNAPSHOT_VERSION, crc32c(body)) + body


def decode_snapshot(data: bytes) -> list[SnapshotProducer]:
    """The producers in a file. Raises SnapshotProblem."""
    if len(data) < _FIRST_ENTRY_AT:
        raise SnapshotProblem(f"{len(data)} bytes, the head of a snapshot takes {_FIRST_ENTRY_AT}")
    version, checksum = _HEAD.unpack_from(data)
    if version != SNAPSHOT_VERSION:
        raise SnapshotProblem(f"version {version}, only {SNAPSHOT_VERSION} is known")
    computed = crc32c(memoryview(data)[_HEAD.size :])
    if checksum != computed:
        raise SnapshotProblem(f"wrong checksum: {checksum} in its head, {computed} by its bytes")
    (count,) = _COUNT.unpack_from(data, _HEAD.size)
    if len(data) != _FIRST_ENTRY_AT + count * _ENTRY.size:
        raise SnapshotProblem(f"{count} producers in {len(data)} bytes")
    return [SnapshotProducer(*fields) for fields in _ENTRY.iter_unpack(memoryview(data)[_FIRST_ENTRY_AT:])]
